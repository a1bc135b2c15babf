"""Hook of MkDocs: pages that are written or generated elsewhere, and links between them.

The site takes `config/README.md` and other pages from the repository, and the help of all commands from Typer. Links
are written as paths in the repository, so that they work there too. A link to a file without a page becomes its path.
"""

from __future__ import annotations

import logging
import posixpath
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {
    "config/README.md": "reference/configuration.md",
    "privileged/README.md": "reference/clock-helper.md",
    "resources/reference/README.md": "reference/shipped-data.md",
    "ARCHITECTURE.md": "explanation/architecture.md",
    "CONTRIBUTING.md": "explanation/contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files of the repository that are pages of the site."""

COMMAND_LINE = "reference/command-line.md"
_LINK = re.compile(r"(?P<text>\[[^\]]*\])\((?P<target>[^)\s]+)\)")
_log = logging.getLogger("mkdocs.hooks.clockwatt")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each folder in the navigation by the pages in it."""
    config.nav = [_with_pages(entry, Path(config.docs_dir)) for entry in config.nav or []]
    return config


def _with_pages(entry: Any, docs: Path) -> Any:
    if isinstance(entry, dict):
        return {title: _with_pages(below, docs) for title, below in entry.items()}
    if isinstance(entry, list):
        return [_with_pages(below, docs) for below in entry]
    if (docs / entry).is_dir():
        return [str(page.relative_to(docs)) for page in sorted((docs / entry).glob("*.md"))]
    return entry


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand elsewhere."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, COMMAND_LINE, content=command_line()))
    return files


def command_line() -> str:
    """Return the help of every command in Markdown."""
    typer = [sys.executable, "-m", "typer", "clockwatt.cli.main", "utils", "docs", "--name", "clockwatt"]
    page = subprocess.run([*typer, "--title", "Command line"], capture_output=True, text=True, check=True).stdout
    return page.replace("{DIR}", "DIR")


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Make links between files of the repository links between pages."""
    written = {there: here for here, there in PAGES.items()}
    uri = page.file.src_uri
    source = written.get(uri, f"docs/{uri}")

    def link(match: re.Match[str]) -> str:
        text, target = match["text"], match["target"]
        if "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        path, _, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if (ROOT / place).is_dir() and place.startswith("docs/"):
            place = str(min((ROOT / place).glob("*.md")).relative_to(ROOT))
        there = PAGES.get(place, place.removeprefix("docs/") if place.startswith("docs/") else None)
        if there is not None:
            relative = posixpath.relpath(there, posixpath.dirname(uri) or ".")
            return f"{text}({relative}{'#' + anchor if anchor else ''})"
        if not (ROOT / place).exists():
            _log.warning("%s links to %s, which does not exist", source, target)
        return f"{text[1:-1]}" if "`" in text else f"{text[1:-1]} (`{place}`)"

    return _LINK.sub(link, markdown)
