"""A fingerprint of the code that a stage consists of, so that its results are made anew when it changes."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import io
import json
import os
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from clockwatt.errors import OutputError
from clockwatt.io import files
from clockwatt.io.resources import resource

PACKAGE = "clockwatt"
_ROOT = Path(__file__).parents[1]
_CLI = "cli"
_ASSETS = "assets"
"""Folder beside a package's modules with what they read that is no Python."""
_NO_CODE = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING})
_INDENTATION = frozenset({tokenize.INDENT, tokenize.DEDENT})
_KEPT = Path(importlib.util.cache_from_source(__file__)).with_suffix(".json")
"""What sources were found to say, by their bytes: beside the bytecode of this module, and of no other value."""


def fingerprints(commands: Iterable[str]) -> dict[str, str]:
    """`fingerprint` of several commands; what it reads of the sources is kept for the next process that asks.

    Raises
    ------
    FileNotFoundError
        See `fingerprint`.
    """
    found = {command: fingerprint(command) for command in commands}
    if not _SOURCES.keys() <= _kept().keys() and not sys.dont_write_bytecode:
        _keep(_SOURCES)
    return found


def fingerprint(command: str, root: Path = _ROOT) -> str:
    """Hash of what a command runs: every module that it imports, directly or not, their resources and assets.

    Comments and docstrings do not count, nor does the command line itself, which only hands over.

    Parameters
    ----------
    command
        Name of a file in `cli/`, without its ending.
    root
        Folder of the package `clockwatt`.

    Returns
    -------
    str
        16 hexadecimal digits, the same wherever the project lies and whenever its files were written.

    Raises
    ------
    FileNotFoundError
        If there is no such command, or a shipped file that a module names.
    """
    first = root / _CLI / f"{command}.py"
    waiting, sources = [first], {}
    asked: set[tuple[str, ...]] = set()  # most names are imported by many modules
    while waiting:
        path = waiting.pop()
        if path not in sources:
            sources[path] = _source_of(path.read_bytes())
            new = sources[path].imports - asked
            asked |= new
            waiting.extend(found for name in new for found in _files_of(root, name))
    sources = {path: source for path, source in sources.items() if root / _CLI not in path.parents}
    resources = {name for source in sources.values() for name in source.resources}
    hashed = {str(path.relative_to(root)): source.digest for path, source in sources.items()}
    hashed |= {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).digest()
        for folder in {path.parent / _ASSETS for path in sources}
        for path in folder.glob("*.*")
    }
    hashed |= {name: hashlib.sha256(resource(name).read_bytes()).digest() for name in resources}
    digest = hashlib.sha256()
    for name in sorted(hashed):
        digest.update(f"{name}\0".encode())
        digest.update(hashed[name])
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class _Source:
    """What counts of a file.

    Attributes
    ----------
    digest
        Of its code.
    imports
        Names below `clockwatt` that it imports, wherever in it the import stands.
    resources
        Shipped files that it names in a call of `resource`; folders are told from them by having no ending.
    """

    digest: bytes
    imports: frozenset[tuple[str, ...]]
    resources: frozenset[str]


_SOURCES: dict[str, _Source] = {}
"""What this process asked for, by the SHA-256 of their bytes."""


def _source_of(source: bytes) -> _Source:
    name = hashlib.sha256(source).hexdigest()
    if name not in _SOURCES:
        _SOURCES[name] = _kept().get(name) or _read(source)
    return _SOURCES[name]


@functools.cache
def _reader() -> str:
    """What reads sources, which decides what it finds in them: this module, in this Python."""
    return f"{sys.version} {hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}"


@functools.cache
def _kept() -> dict[str, _Source]:
    """What an earlier process kept; nothing where there is none, or another version kept it."""
    try:
        kept = json.loads(_KEPT.read_text("utf-8"))
        if kept["reader"] != _reader():
            return {}
        return {
            name: _Source(bytes.fromhex(digest), frozenset(tuple(below) for below in imports), frozenset(resources))
            for name, (digest, imports, resources) in kept["sources"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _keep(sources: dict[str, _Source]) -> None:
    """Keep what was found; where the folder cannot be written, as bytecode, it is not."""
    content = {
        name: (source.digest.hex(), sorted(source.imports), sorted(source.resources))
        for name, source in sources.items()
    }
    with contextlib.suppress(OutputError):
        files.write_text(json.dumps({"reader": _reader(), "sources": content}), _KEPT)


def _read(source: bytes) -> _Source:
    imports: set[tuple[str, ...]] = set()
    resources = set()
    for node in _run(ast.parse(source), expressions=b"resource(" in source):
        names: list[str] = []
        match node:
            case ast.Import(names=aliases):
                names = [alias.name for alias in aliases]
            case ast.ImportFrom(module=str(module), names=aliases, level=0):
                # `from package import name`: the name may be a module or something in it
                names = [module, *(f"{module}.{alias.name}" for alias in aliases)]
            case ast.Call(func=ast.Name(id="resource"), args=[ast.Constant(value=str(name))]) if "." in name:
                resources.add(name)
        imports |= {tuple(below) for first, *below in (name.split(".") for name in names) if first == PACKAGE}
    return _Source(hashlib.sha256(_code(source)).digest(), frozenset(imports), frozenset(resources))


def _run(tree: ast.Module, *, expressions: bool) -> Iterator[ast.AST]:
    """Nodes of what runs: not of what is imported for type checkers alone, and of expressions where they are wanted."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                waiting += node.orelse
            case ast.expr() if not expressions:
                pass
            case _:
                waiting += ast.iter_child_nodes(node)


def _code(source: bytes) -> bytes:
    """Tokens of a source but for comments, docstrings and blank lines."""
    lines: list[list[tokenize.TokenInfo]] = [[]]
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type == tokenize.NEWLINE:
            lines.append([])
        elif token.type not in _NO_CODE:
            lines[-1].append(token)
    code = []
    for line in lines:
        indentation = [token for token in line if token.type in _INDENTATION]
        code += [tokenize.tok_name[token.type] for token in indentation]
        statement = [token for token in line if token.type not in _INDENTATION]
        if [token.type for token in statement] != [tokenize.STRING]:
            code += [*(token.string for token in statement), "\n"]
    return "\0".join(code).encode()


def _files_of(root: Path, below: tuple[str, ...]) -> Iterator[Path]:
    """The file of a module and those of the packages above it; nothing for a name that is no module."""
    for depth in range(len(below) + 1):
        parent = "/".join((str(root), *below[:depth]))
        for path in (f"{parent}/__init__.py", f"{parent}.py"):
            if os.path.isfile(path):  # noqa: PTH113  # asked for ten thousand times: a path object costs more than the answer
                yield Path(path)
