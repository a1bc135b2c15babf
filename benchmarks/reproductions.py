"""The five studies that clockwatt continues, item by item: theirs, ours, command, verdict.

    python benchmarks/reproductions.py

Numbers of ours come from the results of other benchmarks where there are any. A verdict is one of: reproduced (on the
same data or card), on another card, built and run on a virtual card only, partly (what is missing stands beside it),
not asked by it.
"""

from __future__ import annotations

import json
import re
from typing import Any

import result_file

COLUMNS = ["item", "theirs", "ours", "command", "verdict"]
REPRODUCED, OTHER_CARD, PARTLY = "reproduced", "on another card", "partly"
MORE = "not asked by it"
NOT_MEASURED = (
    f"{PARTLY}: predicted, not measured, since GPU time was short; to measure it, name the network of "
    "`clockwatt.operations.stacks` in `networks` of a campaign"
)
VIRTUAL = "built; run on a virtual card only"
HELD_OUT = "`python benchmarks/thesis_held_out.py`"
FIGURES = "`python benchmarks/thesis_figures.py`"
FOLDS = "`python benchmarks/thesis_folds.py --trees 30`"
POWER_STUDY = "`snakemake study_power`"
WORKLOADS = "`snakemake study_workloads` of a [campaign with workloads](../how-to/run-studies.md#workloads)"
MODULE = "python -m clockwatt.studies.workloads"
SHORT_TURNS = f"{OTHER_CARD}: workloads ran in turns of 6 s, too short for warming up over minutes"
MOMENT = "`python benchmarks/thermal_moment.py`"

QUANTITIES = ("time", "power", "energy")
Row = list[str]


def main() -> None:
    """Write a table for each study."""
    for number, (title, rows, notes) in enumerate((thesis(), power_report(), temperature(), assignment(), proposal())):
        result_file.write(
            "reproductions", title, COLUMNS, rows, notes=notes, hardware="stated on the linked pages",
            file=result_file.RESULTS / f"reproductions-{number + 1}.json",
        )  # fmt: skip


