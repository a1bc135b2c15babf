"""Models of the library `transformers` from their configurations; nothing is downloaded, no weight is read.

`hf:CONFIG.json` names a file as `config.json` of a model on the Hugging Face Hub: `model_type` says which kind of model
it is, and `architectures` which head stands on it; without it, the bare model is taken. The optional extra
`clockwatt[transformers]` installs the library.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from clockwatt.config import NetworkConfig
from clockwatt.errors import NetworkError, did_you_mean

UNMASKED = "unmasked_sdpa"
MASKS = ("attention_mask", "encoder_attention_mask", "decoder_attention_mask")
_KEY_VALUE_SPREAD = 1.0


def library() -> Any:
    """The library `transformers`, with attention that gets no mask under the name `UNMASKED`.

    Under `sdpa` and without a mask the library looks at the values of positions to find sequences packed into one: a
    branch on data, which waits for the GPU, and no mask comes of it either.

    Raises
    ------
    ImportError
        If it is not installed.
    """
    # a configuration may name a backbone whose weights lie on the Hub: they are not fetched
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        transformers: Any = importlib.import_module("transformers")
        sdpa = importlib.import_module("transformers.integrations.sdpa_attention").sdpa_attention_forward
    except ImportError as error:
        raise ImportError(f"{error}: install the extra, `pip install 'clockwatt[transformers]'`") from error
    hub: Any = importlib.import_module("huggingface_hub.constants")
    hub.HF_HUB_OFFLINE = True  # it may have been imported before
    transformers.AttentionInterface.register(UNMASKED, sdpa)
    return transformers


class HuggingFaceModel(torch.nn.Module):
    """A model of `transformers` as a network from its inputs to its first output, without a cache.

    Parameters
    ----------
    model
        What `transformers` gives.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        for part in model.modules():  # it reads ids on the GPU for nothing but a warning
            if hasattr(part, "warn_if_padding_and_no_attention_mask"):
                part.warn_if_padding_and_no_attention_mask = _ignore  # type: ignore[assignment]

    def forward(self, *given: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
        """Scores where the model has a head, else its last hidden state; a single input may come by position."""
        options = {"use_cache": False} if getattr(self.model.config, "use_cache", False) else {}
        return _first(self.model(*given, **inputs, **options))


class DecodingStep(torch.nn.Module):
    """A decoder that predicts the token behind so many, whose keys and values it has kept.

    Parameters
    ----------
    model
        A decoder of `transformers` with its head.
    batch, length
        Sequences, and tokens of each that are kept.
    dtype
        Of the keys and values.

    Raises
    ------
    ValueError
        If the model keeps no keys and values.
    """

    def __init__(self, model: torch.nn.Module, batch: int, length: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model
        self._library = library()
        self._cache_argument = _cache_argument(model)
        config: Any = model.config
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._layers = int(config.num_hidden_layers)
        for layer in range(self._layers):
            for what in ("keys", "values"):
                kept = torch.empty(batch, heads, length, width, dtype=dtype)
                self.register_buffer(f"{what}_{layer}", kept, persistent=False)
        self.register_buffer("positions", torch.full((batch, 1), length), persistent=False)

    def fill(self) -> None:
        """Give the kept keys and values standard normal values."""
        for name, kept in self.named_buffers(recurse=False):
            if name != "positions":
                kept.normal_(std=_KEY_VALUE_SPREAD)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Scores of shape (batch, 1, vocabulary) for ids of shape (batch, 1); what is kept stays as it is."""
        pairs = [
            (self.get_buffer(f"keys_{layer}"), self.get_buffer(f"values_{layer}")) for layer in range(self._layers)
        ]
        cache = self._library.DynamicCache(pairs)
        kept = {self._cache_argument: cache}
        return _first(self.model(input_ids=token_ids, position_ids=self.positions, use_cache=True, **kept))


def constructor_of_config(network: NetworkConfig, path: Path) -> Callable[[], torch.nn.Module]:
    """Return what constructs the network when it is called, the model of the configuration in `path`.

    Raises
    ------
    NetworkError
        If the file cannot be read or names no model that the library knows.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = "no such file" if isinstance(error, FileNotFoundError) else f"not readable as JSON ({error})"
        raise NetworkError(f"network {network.name}: {path}: {why}. Give the model's config.json.") from None
    if not isinstance(content, dict) or not isinstance(content.get("model_type"), str):
        raise NetworkError(f"network {network.name}: {path} has no `model_type`, such as bert or llama.")
    return lambda: _construct(network, content)


def _construct(network: NetworkConfig, content: dict[str, Any]) -> torch.nn.Module:
    transformers = library()
    masked = any(keyword in network.by_keyword for keyword in MASKS)
    kinds = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    if content["model_type"] not in kinds:
        raise NetworkError(
            f"network {network.name}: transformers {transformers.__version__} has no `model_type` "
            f"{content['model_type']}{did_you_mean(content['model_type'], list(kinds))}"
        )
    try:
        config = transformers.AutoConfig.for_model(**content)
    except importlib.import_module("huggingface_hub.errors").StrictDataclassError as error:
        what = ": ".join(line.strip().rstrip(":") for line in str(error).splitlines())
        raise NetworkError(f"network {network.name}: transformers refuses the configuration ({what}).") from error
    head = (content.get("architectures") or [None])[0]
    kind: Any = transformers.AutoModel if head is None else getattr(transformers, str(head), None)
    # the name comes from a file: nothing but a model may be called by it
    if head is not None and not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        raise NetworkError(f"network {network.name}: transformers {transformers.__version__} has no model {head}.")
    construct = functools.partial(kind.from_config, trust_remote_code=False) if head is None else kind
    model = _with_attention(construct, config, ("sdpa", "eager") if masked else (UNMASKED, "sdpa", "eager"))
    if network.cache_length is None:
        return HuggingFaceModel(model)
    batch, new = network.first_input.shape[0], network.first_input.shape[1:]
    try:
        step = DecodingStep(model, batch, network.cache_length, getattr(torch, network.dtype))
    except ValueError as error:
        raise NetworkError(f"network {network.name}: {error}. Leave out cache_length (--cache-length).") from error
    if new != [1]:
        raise NetworkError(
            f"network {network.name}: a step with cache_length takes token ids of shape [batch, 1], not "
            f"{network.first_input.shape}."
        )
    return step


def _with_attention(construct: Any, config: Any, implementations: tuple[str, ...]) -> torch.nn.Module:
    """The model with the first implementation of attention that it knows."""
    for implementation in implementations:
        config._attn_implementation = implementation
        try:
            model: torch.nn.Module = construct(config)
        except (KeyError, ValueError) as error:
            refused = isinstance(error, KeyError) or "attention implementation" in str(error)
            if not refused or implementation == implementations[-1]:
                raise
        else:
            return model
    raise AssertionError


def _ignore(*given: Any) -> None:
    """Take anything and do nothing."""


def _cache_argument(model: torch.nn.Module) -> str:
    """What a decoder calls the keys and values that it is given; ValueError if it takes none, as encoders do."""
    taken = inspect.signature(model.forward).parameters
    names = [name for name in ("cache", "past_key_values") if name in taken]  # the latter before transformers 5.24
    if not names or getattr(model.config, "is_decoder", True) is False:
        raise ValueError(f"{type(model).__name__} is no decoder, which would keep keys and values")
    return names[0]


def _first(outputs: Any) -> torch.Tensor:
    """The scores, or else the first tensor of what a model gives."""
    scores = getattr(outputs, "logits", None)
    first: torch.Tensor = outputs[0] if scores is None else scores
    return first
