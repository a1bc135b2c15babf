"""A node as an administrator leaves it: Slurm that constrains devices, the helper, GPUs of the stand-in NVML.

Nothing of it is mocked but NVML: sudo, users, cgroups and Slurm are the machine's own, and the helper is installed by
its own script. What lies in /etc, /usr/local/sbin and /run afterwards is taken away again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import SlurmCluster
from machine import alive
from slurm_files import GPU_TYPES

from standin_nvml import Card, StandInNvml, build

REPOSITORY = Path(__file__).parents[2]
HELPER = "/usr/local/sbin/clockwatt-clocks"
CONFIGURATION = Path("/etc/clockwatt/clocks.ini")
LEASES = Path("/run/clockwatt")
USERS = ("cw_alice", "cw_bob")
DEVICE_NUMBERS = ((1, 5), (1, 7))
"""Nodes of /dev/zero and /dev/full under other names: a driver serves them, so opening them can succeed."""
RESTORED = (0, 0, 165_000)


class ClocksNode:
    """A running node with one GPU of each type; `cards[i]` is of `GPU_TYPES[i]`."""

    def __init__(self, cluster: SlurmCluster, nvml: StandInNvml) -> None:
        self.cluster = cluster
        self.nvml = nvml
        self.cards: list[Card] = [nvml.card(index) for index in range(len(GPU_TYPES))]
        self.reset_cards()
        self.uuids = [nvml.uuid(index) for index in range(len(GPU_TYPES))]

    def reset_cards(self) -> None:
        """Idle cards, which root alone may set and whose device nodes the cgroups of jobs hide."""
        self.nvml.install("NVIDIA A30", "NVIDIA GeForce RTX 2080 Ti")
        for card, (_, minor) in zip(self.cards, DEVICE_NUMBERS, strict=True):
            card.may_set, card.minor, card.device = 2, minor, self.device(minor).encode()

    def device(self, minor: int) -> str:
        """The node of a GPU under /dev."""
        return self.cluster.device_pattern.format(minor=minor)

    def configure(self, text: str | None = None) -> None:
        """Write the administrator's file; by default everything that the cards support is allowed."""
        library = self.cluster.root / "nvml" / "libnvidia-ml.so.1"
        CONFIGURATION.write_text(
            f"[site]\nslurm_directory = {self.cluster.root}\nlibrary = {library}\n"
            f"device = {self.cluster.device_pattern}\n"
            "[gpu]\nsm_clock_mhz = 210-1440\nmemory_clock_mhz = 1215-1215\npower_limit_w = 100-165\n"
            if text is None
            else text
        )

    def settings(self, index: int) -> tuple[int, int, int]:
        """Locked SM and memory clock in MHz (0: not locked) and power limit in mW."""
        card = self.cards[index]
        return card.locked_sm_mhz, card.locked_memory_mhz, card.limit_mw

    def is_restored(self, index: int) -> bool:
        """Whether a card keeps no clock or limit, and nobody a lease on it."""
        return self.settings(index) == RESTORED and not (LEASES / f"{self.uuids[index]}.lease").exists()

    def wait_restored(self, index: int = 0, timeout_s: float = 60) -> float:
        """Wait until a card is restored; seconds that it took.

        As a rule it takes a fraction of a second, which `benchmarks/kill_clocks.py` measures; here, on a machine that
        may be busy, it has to happen.
        """
        start = time.monotonic()
        while not self.is_restored(index):
            if time.monotonic() - start > timeout_s:
                raise AssertionError(f"not restored after {timeout_s} s: {self.settings(index)}")
            time.sleep(0.01)
        return time.monotonic() - start

    def as_user(self, user: str, *command: str) -> list[str]:
        """Command line that runs a command as a user outside of any job."""
        environment = {**self.cluster.environment, **self.nvml.environ, "HELPER": HELPER}
        for index, uuid in enumerate(self.uuids):
            environment[f"GPU{index}"] = uuid
        return ["runuser", "-u", user, "--", "env", *(f"{k}={v}" for k, v in environment.items()), *command]

    def job(self, user: str, script: str, *options: str, gpu: int | None = 0) -> list[str]:
        """Command line that runs a Bash script in a job of a user on the GPU of an index (None: on none)."""
        gres = () if gpu is None else (f"--gres=gpu:{GPU_TYPES[gpu]}:1",)
        alive = f"{script}\nexit $?"  # or the shell becomes its last command, sudo, and nobody has called it
        return self.as_user(user, "srun", "--quiet", "-n1", "--mem=300", *gres, *options, "bash", "-c", alive)

    def run(self, user: str, script: str, *options: str, gpu: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run a script in a job to its end."""
        return run(self.job(user, script, *options, gpu=gpu))

    def start(self, user: str, script: str, *options: str, gpu: int | None = 0) -> subprocess.Popen[str]:
        """Start a job; what it prints comes by its stdout."""
        return subprocess.Popen(
            self.job(user, script, *options, gpu=gpu), cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    @contextlib.contextmanager
    def holding(self, user: str, script: str, gpu: int = 0) -> Iterator[subprocess.Popen[str]]:
        """A job that has run a script and lives on; it is cancelled on leaving."""
        holder = self.start(user, f"{script}; echo held; exec sleep 600", gpu=gpu)
        assert holder.stdout is not None
        seen = []
        for line in holder.stdout:
            seen.append(line)
            if line == "held\n":
                break
        else:
            raise AssertionError("".join(seen))
        try:
            yield holder
        finally:
            self.cancel_all()
            holder.communicate(timeout=300)

    def run_beside(self, user: str, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script in a step of its own of the user's running job."""
        (job,) = self.cluster.command("squeue", "-h", "-o", "%i", f"--user={user}").stdout.split()
        step = ("srun", "--quiet", "--overlap", f"--jobid={job}", "bash", "-c", f"{script}\nexit $?")
        return run(self.as_user(user, *step))

    @contextlib.contextmanager
    def slurm_with(self, *changes: tuple[str, str, str], configless: bool = False) -> Iterator[None]:
        """Slurm's daemons started anew with other files, and as before on leaving.

        Parameters
        ----------
        *changes
            Each the name of a file (`slurm`, `gres`, `cgroup`), what stands there, and what shall stand there instead.
        configless
            Whether slurmd asks the controller for its configuration.
        """
        before = {name: (self.cluster.root / f"{name}.conf").read_text() for name, _, _ in changes}
        files = dict(before)
        for name, old, new in changes:
            assert old in files[name], (name, old)
            files[name] = files[name].replace(old, new)
        self.cancel_all()
        try:
            self._write_and_restart(files, configless=configless)
            yield
        finally:
            self.cancel_all()
            self._write_and_restart(before)

    def _write_and_restart(self, files: dict[str, str], *, configless: bool = False) -> None:
        for name, text in files.items():
            (self.cluster.root / f"{name}.conf").write_text(text)
        self.cluster.restart(configless=configless)

    def node_state(self) -> str:
        """State of the node, as Slurm has it: it is drained where a prolog or an epilog has failed."""
        return self.cluster.command("sinfo", "-h", "-o", "%T").stdout.strip()

    def resume(self) -> None:
        """Take jobs again after a prolog or an epilog has failed."""
        self.cluster.command("scontrol", "update", f"NodeName={self.cluster.node}", "State=RESUME")

    def keepers(self) -> list[int]:
        """Processes of the helper that wait for a holder's end."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                words = path.read_bytes().split(b"\0")
                if HELPER.encode() in words and b"keep" in words and alive(int(path.parent.name)):
                    found.append(int(path.parent.name))
        return found

    def cancel_all(self) -> None:
        """Cancel the jobs of all test users and wait until they have gone."""
        for user in USERS:
            self.cluster.command("scancel", f"--user={user}")
        wait_for(lambda: not self.cluster.command("squeue", "-h").stdout.strip(), 120)


@contextlib.contextmanager
def clocks_node(*, slurm_restores: bool = True) -> Iterator[ClocksNode]:
    """Start a node, install the helper and make the users; undone on leaving.

    Parameters
    ----------
    slurm_restores
        Whether prolog and epilog are configured; without them keepers are alone.
    """
    if Path(HELPER).exists() or CONFIGURATION.parent.exists():
        raise RuntimeError(f"{HELPER} or {CONFIGURATION.parent} exists: this machine is in use, tests would change it")
    with contextlib.ExitStack() as undo:
        root = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # a socket's path is short
        undo.callback(shutil.rmtree, root, ignore_errors=True)
        root.chmod(0o755)
        library = root / "nvml"
        library.mkdir()
        build(library)
        nvml = StandInNvml(library / "libnvidia-ml.so.1", library / "state")
        nvml.state_file.chmod(0o666)  # like the ioctls of a driver: everyone may ask it
        install()
        undo.callback(uninstall)
        for user in USERS:
            run(["useradd", "--no-create-home", "--no-user-group", "--gid", "clockwatt", user]).check_returncode()
            undo.callback(run, ["userdel", user])
        restore = "/etc/clockwatt/slurm-restore"
        scripts = f"Prolog={restore}\nEpilog={restore}\n" if slurm_restores else ""
        cluster = undo.enter_context(
            SlurmCluster(
                root, accounting=False, device_numbers=DEVICE_NUMBERS,
                settings=f"{scripts}PrologFlags=Alloc\n",
            )
        )  # fmt: skip
        node = ClocksNode(cluster, nvml)
        undo.callback(node.cancel_all)
        node.configure()
        yield node


def install() -> None:
    """Run the administrator's script, once the group exists."""
    run(["groupadd", "--system", "--force", "clockwatt"]).check_returncode()
    run([str(REPOSITORY / "privileged" / "install.sh")]).check_returncode()


def uninstall() -> None:
    """Run the administrator's script, and take away what it leaves to the administrator."""
    run([str(REPOSITORY / "privileged" / "install.sh"), "--uninstall", "--now"]).check_returncode()
    shutil.rmtree(CONFIGURATION.parent)
    run(["groupdel", "clockwatt"])


def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, outside of the caller's folder and without its input."""
    return subprocess.run(
        command, cwd="/", capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **options
    )


def lease_of(uuid: str) -> dict[str, Any]:
    """The lease of a GPU as it lies in /run."""
    found: dict[str, Any] = json.loads((LEASES / f"{uuid}.lease").read_text())
    return found


def wait_for(happens: Callable[[], bool], timeout_s: float = 120) -> None:
    """Wait until something is so; as a rule it is at once."""
    deadline = time.monotonic() + timeout_s
    while not happens():
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {timeout_s} s")
        time.sleep(0.02)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
