"""Words that documents and help texts avoid, since each was read twice by somebody who knows the field."""

import ast
import re

import pytest
import typer
from test_docs import PAGES, ROOT

from clockwatt.cli.main import app

AVOIDED = {
    "report, predict, estimate": r"told|tells?|says? of",
    "host-bound, device-bound": r"paces?d?",
    "normalise": r"levell?ed",
    "held out, unseen": r"never saw|strangers?|fresh sets?",
    "train on, fit to": r"learnt|teach(?:es)?|taught",
    "MLP": r"perceptrons?",
    "transfer": r"borrow\w*|len[dt]s?",
    "clock model": r"law leads|clock law",
    "prediction interval": r"low to high|unsure",
    "reference operation": r"anchors?",
    "CUDA graphs": r"captured graph",
    "sampling rate": r"lanes?",
    "packages": r"rooms?|house",
    "remove": r"tak(?:e|es|en|ing) away",
    "provenance": r"c[ao]mes? about",
    "minimise": r"have least of",
    "runner-up": r"behind it",
    "known limitation": r"left alone",
    "measured": r"looked up",
    "nothing": r"beware",
}
"""The word to use: what it replaces, as a regular expression of whole words."""
PATTERN = re.compile(rf"\b(?:{'|'.join(AVOIDED.values())})\b", re.IGNORECASE)
GENERATED = ("resources/predictors/",)
"""Model cards, which `pack_predictors.py` writes."""
TEXTS = [page for page in PAGES if not str(page.relative_to(ROOT)).startswith(GENERATED)]


def avoided(text: str) -> list[str]:
    """The words of a text to avoid, each with what stands around it; code does not count."""
    prose = re.sub(r"```.*?```|`[^`\n]*`|\([^()\s]*\.\w+(?:#\S*)?\)", "``", text, flags=re.DOTALL)
    return [prose[max(0, word.start() - 40) : word.end() + 40] for word in PATTERN.finditer(prose)]


def helps(command, name="clockwatt"):
    yield name, command.help or ""
    for parameter in command.params:
        yield f"{name} {parameter.name}", getattr(parameter, "help", None) or ""
    for word, below in getattr(command, "commands", {}).items():
        yield from helps(below, f"{name} {word}")


HELPS = dict(helps(typer.main.get_command(app)))


@pytest.mark.parametrize("page", TEXTS, ids=[str(page.relative_to(ROOT)) for page in TEXTS])
def test_documents_avoid_them(page):
    assert not avoided(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("place", HELPS)
def test_help_texts_avoid_them(place):
    assert not avoided(HELPS[place])


def test_the_search_sees_words_and_not_code():
    assert avoided("The host paces the pass.")
    assert not avoided("`fit.perceptrons` and [a page](docs/anchor.md)")


SOURCE = ROOT / "src/clockwatt"
SPEAKING = {"print", "say", "echo"}
REWRITTEN_LATER = {"predict", "cli"}
"""Packages whose messages still have some of these words."""


def messages(module):
    """The string literals that a module raises or prints."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        called = getattr(node.func, "id", getattr(node.func, "attr", None)) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Raise) or called in SPEAKING:
            yield from (
                part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )


@pytest.mark.parametrize("package", sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()))
def test_messages_avoid_them(package):
    if package in REWRITTEN_LATER:
        pytest.skip("its messages still have some")
    found = {str(path): [*map(avoided, messages(path))] for path in (SOURCE / package).rglob("*.py")}
    assert not {path: words for path, words in found.items() if any(words)}
