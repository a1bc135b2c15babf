"""Words that documents and help texts avoid, since each was read twice by somebody who knows the field."""

import ast
import re

import pytest
import typer
from test_docs import PAGES, ROOT

from clockwatt.cli.main import app
from clockwatt.schema.records import READABLE_SINCE

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


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_documents_avoid_them(page):
    assert not avoided(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("place", HELPS)
def test_help_texts_avoid_them(place):
    assert not avoided(HELPS[place])


def test_the_search_sees_words_and_not_code():
    assert avoided("The host paces the pass.")
    assert not avoided("`fit.anchor` and [a page](docs/anchor.md)")


SOURCE = ROOT / "src/clockwatt"


def messages(module):
    """The string literals of a module that may be printed: those with a space, without docstrings and kinds of rows."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if " " in text and id(node) not in documented and text not in READABLE_SINCE:
            yield text


@pytest.mark.parametrize("package", sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()))
def test_messages_avoid_them(package):
    found = {str(path): [*map(avoided, messages(path))] for path in (SOURCE / package).rglob("*.py")}
    assert not {path: words for path, words in found.items() if any(words)}


def shown(file):
    """What a file of the page or of the report shows: a script's strings with a space, or the text without tags."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".js":
        text = re.sub(r"^\s*(?:/?\*|//).*$", "", text, flags=re.MULTILINE)
        strings = re.findall(r'"(?:[^"\\\n]|\\.)*"|`(?:[^`$\\]|\\.|\$\{[^{}]*\}|\$)*`', text)
        return " ".join(re.sub(r"\$\{[^}]*\}", "", string).strip("`") for string in strings if " " in string)
    return re.sub(r"<(?:style|script).*?</(?:style|script)>|<[^>]*>|``", " ", text, flags=re.DOTALL)


SHOWN = sorted(
    [
        *(SOURCE / "page/assets").glob("*.js"),
        SOURCE / "page/assets/page.html",
        *(ROOT / "workflow/report").glob("*.rst"),
    ]
)


@pytest.mark.parametrize("file", SHOWN, ids=[file.name for file in SHOWN])
def test_page_and_captions_avoid_them(file):
    assert not avoided(shown(file))
