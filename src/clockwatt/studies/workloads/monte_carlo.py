"""Monte Carlo pricing of an option with gradients: many small kernels, forward and backward."""

from __future__ import annotations

import sys
from typing import NamedTuple

import torch

from clockwatt.studies.workloads.inputs import Size
from clockwatt.studies.workloads.session import Figures, Session, Workload, main


class Option(NamedTuple):
    """An option to buy, without dividends; see `black_scholes`."""

    spot: float = 100.0
    strike: float = 105.0
    years: float = 1.0
    volatility: float = 0.2
    rate: float = 0.03


GRADIENTS = ("delta", "vega", "rho")
"""Derivatives of the price by spot, volatility and rate."""


def priced(option: Option, draws: torch.Tensor) -> torch.Tensor:
    """Return price and gradients from one set of draws.

    Parameters
    ----------
    option
        The option.
    draws
        From the standard normal distribution, one a path.

    Returns
    -------
    torch.Tensor
        Price, delta, vega, rho; shape (4,).
    """
    spot, volatility, rate = (
        torch.tensor(value, dtype=draws.dtype, device=draws.device, requires_grad=True)
        for value in (option.spot, option.volatility, option.rate)
    )
    drift = (rate - volatility**2 / 2) * option.years
    end = spot * torch.exp(drift + volatility * option.years**0.5 * draws)
    price = torch.exp(-rate * option.years) * torch.relu(end - option.strike).mean()
    gradients = torch.autograd.grad(price, (spot, volatility, rate))
    return torch.stack((price.detach(), *gradients))


def run(session: Session) -> Figures:
    """Run all iterations; return the mean price and its standard error."""
    iterations, paths = session.size("iterations"), session.size("paths")
    generator = torch.Generator(session.device).manual_seed(int(session.indices(0, 2**31, 1)))
    total = torch.zeros(1 + len(GRADIENTS), dtype=torch.float64, device=session.device)
    squares = torch.zeros_like(total)
    done = 0
    for _ in session.steps(range(iterations)):
        found = priced(Option(), torch.randn(paths, generator=generator, device=session.device)).double()
        total += found
        squares += found**2
        done += 1
    mean = total / done
    deviation = ((squares / done - mean**2).clamp(min=0) / max(done - 1, 1)).sqrt()
    found_all = dict(zip(("price", *GRADIENTS), mean.tolist(), strict=True))
    return found_all | {"standard_error": float(deviation[0])}


WORKLOAD = Workload(
    name="monte_carlo", title="An option priced by Monte Carlo, with gradients by automatic differentiation.",
    sizes=(
        Size("iterations", 50_000, "each with draws and gradients of its own", least=2),
        Size("paths", 100_000, "of an iteration", least=100),
    ),
    arrays=(), run=run,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(WORKLOAD))
