"""A fingerprint of the code that a stage of analysis consists of, so that its results are made anew when it changes."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path

from clockwatt.io.resources import resource

PACKAGE = "clockwatt"
_ROOT = Path(__file__).parents[1]


def fingerprint(*packages: str, resources: tuple[str, ...] = (), root: Path = _ROOT) -> str:
    """Hash of the sources of some packages and of every module of the project that they import, directly or not.

    Parameters
    ----------
    packages
        Names below `clockwatt`, e.g. `predict`.
    resources
        Shipped files that they read, relative to `resources/`.
    root
        Folder of the package `clockwatt`.

    Returns
    -------
    str
        16 hexadecimal digits, the same wherever the project lies and whenever its files were written.

    Raises
    ------
    FileNotFoundError
        If there is no such package or resource.
    """
    waiting = [path for package in packages for path in _sources_of(root, package)]
    sources: set[Path] = set()
    names: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path not in sources:
            sources.add(path)
            new = _imported_names(path.read_bytes(), str(path)) - names
            names |= new
            waiting.extend(found for name in new for found in _files_of(root, name.split(".")[1:]))
    digest = hashlib.sha256()
    for name, path in sorted(
        [(str(path.relative_to(root)), path) for path in sources] + [(name, resource(name)) for name in resources]
    ):
        digest.update(f"{name}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _sources_of(root: Path, package: str) -> list[Path]:
    folder = root.joinpath(*package.split("."))
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such package")
    return sorted(folder.rglob("*.py"))


@functools.cache
def _imported_names(source: bytes, path: str) -> frozenset[str]:
    """Names of the project that a source imports, wherever the import stands: of modules, and of what may be one."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source, filename=path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # `from package import name`: the name may be a module or something in it
            names.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
    return frozenset(name for name in names if name.split(".")[0] == PACKAGE)


def _files_of(root: Path, below: list[str]) -> Iterator[Path]:
    """The file of a module and those of the packages above it; nothing for a name that is no module."""
    for depth in range(len(below) + 1):
        parent = root.joinpath(*below[:depth])
        for path in (parent / "__init__.py", parent.with_suffix(".py")):
            if path.is_file():
                yield path
