"""Random sizes of tensors: those that networks have, and odd ones between them.

Everything comes from one `random.Random`, seeded by text, so that a draw is the same on every machine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

Choice = TypeVar("Choice")

LARGEST_TENSOR = 2**28
"""Elements of the largest activation that is drawn; the bound in memory may be lower."""
SMALLEST_TENSOR = 2**6

_CHANNELS = (
    *(8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 120, 128, 144, 160, 176, 192, 208, 224, 240, 256, 272, 288),
    *(320, 336, 384, 400, 432, 448, 480, 512, 528, 576, 640, 672, 720, 768, 784, 832, 864, 896, 912, 960, 1008, 1024),
    *(1056, 1152, 1280, 1344, 1536, 1632, 1792, 1920, 2016, 2048, 2304, 2560, 3072, 3712, 4096),
)
_IMAGES = (
    *(4, 7, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 38, 40, 48, 56, 64, 75, 80, 96, 112, 120, 128, 147, 149, 160, 192),
    *(224, 256, 320, 384, 448, 512),
)
_SEQUENCES = (1, 16, 32, 49, 50, 64, 77, 100, 128, 144, 196, 197, 256, 384, 512, 577, 768, 1024, 1500, 2048, 4096, 8192)
_WIDTHS = (
    *(64, 96, 128, 192, 256, 320, 384, 512, 576, 640, 768, 896, 1000, 1024, 1152, 1280, 1536, 1600, 1792, 2048, 2304),
    *(2560, 2816, 3072, 3584, 4096, 4608, 4864, 5120, 5632, 6144, 8192, 8960, 9216, 10240, 11008, 12288, 14336, 16384),
)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Sizes:
    """Draws sizes.

    Parameters
    ----------
    text
        Decides all that is drawn.
    """

    def __init__(self, text: str) -> None:
        self._random = random.Random(text)  # noqa: S311  # a draw of shapes, not a secret

    def chance(self, probability: float) -> bool:
        """Whether something of this probability happens."""
        return self._random.random() < probability

    def one_of(self, choices: Sequence[Choice], weights: Sequence[float] | None = None) -> Choice:
        """One of some things."""
        return self._random.choices(choices, weights)[0]

    def several(self, choices: Sequence[Choice], number: int) -> list[Choice]:
        """Some different ones of some things."""
        return self._random.sample(choices, number)

    def integer(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, spread evenly over its logarithm."""
        drawn = math.exp(self._random.uniform(math.log(low), math.log(high + 1)))
        return min(max(int(drawn), low), high)

    def until(self, draw: Callable[[], Choice], fits: Callable[[Choice], bool]) -> Choice:
        """Draw until something fits; of what is drawn in vain the last stands, and bounds are checked afterwards."""
        drawn = draw()
        for _ in range(200):
            if fits(drawn):
                break
            drawn = draw()
        return drawn

    def batch(self, largest: int = 512) -> int:
        """Samples in a batch."""
        usual = [size for size in _BATCHES if size <= largest]
        return self.one_of(usual) if self.chance(0.6) else self.integer(1, largest)

    def channels(self, largest: int = 4096) -> int:
        """Channels: as networks have them, multiples of eight, and odd numbers."""
        usual = [number for number in _CHANNELS if number <= largest]
        if usual and self.chance(0.55):
            return self.one_of(usual)
        if largest >= 8 and self.chance(0.5):
            return 8 * self.integer(1, largest // 8)
        return self.integer(1, largest)

    def image(self, largest: int = 512) -> int:
        """Height or width of an image."""
        usual = [size for size in _IMAGES if size <= largest]
        return self.one_of(usual) if usual and self.chance(0.6) else self.integer(min(4, largest), largest)

    def sequence(self, largest: int = 8192) -> int:
        """Tokens in a sequence."""
        usual = [length for length in _SEQUENCES if length <= largest]
        return self.one_of(usual) if self.chance(0.6) else self.integer(1, largest)

    def width(self, largest: int = 16384) -> int:
        """Features of a token or of a fully connected layer."""
        usual = [width for width in _WIDTHS if width <= largest]
        return self.one_of(usual) if usual and self.chance(0.6) else self.channels(largest)

    def picture(self, dimensions: int, *, largest: int = LARGEST_TENSOR) -> tuple[int, ...]:
        """Batch, channels and one to three sizes of an activation with no more than `largest` elements."""
        return self.until(
            lambda: self._picture(dimensions), lambda shape: SMALLEST_TENSOR <= math.prod(shape) <= largest
        )

    def _picture(self, dimensions: int) -> tuple[int, ...]:
        if dimensions == 1:
            return (self.batch(), self.channels(), self.sequence())
        side = self.image() if dimensions == 2 else self.image(128)
        batch = self.batch() if dimensions == 2 else self.batch(64)
        if dimensions == 2 and self.chance(0.2):  # what failed: large batches of small images
            batch, side = self.integer(65, 512), self.image(63)
        other = self.image() if dimensions == 2 and self.chance(0.12) else side
        depth = () if dimensions == 2 else (self.integer(1, 64),)
        return (batch, self.channels(4096 if dimensions == 2 else 1024), *depth, side, other)

    def tokens(self, *, largest: int = LARGEST_TENSOR) -> tuple[int, int, int]:
        """Batch, length and width of an activation with no more than `largest` elements."""
        return self.until(
            lambda: (self.batch(), self.sequence(), self.width(8192)),
            lambda shape: SMALLEST_TENSOR <= math.prod(shape) <= largest,
        )

    def activation(self) -> tuple[int, ...]:
        """Shape of any activation: an image's in half of all draws, tokens, a vector of features, a volume."""
        kind = self.one_of(("image", "tokens", "vector", "volume", "signal"), (50, 28, 8, 7, 7))
        if kind == "tokens":
            return self.tokens()
        if kind == "vector":
            return (self.batch(), self.width())
        return self.picture({"signal": 1, "image": 2, "volume": 3}[kind])
