"""Who holds a GPU is known from the kernel and from Slurm, whatever Slurm's files say and whose they are."""

from __future__ import annotations

import os
import shutil

import pytest
from attacks import NO_SLURM, NOT_PERMITTED
from clocks_node import CONFIGURATION, RESTORED, run, wait_for
from slurm_files import GPU_TYPES

pytestmark = pytest.mark.slurm

LOCK0, LOCK1 = "sudo -n $HELPER lock $GPU0 900", "sudo -n $HELPER lock $GPU1 900"
EVERYTHING = "--gres=gpu:a30:1,gpu:rtx2080ti:1"
ALL_GPUS = ",".join(f"gpu:{kind}:1" for kind in GPU_TYPES)


def test_shards_that_gres_conf_does_not_name(node):
    """Declared in slurm.conf alone, behind an Include: two jobs share a GPU, and neither may lock it."""
    (node.cluster.root / "types.conf").write_text("GresTypes=gpu,shard\n")
    with node.slurm_with(
        ("slurm", "GresTypes=gpu\n", f"Include {node.cluster.root}/types.conf\n"),
        ("slurm", f"Gres={ALL_GPUS}", f"Gres={ALL_GPUS},shard:8"),
    ):
        both = [node.start(user, f"sleep 1; {LOCK0}", "--gres=shard:1", gpu=None) for user in ("cw_alice", "cw_bob")]
        said = [job.communicate(timeout=300)[0] for job in both]
        assert all("jobs share GPUs here" in each for each in said), said
        assert "jobs share GPUs here" in node.run("cw_alice", LOCK0).stdout  # one that holds it whole
    assert node.settings(0) == RESTORED


def test_a_gpu_that_slurm_does_not_know(node):
    """No cgroup hides it, so a job without any GPU reaches it."""
    second = f"Type={GPU_TYPES[1]} File={node.cluster.devices[1]}"
    with node.slurm_with(
        ("gres", f"NodeName={node.cluster.node} Name=gpu {second}\n", ""),
        ("slurm", f"Gres={ALL_GPUS}", f"Gres=gpu:{GPU_TYPES[0]}:1"),
    ):
        for gpu in (None, 0):
            done = node.run("cw_alice", LOCK1, gpu=gpu)
            assert done.returncode == NOT_PERMITTED, done.stdout
            assert "Slurm knows 1 of 2 GPUs here" in done.stdout
    assert node.settings(1) == RESTORED


def test_a_process_that_outlives_its_job(node):
    """Where Slurm tracks processes by their parents, one that has left them goes on in the cgroup of the device."""
    said = node.cluster.root / "survivor"
    said.touch()
    said.chmod(0o666)
    survivor = f"(setsid bash -c 'sleep 2; {LOCK0}; echo code $?' >{said} 2>&1 </dev/null &); sleep 0.2; {LOCK0}"
    with node.slurm_with(("slurm", "proctrack/cgroup", "proctrack/linuxproc")):
        assert node.run("cw_alice", survivor).returncode == NOT_PERMITTED
        done = node.run("cw_bob", f"for _ in {{1..600}}; do grep code {said} && break; sleep 0.1; done")
        assert f"code {NOT_PERMITTED}" in done.stdout, done.stdout
    assert node.cards[0].settings_made == 0


def test_where_slurm_constrains_no_devices_nobody_owns_a_gpu(node):
    assert node.run("cw_alice", LOCK0, EVERYTHING, gpu=None).returncode == 0  # it sees none refused, and holds all
    node.wait_restored()
    with node.slurm_with(("cgroup", "ConstrainDevices=yes", "ConstrainDevices=no")):
        for options in ("--gres=gpu:a30:1", EVERYTHING):
            assert node.run("cw_alice", LOCK0, options, gpu=None).returncode == NOT_PERMITTED
    assert node.settings(0) == RESTORED


def test_a_step_that_was_given_a_part_of_its_job(node):
    script = "srun --quiet --overlap --gres=gpu:a30:1 bash -c '%s; exit $?'"
    assert node.run("cw_alice", script % LOCK0, EVERYTHING, gpu=None).returncode == 0
    assert node.run("cw_alice", script % LOCK1, EVERYTHING, gpu=None).returncode == NOT_PERMITTED


