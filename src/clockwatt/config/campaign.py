"""A campaign as a whole."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from clockwatt.config.design import DesignConfig
from clockwatt.config.fit import FitConfig
from clockwatt.config.gpus import GpuConfig
from clockwatt.config.measurement import MeasurementConfig, Quantities, Quantity, TelemetryConfig
from clockwatt.config.model import LABEL_PATTERN, Model, different, one_or_more
from clockwatt.config.networks import NetworkConfig, TrainingConfig
from clockwatt.config.points import OperatingPoint
from clockwatt.config.studies import StudiesConfig
from clockwatt.errors import ConfigError
from clockwatt.io.resources import reference_folder, resource
from clockwatt.schema import layout

Pass = Literal["inference", "training"]
PASSES: tuple[Pass, ...] = ("inference", "training")
QUANTITIES: tuple[Quantity, ...] = ("time", "energy")
_LONGEST_LABEL = 64


class CampaignConfig(Model):
    """One campaign: what is measured, on what, and how."""

    campaign: str = Field(
        pattern=LABEL_PATTERN, max_length=_LONGEST_LABEL, description="name of the campaign, shown in figures"
    )
    seed: int = Field(0, ge=0, description="seed of shuffles, virtual GPUs and predictors")
    gpus: dict[str, GpuConfig] = Field(
        min_length=1, description="GPUs, each below a label that you choose; paths contain the label"
    )
    design: DesignConfig | None = Field(None, description="operations drawn by design, beside those of networks")
    imported_from: str | None = Field(
        None,
        description="table that `clockwatt import` read; such a campaign measures nothing",
    )
    networks: list[NetworkConfig] = Field(
        [], description="networks to measure, operation by operation and whole; needed without `design`"
    )
    passes: Annotated[list[Pass], one_or_more(Pass)] = Field(
        ["inference", "training"],
        min_length=1,
        description="inference: forward; training: forward, loss, backward and the optimizer's step",
    )
    quantities: Quantities = Field(
        ["time", "energy"],
        description="what is measured; `[time]` is many times as fast as `[time, energy]`; a network may have its own",
    )
    shards: int = Field(
        1,
        ge=1,
        le=10_000,
        description="jobs that share the operations of a GPU at an operating point; `clockwatt plan` recommends one",
    )
    network_shards: int = Field(
        1, ge=1, le=10_000, description="jobs that share the whole networks of a GPU at an operating point"
    )
    reference: Annotated[list[str], one_or_more(str)] = Field(
        [],
        description="measurements to add: names of shipped ones, or folders that `clockwatt import` wrote (with a "
        "slash: `./a30`). If the campaign has measurements with the same label and operating point, only those "
        "are used",
        examples=[["h200"], ["h200", "h200-wide"]],
    )
    results_dir: str = Field(
        "results",
        pattern=r"^[^{}\s]+$",
        description="folder of all results, relative to the working folder; give each campaign its own",
    )
    training: TrainingConfig = Field(TrainingConfig())
    measurement: MeasurementConfig = Field(MeasurementConfig())
    telemetry: TelemetryConfig = Field(TelemetryConfig())
    fit: FitConfig = Field(FitConfig())
    studies: StudiesConfig = Field(StudiesConfig())

    @field_validator("gpus")
    @classmethod
    def _labels_fit_in_paths(cls, gpus: dict[str, GpuConfig]) -> dict[str, GpuConfig]:
        for label in gpus:
            if not re.fullmatch(LABEL_PATTERN, label) or len(label) > _LONGEST_LABEL:
                raise ValueError(
                    f"label {label!r:.80} is used in paths: letters, digits, '_' and '.' only, at most {_LONGEST_LABEL}"
                )
        return gpus

    @field_validator("results_dir")
    @classmethod
    def _may_be_a_folder(cls, name: str) -> str:
        try:
            if name.startswith("~") or (Path(name).exists() and not Path(name).is_dir()):
                raise ValueError(f"{name!r} is no folder: {'write the path out' if name[0] == '~' else 'name another'}")
        except OSError as error:
            raise ValueError(f"{name!r:.80} cannot be a folder ({error.strerror}): name another") from None
        return name

    @field_validator("networks")
    @classmethod
    def _something_is_measured(cls, networks: list[NetworkConfig], info: ValidationInfo) -> list[NetworkConfig]:
        wanted = (info.data.get("design", "wrong, and reported as such"), info.data.get("imported_from"))
        if not networks and all(entry is None for entry in wanted):
            raise ValueError("is missing, and so is design: one of them is needed; see config/README.md")
        return networks

    @field_validator("networks")
    @classmethod
    def _precisions_are_measured(cls, networks: list[NetworkConfig], info: ValidationInfo) -> list[NetworkConfig]:
        gpus: dict[str, GpuConfig] = info.data.get("gpus", {})
        if info.data.get("imported_from") is not None:
            return networks
        for network in (variant for one in networks if one.whole and gpus for variant in one.by_variant()):
            if not any(gpu.execution_of(network.precision) for gpu in gpus.values()):
                asked = " or ".join(network.precision)
                raise ValueError(
                    f"{network.name}: no GPU measures {asked}; add one to gpus.{next(iter(gpus))}.precision, or change "
                    "the network's precision"
                )
        return networks

    @field_validator("networks")
    @classmethod
    def _networks_differ(cls, networks: list[NetworkConfig]) -> list[NetworkConfig]:
        seen: dict[str, set[str]] = {}
        each = [one for network in networks for one in network.by_variant()]
        for network in each:
            precisions = seen.setdefault(network.network_id, set())
            if precisions & set(network.precision):
                raise ValueError(f"{network.network_id} is given twice: remove one, or give each another precision")
            precisions.update(network.precision)
        return each

    _passes_differ = different("passes", what="a pass")

    @field_validator("passes")
    @classmethod
    def _steps_can_be_captured(cls, passes: list[Pass], info: ValidationInfo) -> list[Pass]:
        for network in info.data.get("networks", ()) if "training" in passes else ():
            if network.whole and any(one.waits_in_capture for one in network.execution):
                raise ValueError(
                    f"{network.name}: fp16-mixed+cuda_graph cannot train, since GradScaler waits for the GPU. Choose "
                    "bf16-mixed+cuda_graph, or passes: [inference]"
                )
        return passes

    @field_validator("reference")
    @classmethod
    def _references_are_shipped(cls, names: list[str]) -> list[str]:
        shipped = sorted(path.parent.name for path in resource("reference").glob("*/config.yaml"))
        for name in names:
            if "/" in name:
                if not (reference_folder(name) / "config.yaml").is_file():
                    raise ValueError(f"{name}: no folder that `clockwatt import` wrote is there; it lacks config.yaml")
            elif name not in shipped:
                raise ValueError(f"no data called {name!r} is shipped; choose among {', '.join(shipped)}, or write []")
        return names

    _references_differ = different("reference", what="a name")

    @field_validator("studies")
    @classmethod
    def _power_study_can_be_set(cls, studies: StudiesConfig, info: ValidationInfo) -> StudiesConfig:
        gpus: dict[str, GpuConfig] = info.data.get("gpus", {})
        for label, asked in studies.power.gpus.items() if studies.power and gpus else ():
            if label not in gpus:
                raise ValueError(f"power.gpus.{label}: no GPU has this label; the campaign has {', '.join(gpus)}")
            gpus[label].check_settable(asked.points, f"power.gpus.{label}: ")
        return studies

    @field_validator("studies")
    @classmethod
    def _studies_run_on_known_gpus(cls, studies: StudiesConfig, info: ValidationInfo) -> StudiesConfig:
        gpus: dict[str, GpuConfig] = info.data.get("gpus", {})
        for name, study in (
            ("workloads", studies.workloads),
            ("survey", studies.survey),
            ("parallel", studies.parallel),
            ("thermal", studies.thermal),
        ):
            for label in (study.gpus if study and gpus else None) or ():
                if label not in gpus:
                    raise ValueError(f"{name}.gpus: no GPU is labelled {label!r}; the campaign has {', '.join(gpus)}")
        for label, sources in studies.thermal_sources(gpus).items():
            if not sources:
                raise ValueError(f"thermal.gpus: neither power nor workloads records {label!r}; name it in one of them")
        return studies

    @field_validator("studies")
    @classmethod
    def _several_gpus_are_asked_for(cls, studies: StudiesConfig, info: ValidationInfo) -> StudiesConfig:
        gpus: dict[str, GpuConfig] = info.data.get("gpus", {})
        if studies.parallel is None or not gpus:
            return studies
        labels, most = studies.parallel.labels(gpus), max(studies.parallel.counts)
        if not labels:
            raise ValueError("parallel: no GPU of the campaign has a count above 1: set gpus.LABEL.count")
        for label in labels:
            if most > gpus[label].count:
                raise ValueError(
                    f"parallel.counts: {most} is more than gpus.{label}.count, {gpus[label].count}: raise that to the "
                    "GPUs of a node, or choose fewer"
                )
        return studies

    def quantities_of(self, networks: list[NetworkConfig]) -> list[Quantity]:
        """Return the quantities to measure for these networks: all that any of them requests."""
        wanted = {quantity for network in networks for quantity in network.quantities or self.quantities}
        return [quantity for quantity in QUANTITIES if quantity in wanted]

    def catalogue_settings(self) -> dict[str, Any]:
        """Return the settings that the catalogue depends on, for JSON."""
        # a campaign without a design, or without named families, is what it was before there were any
        design = {"design"} if self.design else set()
        content = self.model_dump(mode="json", include={"networks", "passes", "training", "quantities"} | design)
        if self.design and self.design.families is None:
            del content["design"]["families"]
        for key in ("accumulate", "clip_norm", "loss"):
            if content["training"][key] == TrainingConfig.model_fields[key].default:
                del content["training"][key]
        return content

    def gpu(self, label: str) -> GpuConfig:
        """Return a GPU by its label.

        Raises
        ------
        ConfigError
            If the campaign has no such GPU.
        """
        if label not in self.gpus:
            raise ConfigError(f"gpus: no GPU is labelled {label!r}; the campaign has {', '.join(self.gpus)}.")
        return self.gpus[label]

    def points_asked(self, label: str) -> dict[str, list[OperatingPoint]]:
        """All operating points that are asked of a GPU, by the key that asks them: its own, and those of studies."""
        asked = {f"gpus.{label}": self.gpus[label].points}
        if self.studies.power and label in self.studies.power.gpus:
            asked[f"studies.power.gpus.{label}"] = self.studies.power.gpus[label].points
        return asked

    def measurement_files(self) -> list[Path]:
        """Return every file of measurements that the campaign gives, below the measurements folder."""
        return [
            path for label, gpu in self.gpus.items() for point in gpu.points for path in self._measured(label, point)
        ]

    def point_files(self, gpu: str, point: OperatingPoint) -> list[Path]:
        """Return files of measurements, and the calibration, of one GPU at one point, below the measurements folder."""
        return [*self._measured(gpu, point), layout.calibration_file(gpu, point)]

    def _measured(self, gpu: str, point: OperatingPoint) -> list[Path]:
        return [
            *(layout.operations_file(gpu, point, shard) for shard in range(1, self.shards + 1)),
            *(layout.networks_file(gpu, point, shard) for shard in range(1, self.network_shards + 1)),
        ]

    def calibration_files(self) -> list[Path]:
        """Return every calibration that the campaign gives, below the measurements folder."""
        return [layout.calibration_file(label, point) for label, gpu in self.gpus.items() for point in gpu.points]
