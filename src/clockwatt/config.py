"""What `config/config.yaml` may say. Errors name the key and the fix."""

from __future__ import annotations

import difflib
import itertools
import json
import re
import shlex
import string
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    field_validator,
    model_validator,
)

from clockwatt.errors import ConfigError

Pass = Literal["inference", "training"]
PASSES: tuple[Pass, ...] = ("inference", "training")

DEFAULT_POINT = "default"
POINT_PATTERN = r"default|sm\d+(-mem\d+)?(-pl\d+)?|mem\d+(-pl\d+)?|pl\d+"
LABEL_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.]*"


@dataclass(frozen=True, order=True)
class OperatingPoint:
    """What is asked of a GPU; None leaves a setting as it is."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_limit_w: int | None = None

    def __str__(self) -> str:
        parts = [
            f"{prefix}{value}"
            for prefix, value in (("sm", self.sm_clock_mhz), ("mem", self.memory_clock_mhz), ("pl", self.power_limit_w))
            if value is not None
        ]
        return "-".join(parts) or DEFAULT_POINT

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a point as it stands in paths: `default`, `sm1440`, `sm1440-mem5001`, `pl150`.

        Raises
        ------
        ConfigError
            If `text` is no operating point.
        """
        if not re.fullmatch(POINT_PATTERN, text):
            raise ConfigError(
                f"{text!r} is no operating point: write default, sm1440, sm1440-mem5001, pl150 or sm1440-mem5001-pl150."
            )
        settings = dict(re.findall(r"(sm|mem|pl)(\d+)", text))
        return cls(*(int(settings[prefix]) if prefix in settings else None for prefix in ("sm", "mem", "pl")))

    @property
    def is_default(self) -> bool:
        """Whether nothing is asked of the GPU."""
        return self == OperatingPoint()

    @property
    def settings(self) -> dict[str, int]:
        """What is asked, by its name."""
        return {name: value for name in POINT_SETTINGS if (value := getattr(self, name)) is not None}


POINT_SETTINGS = tuple(field.name for field in fields(OperatingPoint))


