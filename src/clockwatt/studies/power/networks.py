"""The networks of the study as modules of torch."""

from __future__ import annotations

from torch import Tensor, nn

ECG_LEADS, ECG_CLASSES = 12, 5
CINC17_CLASSES = 4
_DROPOUT = 0.2
IMAGE_PIXELS, DIGITS = 784, 10
_FIRST_CHANNELS, _BLOCKS, _WIDTH = 32, 16, 17


class _Block(nn.Module):
    """Two convolutions with a way around them; normalisation and activation come first (He et al., 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.BatchNorm1d(inputs), nn.ReLU())
        self.convolutions = nn.Sequential(
            nn.Conv1d(inputs, outputs, _WIDTH, stride, _WIDTH // 2, bias=False),
            nn.BatchNorm1d(outputs),
            nn.ReLU(),
            *([nn.Dropout(dropout)] if dropout else []),
            nn.Conv1d(outputs, outputs, _WIDTH, 1, _WIDTH // 2, bias=False),
        )
        around: list[nn.Module] = [nn.MaxPool1d(stride, ceil_mode=True)] if stride > 1 else []
        if inputs != outputs:
            around.append(nn.Conv1d(inputs, outputs, 1, bias=False))
        self.around = nn.Sequential(*around)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.convolutions(self.before(x)) + self.around(x)
        return found


def ecg_resnet() -> nn.Module:
    """Build a residual network of 34 layers along the time of an ECG: [batch, 12, length] to [batch, 5].

    The layout is that of Hannun et al. (Nature Medicine, 2019): 16 blocks of two convolutions, every second of which
    halves the length, with twice as many channels after each four.
    """
    return _ecg(ECG_LEADS, ECG_CLASSES)


def ecg_cinc17() -> nn.Module:
    """Build the same with one lead and dropout, as for the challenge CinC17: [batch, 1, length] to [batch, 4]."""
    return _ecg(1, CINC17_CLASSES, _DROPOUT)


def _ecg(leads: int, classes: int, dropout: float = 0.0) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv1d(leads, _FIRST_CHANNELS, _WIDTH, 1, _WIDTH // 2, bias=False)]
    channels = _FIRST_CHANNELS
    for number in range(_BLOCKS):
        outputs = _FIRST_CHANNELS * 2 ** (number // 4)
        layers.append(_Block(channels, outputs, stride=1 + number % 2, dropout=dropout))
        channels = outputs
    layers += [nn.BatchNorm1d(channels), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(channels, classes))


def dense_512() -> nn.Module:
    """Build two dense layers of 512: [batch, 784] to [batch, 10]."""
    return _dense(512)


def dense_16384() -> nn.Module:
    """Build two dense layers of 16,384: [batch, 784] to [batch, 10]."""
    return _dense(16_384)


def _dense(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(IMAGE_PIXELS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, DIGITS)
    )
