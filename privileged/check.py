#!/usr/bin/python3 -IS
"""What is wrong with clockwatt-clocks on this node, one line each with its fix; `install.sh --check` runs it as root.

It changes nothing. With a user's name it also runs `id -G` in a job of that user. Exit code 0: nothing is wrong; 1:
something is.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import grp
import os
import pwd
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, TimeoutExpired, run
from types import ModuleType

HERE = Path(__file__).resolve().parent
RESTORE, SUDOERS = Path("/etc/clockwatt/slurm-restore"), Path("/etc/sudoers.d/clockwatt")
FILES = {
    Path("/usr/local/sbin/clockwatt-clocks"): HERE / "clockwatt-clocks",
    RESTORE: HERE / "slurm-restore",
    SUDOERS: HERE / "sudoers",
}
CGROUPS = Path("/sys/fs/cgroup")
STRAY = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/etc/clockwatt", "/opt/clockwatt")
NOT_BEFORE_SUDO_1_9_8 = ", !intercept"
"""What `install.sh` leaves out of the rule where sudo does not know it."""
LONGEST_RESTORE_S = 60
"""What `slurm-restore` may take."""
NO_TIMEOUT = 65534
"""PrologEpilogTimeout as Slurm prints it where there is none."""
Answer = tuple[bool, str]


def program() -> ModuleType:
    """The helper of this folder as a module, so that its own parser judges clocks.ini."""
    sys.dont_write_bytecode = True  # no __pycache__ beside it
    loader = SourceFileLoader("clockwatt_clocks", str(HERE / "clockwatt-clocks"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def answer_of(*command: str, **environment: str) -> Answer:
    """Whether a command succeeds, and what it prints."""
    try:
        done = run(
            command, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", **environment}, stdin=DEVNULL,
            stdout=PIPE, stderr=STDOUT, timeout=20, check=False,
        )  # fmt: skip
    except (OSError, TimeoutExpired) as error:
        return False, str(error)
    return done.returncode == 0, done.stdout.decode(errors="replace").strip()


def files() -> Iterator[str]:
    """Each file is in its place, root's alone, of this version; none lies anywhere else."""
    for path, source in FILES.items():
        yield from owned_by_root(path.parent)
        if not path.exists():
            yield f"{path}: missing: ./install.sh"
            continue
        yield from owned_by_root(path)
        if path != SUDOERS and not path.stat().st_mode & 0o001:
            yield f"{path}: cannot be run: chmod 755 {path}"
        text = source.read_text()
        if path.read_text(errors="replace") not in (text, text.replace(NOT_BEFORE_SUDO_1_9_8, "")):
            why = "another version, or switched off" if path == SUDOERS else "another version than in this folder"
            yield f"{path}: {why}: ./install.sh"
    for folder in STRAY:
        if (stray := Path(folder, "clockwatt-clocks")).exists():
            yield f"{stray}: is in the wrong place, where nobody calls and no upgrade finds it: rm {stray}"


