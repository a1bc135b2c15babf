"""How right the predictors are on the fresh set, and whether their intervals hold.

    python benchmarks/fresh/score.py pack ROWS_DIR... --output benchmarks/fresh/measured-h200-day1.parquet
    python benchmarks/fresh/score.py report --predictors DIR --gpu LABEL [--host NAME] [--output FILE.csv]
        [--result FILE.json [--about TEXT]] [FILE...]

`pack` joins what `measure.py` wrote, the profiler's rows beside the measured ones, and gives cards and machines names
that tell them apart and tell nothing else. `report` composes every pass from the predictors and the traces of
both sets and compares: medians, 90th and 95th percentiles and the worst of the relative errors of device time, time
back to back and energy, the plain sum of back-to-back times beside, the coverage of 90 % intervals with its
Clopper–Pearson interval, half-widths; within kinds, dtypes, batches and days. Time and energy are given for the median
host of those seen and, "on its host", for the host of that day as the other half of that day's networks tell it
(`hosts.py`): what its calls and modules cost, nothing of the device; with `--host` as a profile tells it that
`clockwatt calibrate --host` measured on that machine. Every pass whose device time is more than 30 % off
is named, with the classes of operations that take most of what is wrong or unsure.
Nothing here is learnt from: that fitting reads nothing of this folder is tested.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.stats import beta

from clockwatt.io import files
from clockwatt.io.former_settings import with_settings
from clockwatt.predict.answerer import predict_network
from clockwatt.predict.evaluation.errors import interval_score
from clockwatt.predict.gpu_predictor import BulkPredictor, GpuPredictor, load_models
from clockwatt.predict.hosts import HostProfile
from clockwatt.predict.tracing import TracedNetwork
from clockwatt.schema import records
from clockwatt.schema.costs import COSTS, TIME_DEVICE
from clockwatt.schema.execution import TF32, ExecutionSettings
from clockwatt.schema.records import NetworkRow

sys.path.insert(0, str(Path(__file__).parents[2]))  # the folder of this script is what Python looks into
from benchmarks import result_file
from benchmarks.fresh import hosts
from benchmarks.fresh.draw import SETS

HERE = Path(__file__).parent
KEY = ["subject_id", "pass", "execution"]
QUANTITIES = {
    "device": ("device_s", "device_s"), "time": ("time_eager_s", "time_s"), "energy": ("energy_j", "energy_j"),
    "plain time": ("time_eager_s", "plain_time_s"), "plain energy": ("energy_j", "plain_energy_j"),
}  # fmt: skip
"""What is compared: what was seen, and what was stated."""
ON_HOST = {"time on its host": "time_s", "energy on its host": "energy_j"}
"""What is compared once more where the host is known; `QUANTITIES` names what was seen."""
NAMED_ABOVE = 0.3
TARGETS = {
    "h100": {"device time, median": 5.5, "device time, 90th percentile": 17,
             "energy with a calibrated host, median": 8, "energy with a calibrated host, 90th percentile": 25,
             "half-width of the interval of device time": 18},
    "h200": {"device time, median": 4.5, "device time, 90th percentile": 13,
             "energy with a calibrated host, median": 6, "energy with a calibrated host, 90th percentile": 20},
}  # fmt: skip
"""At most so many per cent, by GPU."""
OF_A_DAY = {
    SETS["seventh"].day: ("kinds that predictors missed", {}),
    SETS["eighth"].day: (
        "autocast and channels last",
        {"device time, median": 6, "device time, 90th percentile": 18,
         "energy with a calibrated host, median": 9, "energy with a calibrated host, 90th percentile": 25},
    ),
    SETS["ninth"].day: ("all kinds, fast host", None),
    SETS["tenth"].day: ("all kinds", None),
    SETS["eleventh"].day: ("all kinds", None),
    SETS["twelfth"].day: ("all kinds", None),
    SETS["thirteenth"].day: ("all kinds", None),
    SETS["fourteenth"].day: ("all kinds", None),
    SETS["fifteenth"].day: ("all kinds", None),
}  # fmt: skip
"""Day of a set with a result of its own to its name and targets; None for those of the GPU."""
HOST_PACED = 1.3
"""A pass is surely paced by its host where it takes so many times its device time."""
_DEVICE = next(cost for cost in COSTS if cost.measured == TIME_DEVICE)
LEVEL = 0.9
BATCHES = (1, 5, 17, 65, 100_000_000)
_PACKED = [
    "kind", *KEY, "dtype", "status", "error", "flags", "session_id", "gpu_name", "gpu_uuid", "host", "cpu_model",
    "driver_version", "torch_version", "started_us", "sm_clock_median_mhz", "power_limit_w", "throttle_reasons",
    "memory_peak_bytes", "memory_reserved_bytes", "time_host_s", "time_device_s", "time_device_standard_error_s",
    "time_eager_s", "time_eager_standard_error_s", "power_w", "power_idle_w", "energy_j", "energy_standard_error_j",
    "window_s",
    "network_kind", "network_name", "day", "kernels", "kernels_s", "kernel_names", "device_method", "host_method",
    "issue_alone_s", "time_alone_s", "versions", "estimate_s", "core_loop_s",
]  # fmt: skip


def pack(folders: list[Path], output: Path) -> None:
    """Join what was measured and what was profiled, and write it small."""
    paths = [path for folder in folders for path in sorted(folder.rglob("*.parquet"))]
    table = pa.concat_tables([with_settings(pq.read_table(path)) for path in paths]).select(_PACKED)
    rows = table.to_pandas()
    profiles = rows[rows["kind"] == "profile"].drop_duplicates(KEY, keep="last").set_index(KEY)
    kept = rows[rows["kind"] != "profile"].reset_index(drop=True)
    found = profiles.reindex(pd.MultiIndex.from_frame(kept[KEY]))
    for column in ("kernels", "kernels_s", "kernel_names"):
        kept[column] = found[column].to_numpy()
    # machines lent for an hour are all called alike: the card is what tells one from another
    kept["host"] = [_named(f"{host} {card}") for host, card in zip(kept["host"], kept["gpu_uuid"], strict=True)]
    kept["gpu_uuid"] = kept["gpu_uuid"].map(_named)
    packed = pa.Table.from_pandas(kept, schema=table.schema, preserve_index=False)
    pq.write_table(packed, output, compression="zstd", compression_level=22)
    print(f"{output}: {len(kept)} rows, {output.stat().st_size:,} bytes; {kept['status'].value_counts().to_dict()}")


def _named(what: str) -> str:
    """A name that tells it from others and nothing else."""
    return hashlib.sha256(what.encode()).hexdigest()[:12]


def measured(paths: list[Path]) -> pd.DataFrame:
    """Passes that were measured, with the device time by the best method there is."""
    rows = pd.concat([with_settings(pq.read_table(path)).to_pandas() for path in paths], ignore_index=True)
    rows = rows[(rows["kind"] == "network") & (rows["status"] == records.OK)].copy()
    rows["device_s"] = rows["time_device_s"]
    # between kernels that are queued lies a gap that the profiler's durations leave out
    both = rows[rows["time_device_s"].notna() & rows["kernels_s"].notna()]
    gap = ((both["time_device_s"] - both["kernels_s"]) / both["kernels"]).groupby(both["pass"]).median()
    profiled = rows["time_device_s"].isna() & rows["kernels_s"].notna() & rows["pass"].isin(gap.index)
    rows.loc[profiled, "device_s"] = rows["kernels_s"] + rows["kernels"] * rows["pass"].map(gap)
    rows.loc[profiled, "device_method"] = "profiler"
    return rows.reset_index(drop=True)


class Catalogue:
    """The traces of the fresh sets."""

    def __init__(self, folders: Sequence[Path] = tuple(one.catalogue for one in SETS.values())) -> None:
        def joined(name: str, schema: pa.Schema) -> pa.Table:
            return pa.concat_tables([files.read_table(folder / name, schema) for folder in folders])

        self._networks = joined("networks.parquet", records.NETWORK_SCHEMA).to_pylist()
        calls = joined("calls.parquet", records.CALL_SCHEMA)
        self._calls = dict(iter(calls.to_pandas().groupby(["network_id", "pass"], sort=False)))
        operations = joined("operations.parquet", records.OPERATION_SCHEMA).to_pandas()
        self._operations = operations.drop_duplicates(["operation_id", "pass"])

    def traced(self, network_id: str, pass_: str) -> TracedNetwork:
        """One pass."""
        row = next(one for one in self._networks if (one["network_id"], one["pass"]) == (network_id, pass_))
        calls = self._calls[network_id, pass_].sort_values("position")
        mine = self._operations["operation_id"].isin(calls["operation_id"]) & (self._operations["pass"] == pass_)
        return TracedNetwork(records.row_of(NetworkRow, row), calls, self._operations[mine].reset_index(drop=True))


def compare(
    rows: pd.DataFrame, model: GpuPredictor, catalogue: Catalogue, profile: HostProfile | None = None
) -> pd.DataFrame:
    """What was seen and what is stated, a row each pass; on the host of a profile if that is given."""
    found = []
    traces = [catalogue.traced(*key) for key in zip(rows["subject_id"], rows["pass"], strict=True)]
    bulk = BulkPredictor.of(model, traces, ["default"])
    if profile is None:
        on_host = hosts.hosts_of(rows, traces, bulk)
    else:
        known = {pass_: hosts.ToldHost(profile.costs(model, pass_)) for pass_ in rows["pass"].unique()}
        on_host = [known[pass_] for pass_ in rows["pass"]]
    model = bulk
    for traced, host, row in zip(traces, on_host, rows.itertuples(index=False), strict=True):
        pass_ = row[rows.columns.get_loc("pass")]
        answer = predict_network(model, traced, "default", execution=ExecutionSettings(row.execution))
        stated = answer.expected
        entry: dict[str, Any] = {
            "network_id": row.subject_id, "kind": row.network_kind, "pass": pass_, "dtype": row.dtype,
            "execution": row.execution, "day": row.day, "batch": traced.network.input_shape[0], "calls": stated.calls,
            "known": answer.measured_calls, "card": row.gpu_uuid,
            "seen_device_s": row.device_s, "seen_time_s": row.time_eager_s, "seen_energy_j": row.energy_j,
            "seen_host_s": row.time_host_s, "method": row.device_method, "host_s": stated.host_s,
            "issue_alone_s": row.issue_alone_s,
        }  # fmt: skip
        for name, (seen, said) in QUANTITIES.items():
            real, predicted = getattr(row, seen), getattr(stated, said)
            unknown = real is None or predicted is None or not np.isfinite(real)
            entry[name] = np.nan if unknown else predicted / real - 1
        for name, real in (("time_s", row.time_eager_s), ("energy_j", row.energy_j), ("device_s", row.device_s)):
            entry |= judged(name, answer.intervals.get(name, (np.nan, np.nan)), real)
        if host is not None:
            answer = predict_network(model, traced, "default", execution=ExecutionSettings(row.execution), host=host)
            entry["own_host_s"] = answer.expected.host_s
            for name, stated_as in ON_HOST.items():
                real = getattr(row, QUANTITIES[name.removesuffix(" on its host")][0])
                entry[name] = getattr(answer.expected, stated_as) / real - 1
                entry |= judged(name, answer.intervals[stated_as], real)
        if np.isfinite(entry["device"]) and abs(entry["device"]) > NAMED_ABOVE:
            entry["cause"] = cause(model, traced, row)
        found.append(entry)
    return pd.DataFrame(found)


def judged(name: str, interval: tuple[float, float], real: float | None) -> dict[str, float]:
    """Whether an interval held what was seen, its half-width relative to that, and its score (of logarithms)."""
    low, high = interval
    columns = [f"{what}_{name}" for what in ("held", "width", "score")]
    if real is None or not np.isfinite([low, high, real]).all():
        return dict.fromkeys(columns, np.nan)
    ends = [np.array([np.log(max(end, 1e-12) / real)]) for end in (low, high)]
    values = (float(low <= real <= high), (high - low) / 2 / max(real, 1e-12), interval_score(np.zeros(1), *ends))
    return dict(zip(columns, values, strict=True))


_KERNELS = {
    "convolution": ("conv", "fprop", "dgrad", "wgrad", "winograd", "implicit", "cudnn_infer", "nchwToNhwc",
                    "nhwcToNchw", "im2col", "col2im"),
    "attention": ("flash", "fmha", "attention"), "matrix product": ("gemm", "gemv", "nvjet", "splitK", "cublas"),
    "normalisation": ("batch_norm", "bn_", "layer_norm", "LayerNorm", "GroupNorm", "RowwiseMoments", "norm"),
    "recurrent": ("RNN", "LSTM", "GRU", "persist"), "softmax": ("softmax", "SoftMax"), "pool": ("pool",),
    "optimizer": ("multi_tensor",), "upsampling": ("upsample", "interp"), "reduction": ("reduce",),
    "index": ("index", "embedding", "gather", "scatter"), "copy": ("copy", "Memcpy", "CatArray", "Memset", "fill"),
    "elementwise": ("elementwise", "vectorized"),
}  # fmt: skip
"""Kind of work to what names of its kernels contain; the first that fits counts."""

_CLASSES = {
    "convolution": ("conv",), "attention": ("scaled_dot_product",), "recurrent": ("lstm", "gru"), "pool": ("pool",),
    "matrix product": ("linear", "matmul", "bmm", "addmm", "einsum"), "normalisation": ("norm",),
    "softmax": ("softmax", "cross_entropy"),
    "optimizer": ("SGD", "Adam"), "upsampling": ("interpolate", "upsample"), "reduction": ("mean", "sum"),
    "index": ("embedding", "getitem", "setitem", "index", "gather"),
    "copy": ("cat", "clone", "contiguous", "to", "copy", "reshape", "pad", "roll", "stack"),
}  # fmt: skip


def kind_of(name: str, kinds: dict[str, tuple[str, ...]]) -> str:
    """Kind of work of a kernel or of a class of operations."""
    return next((kind for kind, parts in kinds.items() if any(part in name for part in parts)), "elementwise")


def cause(model: GpuPredictor, traced: TracedNetwork, row: Any) -> str:
    """Classes of operations that a large error comes from, as far as it can be told.

    Where the profiler saw the kernels: the kinds of work whose time differs most from what was stated. Else the classes
    to which most of the uncertainty belongs.
    """
    counts = traced.calls["operation_id"].value_counts()
    operations = traced.operations.set_index("operation_id")
    at = model.predict(traced.operations, traced.network.pass_, "default", execution=ExecutionSettings(row.execution))
    times = pd.DataFrame({"class": operations["operation_class"], "count": counts})
    times["device_s"] = at[_DEVICE.corrected] * times["count"]
    times["width_s"] = (at[_DEVICE.upper] - at[_DEVICE.lower]) * times["count"]
    if isinstance(row.kernel_names, str):
        stated = times.groupby(times["class"].map(lambda name: kind_of(name, _CLASSES)))["device_s"].sum()
        seen: dict[str, float] = {}
        for name, seconds in json.loads(row.kernel_names).items():
            kind = kind_of(name, _KERNELS)
            seen[kind] = seen.get(kind, 0.0) + seconds
        off = stated.sub(pd.Series(seen), fill_value=0.0)
        worst = off.reindex(off.abs().sort_values(ascending=False).index)[:2]
        return "; ".join(f"{kind} {seconds * 1e3:+.2f} ms" for kind, seconds in worst.items()) + " against its kernels"
    unsure = times.groupby("class")[["width_s", "device_s"]].sum().sort_values("width_s", ascending=False)
    shares = unsure["width_s"] / unsure["width_s"].sum()
    return "unsure of " + "; ".join(f"{name} {share:.0%}" for name, share in shares[:2].items())


def clopper_pearson(held: int, number: int, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of a share."""
    tail = (1 - level) / 2
    low = float(beta.ppf(tail, held, number - held + 1)) if held else 0.0
    high = float(beta.ppf(1 - tail, held + 1, number - held)) if held < number else 1.0
    return low, high


