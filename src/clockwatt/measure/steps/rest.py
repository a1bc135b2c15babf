"""Letting a GPU cool down before it is measured."""

from __future__ import annotations

import math

from clockwatt.gpu.interface import NotSupportedError
from clockwatt.io.progress import progress, say
from clockwatt.measure.bench.interface import Bench

_LOOK_EVERY_S = 1.0


def rest(bench: Bench, to_c: float, max_s: float) -> bool:
    """Let the GPU idle until it is no warmer than `to_c`; False, with a warning, if that took longer than `max_s`."""
    name = bench.gpu.identity.name
    try:
        temperature_c = bench.gpu.temperature_c()
    except NotSupportedError:
        say(f"{name} shows no temperature: measuring without a rest.")
        return False
    if temperature_c <= to_c:
        return True
    end_ns = bench.now_ns() + round(max_s * 1e9)
    with progress(f"{name}: cooling down to {to_c:g} °C", math.ceil(temperature_c - to_c)) as advance:
        reached_c = temperature_c
        while temperature_c > to_c and bench.now_ns() < end_ns:
            bench.idle(_LOOK_EVERY_S)
            temperature_c = bench.gpu.temperature_c()
            while reached_c - 1 >= max(temperature_c, to_c):
                reached_c -= 1
                advance(f"{temperature_c:.0f} °C")
        if reached_c > to_c >= temperature_c:
            advance(f"{temperature_c:.0f} °C")
    if temperature_c > to_c:
        say(f"{name}: still at {temperature_c:.0f} °C after {max_s:.0f} s (`rest_max_s`); measuring anyway.")
    return temperature_c <= to_c
