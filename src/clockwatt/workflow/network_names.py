"""Check names of networks before anything is submitted, without importing PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

from clockwatt.config import CampaignConfig
from clockwatt.errors import ConfigError, did_you_mean

_REGISTERED = re.compile(r"^@register_model\(.*?^def (\w+)\(", re.MULTILINE | re.DOTALL)


def check_names(campaign: CampaignConfig, source: str) -> None:
    """Check that what a network is named after exists; whether it can be built is left to the catalogue.

    Parameters
    ----------
    campaign
        Names of libraries that are not installed here are not checked: jobs may run in an environment of their own.
    source
        File of the campaign, for messages.

    Raises
    ------
    ConfigError
        Naming the file, the key and the network.
    """
    known = set(_of_torchvision())
    study = campaign.studies.parallel
    keys = {"networks": campaign.networks, "studies.parallel.networks": study.networks if study else []}
    for key, number, network in ((key, *one) for key, networks in keys.items() for one in enumerate(networks)):
        library, _, rest = network.name.partition(":")
        if not rest:
            wrong = bool(known) and network.name not in known
            what = f"no network of torchvision{did_you_mean(network.name, sorted(known))}"
        elif library == "hf" or library.endswith(".py"):
            file = rest if library == "hf" else library
            wrong, what = not Path(file).is_file(), f"no file {file} here."
        else:
            wrong, what = library != "timm" and not _exists(library), f"no module {library!r} here or installed."
        if wrong:
            raise ConfigError(
                f"{source}: {key}[{number}].name: {network.name!r}: {what} A network of your own is written "
                "package.module:callable or FILE.py:callable."
            )


def _of_torchvision() -> Iterator[str]:
    """Yield names in the source of the installed torchvision; none where it is not installed."""
    spec = find_spec("torchvision")
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in Path(folder, "models").rglob("*.py"):
            yield from _REGISTERED.findall(path.read_text(encoding="utf-8"))


def _exists(module: str) -> bool:
    """Return whether a module can be found, without importing the packages that it is in."""
    name, *parts = module.split(".")
    spec: ModuleSpec | None = PathFinder.find_spec(name, [str(Path.cwd())]) or find_spec(name)
    for part in parts:
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, spec.submodule_search_locations) if spec is not None else None
    return spec is not None
