"""A real Slurm of one node on this machine, in directories of its own: munge, MariaDB, slurmdbd, slurmctld and slurmd.

GPUs are character devices that no driver serves, so gres, cgroup constraints and accounting are Slurm's own; nothing
is mocked. It needs root, cgroup v1 with the devices controller (or v2 without systemd), and the packages slurm-wlm,
slurmdbd, mariadb-server and munge.

    python tests/slurm/harness.py start DIRECTORY [--without-accounting]    # prints the variables to export
    python tests/slurm/harness.py stop DIRECTORY
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import slurm_files
from machine import alive, answers, free_ports, terminate, unused_major
from slurm_files import CGROUPS, GPU_TYPES, V2

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo", "srun")
ACCOUNTING_PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "sacct", "sacctmgr")
SYSTEMD = Path("/run/systemd/system")
STATE = "state.json"
_UP = {"idle", "mixed", "allocated", "completing"}


class HarnessError(RuntimeError):
    """Slurm cannot run here, or one of its daemons did not start; the message has the log's end."""


class SlurmCluster:
    """One node, one partition, by default one GPU of each type.

    Parameters
    ----------
    root : Path
        Folder for configuration, logs, state and database; short, since it holds a socket.
    accounting : bool
        Whether slurmdbd and its database run.
    gpus : sequence of str
        The type of each GPU.
    device_numbers : sequence of (int, int), optional
        Major and minor of the GPUs' device nodes; by default ones that no driver serves.
    settings : str
        Further lines of slurm.conf.
    """

    def __init__(
        self,
        root: Path,
        *,
        accounting: bool = True,
        gpus: Sequence[str] = GPU_TYPES,
        device_numbers: Sequence[tuple[int, int]] | None = None,
        settings: str = "",
    ) -> None:
        self.root = root
        self.node = f"node-{zlib.crc32(str(root).encode()):08x}"  # of its own: Slurm's cgroups are named after it
        # of its own too: clusters may run beside each other
        self.device_pattern = f"/dev/simgpu-{self.node.removeprefix('node-')}-{{minor}}"
        self.accounting = accounting
        self._gpus = gpus
        self._device_numbers = device_numbers
        self._settings = settings
        self.processes: dict[str, int] = {}
        self._ports: dict[str, int] = {}
        self.devices: list[Path] = []
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        """What a client of this Slurm needs beside its own environment."""
        programs = self.root / "bin"
        return {"SLURM_CONF": str(slurm_files.path(self.root)), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start all daemons and wait until the node is idle.

        Raises
        ------
        HarnessError
            If this machine cannot run Slurm, or a daemon does not come up.
        """
        self._check_machine()
        for folder in ("", "bin", "log", "state", "spool", "run"):
            (self.root / folder).mkdir(mode=0o755, parents=True, exist_ok=True)
        slurm_files.write_programs(self.root)
        self._make_devices()
        self._start_munge()
        self._ports = ports = dict(zip(("slurmctld", "slurmd", "slurmdbd", "database"), free_ports(4), strict=True))
        slurm_files.write(
            self.root, self.node, ports, dict(zip(self.devices, self._gpus, strict=True)),
            accounting=self.accounting, settings=self._settings,
        )  # fmt: skip
        if self.accounting:
            self._start_accounting(ports)
        self.start_slurmctld("-c")
        self.start_slurmd()
        self._save()

    def start_slurmctld(self, *options: str, within: Sequence[str] = ()) -> None:
        """Start the controller, by a command that runs it, and wait until it answers; with `-c` it forgets its jobs."""
        self._run("slurmctld", *within, "slurmctld", "-D", *options)
        self._wait("slurmctld", lambda: self.command("scontrol", "ping").returncode == 0)

    def stop_slurmctld(self) -> None:
        """Stop the controller; jobs run on."""
        terminate(self.processes.pop("slurmctld"))

    def restart(self, *, configless: bool = False) -> None:
        """Stop node and controller and start them with what the files say now; no job may run."""
        self.stop_slurmd()
        self.stop_slurmctld()
        self.start_slurmctld("-c")
        self.start_slurmd(configless=configless)

    def start_slurmd(self, *, configless: bool = False) -> None:
        """Start the node's daemon and wait until the node is up.

        Parameters
        ----------
        configless
            Whether it asks the controller for its configuration in place of reading it.
        """
        source = ["--conf-server", f"localhost:{self._ports['slurmctld']}"] if configless else []
        within = self._with_default_munge() if configless else []
        self._run("slurmd", *within, "slurmd", "-D", "-N", self.node, *source, with_files=not configless)
        self._wait("slurmd", lambda: self.command("sinfo", "-h", "-o", "%T").stdout.strip() in _UP)

    def _with_default_munge(self) -> list[str]:
        """Command that runs another one where the default munged is this cluster's, whoever else's the machine has.

        A slurmd that has no files yet knows of no other socket. It gets a view of its own of the file system.
        """
        folder = self.root / "default-munge"
        if not folder.exists():
            folder.mkdir(mode=0o755)
            (folder / slurm_files.DEFAULT_MUNGE.name).symlink_to(slurm_files.munge_socket(self.root))
        place = slurm_files.DEFAULT_MUNGE.parent
        place.mkdir(exist_ok=True)
        return ["unshare", "--mount", "sh", "-c", f'mount --bind "$0" {place} && exec "$@"', str(folder)]

    def stop_slurmd(self) -> None:
        """Stop the node's daemon, as when the node goes down; its jobs' processes live on."""
        terminate(self.processes.pop("slurmd"))

    def reboot(self) -> None:
        """Lose the node and every process on it, as in a power cut; Slurm has it down and then up again."""
        os.kill(self.processes.pop("slurmd"), signal.SIGKILL)
        for process in self.on_node():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.command("scontrol", "update", f"nodename={self.node}", "state=down", "reason=reboot")
        time.sleep(1)
        self.command("scontrol", "update", f"nodename={self.node}", "state=resume")
        self.start_slurmd()

    def on_node(self) -> Iterator[psutil.Process]:
        """Processes in the cgroups of this node's jobs, Slurm's own included."""
        groups = f"system.slice/{self.node}_slurmstepd.scope/job_*" if V2 else f"freezer/slurm_{self.node}/uid_*/job_*"
        for group in CGROUPS.glob(f"{groups}/**/cgroup.procs"):
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                yield from map(psutil.Process, map(int, group.read_text().split()))

    def stop(self) -> None:
        """Stop what was started, last one first, and remove devices and cgroups."""
        if "slurmctld" in self.processes:
            self.command("scancel", "--user=root")
        for pid in reversed(list(self.processes.values())):
            terminate(pid)
        self.processes.clear()
        for child in self._children:
            child.wait()
        self._children.clear()
        for device in self.devices:
            device.unlink(missing_ok=True)
        self.devices.clear()
        mine = f"system.slice/{self.node}_slurmstepd.scope" if V2 else f"*/slurm_{self.node}"
        for group in sorted(CGROUPS.glob(f"{mine}/**/"), key=lambda path: len(path.parts), reverse=True):
            group.rmdir()
        (self.root / STATE).unlink(missing_ok=True)

    @classmethod
    def running_in(cls, root: Path) -> Self:
        """The cluster that an earlier process started in `root`."""
        state = json.loads((root / STATE).read_text(encoding="utf-8"))
        cluster = cls(root, accounting=state["accounting"])
        cluster.processes = state["processes"]
        cluster.devices = [Path(device) for device in state["devices"]]
        return cluster

    def command(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a client command of this Slurm."""
        return subprocess.run(
            arguments,
            env={**os.environ, **self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def told(self) -> str:
        """What nodes, jobs and the ends of the logs tell, for whoever looks for the cause of a failure."""
        asked = ("sinfo", "-N", "-l"), ("sinfo", "-R"), ("squeue", "-l")
        answers = [f"$ {' '.join(one)}\n{self.command('timeout', '30', *one).stdout}" for one in asked]
        logs = sorted((self.root / "log").glob("slurm*.out"))
        return "\n".join(answers + [f"{log}:\n{log.read_text(errors='replace')[-3000:]}" for log in logs])

    def _check_machine(self) -> None:
        needed = (*PROGRAMS, *(ACCOUNTING_PROGRAMS if self.accounting else ()))
        missing = [name for name in needed if shutil.which(name) is None]
        if missing:
            raise HarnessError(f"{', '.join(missing)} missing: apt-get install slurm-wlm slurmdbd mariadb-server munge")
        if os.geteuid() != 0:
            raise HarnessError("Slurm's daemons, device nodes and cgroups need root")
        if V2 and SYSTEMD.exists():
            raise HarnessError("cgroup v2 is systemd's here: tests/slurm/v2/machine.py runs a machine without it")
        if not V2 and not (CGROUPS / "devices" / "tasks").exists():
            raise HarnessError(f"{CGROUPS}/devices is not mounted: cgroup v1 with the devices controller is needed")

    def _make_devices(self) -> None:
        numbers = self._device_numbers or [(unused_major(), minor) for minor in range(len(self._gpus))]
        for major, minor in numbers:
            device = Path(self.device_pattern.format(minor=minor))
            device.unlink(missing_ok=True)
            os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
            device.chmod(0o666)  # whatever the umask: only the cgroup shall hide it
            self.devices.append(device)

    def _start_munge(self) -> None:
        key = self.root / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        self._run(
            "munged", "munged", "--foreground", f"--socket={slurm_files.munge_socket(self.root)}", f"--key-file={key}",
            f"--log-file={self.root}/log/munged.log", f"--pid-file={self.root}/run/munged.pid",
            f"--seed-file={self.root}/run/munged.seed",
        )  # fmt: skip
        self._wait("munged", slurm_files.munge_socket(self.root).exists)

    def _start_accounting(self, ports: Mapping[str, int]) -> None:
        # tables of its own: as it starts, MariaDB removes all temporary ones in /tmp, those of another cluster too
        folders = f"--datadir={self.root / 'database'}", f"--tmpdir={self.root / 'run'}"
        installed = subprocess.run(
            ["mariadb-install-db", "--no-defaults", *folders, "--user=root", "--skip-test-db"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if installed.returncode:
            raise HarnessError(f"mariadb-install-db failed:\n{installed.stdout}{installed.stderr}")
        self._run(
            "mariadbd", "mariadbd", "--no-defaults", *folders, "--user=root", f"--port={ports['database']}",
            "--bind-address=127.0.0.1", f"--socket={self.root}/run/mariadb.sock",
            f"--pid-file={self.root}/run/mariadb.pid", f"--init-file={self.root}/database.sql",
        )  # fmt: skip
        self._wait("mariadbd", lambda: answers("127.0.0.1", ports["database"]))
        self._run("slurmdbd", "slurmdbd", "-D")
        self._wait("slurmdbd", lambda: self.command("sacctmgr", "-n", "list", "cluster").returncode == 0)
        added = self.command("sacctmgr", "-i", "add", "cluster", "test")
        if added.returncode:
            raise HarnessError(f"sacctmgr add cluster failed:\n{added.stdout}{added.stderr}")

    def _run(self, name: str, *arguments: str, with_files: bool = True) -> None:
        environment = {**os.environ, **self.environment}
        if not with_files:
            del environment["SLURM_CONF"]
        with (self.root / "log" / f"{name}.out").open("w") as log:
            process = subprocess.Popen(
                arguments, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._children.append(process)
        self.processes[name] = process.pid

    def _wait(self, name: str, ready: Callable[[], bool], timeout_s: float = 300) -> None:
        deadline = time.monotonic() + timeout_s
        while not ready():
            if time.monotonic() > deadline or not alive(self.processes[name]):
                log = (self.root / "log" / f"{name}.out").read_text(errors="replace")
                raise HarnessError(f"{name} did not come up:\n{log[-3000:]}")
            time.sleep(0.1)

    def _save(self) -> None:
        state = {
            "accounting": self.accounting,
            "processes": self.processes,
            "devices": [str(path) for path in self.devices],
        }
        (self.root / STATE).write_text(json.dumps(state), encoding="utf-8")


def main() -> None:
    """Start or stop a cluster from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["start", "stop"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--without-accounting", action="store_true")
    arguments = parser.parse_args()
    root = arguments.directory.resolve()
    if arguments.action == "stop":
        SlurmCluster.running_in(root).stop()
        return
    cluster = SlurmCluster(root, accounting=not arguments.without_accounting)
    try:
        cluster.start()
    except BaseException:
        cluster.stop()
        raise
    print("\n".join(f"export {name}={value}" for name, value in cluster.environment.items()))


if __name__ == "__main__":
    main()
