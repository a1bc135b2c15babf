"""Prices of European options by the formula of Black and Scholes: element by element, bound by memory."""

from __future__ import annotations

import sys
from typing import NamedTuple

import torch

from clockwatt.studies.workloads.inputs import Array, Size
from clockwatt.studies.workloads.session import Figures, Session, Workload, main

RATE = 0.02
"""Riskless interest, a year."""

ARRAYS = {"spot": (5.0, 30.0), "strike": (1.0, 100.0), "years": (0.25, 10.0), "volatility": (0.1, 0.5)}
"""Parameters of an option, and the range that generated values are drawn from."""


class Prices(NamedTuple):
    """Prices of call and put options."""

    call: torch.Tensor
    put: torch.Tensor


def prices(
    spot: torch.Tensor,
    strike: torch.Tensor,
    years: torch.Tensor,
    volatility: torch.Tensor,
    rate: torch.Tensor | float = RATE,
) -> Prices:
    """Return prices of European options without dividends.

    Parameters
    ----------
    spot, strike
        Price of the share now, and that of the contract.
    years
        Until it may be exercised.
    volatility
        Deviation of the share's logarithm in a year.
    rate
        Riskless interest, a year.
    """
    deviation = volatility * years.sqrt()
    upper = ((spot / strike).log() + (rate + volatility**2 / 2) * years) / deviation
    discounted = strike * (-rate * years).exp()
    call = spot * torch.special.ndtr(upper) - discounted * torch.special.ndtr(upper - deviation)
    return Prices(call, call - spot + discounted)


def run(session: Session) -> Figures:
    """Price all options repeatedly."""
    options = session.size("options")
    given = session.to_device(
        *(
            session.array(name, lambda ends=ends: session.uniform(*ends, options))  # type: ignore[misc]
            for name, ends in ARRAYS.items()
        )
    )
    spot, strike, years, volatility = given
    priced = Prices(spot, spot)
    for _ in session.steps(range(session.size("iterations"))):
        priced = prices(spot, strike, years, volatility)
    return {"mean_call": float(priced.call.mean()), "mean_put": float(priced.put.mean())}


WORKLOAD = Workload(
    name="black_scholes", title="European options priced by the formula of Black and Scholes.",
    sizes=(
        Size("options", 4_000_000, "that are priced"),
        Size("iterations", 512, "how often", scaled=False),
    ),
    arrays=tuple(Array(name, ("options",)) for name in ARRAYS),
    run=run,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(WORKLOAD))
