"""Attacks on the helper as scripts of a user's, run in a job of that user while another user's job holds GPU 1."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from clocks_node import ClocksNode, lease_of

USAGE, NOT_PERMITTED, NOT_SUPPORTED, HELD, DRIVER, MISCONFIGURED, SYSTEM, NO_SLURM = range(2, 10)
REFUSED_BY_SUDO = 1
PROGRAM_OF = "$(grep -lz '^/usr/local/sbin/clockwatt-clocks$' /proc/[0-9]*/cmdline)"
KEEPER = f"keeper=$(grep -lz '^keep$' {PROGRAM_OF} | grep -o '[0-9]*'); test $keeper || exit 9; "
"""Shell words that find the one of the job that holds GPU 1: the only one there is."""
VICTIM_LOCKS = "sudo -n $HELPER lock $GPU1 600 >/dev/null"


@dataclass(frozen=True)
class Attack:
    """A Bash script of the attacker, and the exit code it must end with."""

    name: str
    script: str
    code: int
    gpu: int | None = 0  # None: a job without a GPU


@dataclass(frozen=True)
class Outcome:
    """What came of an attack."""

    code: int
    output: str
    state: str  # checksum of all cards


def check_refused(outcomes: dict[str, Outcome], attack: Attack) -> None:
    """Hold what came of an attack against what must: its exit code, no traceback, and every card as it was."""
    outcome = outcomes[attack.name]
    assert outcome.code == attack.code, outcome.output
    assert "Traceback" not in outcome.output
    assert outcome.state == outcomes["nothing"].state


def outcomes_of(node: ClocksNode, attacks: Sequence[Attack]) -> dict[str, Outcome]:
    """What came of attacks, by name, one after another in as few jobs as they need; that of `nothing` is the first.

    Another user's job holds GPU 1 meanwhile, locked at 600 MHz, and its lease must be the same before and after.
    """
    node.reset_cards()
    node.configure()
    with node.holding("cw_bob", VICTIM_LOCKS, gpu=1):
        lease = lease_of(node.uuids[1])
        found = {"nothing": Outcome(0, "", checksum(node))}
        for gpu in dict.fromkeys(attack.gpu for attack in attacks):
            found.update(attacked(node, [attack for attack in attacks if attack.gpu == gpu], gpu))
        assert lease_of(node.uuids[1]) == lease
    return found


def attacked(node: ClocksNode, attacks: Sequence[Attack], gpu: int | None) -> dict[str, Outcome]:
    """What came of attacks in one job on the GPU of an index."""
    state = f"cksum <{node.nvml.state_file}"
    script = "\n".join(f'( {attack.script} ) 2>&1; code=$?; echo; echo "== $code $({state})"' for attack in attacks)
    said = node.run("cw_alice", script, gpu=gpu)
    parts = re.split(r"^== (\d+) (.*)\n", said.stdout, flags=re.MULTILINE)
    assert len(parts) == 3 * len(attacks) + 1, said.stdout + said.stderr
    told = zip(attacks, parts[::3], parts[1::3], parts[2::3], strict=False)
    return {attack.name: Outcome(int(code), output, state) for attack, output, code, state in told}


def checksum(node: ClocksNode) -> str:
    """Of the state of all cards."""
    state = node.nvml.state_file.read_bytes()
    return subprocess.run(["cksum"], input=state, capture_output=True, check=True).stdout.decode().strip()