def owned_by_root(path: Path) -> Iterator[str]:
    """Nobody but root can change a file or folder; what is not there is no matter of this check."""
    about = path.stat() if path.exists() else None
    if about and (about.st_uid != 0 or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        yield f"{path}: can be changed by others than root: chown root:root {path}; chmod go-w {path}"


def sudo() -> Iterator[str]:
    """The rule is read by sudo, and its group exists."""
    done, said = answer_of("visudo", "-c")
    if not done:
        yield f"sudo's files have an error: visudo -c says: {said}"
    elif SUDOERS.exists() and f"{SUDOERS}: parsed OK" not in said:
        yield f"{SUDOERS}: sudo does not read it: @includedir {SUDOERS.parent} is missing in /etc/sudoers"
    try:
        grp.getgrnam("clockwatt")
    except KeyError:
        yield "the group clockwatt does not exist: create it with one number on all hosts, then ./install.sh"


def kernel() -> Iterator[str]:
    """The kernel has what the program needs, and the program would not be refused for a namespace."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        yield f"Linux 5.3 or newer and Python 3.9 or newer are needed: pidfd_open: {error}"
    for name, inode in program().NAMESPACES.items():
        if Path(f"/proc/self/ns/{name}").stat().st_ino != inode:
            yield f"the {name} namespace here is not the machine's own: calls from a container are refused"


def locks(folder: str, within_s: float = 6) -> Iterator[str]:
    """No call holds the lock of a GPU longer than a call takes: one that does is stopped or frozen."""
    deadline = time.monotonic() + within_s
    for path in sorted(Path(folder).glob("*.lock")):
        with path.open() as lock:
            while not try_lock(lock.fileno()):
                if time.monotonic() > deadline:
                    pattern = rf"FLOCK .* ([0-9]+) \S+:{path.stat().st_ino} "
                    pids = " ".join(re.findall(pattern, Path("/proc/locks").read_text()))
                    fix = "env -u SUDO_UID clockwatt-clocks restore all"
                    yield f"{path.stem}: its lock is held by process {pids} , which is stopped or frozen: {fix}"
                    break
                time.sleep(0.1)


def try_lock(descriptor: int) -> bool:
    """Whether a lock can be had, for a moment, beside others who ask the same."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def groups(site: dict[str, str], node: str, user: str) -> Iterator[str]:
    """Jobs have the groups that this node knows: slurmctld looks them up on its host, and sends numbers.

    Jobs that run here now are compared, and one of `user`, if a name is given.
    """
    received = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, KeyError):  # it has ended
            if (uid := process.stat().st_uid) and "/job_" in (process / "cgroup").read_text():
                (line,) = re.findall(r"(?m)^Groups:(.*)$", (process / "status").read_text())
                received[pwd.getpwuid(uid).pw_name] = set(map(int, line.split()))
    if user:
        command = [str(Path(site["scontrol"]).with_name("srun")), "--quiet", "--immediate=15", "-n1", "--time=1"]
        command += ["--chdir=/", f"--nodelist={node}", "id", "-G"]
        conf = f"SLURM_CONF={site['slurm_directory']}/slurm.conf"
        done, said = answer_of("runuser", "-u", user, "--", "env", conf, *command)
        if done and (lines := re.findall("(?m)^[0-9][0-9 ]*$", said)):  # Slurm and the site may print more
            received[user] = set(map(int, lines[-1].split()))
        else:
            yield f"no job of {user} could be run on {node} to see its groups: {said}"
    for name, job in sorted(received.items()):
        account = pwd.getpwnam(name)
        here = set(os.getgrouplist(name, account.pw_gid))
        fix = "give groups one number on all hosts, slurmctld's included, and scontrol reconfigure"
        for number in sorted(job - here):
            yield f"jobs of {name} have group {number}, which is {group_name(number)} here and not one of theirs: {fix}"
        for number in sorted(here - job):
            if group_name(number) == "clockwatt":
                yield f"jobs of {name} do not have the group clockwatt ({number}), which slurmctld does not know: {fix}"


def group_name(number: int) -> str:
    """Name of a group on this node."""
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return "no group"


def gpu_names(library: str) -> list[str]:
    """Names of the node's GPUs, as the driver has them.

    Raises
    ------
    OSError
        If NVML cannot be loaded or does not answer.
    """
    nvml, count = ctypes.CDLL(library), ctypes.c_uint()
    if result := nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        raise OSError(f"{library}: the driver does not answer: NVML's error {result}")
    names = []
    for index in range(count.value):
        handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0:
            nvml.nvmlDeviceGetName(handle, name, len(name))
            names.append(name.value.decode())
    return names


def bounds(configuration: dict[str, dict[str, str]]) -> Iterator[str]:
    """The driver answers, bounds allow something, and sections are of models that this node has."""
    names = None
    try:
        names = gpu_names(configuration["site"]["library"])
    except OSError as error:
        yield f"no clock can be set here: {error} (clocks.ini: library). Without GPUs a node needs slurm-restore alone"
    for section, values in configuration.items():
        for key, value in values.items():
            low, dash, high = value.partition("-")
            if section != "site" and dash and int(low) > int(high):
                yield f"clocks.ini: [{section}] {key} = {value} allows nothing: write {high}-{low}"
        if names is not None and section.startswith("gpu ") and section[4:] not in names:
            yield f"clocks.ini: [{section}] is of no GPU here, which has {', '.join(sorted(set(names))) or 'none'}"


