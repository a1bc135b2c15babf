"""Inputs of networks from libraries that say themselves what they take: `hf:CONFIG.json` and `timm:NAME`."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HUGGING_FACE = "hf:"
TIMM = "timm:"

_SPEECH = ("conv_dim", "feat_extract_norm", "num_mel_bins")
"""Keys of configurations whose models hear, and have a vocabulary to write in."""
_HALVES = ("float16", "bfloat16")


def complete(content: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in what a network's library knows, where the configuration leaves it out.

    - `hf:CONFIG.json`: half precision; of `input: [batch, length]` that it holds token ids below the size of the
      vocabulary; the decoder's token ids, as many as the encoder's or as the decoder has positions for.
    - `timm:NAME`: the size of an image, where `input` is `[batch]`.

    Parameters
    ----------
    content
        A network as a campaign has it; what is wrong in it stays as it is.
    """
    name, given = content.get("name"), content.get("input")
    completed = dict(content)
    if not isinstance(name, str):
        return completed
    if name.startswith(HUGGING_FACE):
        return _hugging_face(completed, _configuration(name.removeprefix(HUGGING_FACE)))
    if name.startswith(TIMM) and isinstance(given, list) and len(given) == 1:
        completed["input"] = [*given, *_image_size(name.removeprefix(TIMM))]
    return completed


def _hugging_face(content: dict[str, Any], configuration: Mapping[str, Any]) -> dict[str, Any]:
    dtype = configuration.get("dtype") or configuration.get("torch_dtype")
    if not {"precision", "dtype", "tf32"} & content.keys() and dtype in _HALVES:
        content["precision"] = [dtype]
    shape = content.get("input")
    if not isinstance(shape, list) or not shape or content.get("inputs") is not None:
        return content
    vocabulary = _within(configuration, "vocab_size")
    below = content.get("input_below")
    if below is None and vocabulary and len(shape) == 2 and not any(key in configuration for key in _SPEECH):
        content |= {"input_dtype": "int64", "input_below": vocabulary}
    if not configuration.get("is_encoder_decoder") or not vocabulary or content.get("cache_length") is not None:
        return content
    batch, ids = shape[0], {"dtype": "int64", "below": vocabulary}
    if len(shape) == 2:
        first, length = {"input_ids": {"shape": shape, **ids, "below": content["input_below"]}}, shape[1]
    else:
        first, length = {"input_features": {"shape": shape}}, math.inf
    length = min(length, configuration.get("max_target_positions") or configuration.get("n_positions") or length)
    if math.isinf(length):
        return content
    rest = {key: value for key, value in content.items() if key not in ("input", "input_dtype", "input_below")}
    return rest | {"inputs": first | {"decoder_input_ids": {"shape": [batch, length], **ids}}}


def _configuration(path: str) -> Mapping[str, Any]:
    """Return the configuration in a file; an empty one if there is none, which constructing the network reports."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _within(configuration: Mapping[str, Any], key: str) -> Any:
    """Return a value of the configuration or, of a model for text and images, of its part for text."""
    text = configuration.get("text_config")
    return configuration.get(key) or (text.get(key) if isinstance(text, dict) else None)


def _image_size(name: str) -> list[int]:
    """Return channels, height and width of the input of a timm model; an empty list if unknown."""
    try:
        timm: Any = importlib.import_module("timm")
    except ImportError:
        return []
    known = timm.get_pretrained_cfg(name) if timm.is_model(name) else None
    return list(known.input_size) if known else []