def test_tasks_of_an_array(node):
    said = node.cluster.root / "array"
    said.mkdir()
    said.chmod(0o777)
    submitted = run(
        node.as_user(
            "cw_alice", "sbatch", "--quiet", "--wait", "--array=1-2", "--mem=300", "--gres=gpu:a30:1", "--chdir=/tmp",
            f"--output={said}/%a", f"--wrap={LOCK0}; exit $?",
        ),
        timeout=600,
    )  # fmt: skip
    assert submitted.returncode == 0, [path.read_text() for path in said.iterdir()]
    shutil.rmtree(said)


def test_files_of_slurm_that_belong_to_its_user_or_are_links(node):
    files = [node.cluster.root / f"{name}.conf" for name in ("slurm", "gres", "cgroup")]
    for path in files:
        shutil.chown(path, "daemon")
    moved = files[2].rename(node.cluster.root / "cgroup.other")
    files[2].symlink_to(moved)
    try:
        done = node.run("cw_alice", LOCK0)
        assert done.returncode == 0, done.stdout
    finally:
        moved.rename(files[2])
        for path in files:
            shutil.chown(path, "root")


def test_a_cluster_whose_nodes_have_no_files(node):
    """Configless: slurmd has asked the controller for its configuration, and keeps it in a folder of its own."""
    cache = node.cluster.root / "spool" / "conf-cache"
    configless = ("slurm", "MinJobAge=", "SlurmctldParameters=enable_configless\nMinJobAge=")
    with node.slurm_with(configless, configless=True):
        node.configure(CONFIGURATION.read_text().replace(f"{node.cluster.root}\n", f"{cache}\n"))
        assert f"slurm_directory = {cache}\n" in CONFIGURATION.read_text()
        done = node.run("cw_alice", LOCK0)
        assert done.returncode == 0, done.stdout
        assert node.run("cw_alice", LOCK1).returncode == NOT_PERMITTED


def test_while_the_controller_is_away(node):
    """Nothing new is set, soon and with a code of its own; whoever holds a lease goes on, and all is put back."""
    go = node.cluster.root / "go"
    for path in (fifos := [go.with_suffix(f".{index}") for index in range(2)]):
        os.mkfifo(path)
        path.chmod(0o666)
    held = node.start("cw_alice", f"{LOCK0} >/dev/null; read _ <{fifos[0]}; {LOCK0.replace('900', '600')}; sleep 600")
    fresh = node.start("cw_bob", f"read _ <{fifos[1]}; time {LOCK1}", gpu=1)
    wait_for(lambda: node.settings(0)[0] == 900)
    wait_for(lambda: len(node.cluster.command("squeue", "-h", "--state=R").stdout.splitlines()) == 2)
    node.cluster.stop_slurmctld()
    try:
        for path in fifos:
            path.write_text("go\n")
        wait_for(lambda: node.settings(0)[0] == 600)
        assert '"sm_clock_mhz": 600' in held.stdout.readline()
        assert "Slurm does not answer" in fresh.stdout.readline()
        assert node.settings(1) == RESTORED
    finally:
        node.cluster.start_slurmctld()
        for path in fifos:
            path.unlink()
    fresh.communicate(timeout=300)
    assert fresh.returncode == NO_SLURM
    node.cancel_all()
    held.communicate(timeout=300)
    node.wait_restored()


FORGED = """x
   UserId=cw_alice(%d) GroupId=clockwatt(1)
   JobState=RUNNING Reason=None
   JOB_GRES=gpu:9
     Nodes=%s CPU_IDs=0 Mem=300 GRES=gpu:9(IDX:0-8)
"""


def test_a_job_whose_name_or_comment_reads_like_slurms_description(node):
    uid = int(run(["id", "-u", "cw_alice"]).stdout)
    forged = FORGED % (uid, node.cluster.node)
    whole = f"{forged}   z=\nJobId=999 JobName=y"  # a record of its own, and what is true goes to another job
    names = (forged, f"x\nJobId=1 JobName=x{forged}", whole)
    for option in (f"--comment={forged}", *(f"--job-name={name}" for name in names)):
        for script, gpu in ((LOCK1, 0), (LOCK0, None)):
            done = node.run("cw_alice", script, option, gpu=gpu)
            assert done.returncode == NOT_PERMITTED, done.stdout + done.stderr
    assert [card.settings_made for card in node.cards] == [0, 0]
