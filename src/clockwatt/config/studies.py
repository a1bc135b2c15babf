"""Studies of a campaign: each a block of its own, made by its own target, `snakemake study_NAME`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import Field, field_validator, model_validator

from clockwatt.config.gpus import GpuConfig, Megahertz, Watts
from clockwatt.config.model import Model, different, one_or_more
from clockwatt.config.networks import NetworkConfig, OptimizerName
from clockwatt.config.points import OperatingPoint
from clockwatt.errors import ConfigError
from clockwatt.schema.execution import EAGER

PowerNetwork = Literal["ecg_resnet", "ecg_cinc17", "dense_512", "dense_16384"]
POWER_NETWORKS: tuple[PowerNetwork, ...] = get_args(PowerNetwork)

WorkloadName = Literal[
    "matmul", "question_answering", "fine_tuning", "classifier", "black_scholes", "monte_carlo", "distance", "kmeans",
    "fft", "spectrogram", "sepia", "question_answering_original", "fine_tuning_original", "classifier_original",
    "black_scholes_original", "distance_original", "ecg_resnet", "ecg_cinc17", "dense_512", "dense_16384",
]  # fmt: skip
ORIGINAL_WORKLOADS: tuple[WorkloadName, ...] = tuple(
    name for name in get_args(WorkloadName) if name.endswith("_original")
)
"""Workloads as the temperature study ran them, beside one of the same name that keeps the GPU busy."""

WORKLOADS: tuple[WorkloadName, ...] = tuple(
    name for name in get_args(WorkloadName) if name not in (*POWER_NETWORKS, *ORIGINAL_WORKLOADS)
)
"""Those that are recorded where none is named."""

StrategyName = Literal["ddp", "fsdp", "pipeline"]
STRATEGIES: tuple[StrategyName, ...] = get_args(StrategyName)
"""Ways to train on several GPUs."""

Count = Annotated[int, Field(ge=1, le=64)]
ConditionName = Literal["together", "shared"]
CONDITION_PROGRAMS = ("sgemm", "resnet50", "bert", "dlrm")
"""Programs that the survey times alone and beside one another."""
FEWEST_CARDS = 4
"""Fewest cards that the survey compares."""
SurveyProgram = Literal["gemm", "copy", "resnet50", "bert", "dlrm"]


class PowerStudyGpu(Model):
    """Operating points of one GPU in the study of power limits: limits first, then clocks, never both at once."""

    power_limits_w: Annotated[list[Watts], one_or_more(Watts)] = Field(
        [],
        description="power limits, in W, at the driver's own clocks",
        examples=[[150, 200, 250, 300]],
    )
    clocks_mhz: Annotated[list[Megahertz], one_or_more(Megahertz)] = Field(
        [], description="SM clocks to lock, in MHz, at the GPU's own power limit", examples=[[780, 1110, 1440]]
    )

    _no_duplicates = different("power_limits_w", "clocks_mhz")

    @model_validator(mode="after")
    def _something_is_asked(self) -> Self:
        if not self.points:
            raise ValueError("has no operating point: give power_limits_w, clocks_mhz or both")
        return self

    @property
    def points(self) -> list[OperatingPoint]:
        """The operating points, power limits first; `default` counts once."""
        limits = [OperatingPoint(power_limit_w=limit_w) for limit_w in self.power_limits_w]
        clocks = [OperatingPoint(sm_clock_mhz=clock_mhz) for clock_mhz in self.clocks_mhz]
        return list(dict.fromkeys([*limits, *clocks]))


class PowerStudyConfig(Model):
    """Training under power limits and clocks: energy, time and their product. `snakemake study_power`."""

    gpus: dict[str, PowerStudyGpu] = Field(
        min_length=1, description="label of a GPU to its operating points in this study"
    )
    networks: Annotated[list[PowerNetwork], one_or_more(PowerNetwork)] = Field(
        ["ecg_resnet", "dense_512", "dense_16384"],
        min_length=1,
        description="ecg_resnet: a deep 1-D residual network on ECGs of 12 leads; ecg_cinc17: with dropout on one "
        "lead, as in the challenge CinC17; dense_512, dense_16384: two dense layers on "
        "images of digits, at a batch of 128 and of 32",
    )
    repetitions: int = Field(3, ge=1, le=1000, description="runs of each network at each operating point")
    epochs: int = Field(10, ge=1, le=10_000, description="epochs of a run")
    examples: dict[PowerNetwork, Annotated[int, Field(ge=128)]] = Field(
        {},
        description="network to the examples of an epoch, where its data is made; else 21,799 ECGs as in PTB-XL, "
        "8,528 as in CinC17, and 60,000 images as in MNIST",
        examples=[{"ecg_resnet": 6400}],
    )
    data: dict[PowerNetwork, str] = Field(
        {},
        description="network to the folder of its data: `x.npy` [n, 12, 4096], [n, 1, 9000] or [n, 784] and `y.npy` "
        "[n]; or MNIST's own files `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`; or CinC17's own "
        "`REFERENCE.csv` and `.mat`, of any length; for the others data is made",
        examples=[{"dense_512": "/data/mnist"}],
    )
    optimizers: dict[PowerNetwork, OptimizerName] = Field(
        {},
        description="network to its optimizer of `torch.optim`; for the others `adam`",
        examples=[{"dense_512": "rmsprop"}],
    )
    idle_s: float = Field(3.0, ge=0.3, description="how long idle power is read before each run")
    rest_to_c: float | None = Field(
        None,
        gt=0,
        le=120,
        description="temperature to cool down to before each run; null: 3 °C above that before the first run",
    )
    rest_max_s: float = Field(600.0, ge=0, description="longest such rest; the record states if it was reached")

    def settings_of(self, gpu: str) -> dict[str, Any]:
        """Return the settings that the runs on a GPU depend on, by its label."""
        return self.model_dump(mode="json", exclude={"gpus"}) | self.gpus[gpu].model_dump(mode="json")

    _networks_differ = different("networks", what="a network")


class WorkloadsStudyConfig(Model):
    """Eleven programs, recorded by all sensors. `snakemake study_workloads`."""

    gpus: list[str] | None = Field(
        None, min_length=1, description="labels of GPUs of the campaign; null: all of them", examples=[["a30"]]
    )
    workloads: Annotated[list[WorkloadName], one_or_more(WorkloadName)] = Field(
        list(WORKLOADS),
        min_length=1,
        description="which, in the order in which they are recorded; those of `_original` run as in the study "
        "that clockwatt continues; the networks of `studies.power` may be named, too",
    )
    seconds: float | None = Field(60.0, gt=0, description="duration of each; null: a fixed number of steps")
    scale: float | None = Field(
        None,
        gt=0,
        description="factor of the workloads' sizes; null: 1 on a real GPU, and 0.01 beside a virtual one, where the "
        "programs run on the processor",
    )
    data: dict[WorkloadName, str] = Field(
        {},
        description="workload to a folder with its data, see `python -m clockwatt.studies.workloads.NAME --help`; for "
        "others data is made",
        examples=[{"classifier": "/data/cifar10"}],
    )
    idle_s: float = Field(3.0, ge=0.3, description="how long idle power is read before each")
    rest_to_c: float | None = Field(
        30.0, gt=0, le=120, description="temperature to cool down to before each; null: no rest"
    )
    rest_max_s: float = Field(120.0, ge=0, description="longest such rest; the record states if it was reached")

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings that the records of a GPU depend on."""
        return self.model_dump(mode="json", exclude={"gpus"})

    _nothing_stands_twice = different("gpus", "workloads", what="a name")


