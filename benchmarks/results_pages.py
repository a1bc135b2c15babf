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
    "unseen-networks": (
        "Unseen networks",
        "How accurate are predictions of networks that no predictor was trained on?",
    ),
    "compiled-passes": ("Compiled passes", "How accurate are predictions of `torch.compile` and of CUDA graphs?"),
    "intervals": ("Intervals", "How often do 90 % intervals contain the measured value, and how wide are they?"),
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
LEGENDS = {
    "reproductions": (
        "The studies: a thesis, a report, a temperature study, an assignment and a proposal. Each has a table.",
        "*Theirs* is what the study states, *ours* what clockwatt gives. Tables with details follow.",
        "*Reproduced*: on the study's data, or with its method. *Partly*: the verdict names what is missing.",
        "*On another card*: measured on other GPUs than in the study, so values differ.",
        "*Built; run on a virtual card only*: the code was not yet run on a real GPU.",
    ),
    "several-gpus": (
        "Networks were drawn in three sets; the third was measured on two machines. *Blind* predictions came first.",
        "Strategies: `ddp`, `fsdp` and `pipeline` on two GPUs; `one`: the same network on one GPU.",
        "Then follow the assignment's experiment (VGG-16), many nodes, and every single step.",
    ),
    "cards": (
        "A *card* is one physical GPU, a *session* one job on it. SD: standard deviation.",
        "*Planted*: a difference that was added to data or given to virtual cards, to see whether it is found.",
    ),
    "unseen-networks": (
        "Each set of networks was drawn by a seed and measured on its day.",
        "*Host calibrated*: predicted with `--host` and a profile of the measuring host.",
        "Errors below are median / 90th percentile, in %.",
        "Coverage is the share of 90 % intervals that contain the measured value, with its own 95 % interval.",
        "(!): that interval excludes 90 %. The half-width is a median.",
    ),
    "compiled-passes": (
        "Four sets of networks were each measured eager, compiled, and with CUDA graphs (*graph*).",
        "Errors below are median / 90th percentile. Coverage of 90 % intervals / median half-width.",
    ),
}
"""Page to sentences that explain its tables."""
MOST_TARGETS = 20
"""Targets of a page that stand together at its top; more stand with their results."""
INTERVAL = re.compile(r"(?P<coverage>\d[^±]*?) (?P<half_width>±[^,]+), (?P<score>[\d.]+)")
ALL = "all"
ERRORS = re.compile(r"\d+\.\d / \d")
OF_INTERVAL = ("coverage", "half-width", "interval score")


def pages() -> dict[str, str]:
    """Return every page of results in Markdown, by its file name."""
    files = sorted(RESULTS.glob("*.json"))
    results = [json.loads(file.read_text(encoding="utf-8")) | {"file": file.name} for file in files]
    results.sort(key=lambda result: (-len(result["targets"]), not result["file"].startswith(result["page"])))
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
        lines.append(f"| [{title}]({page}.md): {question} | {_met(targets) if targets else 'none stated'} |")
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
    if page in LEGENDS:
        lines += [*(f"- {sentence}" for sentence in LEGENDS[page]), ""]
    targets = [target for result in results for target in result["targets"]]
    together = len(targets) <= MOST_TARGETS
    lines += _targets(targets) if together else []
    for result in results:
        lines += [f"## {result['title']}", "", *_provenance(result), ""]
        lines += [] if together else _targets(result["targets"])
        if result["rows"]:
            grouped = result["rows"][0][0] == ALL and "coverage of time" in result["columns"]
            lines += _by_group(result) if grouped else _table(result["columns"], result["rows"])
        if result["notes"]:
            lines += [*(f"- {note}" for note in result["notes"]), ""]
    return "\n".join(lines)


def _targets(targets: list[dict[str, Any]]) -> list[str]:
    rows = [[t["name"], t["target"], t["value"], "yes" if t["met"] else "**no**"] for t in targets]
    return _table(["target", "wanted", "reached", "met"], rows) if rows else []


def _summary(results: list[dict[str, Any]]) -> list[str]:
    """Return the medians of all passes of each set, where results state them in rows `all`, or of `both` passes."""
    found = [
        (result, dict(zip(result["columns"], row, strict=True)))
        for result in results
        for row in result["rows"]
        if "passes" in result["columns"] and (row[0] == ALL or row[1] == "both")
    ]
    if len(found) < 2:
        return []
    found.sort(key=lambda entry: (-int(entry[1]["passes"]), entry[0]["title"]))
    errors = [name for name in found[0][1] if any(ERRORS.match(str(row.get(name))) for _, row in found)]
    shown = [*(name for name in ("mode", "passes") if name in found[0][1]), *errors]
    rows, before = [], ""
    for result, row in found:
        title = result["title"]
        ends = [f"[{title}](#{_anchor(title)})", _met(result["targets"])] if title != before else ["", ""]
        rows.append([ends[0], *(str(row[name]).split(" / ")[0] for name in shown), ends[1]])
        before = title
    return ["## Summary", "", *_table(["median error, %", *shown, "targets met"], rows)]


def _met(targets: list[dict[str, Any]]) -> str:
    return f"{sum(target['met'] for target in targets)} of {len(targets)}" if targets else "–"


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-")


def _by_group(result: dict[str, Any]) -> list[str]:
    """Return the errors of all passes, of each pass, precision and kind, and the intervals of all but kinds."""
    columns = result["columns"]
    first = next(place for place, name in enumerate(columns) if name.startswith("coverage"))
    errors = [
        [*row[:2], *(" / ".join(str(cell).split(" / ")[:2]) for cell in row[2:first])]
        for row in result["rows"]
        if not row[0].startswith(("day:", "batch:"))
    ]
    intervals = [
        [row[0], *("–" if cell == "nan" else str(cell).rpartition(", ")[0] or cell for cell in row[first:])]
        for row in result["rows"]
        if row[0].startswith((ALL, "pass:", "precision:"))
    ]
    return [
        *_table(columns[:first], errors),
        *_table([columns[0], *columns[first:]], intervals),
        f"- Days, batches, further percentiles and interval scores: `benchmarks/results/{result['file']}`.",
        *([] if result["notes"] else [""]),
    ]


def _table(columns: list[str], rows: list[list[Any]]) -> list[str]:
    columns, rows = _with_intervals_split(columns, rows)
    return [_row(columns), _row(["---"] * len(columns)), *map(_row, rows), ""]


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
