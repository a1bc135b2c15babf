"""The files that the Slurm of `harness.py` runs from: slurm.conf and its kin, all in one directory."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

GPU_TYPES = ("a30", "rtx2080ti")
"""Of the GPUs of the node, where no others are asked for."""

CGROUPS = Path("/sys/fs/cgroup")
V2 = (CGROUPS / "cgroup.controllers").exists()

DEFAULT_MUNGE = Path("/run/munge/munge.socket.2")
"""Where a client looks for munged that no file tells of another socket."""

_SCHEDULING = (
    "batch_sched_delay=0", "sched_interval=2",
    # or a job that waits for one GPU holds up those that wait for the other
    "bf_interval=2", "bf_min_prio_reserve=4294967295",
)  # fmt: skip
_UNTIL_A_JOB_ENDED = """\
case "$*" in
*--format=JobIdRaw,State*--name\\ * | *--format=%i\\|%T*--name\\ *) ;;
*) exec {program} "$@" ;;
esac
for run in "$@"; do :; done
idle=0
for _ in $(seq 60); do
    said=$({program} "$@") || exit $?
    under_way=$(printf '%s\\n' "$said" | grep -cE '\\|(PENDING|CONFIGURING|RUNNING|COMPLETING|SUSPENDED|REQUEUED)')
    ended=$(printf '%s\\n' "$said" | grep -c '|')
    ended=$((ended - under_way))
    [ "$ended" = "$(cat "{told}/ended-$run" 2>/dev/null || echo 0)" ] || break
    [ "$under_way" -gt 0 ] || idle=$((idle + 1))
    [ "$idle" -lt 6 ] || break
    sleep 0.5
done
echo "$ended" >"{told}/ended-$run"
printf '%s\\n' "$said"
"""
"""What Slurm's program says of the jobs of a run, once another one has ended, or three seconds after none is left (one
that was just submitted comes a moment later); after 30 s, less than Snakemake waits for an answer, in any case."""
_NO_STORAGE = "AccountingStorageType=accounting_storage/none"


def path(root: Path) -> Path:
    """Where slurm.conf lies."""
    return root / "slurm.conf"


def munge_socket(root: Path) -> Path:
    """Where munged listens."""
    return root / "run" / "munge.socket"


def write_programs(root: Path) -> None:
    """Programs that stand before Slurm's own.

    Snakemake asks sacct or squeue for the jobs of a run 10 s later each time that none has ended: what these have to
    tell is waited for.
    """
    scripts = {}
    for name in ("sacct", "squeue"):
        if (program := shutil.which(name)) is not None:
            scripts[name] = _UNTIL_A_JOB_ENDED.format(program=program, told=root / "run")
    for name, text in scripts.items():
        script = root / "bin" / name
        script.write_text(f"#!/bin/sh\n{text}")
        script.chmod(0o755)


def write(
    root: Path, node: str, ports: Mapping[str, int], devices: Mapping[Path, str], *, accounting: bool, settings: str
) -> None:
    """Write all of them.

    Parameters
    ----------
    ports
        Of slurmctld, slurmd, slurmdbd and its database.
    devices
        Device node of each GPU, with its type.
    settings
        Further lines of slurm.conf.
    """
    host = socket.gethostname()
    # a requeued job waits until the credential of its first start has expired: by default two minutes
    auth = f"AuthType=auth/munge\nAuthInfo=socket={munge_socket(root)},cred_expire=30\n"
    gpus = ",".join(f"gpu:{kind}:{count}" for kind, count in Counter(devices.values()).items())
    storage = _storage(root, host, ports, devices.values()) if accounting else _NO_STORAGE
    memory_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    path(root).write_text(
        f"ClusterName=test\nSlurmctldHost={host}\n{auth}"
        f"SlurmUser=root\nSlurmctldPort={ports['slurmctld']}\nSlurmdPort={ports['slurmd']}\n"
        f"StateSaveLocation={root}/state\nSlurmdSpoolDir={root}/spool\n"
        f"SlurmctldPidFile={root}/run/slurmctld.pid\nSlurmdPidFile={root}/run/slurmd.pid\n"
        "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\nMpiDefault=none\n"
        "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nGresTypes=gpu\n"
        f"SchedulerParameters={','.join(_SCHEDULING)}\nJobAcctGatherType=jobacct_gather/none\n"
        "KillWait=2\n"  # a job that is to end and does not is waited for; 30 s by default
        f"ReturnToService=2\nMinJobAge=300\n{storage}\n"
        f"NodeName={node} NodeHostname={host} CPUs={len(os.sched_getaffinity(0))} RealMemory={memory_mb}"
        f" Gres={gpus}\n"
        f"PartitionName=main Nodes={node} Default=YES MaxTime=INFINITE State=UP\n{settings}"
    )
    (root / "gres.conf").write_text(
        "".join(f"NodeName={node} Name=gpu Type={kind} File={device}\n" for device, kind in devices.items())
    )
    plugin = "cgroup/v2\nIgnoreSystemd=yes" if V2 else "cgroup/v1"
    (root / "cgroup.conf").write_text(
        f"CgroupPlugin={plugin}\nConstrainDevices=yes\nConstrainCores=yes\nConstrainRAMSpace=yes\n"
    )
    if accounting:
        _write_accounting(root, host, auth, ports)


def _storage(root: Path, host: str, ports: Mapping[str, int], kinds: Iterable[str]) -> str:
    return (
        f"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost={host}\n"
        f"AccountingStoragePort={ports['slurmdbd']}\n"
        f"AccountingStoragePass={munge_socket(root)}\nAccountingStoreFlags=job_comment\n"
        "AccountingStorageTRES=gres/gpu" + "".join(f",gres/gpu:{kind}" for kind in dict.fromkeys(kinds))
    )


def _write_accounting(root: Path, host: str, auth: str, ports: Mapping[str, int]) -> None:
    password = secrets.token_hex(16)
    (root / "database.sql").write_text(
        "CREATE DATABASE IF NOT EXISTS slurm;\n"
        f"CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED BY '{password}';\n"
        "GRANT ALL ON slurm.* TO 'slurm'@'localhost';\n"
    )
    daemon = root / "slurmdbd.conf"
    daemon.touch(mode=0o600)  # slurmdbd refuses a file that others can read
    daemon.write_text(
        f"DbdHost={host}\nDbdPort={ports['slurmdbd']}\n{auth}SlurmUser=root\nPidFile={root}/run/slurmdbd.pid\n"
        f"StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\nStoragePort={ports['database']}\n"
        f"StorageUser=slurm\nStoragePass={password}\nStorageLoc=slurm\n"
    )
