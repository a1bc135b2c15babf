"""The documents: links lead somewhere, results are made of their JSON files, and decision records are short."""

import re
import subprocess
from pathlib import Path

import pytest
import results_pages

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()
]  # fmt: skip
COMMAND_LINE = ROOT / "docs/reference/command-line.md"
"""Written when the site is built."""
LINK = re.compile(r"\[[^\]]*\]\((?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")


def anchors_of(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_to_files_and_titles(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "``", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in LINK.finditer(text):
        if "://" in link["path"]:
            continue
        there = (page.parent / link["path"]).resolve() if link["path"] else page
        assert there.exists() or there == COMMAND_LINE, link[0]
        if link["anchor"] and there.suffix == ".md":
            assert link["anchor"] in anchors_of(there), link[0]


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "results"], ids=lambda page: page.stem)
def test_percentages_that_link_to_results_stand_there(page):
    for number_of, path in re.findall(
        r"\[([\d. to]+) %[^\]]*\]\(([^)#]*results/[^)#]*)", page.read_text(encoding="utf-8")
    ):
        there = (page.parent / path).read_text(encoding="utf-8")
        for number in re.findall(r"[\d.]+", number_of):
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.]*\d)", there), f"{number} is not in {path}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_values_quoted_from_outputs_stand_in_them(page):
    text = page.read_text(encoding="utf-8")
    block = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
    said, prose = re.sub(r"\s+", " ", " ".join(block.findall(text))), block.sub("", text)
    if "<!-- output of" in prose or "<!-- first line of" in prose:
        for quoted in re.findall(r"`([^`\n]+)`", prose):
            assert quoted in said or not re.search(r"\d (?:µs|ms|s|mJ|J|W)\b", quoted), quoted


def test_results_are_made_of_their_files():
    made = results_pages.pages()
    assert made == {page.name: page.read_text(encoding="utf-8") for page in results_pages.DOCS.glob("*.md")}, (
        "run python benchmarks/results_pages.py"
    )


def test_decision_records_fit_on_a_screen():
    for record in (ROOT / "docs/explanation/decisions").glob("*.md"):
        assert len(record.read_text(encoding="utf-8").splitlines()) <= 25, record.name
