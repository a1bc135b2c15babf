"""Nodes of GPUs whose heat is computed from known constants: what fits and tests of influence have to find.

Each GPU is a chip behind one resistance to the air around it, `τ dT/dt = T_air + R·P - T`, and the air follows the
power of the neighbours, `τ_air dT_air/dt = T_ambient + Σ Kⱼ·Pⱼ - T_air`. Loads are drawn apart for each GPU: stretches
of random power and length. Temperatures are rounded to whole degrees, as NVML gives them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from clockwatt.studies.thermal.inputs import decayed
from clockwatt.studies.thermal.traces import Array, Trace

RESISTANCE_K_PER_W, TIME_CONSTANT_S, AMBIENT_C = 0.15, 25.0, 28.0
AIR_TIME_CONSTANT_S = 8.0
IDLE_W, MOST_W = 50.0, 400.0


def load_w(chance: np.random.Generator, steps: int) -> Array:
    """Stretches of 20 to 150 s of random power, a third of them idle."""
    values: list[float] = []
    while len(values) < steps:
        power = IDLE_W if chance.random() < 1 / 3 else chance.uniform(100.0, MOST_W)
        values += [power] * int(chance.integers(20, 150))
    return np.array(values[:steps])


def made_node(
    coupling_k_per_w: Sequence[Sequence[float]], *, steps: int = 1800, runs: int = 1, seed: int = 0,
    high_load_factor: float = 1.0, socket_k_per_w: float = 0.0, workloads: int = 1,
    idle: Collection[int] = (),
) -> list[Trace]:  # fmt: skip
    """Traces of a node.

    Parameters
    ----------
    coupling_k_per_w
        Row i, column j: how much GPU j warms GPU i; the diagonal does not count.
    steps, runs, workloads
        Length of a run in s, how many, how many names they go by.
    seed
        Of the loads.
    high_load_factor
        How much of the coupling is left while the GPU's own power is above 200 W.
    socket_k_per_w
        How much a socket of its own random power warms every GPU; it is recorded as `cpu0_power_w`.
    idle
        Numbers of GPUs that never work.
    """
    coupling, chance = np.array(coupling_k_per_w, float), np.random.default_rng(seed)
    gpus, traces = [f"GPU-{number}" for number in range(len(coupling))], []
    for run in range(runs):
        power = np.stack([load_w(chance, steps) for _ in gpus], axis=1)
        power[:, list(idle)] = IDLE_W
        socket = load_w(chance, steps) / 2
        warm = []
        for own, row in enumerate(coupling):
            others = power @ np.where(np.arange(len(gpus)) == own, 0.0, row) + socket_k_per_w * socket
            others = others * np.where(power[:, own] > 200.0, high_load_factor, 1.0)
            air = AMBIENT_C + decayed(others, AIR_TIME_CONSTANT_S, 1.0)
            warm.append(np.round(decayed(air + RESISTANCE_K_PER_W * power[:, own], TIME_CONSTANT_S, 1.0)))
        degrees = np.stack(warm, axis=1)
        for own, uuid in enumerate(gpus):
            rest = [number for number in range(len(gpus)) if number != own]
            traces.append(
                Trace(
                    run=f"run-{run}", workload=f"workload-{run % workloads}", host="made", gpu=uuid,
                    gpu_name="made GPU", virtual=True, step_s=1.0, start_s=0.0, temperature_c=degrees[:, own],
                    power_w=power[:, own],
                    neighbours=tuple(gpus[number] for number in rest), neighbours_w=power[:, rest],
                    neighbours_c=degrees[:, rest], sensors={"cpu0_power_w": socket} if socket_k_per_w else {},
                    idle_w=IDLE_W,
                )
            )  # fmt: skip
    return traces
