"""The pages of `docs/results/`, made from the JSON files that the benchmarks write.

python benchmarks/results_pages.py [--check]        # with --check: fail where a page is stale
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from result_file import RESULTS

DOCS = Path(__file__).parents[1] / "docs" / "results"
PAGES = {
    "reproductions": ("Reproductions", "What of the five studies that clockwatt continues is reproduced?"),
    "unseen-networks": ("Unseen networks", "How accurate are predictions of networks that were never measured?"),
    "memory": ("Memory", "How accurate is the predicted peak memory of a pass?"),
    "preflight": (
        "Preflight",
        "Which public training scripts does `clockwatt preflight` follow, and how near are its answers?",
    ),
    "composition": (
        "Composition",
        "How accurate are networks that are composed from measured or predicted operations?",
    ),
    "several-gpus": ("Several GPUs", "How accurate are training steps on several GPUs?"),
    "measure-missing": ("Measuring what is missing", "How much does `--measure-missing` improve an answer?"),
    "predictors": (
        "Predictors",
        "How accurate are predictors of single operations, and what does each part of them gain?",
    ),
    "learning-curve": ("Learning curve", "Would more measured operations make predictions better?"),
    "few-energies": ("Few energies", "How many operations must be measured with energy?"),
    "new-gpu": ("A new GPU", "How accurate is a transfer from another GPU?"),
    "clock-model": ("Clock model", "How accurate are time, power and energy at clocks that were not measured?"),
    "virtual-gpus": ("Virtual GPUs", "How near are virtual cards to the real ones that they are named after?"),
    "power-limits": ("Power limits", "How accurate are time and energy at power limits that were not measured?"),
    "measurements-by-others": (
        "Measurements by others",
        "How accurate are predictors that are fitted to a public table?",
    ),
    "measurement-accuracy": ("Accuracy of a measurement", "How accurate is a measurement, and what does it take?"),
    "time-alone": ("Time alone", "How fast is measuring time alone, and how far is it from a full measurement?"),
    "telemetry": ("Telemetry", "How regular is the logger, and what does it cost?"),
    "tracing": ("Tracing", "Can every operation be traced, rebuilt and run?"),
    "faults": ("Faults", "What is lost when processes are killed and nodes fail?"),
    "questions": ("Questions drawn at random", "Do commands and Python agree, and do refusals name their cause?"),
    "clock-control": ("Clock control", "Are clocks restored when a job is killed?"),
    "speed": ("Speed", "How long do commands, the workflow and the tests take?"),
    "cards": ("Differences between cards", "How far do cards of one model differ, and which differences are found?"),
    "temperature": ("Temperature", "How accurate are forecasts of a GPU's temperature?"),
    "workloads": ("Workloads", "What do the recorded workloads take on a GPU?"),
}
"""Page to its title and the question that it answers."""
INTERVAL = re.compile(r"(?P<coverage>\d[^±]*?) (?P<half_width>±[^,]+), (?P<score>[\d.]+)")
OF_INTERVAL = ("coverage", "half-width", "interval score")


def pages() -> dict[str, str]:
    """Return every page of results in Markdown, by its file name."""
    files = sorted(RESULTS.glob("*.json"))
    results = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    results.sort(key=lambda result: -len(result["targets"]))
    unknown = {result["page"] for result in results} - PAGES.keys()
    if unknown:
        raise SystemExit(f"error: no page {', '.join(sorted(unknown))} (benchmarks/results). Add it to PAGES.")
    made = {f"{page}.md": _page(page, [result for result in results if result["page"] == page]) for page in PAGES}
    return {"index.md": _index(results), **made}


def _index(results: list[dict[str, Any]]) -> str:
    lines = [
        "# Results",
        "",
        "These pages state how accurate and how fast clockwatt is. Each number has its date, hardware and command.",
        "",
        *("| question | targets met |", "| --- | --- |"),
    ]
    for page, (title, question) in PAGES.items():
        targets = [target for result in results if result["page"] == page for target in result["targets"]]
        met = f"{sum(target['met'] for target in targets)} of {len(targets)}" if targets else "none stated"
        lines.append(f"| [{title}]({page}.md): {question} | {met} |")
    return "\n".join([*lines, "", *_how_made(), ""])


def _how_made() -> list[str]:
    return [
        "Benchmarks write `benchmarks/results/*.json`.",
        "`python benchmarks/results_pages.py` makes these pages from them.",
        "*Transcribed* results were copied by hand from earlier notes.",
    ]


def _page(page: str, results: list[dict[str, Any]]) -> str:
    title, question = PAGES[page]
    lines = [f"# {title}", "", question, "", *_summary(results)]
    targets = [target for result in results for target in result["targets"]]
    if targets:
        lines += ["| target | wanted | reached | met |", "| --- | --- | --- | --- |"]
        lines += [_row([t["name"], t["target"], t["value"], "yes" if t["met"] else "**no**"]) for t in targets]
        lines.append("")
    for result in results:
        lines += [f"## {result['title']}", "", *_provenance(result), ""]
        if result["rows"]:
            lines += [*_table(*_with_intervals_split(result["columns"], result["rows"])), ""]
        if result["notes"]:
            lines += [*(f"- {note}" for note in result["notes"]), ""]
    return "\n".join(lines)


def _summary(results: list[dict[str, Any]]) -> list[str]:
    """Return the medians of all passes of each test set, where results state them in a row `all`."""
    found = [(result, row) for result in results for row in result["rows"] if row[0] == "all"]
    if len(found) < 2:
        return []
    shown = [name for name in found[0][0]["columns"][1:] if not name.startswith("coverage")]
    rows = [
        [result["title"], *(str(row[result["columns"].index(name)]).split(" / ")[0] for name in shown)]
        for result, row in found
    ]
    return ["## Summary", "", *_table(["median error, %", *shown], rows), ""]


def _table(columns: list[str], rows: list[list[Any]]) -> list[str]:
    return [_row(columns), _row(["---"] * len(columns)), *map(_row, rows)]


def _with_intervals_split(columns: list[str], rows: list[list[Any]]) -> tuple[list[str], list[list[Any]]]:
    """Split columns of coverage, half-width and interval score of 90 % intervals into three columns each."""
    names: list[str] = []
    parts: list[list[Any]] = [[] for _ in rows]
    for name, cells in zip(columns, zip(*rows, strict=True), strict=True):
        split = [INTERVAL.fullmatch(str(cell)) for cell in cells]
        of_interval = any(split) and all(found or cell == "–" for found, cell in zip(split, cells, strict=True))
        names += [f"{name.removeprefix('coverage of ')}: {part}" for part in OF_INTERVAL] if of_interval else [name]
        for row, found, cell in zip(parts, split, cells, strict=True):
            row += [cell] if not of_interval else found.groups() if found else ["–"] * len(OF_INTERVAL)
    return names, parts


def _provenance(result: dict[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    transcribed = " · transcribed" if result["transcribed"] else ""
    parts = [result["date"], result["hardware"], versions, f"`{result['command']}`"]
    return [" · ".join(part for part in parts if part) + transcribed]


def _row(cells: list[Any]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    """Write the pages, or check that they are current."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail where a page is stale, write nothing")
    check = parser.parse_args().check
    made = pages()
    stale = [name for name, text in made.items() if not (DOCS / name).exists() or (DOCS / name).read_text() != text]
    stale += [page.name for page in DOCS.glob("*.md") if page.name not in made]
    if check and stale:
        sys.exit(f"error: stale pages {', '.join(stale)} (docs/results). Run `python benchmarks/results_pages.py`.")
    for page in DOCS.glob("*.md"):
        page.unlink()
    for name, text in made.items():
        (DOCS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