ThermalModel = Literal["persistence", "linear", "polynomial", "rc", "trees", "lstm", "gru"]


class ThermalStudyConfig(Model):
    """Temperature models of what `studies.power` and `studies.workloads` record. `snakemake study_thermal`."""

    gpus: list[str] | None = Field(
        None,
        min_length=1,
        description="labels of GPUs that these studies record; null: all of them",
        examples=[["a30"]],
    )
    models: Annotated[list[ThermalModel], one_or_more(ThermalModel)] = Field(
        ["linear", "rc", "trees"],
        min_length=1,
        description="models to fit, besides persistence; see `clockwatt thermal fit --help`",
    )
    horizons_s: Annotated[list[Annotated[float, Field(gt=0, le=3600)]], one_or_more(float)] = Field(
        [1.0, 10.0, 30.0, 60.0], min_length=1, description="forecast horizons, in s"
    )

    _nothing_stands_twice = different("gpus", "models", "horizons_s")


class SurveyStudyConfig(Model):
    """Every card of some nodes, compared with the others of its model. `snakemake study_survey`."""

    gpus: dict[str, dict[str, Annotated[int, Field(ge=1, le=64)]]] = Field(
        min_length=1,
        description="label of a GPU of the campaign to its nodes, each with its number of cards",
        examples=[{"h200": {"gpu01": 8, "gpu02": 8}}],
    )
    sessions: int = Field(
        1, ge=1, le=1000, description="measurements of each card; raise it on another day to separate card and session"
    )
    rounds: int = Field(5, ge=2, le=15, description="how often a session measures each operation; one takes about 10 s")
    programs: list[SurveyProgram] = Field(
        ["gemm", "copy"],
        description="measured once on each card after the rounds. gemm: products of two square matrices in float32, "
        "float64 and bfloat16; copy: 4 GiB within the GPU's memory; resnet50, bert, dlrm: inference; they are traced "
        "in the job, and bert needs `clockwatt[transformers]`",
    )
    gemm_sizes: list[Annotated[int, Field(ge=16, le=65_536)]] = Field(
        [4096, 8192, 16_384, 20_480], description="rows and columns of the matrices of `gemm`"
    )
    conditions: list[ConditionName] = Field(
        [],
        description="conditions beside a card alone. together: SGEMM on 2, 3, … all cards of a node at once; shared: "
        "SGEMM, ResNet-50, BERT and a DLRM, two at a time on one card",
        examples=[["together", "shared"]],
    )
    repetitions: int = Field(3, ge=1, le=100, description="repetitions of the conditions on each node, each in a job")
    seconds: float = Field(5.0, gt=0, le=60, description="how long programs are timed under each condition")

    @field_validator("gpus")
    @classmethod
    def _nodes_are_single(cls, gpus: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        for label, nodes in gpus.items():
            for node in nodes or [""]:
                if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", node):
                    raise ValueError(f"{label}: {node!r:.80} is not one node: name each, as `sinfo -N` shows it")
        return gpus

    _conditions_differ = different("conditions", what="a condition")
    _programs_differ = different("programs", what="a program")
    _sizes_differ = different("gemm_sizes", what="a size")

    @property
    def of_a_card(self) -> dict[str, Any]:
        """What the measurement of a card depends on."""
        return self.model_dump(mode="json", include={"rounds", "programs", "gemm_sizes"})

    def shared_nodes(self, gpu: str) -> list[tuple[str, int]]:
        """Return node and repetition of each measurement of the conditions on a GPU, by its label."""
        repetitions = range(1, self.repetitions + 1) if self.conditions else ()
        return [(node, repetition) for repetition in repetitions for node in self.gpus[gpu]]

    def cards_of(self, gpu: str, node: str) -> int:
        """Return the number of cards of a node; a `ConfigError` where the survey lacks it."""
        nodes = self.gpus.get(gpu, {})
        if node not in nodes:
            known = f"it has {', '.join(nodes)}" if nodes else f"it has GPUs {', '.join(self.gpus)}"
            raise ConfigError(f"studies.survey.gpus: no node {node!r} of GPU {gpu!r}; {known}.")
        return nodes[node]

    def compares(self, gpu: str) -> bool:
        """Return whether the cards of a GPU, by its label, are compared: conditions alone need no four cards."""
        return not self.conditions or sum(self.gpus[gpu].values()) >= FEWEST_CARDS

    def cards(self, gpu: str) -> list[tuple[str, int, int]]:
        """Return node, index and session of each measurement of a GPU, by its label; none if nothing compares them."""
        if not self.compares(gpu):
            return []
        return [
            (node, index, session)
            for session in range(1, self.sessions + 1)
            for node, count in self.gpus[gpu].items()
            for index in range(count)
        ]


class ParallelStudyConfig(Model):
    """Training of whole networks on one and several GPUs of a node. `snakemake study_parallel`."""

    gpus: list[str] | None = Field(
        None,
        min_length=1,
        description="labels of GPUs of the campaign; null: those with a `count` above 1",
        examples=[["h100"]],
    )
    networks: list[NetworkConfig] = Field(
        min_length=1, description="networks, as in the campaign's `networks`, trained as its `training` says"
    )
    counts: Annotated[list[Count], one_or_more(Count)] = Field(
        [1, 2], min_length=1, description="numbers of GPUs; include 1 to get the speed-up"
    )
    strategies: Annotated[list[StrategyName], one_or_more(StrategyName)] = Field(
        list(STRATEGIES),
        min_length=1,
        description="ddp: DistributedDataParallel; fsdp: `fully_shard` for each block; pipeline: a stage on each GPU, "
        "in the order of 1F1B",
    )
    batch_per_gpu: int | None = Field(
        None, ge=1, description="batch of each GPU (in a pipeline, the mean over all GPUs); null: that of the input"
    )
    microbatches: int = Field(4, ge=1, le=1024, description="parts of the batch of a pipeline")
    images: int = Field(8192, ge=1, description="examples of an epoch in the table")
    seconds: float = Field(2.0, gt=0, le=600, description="how long the steps of a case are timed")
    profile_steps: int = Field(3, ge=1, le=100, description="profiled steps of a case")
    idle_s: float = Field(2.0, ge=0.3, le=60, description="how long idle power is read before the first case")

    _nothing_stands_twice = different("gpus", "counts", "strategies")

    @model_validator(mode="after")
    def _batches_can_be_split(self) -> Self:
        for network in self.networks:
            if modes := [one for one in network.execution if one.parts["mode"] != EAGER]:
                raise ValueError(f"{network.name}: {modes[0]} is not eager, which this study measures: leave it out")
        for network in self.networks if "pipeline" in self.strategies else ():
            for count in self.counts:
                batch = count * (self.batch_per_gpu or network.first_input.shape[0])
                if count > 1 and batch % self.microbatches:
                    raise ValueError(
                        f"{network.name}: a batch of {batch} on {count} GPUs is no multiple of {self.microbatches} "
                        "microbatches: choose another batch_per_gpu or other microbatches"
                    )
        return self

    def labels(self, gpus: Mapping[str, GpuConfig]) -> list[str]:
        """Return the labels of the study's GPUs among those of the campaign."""
        return self.gpus or [label for label, gpu in gpus.items() if gpu.count > 1]

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings that the measurements on a GPU depend on."""
        return self.model_dump(mode="json", exclude={"gpus", "images"})


class StudiesConfig(Model):
    """Studies of the campaign; `snakemake` alone runs all that are listed here."""

    power: PowerStudyConfig | None = Field(None, description="training under power limits and clocks")
    workloads: WorkloadsStudyConfig | None = Field(None, description="eleven programs, recorded by all sensors")
    thermal: ThermalStudyConfig | None = Field(None, description="temperature models of what other studies record")
    survey: SurveyStudyConfig | None = Field(None, description="differences between cards of one model")
    parallel: ParallelStudyConfig | None = Field(None, description="training on several GPUs of a node")

    @model_validator(mode="after")
    def _temperature_is_recorded(self) -> Self:
        if self.thermal and not (self.power or self.workloads):
            raise ValueError("thermal needs records: add power or workloads to studies")
        return self

    def thermal_sources(self, gpus: Iterable[str]) -> dict[str, list[str]]:
        """Return the studies that record a GPU which `thermal` asks for, by label; `gpus` are all of the campaign."""
        if self.thermal is None:
            return {}
        recorded = {"power": list(self.power.gpus) if self.power else []}
        recorded["workloads"] = (self.workloads.gpus or list(gpus)) if self.workloads else []
        asked = self.thermal.gpus or list(dict.fromkeys(label for labels in recorded.values() for label in labels))
        return {label: [name for name, labels in recorded.items() if label in labels] for label in asked}

    @property
    def configured(self) -> list[str]:
        """Targets of the studies that stand here: `study_power` and so on."""
        return [f"study_{name}" for name in type(self).model_fields if getattr(self, name) is not None]

    def check_targets(self, words: Iterable[str]) -> None:
        """Check that the studies whose targets are among some words, such as a command's, stand here.

        Raises
        ------
        ConfigError
            If one does not.
        """
        asked = set(words)
        for name in type(self).model_fields:
            if f"study_{name}" in asked:
                _there(getattr(self, name), name)

    def study_power(self) -> PowerStudyConfig:
        """Return the study of power limits; a `ConfigError` where the campaign has none."""
        return _there(self.power, "power")

    def study_workloads(self) -> WorkloadsStudyConfig:
        """Return the study of workloads; a `ConfigError` where the campaign has none."""
        return _there(self.workloads, "workloads")

    def study_thermal(self) -> ThermalStudyConfig:
        """Return the study of temperature; a `ConfigError` where the campaign has none."""
        return _there(self.thermal, "thermal")

    def study_survey(self) -> SurveyStudyConfig:
        """Return the survey of cards; a `ConfigError` where the campaign has none."""
        return _there(self.survey, "survey")

    def study_parallel(self) -> ParallelStudyConfig:
        """Return the study of several GPUs; a `ConfigError` where the campaign has none."""
        return _there(self.parallel, "parallel")


Study = TypeVar("Study", bound=Model)


def _there(study: Study | None, name: str) -> Study:
    if study is None:
        raise ConfigError(
            f"studies.{name}: is not in the campaign, so study_{name} does not exist. "
            "See config/README.md for its keys."
        )
    return study