def placeholders(template: str) -> set[str]:
    """Names in braces in a command of the site's own.

    Raises
    ------
    ValueError
        If its braces are not closed.
    """
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def _quantity(unit: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        if value is None or value == DEFAULT_POINT:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise ValueError(f"{value!r} is not a number of {unit}")
        return value

    return BeforeValidator(check, json_schema_input_type=Annotated[int, Field(gt=0)] | Literal["default"])


def _one_or_more(item: Any) -> BeforeValidator:
    """A single value stands for a list of one."""
    return BeforeValidator(
        lambda value: value if isinstance(value, list) else [value], json_schema_input_type=item | list[item]
    )


def _or_default(value: int | None) -> int | str:
    return DEFAULT_POINT if value is None else value


Megahertz = Annotated[int | None, _quantity("MHz"), PlainSerializer(_or_default, return_type=int | str)]
Watts = Annotated[int | None, _quantity("W"), PlainSerializer(_or_default, return_type=int | str)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


_KEY_OF_SBATCH_OPTION = {
    option: key
    for key, options in {
        "partition": ("-p", "--partition"),
        "gres": ("--gres",),
        "gpu": ("-G", "--gpus"),
        "runtime": ("-t", "--time"),
        "cpus_per_task": ("-c", "--cpus-per-task"),
        "mem_mb": ("--mem", "--mem-per-cpu"),
        "account": ("-A", "--account"),
        "nodelist": ("-w", "--nodelist"),
        "qos": ("-q", "--qos"),
        "constraint": ("-C", "--constraint"),
    }.items()
    for option in options
}


class SlurmResources(_Model):
    """What a job of this GPU asks Slurm for."""

    partition: str | None = Field(None, description="partition to submit to", examples=["gpu"])
    gres: str | None = Field(None, description="generic resource as in `sinfo -o %G`", examples=["gpu:a30:1"])
    gpu: int | None = Field(None, ge=1, description="number of GPUs, instead of `gres`", examples=[1])
    gpu_model: str | None = Field(None, description="GPU type that goes with `gpu`", examples=["a30"])
    runtime: int = Field(120, ge=1, description="minutes of the first attempt; attempt n asks for n times as much")
    cpus_per_task: int = Field(
        4, ge=1, description="cores of a measuring job: one for timing, one for the logger, the rest for autograd"
    )
    mem_mb: int = Field(16000, ge=500, description="host memory in MB")
    account: str | None = Field(None, description="Slurm account to charge")
    nodelist: str | None = Field(
        None, description="pin the campaign to these nodes, so that one card serves all of it", examples=["gpu[01-02]"]
    )
    qos: str | None = Field(None, description="quality of service to ask for", examples=["high"])
    constraint: str | None = Field(None, description="features that the node must have", examples=["nvlink"])
    extra: str | None = Field(
        None, description="further options of sbatch, verbatim", examples=["--exclude=gpu07 --exclusive"]
    )

    @field_validator("extra")
    @classmethod
    def _extra_leaves_the_rest_alone(cls, value: str | None) -> str | None:
        for option in (value or "").split():
            key = _KEY_OF_SBATCH_OPTION.get(option.partition("=")[0])
            if key:
                raise ValueError(f"{option.partition('=')[0]} has a key of its own: write {key} beside extra")
        return value

    @model_validator(mode="after")
    def _one_way_to_ask_for_a_gpu(self) -> Self:
        if self.gres and (self.gpu or self.gpu_model):
            raise ValueError("give either gres, or gpu and gpu_model, not both")
        if self.gpu_model and not self.gpu:
            raise ValueError("gpu_model needs gpu: 1 beside it")
        return self


class ControlConfig(_Model):
    """How the operating point is set."""

    method: Literal["nvml", "helper", "command", "slurm", "none"] = Field(
        "nvml",
        description="nvml sets clocks directly (root, or a machine of one's own); helper asks what an administrator "
        "installed from `privileged/`, by sudo; command runs the site's own script; slurm uses `srun --gpu-freq` (SM "
        "and memory clock); none sets nothing, for `default`. `clockwatt doctor` says which of them work",
    )
    helper: str = Field("/usr/local/sbin/clockwatt-clocks", description="of method helper: where it is installed")
    set_command: str | None = Field(
        None,
        description="of method command: what sets an operating point, run without a shell. {index} is the GPU's number "
        "as in nvidia-smi, {uuid} its UUID; {sm_clock_mhz}, {memory_clock_mhz}, {power_limit_w} what is asked for",
        examples=["sudo /opt/site/nvidia-set-clocks.sh -d {index} -c {sm_clock_mhz}"],
    )
    reset_command: str | None = Field(
        None,
        description="of method command: what takes it back; without it, set_command must run as long as the operating "
        "point is wanted, and is terminated to release it",
        examples=["sudo /opt/site/nvidia-set-clocks.sh -d {index} -r"],
    )
    settle_timeout_s: float = Field(
        10, gt=0, description="how long the SM clock may take to reach its target under load"
    )
    on_mismatch: Literal["error", "flag"] = Field(
        "flag", description="whether a clock that is not reached ends the job or flags its rows"
    )

    @field_validator("set_command", "reset_command")
    @classmethod
    def _template_is_understood(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            names = placeholders(value)
            words = shlex.split(value)
        except ValueError as error:
            raise ValueError(f"{value!r} cannot be split into words ({error})") from None
        unknown = sorted(names - {"index", "uuid", *POINT_SETTINGS})
        if unknown or not words:
            raise ValueError(f"{value!r} has no command, or {{{(unknown or [''])[0]}}} that is not known")
        return value

    @model_validator(mode="after")
    def _commands_belong_to_their_method(self) -> Self:
        if (self.method == "command") != (self.set_command is not None):
            raise ValueError("method: command and set_command belong together")
        if self.reset_command is not None and self.set_command is None:
            raise ValueError("reset_command needs set_command beside it")
        return self

    @property
    def settable(self) -> frozenset[str]:
        """Settings of an operating point that the method can set."""
        match self.method:
            case "none":
                return frozenset()
            case "slurm":
                return frozenset({"sm_clock_mhz", "memory_clock_mhz"})
            case "command":
                return frozenset(placeholders(self.set_command or "")) & frozenset(POINT_SETTINGS)
        return frozenset(POINT_SETTINGS)


class GpuConfig(_Model):
    """One kind of GPU and the operating points to measure it at."""

    device: str = Field(
        description="the NVML name of the GPU, checked in the job, or virtual:MODEL",
        examples=["NVIDIA A30", "virtual:a30"],
    )
    clocks_mhz: Annotated[list[Megahertz], _one_or_more(Megahertz)] = Field(
        [None],
        min_length=1,
        description="SM clocks to lock, in MHz; `default` leaves the GPU to itself",
        examples=[[210, 900, 1440]],
    )
    memory_clocks_mhz: Annotated[list[Megahertz], _one_or_more(Megahertz)] = Field(
        [None], min_length=1, description="memory clocks to lock, in MHz"
    )
    power_limits_w: Annotated[list[Watts], _one_or_more(Watts)] = Field(
        [None], min_length=1, description="power limits, in W"
    )
    tf32: Annotated[list[bool], _one_or_more(bool)] = Field(
        [True],
        min_length=1,
        description="whether float32 matrix products and convolutions may use TensorFloat-32; both can be measured",
    )
    control: ControlConfig = Field(ControlConfig(), description="how the operating point is set")
    slurm: SlurmResources = Field(SlurmResources(), description="what a job of this GPU asks Slurm for")

    @field_validator("clocks_mhz", "memory_clocks_mhz", "power_limits_w", "tf32")
    @classmethod
    def _no_duplicates(cls, values: list[Any]) -> list[Any]:
        if len(set(values)) != len(values):
            raise ValueError("a value stands twice: remove one")
        return values

    @field_validator("device")
    @classmethod
    def _device_is_named(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty: write the GPU's name as `nvidia-smi -L` shows it, or virtual:a30")
        return value

    @model_validator(mode="after")
    def _settable(self) -> Self:
        method = self.control.method
        if method == "none" and not all(point.is_default for point in self.points):
            raise ValueError(
                "control.method none sets nothing: leave clocks_mhz, memory_clocks_mhz and power_limits_w at default, "
                "or choose method nvml"
            )
        for point in self.points:
            beyond = sorted(point.settings.keys() - self.control.settable)
            if beyond:
                raise ValueError(
                    f"control.method {method} as it is configured cannot set {beyond[0]}, but {point} asks it"
                )
        if self.virtual_model is not None and method not in ("nvml", "none"):
            raise ValueError(f"control.method {method} is for real GPUs; a virtual one needs nvml or none")
        return self

    @property
    def points(self) -> list[OperatingPoint]:
        """The operating points, in the order in which the config names them."""
        return [
            OperatingPoint(*settings)
            for settings in itertools.product(self.clocks_mhz, self.memory_clocks_mhz, self.power_limits_w)
        ]

    @property
    def virtual_model(self) -> str | None:
        """Model of a virtual GPU, None for a real one."""
        return self.device.removeprefix("virtual:") if self.device.startswith("virtual:") else None


class NetworkConfig(_Model):
    """A network and the shape of its input."""

    name: str = Field(
        description="torchvision classification network, or package.module:callable that returns a torch.nn.Module",
        examples=["resnet18", "my_package.models:build"],
    )
    input: list[Annotated[int, Field(gt=0)]] = Field(
        min_length=1, description="shape of the input, batch first", examples=[[32, 3, 224, 224]]
    )
    dtype: Literal["float32", "float16", "bfloat16"] = Field(
        "float32", description="the network and its input are cast to this"
    )
    input_dtype: Literal["float", "int64"] = Field(
        "float", description="int64 for networks that take indices (token ids)"
    )
    input_below: int | None = Field(
        None, gt=0, description="indices are below this; needed with int64", examples=[30522]
    )

    data_dependent_branch: Literal["refuse", "true", "false"] = Field(
        "refuse",
        description="at a branch on the values of a tensor, tracing refuses the network or takes it as true or false",
    )

    @model_validator(mode="after")
    def _indices_are_bounded(self) -> Self:
        if (self.input_dtype == "int64") != (self.input_below is not None):
            raise ValueError("input_dtype: int64 and input_below belong together")
        return self

    @property
    def network_id(self) -> str:
        """Identity used in tables and figures, e.g. `resnet18-32x3x224x224-float32`."""
        return f"{self.name}-{'x'.join(map(str, self.input))}-{self.dtype}"


class TrainingConfig(_Model):
    """What a training step does beside forward and backward."""

    optimizer: Literal["sgd", "adam", "adamw"] = Field("sgd", description="optimizer of the training pass")
    learning_rate: float = Field(0.1, gt=0, description="of the optimizer; costs nothing")
    momentum: float = Field(0.9, ge=0, lt=1, description="of sgd")
    weight_decay: float = Field(0.0, ge=0, description="of the optimizer; above 0 it is work of its own")


class TelemetryConfig(_Model):
    """Periods of the logger's three lanes."""

    fast_period_s: float = Field(0.1, gt=0.01, le=10, description="power, energy counter, clocks, throttle reasons")
    slow_period_s: float = Field(1.0, gt=0.05, le=60, description="PCIe, temperature, utilisation, host")
    ring_period_s: float = Field(
        1.0, gt=0.05, le=2, description="how often the driver's ring of power samples is drained"
    )
    segment_s: float = Field(
        5.0, gt=0.5, le=60, description="a Parquet segment is closed this often; a kill loses at most this much"
    )


class MeasurementConfig(_Model):
    """How an operation is measured."""

    precision: float = Field(
        0.02, gt=0, lt=1, description="95 % half-width of time and power at which measuring may stop, relative"
    )
    warm_up_s: float = Field(0.4, ge=0, le=60, description="back-to-back calls before power is read")
    window_min_s: float = Field(
        0.8, gt=0.1, le=600, description="shortest window of back-to-back calls in which power is read"
    )
    window_max_s: float = Field(1.2, gt=0.1, le=600, description="longest such window")
    idle_s: float = Field(
        3.0, gt=0.3, le=600, description="how long idle power is read at the start and the end of a shard"
    )
    repetitions: int = Field(1, ge=1, le=100, description="times every operation is measured, in fresh shuffled orders")
    working_set: Literal["parameters_cold", "all_cold", "hot"] = Field(
        "parameters_cold", description="which tensors are cycled through copies that together exceed the L2 cache"
    )

    @model_validator(mode="after")
    def _window_is_ordered(self) -> Self:
        if self.window_max_s < self.window_min_s:
            raise ValueError("window_max_s is below window_min_s")
        return self


class FitConfig(_Model):
    """Which predictors are fitted and how they are validated."""

    predictors: list[Literal["roofline", "forest"]] = Field(
        ["roofline", "forest"],
        min_length=1,
        description="roofline: ExtraTrees on the ratio to a roofline; forest: the thesis's random forest; "
        "the first is used for predictions",
    )
    folds: int = Field(15, ge=2, le=100, description="of the grouped cross-validation")
    trees: int = Field(100, ge=1, le=5000, description="per forest")


class CampaignConfig(_Model):
    """One campaign: what is measured, on what, and how."""

    campaign: str = Field(pattern=LABEL_PATTERN, description="name of the campaign, shown in figures")
    seed: int = Field(0, ge=0, description="of every shuffle, virtual GPU and predictor")
    gpus: dict[str, GpuConfig] = Field(min_length=1, description="label of your own, used in paths, to GPU")
    networks: list[NetworkConfig] = Field(
        min_length=1, description="networks whose operations are measured, and which are measured whole"
    )
    passes: Annotated[list[Pass], _one_or_more(Pass)] = Field(
        ["inference", "training"],
        min_length=1,
        description="inference: forward; training: forward, loss, backward and the optimizer's step",
    )
    shards: int = Field(
        1,
        ge=1,
        le=100_000,
        description="jobs that share the operations of a GPU at an operating point; `clockwatt plan` recommends one",
    )
    network_shards: int = Field(
        1, ge=1, le=10_000, description="jobs that share the whole networks of one GPU and operating point"
    )
    training: TrainingConfig = Field(TrainingConfig())
    measurement: MeasurementConfig = Field(MeasurementConfig())
    telemetry: TelemetryConfig = Field(TelemetryConfig())
    fit: FitConfig = Field(FitConfig())

    @field_validator("gpus")
    @classmethod
    def _labels_fit_in_paths(cls, gpus: dict[str, GpuConfig]) -> dict[str, GpuConfig]:
        for label in gpus:
            if not re.fullmatch(LABEL_PATTERN, label):
                raise ValueError(f"label {label!r} is used in paths: letters, digits, '_' and '.' only")
        return gpus

    @field_validator("networks")
    @classmethod
    def _networks_differ(cls, networks: list[NetworkConfig]) -> list[NetworkConfig]:
        seen: set[str] = set()
        for network in networks:
            if network.network_id in seen:
                raise ValueError(f"{network.network_id} stands twice: remove one")
            seen.add(network.network_id)
        return networks

    @field_validator("passes")
    @classmethod
    def _passes_differ(cls, passes: list[Pass]) -> list[Pass]:
        if len(set(passes)) != len(passes):
            raise ValueError("a pass stands twice: remove one")
        return passes

    def gpu(self, label: str) -> GpuConfig:
        """Look up a GPU by its label.

        Raises
        ------
        ConfigError
            If the campaign has no such GPU.
        """
        if label not in self.gpus:
            raise ConfigError(f"gpus: no GPU is labelled {label!r}; the campaign has {', '.join(self.gpus)}.")
        return self.gpus[label]


def load(path: Path) -> CampaignConfig:
    """Read and check a campaign's YAML file.

    Raises
    ------
    ConfigError
        Naming the file, every wrong key and its fix.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file. Give the campaign's file with --config.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}).") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    return parse(content, source=str(path))


def parse(content: Any, source: str = "config") -> CampaignConfig:
    """Check a campaign given as a mapping; `source` is named in errors.

    Raises
    ------
    ConfigError
        Naming every wrong key and its fix.
    """
    if not isinstance(content, Mapping):
        raise ConfigError(f"{source}: is not a mapping of keys; see config/README.md for an example.")
    try:
        return CampaignConfig.model_validate(dict(content))
    except ValidationError as error:
        _raise_readable(error, source)


def parse_network(content: Any, source: str) -> NetworkConfig:
    """Check a network given as a mapping; `source` is named in errors.

    Raises
    ------
    ConfigError
        Naming every wrong key and its fix.
    """
    try:
        return NetworkConfig.model_validate(content)
    except ValidationError as error:
        _raise_readable(error, source)


def dump(config: CampaignConfig) -> str:
    """The campaign as YAML with every default filled in; `load` reads it back."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, width=120)


def json_schema() -> str:
    """The JSON schema of a campaign file, for editors and for config/schema.json."""
    return json.dumps(CampaignConfig.model_json_schema(), indent=2) + "\n"


def _raise_readable(error: ValidationError, source: str) -> NoReturn:
    lines = [f"{_key(detail['loc'])}: {_explain(detail)}" for detail in error.errors()]
    raise ConfigError(
        f"{source}: " + (lines[0] if len(lines) == 1 else "".join(f"\n  {line}" for line in lines))
    ) from None


def _key(location: tuple[int | str, ...]) -> str:
    key = ""
    for part in location:
        key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else part
    return key or "config"


def _explain(detail: Any) -> str:
    match detail["type"]:
        case "extra_forbidden":
            known = _known_keys(detail["loc"][:-1])
            close = difflib.get_close_matches(str(detail["loc"][-1]), known, n=1)
            return f"unknown key{f'; did you mean {close[0]!r}?' if close else ''} Known keys here: {', '.join(known)}"
        case "missing":
            return "is missing; see config/README.md"
        case "value_error":
            return str(detail["ctx"]["error"])
        case _:
            message = detail["msg"].removeprefix("Input should be ")
            return f"{detail['input']!r} should be {message}"


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    """Keys of the model that stands at `location`, found by walking the models."""
    walk: dict[str, type[_Model]] = {
        "gpus": GpuConfig, "control": ControlConfig, "slurm": SlurmResources, "networks": NetworkConfig,
        "training": TrainingConfig, "measurement": MeasurementConfig, "telemetry": TelemetryConfig, "fit": FitConfig,
    }  # fmt: skip
    models = [walk[part] for part in location if isinstance(part, str) and part in walk]
    return list((models[-1] if models else CampaignConfig).model_fields)
