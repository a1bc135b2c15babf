"""What the default campaign and the shipped data give: frozen once, and compared with what later code gives.

    python tools/golden.py freeze  --results DIR --golden FILE [--draws DIR ...] [--brief]
    python tools/golden.py compare --results DIR --golden FILE [--refit] [--accuracy] [--no-questions]

`DIR` is the results folder of the default campaign, after `snakemake --config reference=h200`. Frozen are errors of
operations and of networks, the compositions and answers of `predict` and `recommend`. `compare` asks the predictors
that are stored there the same questions and validates them again: every number must be the same to 1e-9, for code that
only moves. After a refit (`--refit` fits to the dataset of the folder first, `--accuracy` takes the folder as it is) no
median and no 90th percentile of error may be worse by more than a tenth of itself; of the answers it is told how far
they went. That needs little, which `--brief` freezes: `golden.json` beside this file.

Folds and forests are drawn at random, which alone moves the 90th percentile of a few dozen networks by a tenth. So
`--draws` names folders with `predictors` and `validation` of other seeds, and the worst of all draws is frozen.

Only the command line is called, and tables are read as they lie, so that modules may move.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SAME = 1e-9
"""Relative difference up to which two numbers are the same."""
WORSE = 0.1
"""Share of itself by which a median or a 90th percentile may grow."""
NEGLIGIBLE = 5e-4
"""What they may grow by in any case: modelled GPUs have errors so small that a tenth of them means nothing."""

NO_MORE_SAID = ("measured_gpu", "interval_gpus")
"""Told answers about GPUs never measured from others, when there were any."""

PREDICTOR = "roofline"
OPERATION_TARGETS = {
    "time_device_s": ("time_device_corrected_s", "predicted_time_device_corrected_s"),
    "time_host_s": ("time_host_corrected_s", "predicted_time_host_corrected_s"),
    "time_eager_s": ("time_eager_corrected_s", "predicted_time_eager_corrected_s"),
    "energy_dynamic_j": ("energy_dynamic_corrected_j", "predicted_energy_dynamic_corrected_j"),
    "power_w": ("power_corrected_w", "predicted_power_corrected_w"),
}
"""Columns that are compared, by what they were called when the numbers were frozen."""
OF_NETWORKS, DESIGNED = "operations of networks", "designed operations"
NETWORK_TARGETS = ("time_s", "energy_j", "power_w")
COMPOSITION_KEY = ["gpu", "point", "execution", "network_id", "pass", "source"]
COMPOSED = [*NETWORK_TARGETS, "device_s", "host_s", "latency_s", "calls", "calls_without_cost"]

_BRIEF = rf"(best\.)?expected\.({'|'.join(NETWORK_TARGETS)})|best\.(gpu|point)"

_IN_64 = {"resnet18": "32,3,64,64", "efficientnet_b0": "16,3,64,64", "vit_b_32": "8,3,224,224", "vgg11": "16,3,64,64"}
_IN_224 = "32,3,224,224"


def questions() -> dict[str, list[str]]:
    """Options of `predict` and `recommend` by a name: 49 predictions and five recommendations."""
    asked = [
        (network, shape, pass_, gpu, point, ())
        for gpu, points, networks in (
            ("a30", ("sm420", "sm1000", "sm1440"), ("resnet18", "efficientnet_b0", "vit_b_32")),
            ("rtx2080ti", ("sm1005", "sm1300"), ("efficientnet_b0", "vgg11")),
        )
        for network, shape in _IN_64.items()
        if network in networks
        for pass_ in ("inference", "training")
        for point in points
    ]
    of_h200 = ("resnet50", "mobilenet_v3_large", "convnext_tiny", "vit_b_16", "swin_b", "regnet_x_1_6gf", "densenet121")
    asked += [(name, _IN_224, pass_, "h200", "default", ()) for name in of_h200 for pass_ in ("inference", "training")]
    asked += [
        ("resnet50", _IN_224, "inference", "h200", "default", ("--precision", "bf16")),
        ("resnet50", _IN_224, "training", "h200", "default", ("--precision", "bf16")),
        ("vit_b_16", _IN_224, "inference", "h200", "default", ("--precision", "fp32")),
        ("vit_b_16", _IN_224, "training", "h200", "default", ("--precision", "fp32")),
        ("resnet18", "128,3,224,224", "inference", "h200", "default", ()),
        ("resnet18", "1,3,224,224", "inference", "h200", "default", ()),
        ("resnet152", "16,3,192,192", "inference", "h200", "default", ()),  # in no catalogue: traced when it is asked
        ("efficientnet_b2", "8,3,224,224", "training", "h200", "default", ()),
        ("resnet34", "16,3,64,64", "inference", "a30", "sm780", ()),
    ]
    found = {
        " ".join(["predict", name, shape, pass_, gpu, point, *more]): [
            *("predict", name, "--input", shape, "--pass", pass_, "--gpu", gpu, "--point", point, *more)
        ]
        for name, shape, pass_, gpu, point, more in asked
    }
    virtual = ("--gpu", "a30", "--gpu", "rtx2080ti")
    for name, pass_, *options in (
        ("efficientnet_b0", "inference", "--objective", "energy", "--max-slowdown", "10%", *virtual),
        ("resnet18", "training", "--objective", "edp", *virtual),
        ("vit_b_32", "training", "--objective", "time", "--power-cap", "150", *virtual),
        ("vgg11", "inference", "--objective", "energy", "--point", "sm1000", "--gpu", "a30"),
        ("resnet18", "training", "--objective", "energy", "--gpu", "h200"),
    ):
        key = " ".join(["recommend", name, pass_, *options])
        found[key] = ["recommend", name, "--input", _IN_64[name], "--pass", pass_, *options]
    return found


def main() -> int:
    """Freeze or compare; the exit code is 1 where something is worse or not the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("freeze", "compare"))
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--golden", type=Path, required=True)
    parser.add_argument("--config", type=Path, default=Path("config/config.yaml"))
    parser.add_argument("--refit", action="store_true", help="fit to the folder's dataset first, which it leaves alone")
    parser.add_argument("--accuracy", action="store_true", help="the predictors are new: compare errors alone")
    parser.add_argument(
        "--draws", type=Path, nargs="+", default=[], help="when freezing: folders fitted with other seeds"
    )
    parser.add_argument("--brief", action="store_true", help="freeze errors, times, energies and powers alone")
    parser.add_argument("--no-questions", action="store_true", help="ask nothing, which takes a second each")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        results = given.results
        if given.mode == "compare" and not given.accuracy:
            results = again(given.results, Path(temporary), given.config, refit=given.refit)
        asked = {} if given.no_questions else questions()
        drawn = designed(given.results / "dataset")
        found = {
            "accuracy": worst_of(
                accuracy(one / "predictors", one / "validation", drawn) for one in (results, *given.draws)
            ),
            "compositions": compositions(results),
            "answers": {name: answer(options, results, given.results) for name, options in asked.items()},
        }
    if given.mode == "freeze":
        write(brief(found) if given.brief else found, given.golden)
        return 0
    golden = json.loads(given.golden.read_text(encoding="utf-8"))
    problems = worse(golden["accuracy"], found["accuracy"])
    if given.refit or given.accuracy:
        say_distances(golden, found)
    else:
        problems += [
            f"{part}: {name}: {path}: {told}"
            for part in ("compositions", "answers")
            for name in (golden[part] if part != "answers" or asked else ())
            for path, told in different(golden[part][name], found[part].get(name))
        ]
    print("\n".join(problems) or "nothing is worse" + ("" if given.refit or given.accuracy else ", all is the same"))
    return int(bool(problems))


