"""Prices of single options and their gradients, one call after another: the GPU waits for its host."""

from __future__ import annotations

import sys

import torch

from clockwatt.studies.workloads.black_scholes import ARRAYS, RATE, prices
from clockwatt.studies.workloads.inputs import Array, Size
from clockwatt.studies.workloads.session import Figures, Session, Workload, main


def price_and_gradients(
    spot: float, strike: float, years: float, volatility: float, device: torch.device
) -> tuple[float, tuple[float, ...]]:
    """Return the price of an option to buy, and its derivatives by the four parameters and the interest rate."""
    values = (spot, strike, years, volatility, RATE)
    inputs = [torch.tensor(value, device=device, requires_grad=True) for value in values]
    call = prices(*inputs).call
    call.backward()
    return call.item(), tuple(each.grad.item() for each in inputs if each.grad is not None)


def run(session: Session) -> Figures:
    """Price all options, each by a call of its own."""
    options = session.size("options")
    given = [
        session.array(name, lambda ends=ends: session.uniform(*ends, options))  # type: ignore[misc]
        for name, ends in ARRAYS.items()
    ]
    total, delta, priced = 0.0, 0.0, 0
    for spot, strike, years, volatility in session.steps(torch.stack(given, 1).tolist()):
        price, gradients = price_and_gradients(spot, strike, years, volatility, session.device)
        total, delta, priced = total + price, delta + gradients[0], priced + 1
    return {"mean_call": total / priced, "mean_delta": delta / priced}


WORKLOAD = Workload(
    name="black_scholes_original", title="European options priced one by one, with gradients, as in the study.",
    sizes=(Size("options", 50_000, "that are priced, a call each"),),
    arrays=tuple(Array(name, ("options",)) for name in ARRAYS),
    run=run,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(WORKLOAD))