def errors_of(compared: pd.DataFrame) -> dict[str, str]:
    """Median, 90th, 95th percentile and worst of the absolute relative errors in %; coverage, half-width, score."""
    found = {"passes": str(len(compared))}
    for name in (*QUANTITIES, *ON_HOST):
        off = compared[name].dropna().abs() * 100 if name in compared else pd.Series(dtype=float)
        found[name] = (
            "–" if off.empty else " / ".join(f"{value:.1f}" for value in (*np.percentile(off, [50, 90, 95]), off.max()))
        )
    for name in ("device_s", "time_s", "energy_j", *ON_HOST):
        held = compared[f"held_{name}"].dropna() if f"held_{name}" in compared else pd.Series(dtype=float)
        if held.empty:
            continue
        low, high = clopper_pearson(int(held.sum()), len(held))
        verdict = "" if low <= LEVEL <= high else " (!)"
        width = compared[f"width_{name}"].median()
        score = compared[f"score_{name}"].mean()
        found[f"{name} in its 90 %"] = f"{held.mean():.0%} ({low:.0%}–{high:.0%}){verdict} ±{width:.0%}, {score:.2f}"
    return found


def tables(compared: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Errors of all, and within kinds, dtypes, batches, days and passes."""
    batch = pd.cut(
        compared["batch"], [edge - 0.5 for edge in BATCHES], labels=[f"from {edge}" for edge in BATCHES[:-1]]
    )
    by = {"all": pd.Series("all", index=compared.index), "pass": compared["pass"], "day": compared["day"],
          "precision": compared["execution"], "batch": batch, "kind": compared["kind"]}  # fmt: skip
    return {
        name: pd.DataFrame({str(value): errors_of(part) for value, part in compared.groupby(keys, observed=True)}).T
        for name, keys in by.items()
    }


def again(compared: pd.DataFrame) -> str:
    """How far two times of the same pass are apart where the host paces it: no prediction can come nearer."""
    paced = compared[compared["seen_time_s"] > HOST_PACED * compared["seen_device_s"]]
    off = (paced["issue_alone_s"] / paced["seen_time_s"] - 1).dropna().abs() * 100
    if off.empty:
        return ""
    return (
        f"{len(off)} passes paced by their host: issued on an idle device a second before, they took "
        + " / ".join(f"{value:.1f}" for value in np.percentile(off, [50, 90, 95]))
        + " % more or less than back to back (median / 90th / 95th percentile)."
    )


def report(compared: pd.DataFrame) -> str:
    """All tables and the named passes, in Markdown."""
    lines = ["Relative errors in %: median / 90th / 95th percentile / worst.", "", again(compared)]
    for name, table in tables(compared).items():
        lines += ["", f"## By {name}" if name != "all" else "## All", "", _markdown(table)]
    if "cause" in compared:
        named = compared[compared["cause"].notna()].sort_values("device", key=lambda off: -off.abs())
        lines += [
            "",
            f"## Device time more than {NAMED_ABOVE:.0%} off: {len(named)} of {compared['device'].notna().sum()}",
            "",
        ]
        for row in named.itertuples(index=False):
            pass_ = row[named.columns.get_loc("pass")]
            tf32 = " TF32" if row.execution == TF32 else ""
            off = f"{row.device:+.0%} of {row.seen_device_s * 1e3:.2f} ms"
            lines.append(f"- {row.network_id}{tf32}, {pass_}, day {row.day}: {off}: {row.cause}")
    return "\n".join(lines)


def write_result(compared: pd.DataFrame, gpu: str, profile: HostProfile | None, about: str, output: Path) -> None:
    """Write the tables as a result of the page of unseen networks; the targets are for sets of all kinds.

    The title ends with `about`.
    """
    days = sorted(compared["day"].unique())
    kind, of_set = OF_A_DAY[days[0]] if len(days) == 1 and days[0] in OF_A_DAY else ("all kinds", None)
    title = f"Day{'s' * (len(days) > 1)} {', '.join(map(str, days))}, {kind}{f', {about}' * bool(about)}"
    targets = TARGETS.get(gpu, {}) if of_set is None else of_set
    notes = []
    if profile is not None:
        if of_set is not None:  # those of all kinds were measured once
            title += ", host calibrated"
        notes.append(f"`clockwatt calibrate --host` took {profile.seconds:.0f} s on this machine before the passes.")
    if SETS["eighth"].day in days:
        notes.append(eager_ratio(compared))
        compared = compared[compared["execution"] != TF32]
    columns = {"passes": "passes", "device": "device time", "time": "time", "energy": "energy",
               "time on its host": "time, host calibrated", "energy on its host": "energy, host calibrated",
               "device_s in its 90 %": "coverage of device time", "time_s in its 90 %": "coverage of time",
               "energy_j in its 90 %": "coverage of energy",
               "time on its host in its 90 %": "coverage of time, host calibrated",
               "energy on its host in its 90 %": "coverage of energy, host calibrated"}  # fmt: skip
    rows = [
        [index if name == "all" else f"{name}: {index}", *(str(table.loc[index].get(key, "–")) for key in columns)]
        for name, table in tables(compared).items()
        for index in table.index
    ]
    device, energy = (compared[name].dropna().abs() * 100 for name in ("device", "energy on its host"))
    values = {
        "device time, median": device.median(), "device time, 90th percentile": device.quantile(0.9),
        "energy with a calibrated host, median": energy.median(),
        "energy with a calibrated host, 90th percentile": energy.quantile(0.9),
        "half-width of the interval of device time": compared["width_device_s"].median() * 100,
    }  # fmt: skip
    cards, name = compared["card"].nunique(), gpu.upper()
    of_cards = f"{cards} card{'s' * (cards > 1)}"
    label = f"{title[0].lower()}{title[1:]}, {name}"
    result_file.write(
        "unseen-networks",
        f"{title}: {name}, {of_cards}",
        ["networks", *columns.values()],
        rows,
        file=output,
        hardware=f"{cards} × NVIDIA {name}",
        targets=[
            result_file.target(f"{label}: {which}", values[which], at_most=limit, unit="%")
            for which, limit in targets.items()
        ],
        notes=notes,
    )


def eager_ratio(compared: pd.DataFrame) -> str:
    """Say how far the ratio of device times to the same network in eager TF32 is off."""
    named = compared.assign(network=compared["network_id"].str.rsplit("-", n=1).str[0]).set_index(["network", "pass"])
    eager = named[named["execution"] == TF32]["device"]
    other = named[named["execution"] != TF32]
    off = ((1 + other["device"]) / (1 + eager.reindex(other.index)) - 1).dropna().abs() * 100
    return (
        f"Ratio of device time to the same network in eager TF32, {len(off)} pairs: off by {off.median():.1f} % in the "
        f"median, {off.quantile(0.9):.1f} % at the 90th percentile."
    )


def _markdown(table: pd.DataFrame) -> str:
    head = ["", *table.columns]
    body = [[str(index), *map(str, row)] for index, row in zip(table.index, table.fillna("–").to_numpy(), strict=True)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *body])


def main() -> int:
    """Pack or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    packing = modes.add_parser("pack")
    packing.add_argument("folders", type=Path, nargs="+")
    packing.add_argument("--output", type=Path, required=True)
    reporting = modes.add_parser("report")
    reporting.add_argument("files", type=Path, nargs="*", help="default: all of the GPU but `OF_A_DAY`")
    reporting.add_argument("--predictors", type=Path, required=True)
    reporting.add_argument("--gpu", required=True)
    reporting.add_argument("--output", type=Path, help="CSV with a row each pass")
    reporting.add_argument("--result", type=Path, help="JSON for `docs/results/unseen-networks.md`")
    reporting.add_argument(
        "--host", metavar="NAME", help="a profile below profiles/hosts/: times on its host are told with it"
    )
    reporting.add_argument("--about", default="", help="what tells a result from others of its day, for the title")
    arguments = parser.parse_args()
    if arguments.mode == "pack":
        pack(arguments.folders, arguments.output)
        return 0
    model = load_models(arguments.predictors)[arguments.gpu]
    apart = tuple(f"-day{day}.parquet" for day in OF_A_DAY)
    beside = sorted(HERE.glob(f"measured-{arguments.gpu}-*.parquet"))
    paths = arguments.files or [path for path in beside if not path.name.endswith(apart)]
    profile = HostProfile.read(HERE / "profiles", arguments.host) if arguments.host else None
    compared = compare(measured(paths), model, Catalogue(), profile)
    if arguments.output:
        compared.to_csv(arguments.output, index=False)
    if arguments.result:
        write_result(compared, arguments.gpu, profile, arguments.about, arguments.result)
    print(report(compared))
    return 0


if __name__ == "__main__":
    sys.exit(main())
