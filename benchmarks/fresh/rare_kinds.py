"""What the seventh set draws from: kinds of networks that predictors missed by more than 10 %."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from benchmarks.fresh.kinds import TOKENS, Drawn, autoencoder, decoding

RARE_ZOO = "benchmarks.fresh.rare_zoo:"
_SMALL = (1, 2, 4, 8, 16, 32)
_FLOAT32 = ("float32",)
_BOTH_WIDTHS = ("float32", "float32", "bfloat16")


def stylegan(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """Draw a synthesis network with modulated convolutions."""
    name = f"{RARE_ZOO}stylegan_{rng.choice([64, 128, 256, 512])}_{rng.choice([4, 5, 6, 7])}"
    return Drawn(name, {"": ([256], {})}, _SMALL, dtypes=_BOTH_WIDTHS)


def unet3d(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """Draw a 3-D U-Net."""
    name = f"{RARE_ZOO}unet3d_{rng.choice([8, 16, 24, 32])}_{rng.choice([2, 3, 4])}"
    return Drawn(name, {"": ([1, *[rng.choice([32, 48, 64, 96])] * 3], {})}, (1, 2, 4, 8), dtypes=_BOTH_WIDTHS)


def graph(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """Draw a graph network: sums, means or attention over edges."""
    kind, nodes, features = (
        rng.choice(["gcn", "sage", "gat"]),
        rng.choice([100, 1000, 3000, 20000]),
        rng.choice([32, 100, 500]),
    )
    edges = nodes * rng.choice([4, 10, 30])
    last = rng.choice([2, 4, 8]) if kind == "gat" else rng.choice([2, 3, 5])
    ends = TOKENS | {"below": nodes}
    inputs = {"x": ([nodes, features], {}), "source": ([edges], ends), "target": ([edges], ends)}
    name = f"{RARE_ZOO}{kind}_{features}_{rng.choice([16, 64, 128, 256])}_{last}"
    return Drawn(name, inputs, (1, 2, 4, 8, 16, 64), dtypes=_FLOAT32)


def recommender(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """Draw DLRM with bags of rows, or DeepFM with one row of each table."""
    tables, rows, width = rng.choice([8, 16, 26]), rng.choice([1000, 20000, 200000]), rng.choice([8, 16, 64, 128])
    sparse = TOKENS | {"below": rows}
    batches = (256, 512, 1024, 2048, 8192, 16384)
    if rng.random() < 0.5:
        inputs: dict[str, Any] = {"dense": ([13], {}), "sparse": ([tables, rng.choice([1, 4, 20, 50])], sparse)}
        return Drawn(f"{RARE_ZOO}dlrm_{tables}_{rows}_{width}", inputs, batches, dtypes=_FLOAT32)
    return Drawn(f"{RARE_ZOO}deepfm_{tables}_{rows}_{width}", {"": ([tables], sparse)}, batches, dtypes=_FLOAT32)


def spectral(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """Draw a Fourier neural operator, or FNet."""
    if rng.random() < 0.5:
        size = rng.choice([64, 96, 128, 192, 256])
        name = f"{RARE_ZOO}fno_{rng.choice([20, 32, 64])}_{rng.choice([8, 12, 16, 24])}"
        return Drawn(name, {"": ([3, size, size], {})}, _SMALL, dtypes=_FLOAT32)
    name = f"{RARE_ZOO}fnet_{rng.choice([256, 512, 768])}_{rng.choice([2, 4, 8, 12])}"
    inputs = {"": ([rng.choice([64, 128, 200, 512])], TOKENS | {"below": 30522})}
    return Drawn(name, inputs, (1, 4, 8, 16, 32, 64), dtypes=_FLOAT32)


def relative_bias(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """Draw T5, whose attention has relative biases."""
    width = rng.choice([256, 384, 512, 768, 1024])
    config = {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": width, "d_kv": 64,
        "d_ff": rng.choice([2, 4]) * width, "num_layers": rng.choice([2, 4, 6, 8]), "num_heads": width // 64,
        "vocab_size": 32128, "feed_forward_proj": rng.choice(["relu", "gated-gelu"]),
    }  # fmt: skip
    tokens = TOKENS | {"below": 32128}
    inputs = {"input_ids": ([rng.choice([48, 128, 300, 512])], tokens),
              "decoder_input_ids": ([rng.choice([16, 64, 128])], tokens)}  # fmt: skip
    return Drawn("", inputs, (1, 2, 4, 8, 16, 32), config, dtypes=_BOTH_WIDTHS,
                 more={"data_dependent_branch": "false"})  # fmt: skip


def segformer(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """Draw Segformer."""
    widths = rng.choice([[16, 32, 80, 128], [32, 64, 160, 256], [64, 128, 320, 512]])
    config = {
        "model_type": "segformer", "architectures": ["SegformerForSemanticSegmentation"], "hidden_sizes": widths,
        "depths": rng.choice([[1, 1, 1, 1], [2, 2, 2, 2], [3, 4, 6, 3]]), "num_attention_heads": [1, 2, 5, 8],
        "decoder_hidden_size": rng.choice([128, 256, 768]),
    }  # fmt: skip
    size = rng.choice([128, 256, 384, 512])
    return Drawn("", {"pixel_values": ([3, size, size], {})}, (1, 2, 4, 8, 16), config, dtypes=_BOTH_WIDTHS)


def speech(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """Draw Deep Speech 2."""
    name = f"{RARE_ZOO}deepspeech_{rng.choice([128, 256, 400, 800])}_{rng.choice([2, 3, 5])}"
    return Drawn(name, {"": ([1, 161, rng.choice([100, 200, 400])], {})}, (1, 4, 8, 16, 32), dtypes=_BOTH_WIDTHS)


RARE_KINDS: dict[str, tuple[int, Callable[[random.Random, frozenset[str]], Drawn]]] = {
    "modulated convolution": (8, stylegan), "3-d u-net": (8, unet3d), "graph": (12, graph),
    "recommender": (10, recommender), "spectral": (8, spectral), "relative bias": (8, relative_bias),
    "segformer": (8, segformer), "speech recurrent": (8, speech), "small decoding step": (6, decoding),
    "transposed autoencoder": (6, autoencoder),
}  # fmt: skip
"""Kind to how many passes of it are drawn, and how."""