def slurm(clocks: ModuleType, site: dict[str, str], user: str) -> Iterator[str]:
    """Slurm answers, calls `slurm-restore`, and constrains devices; it knows the GPUs that there are."""
    path = f"{site['slurm_directory']}/slurm.conf"
    if not Path(path).exists():
        yield f"clocks.ini: slurm_directory = {site['slurm_directory']}: no slurm.conf lies there"
        return
    done, said = answer_of(site["scontrol"], "show", "config", SLURM_CONF=path)
    if not done:
        yield f"Slurm does not answer (clocks.ini: scontrol, slurm_directory): {' '.join(said.split())[:300]}"
        return
    settings = dict(re.findall(r"(?m)^(\w+) *= (.*)$", said))
    for key in ("Prolog", "Epilog"):
        if str(RESTORE) not in (named := settings.get(key, "")) and not calls_restore(named):
            yield f"slurm.conf: {key} = {named} does not call {RESTORE}"
    for key, wanted in (
        ("ProctrackType", "proctrack/cgroup"),
        ("TaskPlugin", "task/cgroup"),
        ("ConstrainDevices", "yes"),
    ):
        if wanted not in settings.get(key, ""):
            yield f"Slurm has {key} = {settings.get(key, '(unknown)')}, not {wanted}"
    seconds = re.match("[0-9]+", settings.get("PrologEpilogTimeout", ""))
    if seconds and int(seconds[0]) < LONGEST_RESTORE_S:
        yield f"slurm.conf: PrologEpilogTimeout = {seconds[0]} is less than {LONGEST_RESTORE_S}"
    _, said = answer_of(site["scontrol"], "--all", "show", "node", SLURM_CONF=path)
    expected = site["node"] or os.uname().nodename.partition(".")[0]
    records = re.split(r"(?m)^(?=NodeName=)", said)
    found = [record for record in records if record.startswith(f"NodeName={expected} ")]
    if not found and not site["node"]:
        found = [record for record in records if re.search(rf"\bNodeHostName={re.escape(expected)}\s", record)]
    if not found:
        yield f"Slurm knows no node {expected}: clocks.ini: node"
        return
    name = found[0].partition(" ")[0].removeprefix("NodeName=")
    if name != expected and not cgroup_names(name):
        yield f"Slurm calls this node {name}, not {expected}: write node = {name} in clocks.ini"
    known = clocks.count_gpus("".join(re.findall(r"(?m)^ +Gres=(.*)", found[0])))
    there = sum(Path(site["device"].format(minor=minor)).exists() for minor in range(256))
    if known != there:
        yield f"Slurm knows {known} GPUs of {name}, and there are {there} ({site['device']}): every call is refused"
    yield from groups(site, name, user)


def cgroup_names(node: str) -> bool:
    """Whether the cgroups of jobs have the node's name, as where several slurmd may run on one machine."""
    return any(CGROUPS.glob(f"*/slurm_{node}")) or any(CGROUPS.glob(f"system.slice/{node}_slurmstepd.scope"))


def slurmd_runs() -> bool:
    """Whether a slurmd runs here; one that makes no cgroups is not seen by the program itself."""
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):  # it has ended
            if path.read_text() == "slurmd\n":
                return True
    return False


def calls_restore(named: str) -> bool:
    """Whether one of the site's own scripts names `slurm-restore`."""
    patterns = (pattern.strip().lstrip("/") for pattern in named.split(","))
    scripts = [path for pattern in patterns if pattern for path in Path("/").glob(pattern) if path.is_file()]
    return any(path.samefile(RESTORE) or str(RESTORE) in path.read_text(errors="replace") for path in scripts)


def settings(user: str) -> Iterator[str]:
    """clocks.ini is understood, and what it names is there; groups are compared in a job of `user`, if there is one."""
    clocks = program()
    yield from locks(clocks.LEASES)
    try:
        configuration = clocks.read_configuration()
    except clocks.Refusal as refusal:
        yield str(refusal.args[1])
        return
    yield from bounds(configuration)
    for user in configuration["site"]["users"].split():
        if not answer_of("id", "-u", user)[0]:
            yield f"clocks.ini: users: there is no user {user}"
    if configuration["site"]["users"] and slurmd_runs():
        yield "clocks.ini: users is for machines without Slurm, and slurmd runs here: write slurm_directory instead"
    if configuration["site"]["slurm_directory"]:
        yield from slurm(clocks, configuration["site"], user)


def main(user: str = "") -> int:
    """Print what is wrong, and return the exit code."""
    wrong: list[str] = []
    checks: tuple[Callable[[], Iterator[str]], ...] = (files, kernel, sudo, lambda: settings(user))
    for check in checks:
        for line in check():
            wrong.append(line)
            print(f"wrong: {line}")
    if not wrong:
        members = ", ".join(grp.getgrnam("clockwatt").gr_mem) or "nobody yet, as /etc/group says"
        print(f"Nothing is wrong. Clocks may be set by the members of the group clockwatt: {members}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
