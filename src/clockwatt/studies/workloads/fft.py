"""Fourier transforms of many signals, there and back."""

from __future__ import annotations

import sys

import torch

from clockwatt.studies.workloads.inputs import Array, Size
from clockwatt.studies.workloads.session import Figures, Session, Workload, main


def spectrum(signals: torch.Tensor) -> torch.Tensor:
    """Return the Fourier transform of real signals: (signals, samples) to (signals, samples // 2 + 1), complex."""
    transformed: torch.Tensor = torch.fft.rfft(signals)
    return transformed


def signal_of(transformed: torch.Tensor, samples: int) -> torch.Tensor:
    """Return the signals that a spectrum is of; the inverse of `spectrum`."""
    signals: torch.Tensor = torch.fft.irfft(transformed, n=samples)
    return signals


def run(session: Session) -> Figures:
    """Transform and invert repeatedly; return the largest deviation from the original signals."""
    shape = session.size("signals"), session.size("samples")
    (signals,) = session.to_device(session.array("signals", lambda: session.normal(*shape)))
    back = signals
    for _ in session.steps(range(session.size("iterations"))):
        back = signal_of(spectrum(signals), signals.shape[1])
    return {"largest_error": float((back - signals).abs().max())}


WORKLOAD = Workload(
    name="fft", title="Fourier transforms of many signals, there and back.",
    sizes=(
        Size("signals", 256, "that are transformed at a time", scaled=False),
        Size("samples", 2**20, "of a signal", least=16),
        Size("iterations", 1_000, "how often", scaled=False),
    ),
    arrays=(Array("signals", ("signals", "samples")),),
    run=run,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(WORKLOAD))