def again(results: Path, folder: Path, config: Path, *, refit: bool) -> Path:
    """Results with a validation by today's code, and with `refit` with predictors by it too; the rest is linked."""
    dataset = (results / "dataset").resolve()
    common = ["--config", str(config), "--dataset-dir", str(dataset), "--catalogue-dir", str(dataset / "catalogue")]
    predictors = folder / "predictors"
    if refit:
        clockwatt("fit", *common, "--output-dir", str(predictors))
    else:
        predictors.symlink_to((results / "predictors").resolve())
    clockwatt("validate", *common, "--predictors-dir", str(predictors), "--output-dir", str(folder / "validation"))
    return folder


def clockwatt(*arguments: str) -> str:
    """What a command prints; one that fails ends all."""
    done = subprocess.run(
        [sys.executable, "-m", "clockwatt", *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"clockwatt {' '.join(arguments)}: failed with {done.returncode}")
    return done.stdout


def answer(options: list[str], results: Path, catalogued: Path) -> dict[str, Any]:
    """Numbers of an answer by their place in its JSON; names and sentences are left out, they may be put better."""
    folders = {"--predictors-dir": results / "predictors", "--catalogue-dir": catalogued / "dataset" / "catalogue"}
    if options[0] == "recommend":
        folders["--validation-dir"] = results / "validation"
    asked = [*options, "--json", *(str(part) for pair in folders.items() for part in pair)]
    return dict(flat(json.loads(clockwatt(*asked))))


def flat(value: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    """Every number, truth value and null below a value; of text the GPU and the operating point alone."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from flat(inner, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            if not isinstance(inner, str):
                yield from flat(inner, f"{path}.{number}")
    elif not isinstance(value, str) or path.rpartition(".")[2] in ("gpu", "point"):
        yield path, value


def designed(dataset: Path) -> set[str]:
    """Operations of a dataset that were drawn by design; all others are called by networks."""
    operations = pd.read_parquet(dataset / "catalogue" / "operations.parquet", columns=["operation_id", "block"])
    return set(operations.loc[operations["block"].notna(), "operation_id"])


def accuracy(predictors: Path, validation: Path, drawn: set[str]) -> dict[str, dict[str, float]]:
    """Rows, median, mean, 90th percentile and worst of |predicted / measured − 1|, by GPU, pass, source and target.

    Operations of networks and those `drawn` by design, many of which are of kinds that no network calls, are judged
    apart: what happens to one would hide what happens to the other.
    """
    found: dict[str, dict[str, float]] = {}

    def judge(rows: pd.DataFrame, source: str, pairs: Mapping[str, tuple[str, str]]) -> None:
        for (gpu, pass_), own in rows.groupby(["gpu", "pass"]):
            for target, (measured, predicted) in pairs.items():
                known = own[own[measured].gt(0) & own[predicted].notna()]
                errors = (known[predicted] / known[measured] - 1).abs()
                if len(errors):
                    found[f"{gpu} {pass_} {source} {target}"] = {
                        "rows": len(errors),
                        "median": float(errors.median()),
                        "mean": float(errors.mean()),
                        "p90": float(errors.quantile(0.9)),
                        "worst": float(errors.max()),
                    }

    rows = pd.read_parquet(predictors / "crossval.parquet")
    rows = rows[(rows["predictor"] == PREDICTOR) & rows["learnt"]]
    by_design = rows["operation_id"].isin(drawn)
    judge(rows[~by_design], OF_NETWORKS, OPERATION_TARGETS)
    judge(rows[by_design], DESIGNED, OPERATION_TARGETS)
    rows = pd.read_parquet(predictors / "networks-left-out.parquet")
    judge(rows[rows["unseen"] & rows["learnt"]], "operations of networks left out", OPERATION_TARGETS)
    rows = pd.read_parquet(validation / "networks.parquet")
    of_networks = {target: (f"measured_{target}", target) for target in NETWORK_TARGETS}
    for source, own in rows[rows["calls_without_cost"] == 0].groupby("source"):
        judge(own, f"networks from {source} operations", of_networks)
    return found


def worst_of(draws: Iterable[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """The largest of each error over several `accuracy`, and the fewest rows."""
    found: dict[str, dict[str, float]] = {}
    for draw in draws:
        for name, errors in draw.items():
            known = found.setdefault(name, dict(errors))
            for which, value in errors.items():
                known[which] = min(known[which], value) if which == "rows" else max(known[which], value)
    return found


def compositions(results: Path) -> dict[str, dict[str, Any]]:
    """What every network measured whole is composed to."""
    rows = pd.read_parquet(results / "validation" / "networks.parquet")
    names = rows[COMPOSITION_KEY].astype(str).agg(" ".join, axis=1)
    values = rows[COMPOSED].astype(object).where(rows[COMPOSED].notna(), None)
    return dict(zip(names, values.to_dict("records"), strict=True))


def worse(frozen: Mapping[str, Mapping[str, float]], found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What is judged no more, on fewer rows, or with a median or a 90th percentile that is more than `WORSE` worse."""
    said = []
    for name, was in frozen.items():
        is_now = found.get(name)
        if is_now is None or is_now["rows"] < was["rows"]:
            said.append(f"{name}: judged on {is_now['rows'] if is_now else 0} rows, was on {was['rows']}")
        else:
            said += [
                f"{name}: {which} {is_now[which]:.3%}, was {was[which]:.3%}"
                for which in ("median", "p90")
                if is_now[which] > was[which] + max(WORSE * was[which], NEGLIGIBLE)
            ]
    return said


def different(was: Mapping[str, Any], is_now: Mapping[str, Any] | None) -> Iterable[tuple[str, str]]:
    """Places at which values differ, with both; what answers say no more is passed over."""
    for path, value in was.items():
        if path.rpartition(".")[2] in NO_MORE_SAID:
            continue
        now = (is_now or {}).get(path)
        numbers = isinstance(value, int | float) and isinstance(now, int | float)
        if not (np.isclose(now, value, rtol=SAME, atol=0) if numbers else now == value):
            yield path, f"{now}, was {value}"


def say_distances(golden: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Print how far each answer went from the frozen one, and errors before and after."""
    moved: dict[str, list[float]] = {target: [] for target in NETWORK_TARGETS}
    for name, now in found["answers"].items():
        was = golden["answers"][name]
        at = "best.expected." if name.startswith("recommend") else "expected."
        for target, of_answers in moved.items():
            of_answers.append(now[at + target] / was[at + target] - 1)
        chosen = f" at {now['best.gpu']} {now['best.point']}" if name.startswith("recommend") else ""
        print(f"{name}{chosen}: {', '.join(f'{target} {all_[-1]:+.2%}' for target, all_ in moved.items())}")
    for target, of_answers in moved.items():
        if of_answers:
            sizes = np.abs(of_answers)
            told = f"{np.median(sizes):.2%} in the median, {sizes.max():.2%} at most"
            print(f"{len(sizes)} answers went in {target} by {told}")
    for name, was in golden["accuracy"].items():
        if name in found["accuracy"]:
            told = [f"{which} {was[which]:.3%} → {found['accuracy'][name][which]:.3%}" for which in ("median", "p90")]
            print(f"{name} ({was['rows']} rows): {', '.join(told)}")


def brief(found: Mapping[str, Any]) -> dict[str, Any]:
    """Errors, and what is expected of each question's answer, without compositions."""
    answers = {
        name: {path: value for path, value in answer.items() if re.fullmatch(_BRIEF, path)}
        for name, answer in found["answers"].items()
    }
    return {"accuracy": found["accuracy"], "compositions": {}, "answers": answers}


def write(found: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Write JSON with one line for each entry."""
    parts = []
    for part, entries in found.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in entries.items())
        parts.append(f"{json.dumps(part)}: {{\n{lines}\n}}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
