"""Finding what constructs a network of a name: torchvision, timm, transformers by configuration, or the user's own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from clockwatt.config import NetworkConfig
from clockwatt.errors import NetworkError, did_you_mean

FAULTS = (Exception,)
"""What a network's own code may raise while it is imported, built or run: classes of its own, too."""

HUGGING_FACE = "hf:"
TIMM = "timm:"

Constructor = Callable[[], Any]


def summary(error: BaseException) -> str:
    """Type and first line of an error, for messages."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}".removesuffix(": ")


def constructor_of(network: NetworkConfig) -> Constructor:
    """What gives a network of the configured name when it is called; nothing is downloaded.

    Raises
    ------
    NetworkError
        If there is no such network, or the library it needs is not installed.
    """
    name = network.name
    if name.startswith(HUGGING_FACE):
        from clockwatt.operations.hugging_face import constructor_of_config

        return constructor_of_config(network, Path(name.removeprefix(HUGGING_FACE)))
    if name.startswith(TIMM):
        return _of_timm(name.removeprefix(TIMM))
    return _imported(name) if ":" in name else _of_torchvision(name)


def torchvision_models() -> ModuleType:
    """Return `torchvision.models`, imported without torch.compile, which takes longer to import than torch itself.

    torchvision imports it for one function, which says whether torch.compile supports a device.
    """
    name = "torch._dynamo.utils"
    deferred = {} if name in sys.modules else {name: _Deferred(name)}
    sys.modules.update(deferred)
    try:
        import torchvision
    finally:
        for name in deferred:
            del sys.modules[name]
    models: ModuleType = torchvision.models
    return models


class _Deferred(ModuleType):
    """Stands for a module whose functions are imported when one of them is called."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args: getattr(importlib.import_module(self.__name__), name)(*args)


def _of_torchvision(name: str) -> Constructor:
    models = torchvision_models()
    classification = models.list_models(module=models)
    if name in classification:
        return lambda: models.get_model(name, weights=None)
    video, segmentation = models.list_models(module=models.video), models.list_models(module=models.segmentation)
    if name in video:
        return lambda: models.get_model(name, weights=None)
    if name in segmentation:
        return lambda: models.get_model(name, weights=None, weights_backbone=None)
    raise NetworkError(
        f"network {name!r} is no classification, segmentation or video network of torchvision"
        f"{did_you_mean(name, [*classification, *video, *segmentation])} "
        "A network of your own is written package.module:callable or FILE.py:callable."
    )


def timm_input_size(name: str) -> list[int]:
    """Return the sizes of an image that a network of timm, `timm:NAME`, takes by default: channels, height, width.

    NetworkError if there is no such network, or timm is not installed.
    """
    model = name.removeprefix(TIMM)
    configuration = _timm_with(model).get_pretrained_cfg(model)
    return list(configuration.input_size if configuration else (3, 224, 224))


def _of_timm(name: str) -> Constructor:
    timm = _timm_with(name)
    return lambda: timm.create_model(name, pretrained=False)


def _timm_with(name: str) -> Any:
    """Return the module timm, if it has a model of this name."""
    try:
        timm: Any = importlib.import_module("timm")
    except ImportError as error:
        raise NetworkError(
            f"network {TIMM}{name}: {error}: install the extra, `pip install 'clockwatt[timm]'`."
        ) from error
    if not timm.is_model(name):
        raise NetworkError(f"network {TIMM}{name}: timm has no such model{did_you_mean(name, timm.list_models())}")
    return timm


def _imported(name: str) -> Constructor:
    module_name, _, attribute = name.partition(":")
    here, file = Path.cwd(), None
    if module_name.endswith(".py"):
        file = Path(module_name).resolve()
        here, module_name = file.parent, file.stem
    if str(here) not in sys.path:
        sys.path.insert(0, str(here))  # and it stays: the constructor may import more
    try:
        module = importlib.import_module(module_name)
    except (*FAULTS, SyntaxError, SystemExit) as error:  # a script ends when it is imported
        raise NetworkError(
            f"network {name}: module {module_name!r} cannot be imported ({summary(error)}). "
            f"Python searched {here} and the installed packages."
        ) from error
    found = getattr(module, "__file__", None)
    if file is not None and (found is None or Path(found).resolve() != file):
        raise NetworkError(
            f"network {name}: another module is named {module_name!r} ({found or 'of Python itself'}). Rename the file."
        )
    constructor: Constructor | None = getattr(module, attribute, None)
    if not callable(constructor):
        public = [entry for entry in dir(module) if callable(getattr(module, entry)) and not entry.startswith("_")]
        near = did_you_mean(attribute, public)
        fix = " Give a function or class of it that returns the network." * near.endswith(".")
        raise NetworkError(f"network {name}: module {module_name!r} has no callable {attribute!r}{near}{fix}")
    from torch import nn

    if isinstance(constructor, nn.Module):
        return lambda: constructor
    return constructor