def read(name: str) -> dict[str, Any]:
    """Return a result."""
    content: dict[str, Any] = json.loads((result_file.RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def cell(name: str, start: list[Any], column: str) -> str:
    """Return a cell of the row of a result that begins with some values."""
    result = read(name)
    (row,) = [row for row in result["rows"] if row[: len(start)] == start]
    return str(row[result["columns"].index(column)])


def target(name: str, about: str) -> str:
    """Return the value of a target of a result."""
    (found,) = [one["value"] for one in read(name)["targets"] if one["name"].startswith(about)]
    return str(found)


def thesis() -> tuple[str, list[Row], list[str]]:
    """C. Nicolai's master thesis."""

    def of_held_out(pass_: str) -> str:
        rows = [row for row in read("thesis_held_out")["rows"] if row[:2] == [pass_, "TF32"]]
        return "; ".join(f"{row[3]}: time {row[4]}, energy {row[5]}" for row in rows)

    def of_h200(time: str, learner: str) -> str:
        (row,) = [
            row for row in read("thesis_device_time")["rows"] if row[:1] + row[2:4] == ["inference", time, learner]
        ]
        return str(row[4])

    def folds(learner: str, column: str) -> str:
        return cell("thesis_folds", ["inference, TF32", learner], column)

    def clocked(learner: str) -> str:
        return cell("clock_feature", [learner], "R² power")

    def fewer(number: int) -> str:
        (row,) = [row for row in read("thesis_folds-attributes")["rows"] if row[:2] == ["inference, TF32", number]]
        return str(row[2])

    rows = [
        [
            "tables I and II, figures 5.1 and 5.2: networks in three configurations",
            "order in energy, inference: A30 with TF32 < RTX 2080 Ti < A30 without, 18 of 18",
            ("its measurements are shipped, in the table and figure below; on virtual cards the order is right in "
            f"{target('virtual_cards', 'order')} of networks ([Virtual GPUs](virtual-gpus.md))"),
            f"{FIGURES}, `python benchmarks/virtual_cards.py`",
            f"{REPRODUCED}; not measured on these cards by us; predicted energy of the RTX 2080 Ti is too high (below)",
        ],
        [
            "figure 3.1: time against duration",
            "linear fit on the last 6/7 of the points, 5 σ, shortest duration",
            "figure `time_against_duration` of each campaign: line, band of 5 σ, shortest duration by this rule",
            "`snakemake`",
            OTHER_CARD,
        ],
        [
            "start-up transients without rest",
            "power after the start of a load",
            "figure `power_transient` of each campaign: five loads after a rest, five right after one another",
            "`snakemake`",
            VIRTUAL,
        ],
        [
            "equations 3.1–3.9: mean power and its error",
            "mean of readings within 3 σ (n − 1, <), σ as error, energy = time × power",
            "columns `power_thesis_w` and `power_thesis_deviation_w` of each measurement, beside ours (idle + "
            "dynamic), and energy as power × time; error of power on 12 operations of an H200 (median / worst): theirs "
            + cell("accuracy", ["median / worst"], "thesis: power")
            + ", ours "
            + cell("accuracy", ["median / worst"], "power"),
            '`python benchmarks/accuracy.py measure --device "NVIDIA H200"`',
            f"{OTHER_CARD}: the same equations",
        ],
        [
            "a training pass: forward and backward",
            "gradients of the outputs; no loss, no optimizer",
            "`training: {optimizer: none, loss: mean}`, or options of these names; the loss is the mean of the outputs",
            "`clockwatt predict NETWORK --pass training --optimizer none --loss mean`",
            f"{VIRTUAL}; predicted for all GPUs; PyTorch needs a scalar, so the mean is computed in addition",
        ],
        [
            "its procedure end to end",
            "3 blocks of 10 s",
            "time per operation, of 12 (median / worst): theirs "
            + cell("accuracy", ["median / worst"], "thesis: took")
            + ", ours "
            + cell("accuracy", ["median / worst"], "took"),
            "`python benchmarks/accuracy.py measure` (`thesis_procedure.py`)",
            OTHER_CARD,
        ],
        [
            "figure 5.3: ten operations, measured and predicted",
            "bars",
            (
                "of each class, the operation that takes most energy on the A30: measured, and predicted by ours and "
                "by the thesis's forest (operations of the same class and channels held out)"
            ),
            "`python benchmarks/thesis_operations.py`",
            f"{REPRODUCED} on its data; which ten it shows is our choice",
        ],
        [
            "figures 5.4–5.7: networks in inference, predicted and measured",
            "sum of predicted operations",
            f"errors on the A30 with TF32, operations held out (median / 90th percentile): {of_held_out('inference')}",
            f"{HELD_OUT}, {FIGURES}",
            f"{REPRODUCED} on its data",
        ],
        [
            "figures 5.8–5.11: networks in training",
            "sum of predicted operations",
            f"errors on the A30 with TF32, operations held out (median / 90th percentile): {of_held_out('training')}",
            HELD_OUT,
            (
                f"{REPRODUCED} on its data; sums are too high: its single operations also add to a gradient that is "
                "kept, and none takes less than 145 µs. No predictor of this training is shipped"
            ),
        ],
        [
            "fifteen folds: R² of the forest",
            "R² of back-to-back time, power, energy",
            "inference with TF32: "
            + ", ".join(f"{name} {folds('forest, (value, flag)', f'R² {name}')}" for name in QUANTITIES)
            + "; ours (ratio to a roofline): "
            + ", ".join(f"{name} {folds('roofline (ours)', f'R² {name}')}" for name in QUANTITIES)
            + "; its forest on an H200: back-to-back time "
            + of_h200("back to back", "forest, (value, flag)")
            + ", device time "
            + of_h200("device", "forest, (value, flag)"),
            f"{FOLDS}; other data: `python benchmarks/thesis_device_time.py`",
            f"{REPRODUCED} on its data; ExtraTrees, XGBoost and both encodings are in the table below",
        ],
        [
            "clock as a feature against a model per clock",
            "both",
            (
                "158 kernels of a V100 at 9 clocks, R² of power: clock as a feature "
                f"{clocked('clock as a feature')}, a forest for each clock {clocked('a forest for each clock')}; at a "
                f"clock left out {clocked('clock as a feature, clock left out')}; there ours extrapolates with the "
                "[clock model](clock-model.md)"
            ),
            "`python benchmarks/clock_feature.py`, `python benchmarks/dvfs_v100.py`",
            f"{OTHER_CARD}: its A30 and RTX 2080 Ti ran at one clock",
        ],
        [
            "fewest attributes that lose nothing",
            "a subset",
            f"12 of 33: R² of time {fewer(12)}, with all {fewer(33)} (inference with TF32)",
            FOLDS,
            REPRODUCED,
        ],
        [
            "operations as its users write them",
            "`Conv2d(3, 64, kernel_size=(7, 7), …) 32x3x224x224 ×1`",
            "read as they are; operations that the thesis measured on the A30 are answered with its values",
            "`clockwatt predict --operations FILE --gpu a30`",
            REPRODUCED,
        ],
        [
            "gain of tensor cores against dependency complexity",
            "a figure",
            "gain in energy against the number of branches that join again: rank correlation "
            + re.findall(r"[+-][\d.]+\d", read("thesis_tensor_cores")["notes"][2])[0],
            "`python benchmarks/thesis_tensor_cores.py`",
            f"{PARTLY}: its definition of complexity was not at hand; ours, on its data, is in the table below",
        ],
    ]  # fmt: skip
    notes = [
        "The thesis itself was not at hand. *Theirs* is what descriptions of it and its public logs state.",
        "R² of single folds vary by a tenth and more: a few large convolutions decide them.",
    ]
    return "Thesis: operations and networks on an A30 and an RTX 2080 Ti (C. Nicolai)", rows, notes


def power_report() -> tuple[str, list[Row], list[str]]:
    """The report on power limits, and Zeus."""

    def saved(gpu: str) -> str:
        rows = [row for row in read("power_limits-batch")["rows"] if row[0] == gpu and row[2] == "energy"]
        percent = [-int(row[5].rstrip("%")) for row in rows]
        return f"{min(percent)}–{max(percent)} %"

    rows = [
        [
            "energy, time, energy-delay product against power limit, second-degree fit, R², optimum",
            "three networks on its cards",
            (
                "figure `optimum_power_limit` of each campaign; of five networks that Zeus measured on a V100 and a "
                "P100 ([drawn](power-limits.md#power-limits-left-out))"
            ),
            f"{POWER_STUDY}, `clockwatt study-power --runs shipped --gpu v100 --network resnet50 --study-dir DIR`",
            OTHER_CARD,
        ],
        [
            "a limit that was not measured",
            "–",
            (
                f"median error of time {target('power_limits', 'time')}, of energy {target('power_limits', 'energy')}; "
                f"a chosen limit costs {target('power_limits-regret', 'regret in energy')} more energy than the best "
                "one (mean)"
            ),
            "`python benchmarks/power_limits.py`",
            MORE,
        ],
        [
            "batch size and limit together (Zeus)",
            "15.3–75.8 % less energy (NSDI'23)",
            f"{saved('Tesla V100')} less energy on a V100, {saved('Tesla P100')} on a P100; "
            + target("power_limits-batch", "regret in energy")
            + " more than the best choice (mean)",
            "`python benchmarks/power_limits.py`",
            f"{REPRODUCED} on its traces; without Zeus's search over recurring jobs",
        ],
        [
            "ECG network, two dense networks",
            "CinC17: 1 × 9,000 samples, 4 classes; RMSprop",
            (
                "`ecg_cinc17`: recordings of CinC17, of any length, 4 classes; `ecg_resnet`: 12 × 4,096, 5 classes; an "
                "optimizer for each network (`studies.power.optimizers`)"
            ),
            f"{POWER_STUDY}; `python -m clockwatt.studies.power.ecg_cinc17 --data DIR --optimizer rmsprop`",
            f"{VIRTUAL}, on generated data of this shape, since CinC17 was not at hand; each recording has one label",
        ],
        [
            "jitter of power readings",
            "mean and deviation in Hz",
            "figure `sampling_interval`: mean ± deviation in Hz of each sampling rate; `jitter`: deviation over mean",
            POWER_STUDY,
            VIRTUAL,
        ],
        [
            "cumulative energy",
            "to the longest run, Σ Δt·P",
            (
                "figure `cumulative_energy` (trapezoids); shorter runs keep their energy until the longest ends; "
                "`runs.parquet` has `energy_summed_j` (Σ Δt·P) and `energy_j`"
            ),
            POWER_STUDY,
            VIRTUAL,
        ],
        [
            "epochs",
            "all, the first included",
            "figure `epochs`: the first of each run as a triangle, the others as boxes",
            POWER_STUDY,
            VIRTUAL,
        ],
        [
            "phases of Keras",
            "Keras 2 (`fit_generator`)",
            (
                "training, epochs, steps, validation and prediction of `fit_generator` and `fit`, from Keras "
                f"{read('reproductions-keras')['rows'][0][1]} to {read('reproductions-keras')['rows'][-1][1]}, in the "
                "table below"
            ),
            "`clockwatt record`; `python benchmarks/keras_calls.py`",
            f"{REPRODUCED}; Python 3.7 or later",
        ],
        [
            "outlook: select the best platform and run",
            "proposed",
            "`recommend --run` selects, runs or submits the job, records it, and compares it with the prediction",
            "`clockwatt recommend NETWORK --run --slurm -- python train.py`",
            f"{REPRODUCED}; on a Slurm of one node with a virtual GPU (`tests/slurm/test_recommend_run.py`)",
        ],
    ]
    return (
        "Report on power limits",
        rows,
        ["The report's own values were not at hand, so only its methods are compared."],
    )


def temperature() -> tuple[str, list[Row], list[str]]:
    """The study of temperatures."""

    def moment(data: str, model: str, inputs: str) -> str:
        start = [data, model, inputs]
        return " / ".join(cell("thermal_moment", start, f"rows, {part}") for part in ("one workload", "all workloads"))

    (h100,) = {row[0] for row in read("thermal_moment")["rows"] if str(row[0]).startswith("workloads on ")}

    def several_data(model: str, inputs: str) -> str:
        data = (h100, "operations on H100", "operations on H200", "loads on a virtual A30")
        return "; ".join(f"{one}: {moment(one, model, inputs)} °C" for one in data)

    def busy(name: str) -> str:
        return cell("thermal_moment-workloads", [name], "GPU busy (%)")

    def workload(name: str) -> str:
        return f"`{MODULE}.{name}`"

    def recorded(name: str) -> str:
        seconds = cell("thermal_moment-workloads", [name], "readings")
        return f"{OTHER_CARD}: ran for {seconds} s (3 turns), not to its end (see below)"

    def whole(column: str) -> str:
        return cell("black_scholes", [], column)

    def shown(name: str) -> str:
        return f"GPU use {busy(name)} %, {cell('thermal_moment-workloads', [name], 'temperature (°C)')} °C"

    def goal(resolution: str, against: str) -> str:
        return cell("thermal_moment-goal", [resolution], f"1 s ahead, against {against}")

    rows = [
        [
            "RMSE of temperature from power alone (linear)",
            "2.64 °C on one workload, 7.92 °C on several; rows shuffled",
            several_data("linear", "power"),
            MOMENT,
            SHORT_TURNS,
        ],
        [
            "the same from all sensors (XGBoost)",
            "0.80 °C on one workload, 5.22 °C on several",
            several_data("XGBoost", "all sensors"),
            MOMENT,
            SHORT_TURNS,
        ],
        [
            "the same by an LSTM, which forecasts the next reading",
            "0.42 °C",
            "; ".join(
                f"{data}: {moment(data, 'lstm, next reading', 'all sensors')} °C"
                for data in (h100, "loads on a virtual A30")
            ),
            MOMENT,
            f"{SHORT_TURNS}, and too short for an LSTM",
        ],
        [
            "goal of 0.1 °C",
            "stated",
            (
                f"sensors of whole degrees: {goal('1 °C', 'readings')} °C against readings, "
                f"{goal('1 °C', 'the truth')} °C against the true temperature of a virtual card; sensors of 0.25 °C: "
                f"{goal('0.25 °C', 'the truth')} °C"
            ),
            MOMENT,
            f"{REPRODUCED}: out of reach of NVML, whose temperatures are whole degrees; a sensor of 0.25 °C is enough",
        ],
        [
            "Black–Scholes",
            "50,000 scalar calls with gradients, GPU use 8 %",
            (
                f"`black_scholes_original`: the same calls, GPU use {whole('GPU busy (%)')} %, "
                f"{whole('temperature (°C)')} °C; `black_scholes`, vectorised: {shown('black_scholes')}"
            ),
            workload("black_scholes_original"),
            f"{OTHER_CARD}: {whole('calls')} calls in {whole('time (s)')} s on an H200, then stopped",
        ],
        [
            "DistilBERT question answering",
            "SQuAD, start and end positions, batch 16, 512 tokens, one epoch",
            (
                "`fine_tuning_original`: the same on data of SQuAD's shape, random weights, "
                f"{shown('fine_tuning_original')}; `fine_tuning`: a classifier"
            ),
            workload("fine_tuning_original"),
            recorded("fine_tuning_original"),
        ],
        [
            "BERT question answering",
            "tokenizer, five questions one by one",
            (
                "`question_answering_original`: the same, own word pieces, random weights, "
                f"{shown('question_answering_original')}; `question_answering`: batches"
            ),
            workload("question_answering_original"),
            recorded("question_answering_original"),
        ],
        [
            "CIFAR",
            "DataLoader workers, loss read at each step, test pass",
            (
                f"`classifier_original`: the same on images of CIFAR's shape, {shown('classifier_original')}; "
                "`classifier` without these"
            ),
            workload("classifier_original"),
            recorded("classifier_original"),
        ],
        [
            "distance",
            "two new matrices of 10,000 × 10,000 a step",
            (
                f"`distance_original`: the same, made on the host and copied, {shown('distance_original')}; `distance` "
                "on the same matrices"
            ),
            workload("distance_original"),
            recorded("distance_original"),
        ],
        [
            "matrix products, k-means, FFT, spectrogram, Monte Carlo, sepia",
            "scripts of the study; products in 3 cycles of 20",
            "the same programs at sizes that keep an H200 busy; products as there",
            f"{WORKLOADS}; `{MODULE}.matmul`",
            OTHER_CARD,
        ],
        [
            "correlations of sensors and temperature",
            "figures",
            "figures of sensors and correlations",
            WORKLOADS,
            OTHER_CARD,
        ],
    ]
    notes = [
        "RMSE of ours: rows shuffled, on one workload / on all; –: too few readings.",
        "[Held-out runs and workloads](temperature.md#temperature-from-other-sensors-at-the-same-moment-rmse-in-c).",
        "In the study, workloads run for minutes. All but Black–Scholes ran for seconds here: GPU time was short.",
        "Seconds show GPU use and power. They do not show how a card warms up over minutes.",
        "To run them whole: `studies.workloads: {workloads: [distance_original], seconds: null}`.",
    ]
    return "Temperature study", rows, notes


def assignment() -> tuple[str, list[Row], list[str]]:
    """The assignment on memory, layers and two GPUs."""

    def vgg(column: str) -> str:
        return cell("parallel_study", ["vgg16", 128, "tf32", "ddp"], column)

    def vgg_cell(order: str, column: str) -> str:
        return cell("reproductions-vgg-measured", ["training", order], column)

    rows = [
        [
            "tasks 1 and 2: memory until it ends",
            "n convolutions, m linear layers at (16, 64, 112, 112)",
            "this network is shipped; the largest n that fits, and the split over two H100s, are predicted (below)",
            "[Fill a GPU, and split over two](../how-to/use-several-gpus.md#fill-a-gpu-and-split-over-two)",
            NOT_MEASURED,
        ],
        [
            "task 2: four single layers at (256, 3, 224, 224), linear 25,088 → 4,096",
            "memory and power drawn",
            "time, energy, power and memory of each layer on an H100 and an H200, in the table and figure below",
            "`python benchmarks/single_layers.py`",
            NOT_MEASURED,
        ],
        [
            "task 3: VGG-16 with max-pool before ReLU, batch 128",
            "time and memory, CPU and GPU",
            (
                f"a training step on an H100 takes {vgg_cell('max-pool first', 'time')} in place of "
                f"{vgg_cell('ReLU first', 'time')} (predicted: {vgg_cell('max-pool first', 'time, predicted')}, "
                f"{vgg_cell('ReLU first', 'time, predicted')}), and as much memory "
                f"({vgg_cell('ReLU first', 'memory')}); table below"
            ),
            (
                "`python benchmarks/vgg_measured.py`; predicted: `clockwatt compare vgg16 "
                "clockwatt.operations.stacks:vgg16_pool_first --input 128,3,224,224 --pass training --gpu h100`"
            ),
            f"{OTHER_CARD}; not on CPUs, which clockwatt does not measure",
        ],
        [
            "VGG-16 on one and two GPUs",
            "speed-up 1.89; NCCL 19.8 and 21.5 % of kernel time",
            (
                f"two H100s, DDP: speed-up {vgg('speed-up')}, NCCL {vgg('NCCL share of kernel time, %')} % of kernel "
                f"time, {vgg('items per joule')} images per joule "
                "([Several GPUs](several-gpus.md#the-assignments-experiment-on-two-h100s))"
            ),
            "`python benchmarks/parallel_study.py`; your own GPUs: `snakemake study_parallel`",
            OTHER_CARD,
        ],
        [
            "occupancy and SM efficiency",
            "55.6 and 99.3 %",
            f"the same steps: {vgg('occupancy, %')} and {vgg('SM efficiency, %')} %, from launched blocks",
            "`python benchmarks/parallel_study.py`",
            OTHER_CARD,
        ],
    ]
    notes = [
        "![Energy of an item on one and two H100s](two-h100s-energy.png)",
        "![Kernels and communications of VGG-16 on two H100s](two-h100s-timeline.png)",
    ]
    return "Assignment: memory, layers, two GPUs", rows, notes


def proposal() -> tuple[str, list[Row], list[str]]:
    """The proposal on variability."""

    def placed(gpu: str) -> str:
        start = [gpu, "time, at the power limit", "25% of the cards at work: the best"]
        return cell("placement", start, "saved over random cards, %")

    interference = read("interference")
    beside = [float(cell.split()[0]) for row in interference["rows"] for cell in row[4:]]
    together = re.findall(r"takes ([^)]*\))", " ".join(interference["notes"]))

    def gemm(gpu: str, column: str = "(max − min) / median, %") -> str:
        return cell("card_variance", [gpu, "time of linear (power limit)"], column)

    def spread(gpu: str, quantity: str) -> str:
        values = [row[4] for row in read("card_variance")["rows"] if row[0] == gpu and row[1].startswith(quantity)]
        return f"{min(values):.1f} to {max(values):.1f} %"

    rows = [
        [
            "spread of cards of one model",
            "8 % on average, 22 % at most (SC22)",
            "(max − min) / median, by operation: "
            + "; ".join(
                f"{gemm(gpu, 'cards')} {gpu}s {spread(gpu, 'time')} in time, {spread(gpu, 'power')} in power"
                for gpu in ("H100", "H200")
            ),
            "`python benchmarks/card_variance.py`; your own cards: figure `cards` of `snakemake`",
            OTHER_CARD,
        ],
        [
            "placement by known speed",
            "completion time −42 % (SC24)",
            "time at the power limit, best quarter of the cards: "
            + " and ".join(f"−{placed(gpu)} % on {gpu}" for gpu in ("H100", "H200"))
            + " ([Cards](cards.md#what-placement-on-the-better-cards-gains))",
            "`python benchmarks/placement.py`",
            f"{OTHER_CARD}: these cards differ too little for more; no queue of jobs is simulated",
        ],
        [
            "spread of GEMM over a fleet",
            "up to 14 % (PRISM)",
            "time of a linear layer at the power limit, (max − min) / median: "
            + ", ".join(f"{gemm(gpu)} %" for gpu in ("H100", "H200"))
            + f" on {gemm('H100', 'cards')} H100 and {gemm('H200', 'cards')} H200",
            "`python benchmarks/card_variance.py`; your own cards: `snakemake study_survey`",
            f"{OTHER_CARD}",
        ],
        [
            "neighbours and co-tenants",
            "proposed",
            (
                "steps beside another program on one H100: "
                f"{min(beside):.2f} to {max(beside):.2f} times as long as alone; on two H100s at once: {together[0]} "
                "times ([Cards](cards.md#programs-beside-each-other-on-one-h100))"
            ),
            "`python benchmarks/interference.py`; your own cards: `snakemake study_survey`",
            f"{OTHER_CARD}; proposed without figures",
        ],
    ]
    return "Proposal: variability over a cluster", rows, []


if __name__ == "__main__":
    main()
