"""Spectrograms of sound: short windows of many signals, transformed one beside the other."""

from __future__ import annotations

import sys

import torch

from clockwatt.studies.workloads.inputs import Array, Size
from clockwatt.studies.workloads.session import Figures, Session, Workload, main


def spectrogram(sounds: torch.Tensor, window: int, hop: int) -> torch.Tensor:
    """Return the power in short windows, each weighted by Hann's.

    Parameters
    ----------
    sounds
        Shape (sounds, samples).
    window
        Samples of a window.
    hop
        Samples from one window's beginning to the next.

    Returns
    -------
    torch.Tensor
        |Σ wₙ xₙ e^(−2πikn/N)|², shape (sounds, window // 2 + 1, 1 + (samples − window) // hop).
    """
    weights = torch.hann_window(window, dtype=sounds.dtype, device=sounds.device)
    return torch.stft(sounds, window, hop, window=weights, center=False, return_complex=True).abs().square()


def run(session: Session) -> Figures:
    """Compute the spectrograms repeatedly."""
    size = session.size
    made = session.array("sounds", lambda: session.normal(size("sounds"), size("samples")))
    (sounds,) = session.to_device(made)
    window = min(size("window"), sounds.shape[1])
    power = sounds
    for _ in session.steps(range(size("iterations"))):
        power = spectrogram(sounds, window, max(1, window // 4))
    return {"mean_power": float(power.mean())}


WORKLOAD = Workload(
    name="spectrogram", title="Spectrograms of sound, by Fourier transforms of windows that overlap by three quarters.",
    sizes=(
        Size("sounds", 64, "at a time", scaled=False),
        Size("samples", 960_000, "of a sound: a minute at 16 kHz", least=64),
        Size("window", 1_024, "samples of a window", scaled=False, least=4),
        Size("iterations", 1_000, "how often", scaled=False),
    ),
    arrays=(Array("sounds", ("sounds", "samples")),),
    run=run,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(WORKLOAD))
