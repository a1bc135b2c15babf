"""Predictors as a library: what `clockwatt predict` and `clockwatt recommend` answer, as typed results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from clockwatt.config import PASSES, NetworkConfig, OperatingPoint, Pass
from clockwatt.errors import ClockwattError, DataFileError
from clockwatt.predict import recommend as recommending
from clockwatt.predict.answer import TracedNetwork, check_fits, predict_network
from clockwatt.predict.description import shipped_catalogue, shipped_predictors, shipped_validation
from clockwatt.predict.evaluation.errors import OBJECTIVES
from clockwatt.predict.gpu_predictor import GpuPredictor, load_models
from clockwatt.predict.hosts.profile import HostProfile
from clockwatt.predict.prediction import NetworkPrediction
from clockwatt.predict.query import KeywordInput, NetworkQuery, Shape, typed_inputs
from clockwatt.predict.questions import traced_network, training_of
from clockwatt.predict.recommend import Limits, Recommendation
from clockwatt.schema import layout

RESULTS = Path("results")
"""Results of a campaign where nobody says otherwise."""


def load(
    predictors_dir: str | Path | None = None,
    *,
    catalogue_dir: str | Path | None = None,
    validation_dir: str | Path | None = None,
) -> Predictors:
    """Load what `clockwatt fit` wrote. Nothing is unpickled.

    Parameters
    ----------
    predictors_dir
        `results/predictors` of a campaign. Without it, those in `results/predictors` of the working directory if a
        campaign was fitted there, and for GPUs that it lacks those that the package ships.
    catalogue_dir
        Networks that need not be traced again; else `dataset/catalogue` beside the predictors.
    validation_dir
        What choices by these predictors have cost; else `validation` beside them.

    Raises
    ------
    DataFileError
        If there are no predictors, or one is damaged; if a catalogue is named that is not there.
    """
    if catalogue_dir and not (Path(catalogue_dir) / layout.NETWORKS_FILE).exists():
        raise DataFileError(f"{catalogue_dir}: holds no catalogue. Run `clockwatt catalogue`, or give another folder.")
    folder = RESULTS / layout.PREDICTORS if predictors_dir is None else Path(predictors_dir)
    shipped = load_models(shipped_predictors()) if predictors_dir is None else {}
    catalogue, validation = folder.parent / layout.DATASET_CATALOGUE, folder.parent / layout.VALIDATION
    if predictors_dir is not None or (folder / layout.METRICS_FILE).exists():
        models = load_models(folder)
    else:
        models, catalogue, validation = shipped, shipped_catalogue(), shipped_validation()
    return Predictors(
        models,
        folder,
        Path(catalogue_dir) if catalogue_dir else catalogue,
        Path(validation_dir) if validation_dir else validation,
        {label: model for label, model in shipped.items() if label not in models},
    )


@dataclass(frozen=True)
class Predictors:
    """Predictors of time, power and energy of one or more GPUs.

    Attributes
    ----------
    models
        What predicts each GPU, by its label.
    predictors_dir, catalogue_dir, validation_dir
        Folders, see `load`.
    shipped
        What predicts GPUs that are not among `models`, by the label that the package ships them under.
    """

    models: Mapping[str, GpuPredictor]
    predictors_dir: Path
    catalogue_dir: Path
    validation_dir: Path
    shipped: Mapping[str, GpuPredictor] = field(default_factory=dict)

    @property
    def gpus(self) -> tuple[str, ...]:
        """Labels of the GPUs that can be asked about."""
        return (*self.models, *self.shipped)

    def model(self, label: str) -> GpuPredictor:
        """What predicts a GPU.

        Raises
        ------
        ClockwattError
            If no predictors of it are there.
        """
        self._check(label)
        return self.models[label] if label in self.models else self.shipped[label]

    def predict(
        self,
        network: str,
        *,
        gpu: str,
        input: Shape | None = None,  # noqa: A002  # as a campaign names it
        inputs: Mapping[str, KeywordInput] | None = None,
        point: str | OperatingPoint = "default",
        pass_: Pass = "inference",
        dtype: str = "float32",
        input_dtype: str | None = None,
        input_below: int | None = None,
        tf32: bool = True,
        host: str | None = None,
        relative_to: str | None = None,
    ) -> NetworkPrediction:
        """Predict one pass of a network on one GPU at one operating point.

        Parameters
        ----------
        network
            torchvision name, `timm:NAME`, `hf:CONFIG.json` or `package.module:callable`.
        gpu
            One of `gpus`.
        input
            Shape of its only input, batch first; without it and `inputs`, as the network was measured.
        inputs
            In place of `input`: keyword to shape, or to `{"shape": …, "dtype": …, "below": …}`.
        point
            `default`, `sm1440`, `sm1440-mem5001`, `pl150`, or an `OperatingPoint`.
        pass_
            `inference` or `training`.
        dtype
            The network and its input are cast to this: `float32`, `float16` or `bfloat16`.
        input_dtype, input_below
            `int64` and the bound of indices, for networks that take token ids.
        tf32
            Whether float32 may use TensorFloat-32.
        host
            That issues the calls: one that `clockwatt calibrate --host` made a profile of; None for the median of those
            measured on, with intervals that span them.
        relative_to
            A standard GPU, `GPU` or `GPU@POINT`: the answer's `relative_to` has ratios to the same pass there.

        Returns
        -------
        NetworkPrediction
            `expected.time_s`, `expected.energy_j`, `intervals` and more, units in their names.

        Raises
        ------
        ClockwattError
            If the GPU, the network or the point is unknown, or the pass was not fitted.
        """
        self._check(gpu)
        query = NetworkQuery(network, typed_inputs(input, inputs), dtype, input_dtype, input_below)
        return self.answer(
            self.traced(query, pass_), gpu=gpu, point=point, tf32=tf32, host=host, relative_to=relative_to
        )

    def recommend(
        self,
        network: str,
        *,
        input: Shape | None = None,  # noqa: A002  # as a campaign names it
        inputs: Mapping[str, KeywordInput] | None = None,
        objective: Literal["time", "energy", "edp"] = "energy",
        limits: Limits = Limits(),
        gpus: Sequence[str] | None = None,
        points: Sequence[str | OperatingPoint] = (),
        pass_: Pass = "inference",
        dtype: str = "float32",
        input_dtype: str | None = None,
        input_below: int | None = None,
        tf32: bool = True,
        host: str | None = None,
        relative_to: str | None = None,
    ) -> Recommendation:
        """Say on which GPU and at which operating point a pass costs least.

        Parameters
        ----------
        objective
            Have least of: time, energy, or their product.
        limits
            What the choice must keep to, e.g. `Limits(max_slowdown=0.1)`.
        gpus
            Choose among these; else among the campaign's measured ones, or among its virtual ones where there are no
            others. Shipped ones are chosen among where there is no campaign.
        points
            Operating points to consider too, though never measured.
        network, input, inputs, pass_, dtype, input_dtype, input_below, tf32, host, relative_to
            As for `predict`.

        Raises
        ------
        ClockwattError
            As `predict`, or if nothing keeps to the limits.
        """
        self._check(*(gpus or ()))
        query = NetworkQuery(network, typed_inputs(input, inputs), dtype, input_dtype, input_below)
        return self.choose(
            self.traced(query, pass_),
            objective=objective,
            limits=limits,
            gpus=gpus,
            points=points,
            tf32=tf32,
            host=host,
            relative_to=relative_to,
        )

    def traced(self, query: NetworkQuery, pass_: Pass) -> TracedNetwork:
        """A network's calls in one pass: from the catalogue, or traced now.

        Raises
        ------
        ClockwattError
            If the network is unknown or cannot be traced, or there is no such pass.
        """
        if pass_ not in PASSES:
            raise ClockwattError(f"pass {pass_!r}: there are {' and '.join(PASSES)}.")
        return traced_network(self.network(query), pass_, training_of(self.predictors_dir), self.catalogue_dir)

    def network(self, query: NetworkQuery) -> NetworkConfig:
        """What a question names, with the input that it was measured with if it names none.

        Raises
        ------
        ClockwattError
            As `NetworkQuery.network`.
        """
        return query.network(self.catalogue_dir, shipped_catalogue() if self.shipped else None)

    def answer(
        self,
        traced: TracedNetwork,
        *,
        gpu: str,
        point: str | OperatingPoint = "default",
        tf32: bool = True,
        host: str | None = None,
        relative_to: str | None = None,
    ) -> NetworkPrediction:
        """Predict a pass that was traced before; raises as `predict`."""
        model = self.model(gpu)
        check_fits(traced, [model.description.gpu_name])
        answer = predict_network(model, traced, _name_of(point), tf32=tf32, host=self.profile(host))
        if relative_to is None:
            return answer
        return self.compared(answer, relative_to, traced, host=host)

    def compared(
        self, answer: NetworkPrediction, named: str, traced: TracedNetwork, *, host: str | None = None
    ) -> NetworkPrediction:
        """An answer relative to the pass on a standard GPU, with a warning where the two were measured on other hosts.

        Parameters
        ----------
        answer, traced, host
            The answer, for which pass it is, and the host that was named for it.
        named
            As of `standard`, which says what is raised.
        """
        standard = self.standard(named, traced, tf32=answer.tf32, host=host)
        models = {one.gpu: self.model(one.gpu) for one in (answer, standard)}
        warnings = recommending.warnings_of_hosts(models, traced, [answer, standard])
        return replace(answer.compared_with(standard), warnings=(*answer.warnings, *warnings))

    def standard(
        self, named: str, traced: TracedNetwork, *, tf32: bool = True, host: str | None = None
    ) -> NetworkPrediction:
        """Predict a pass on the GPU that others are compared with.

        Parameters
        ----------
        named
            `GPU` or `GPU@POINT`, such as `h200@sm1320`; without a point its default.
        traced, tf32, host
            As of `answer`.

        Raises
        ------
        ClockwattError
            If there is no such GPU or point, or the pass cannot be predicted there.
        """
        label, at, point = named.partition("@")
        if label not in self.gpus:
            raise ClockwattError(
                f"--relative-to {named}: there are predictors for {self._known()}. Write GPU or GPU@POINT."
            )
        try:
            return self.answer(traced, gpu=label, point=point if at else "default", tf32=tf32, host=host)
        except ClockwattError as error:
            raise ClockwattError(f"--relative-to {named}: {error}") from error

    def choose(
        self,
        traced: TracedNetwork,
        *,
        objective: str = "energy",
        limits: Limits = Limits(),
        gpus: Sequence[str] | None = None,
        points: Sequence[str | OperatingPoint] = (),
        tf32: bool = True,
        host: str | None = None,
        relative_to: str | None = None,
    ) -> Recommendation:
        """Recommend for a pass that was traced before; raises as `recommend`."""
        self._check(*(gpus or ()))
        if objective not in OBJECTIVES:
            raise ClockwattError(f"objective {objective!r}: there are {', '.join(OBJECTIVES)}.")
        measured = [label for label, model in self.models.items() if not model.description.virtual]
        chosen = {label: self.model(label) for label in gpus or measured or self.models}
        fitting = check_fits(traced, [model.description.gpu_name for model in chosen.values()])
        answer = recommending.recommend(
            {label: model for label, model in chosen.items() if model.description.gpu_name in fitting},
            traced,
            objective=objective,
            limits=limits,
            points=[_name_of(point) for point in points],
            tf32=tf32,
            host=self.profile(host),
            validation_dir=self.validation_dir,
        )
        if relative_to is not None:
            answer = answer.compared_with(self.standard(relative_to, traced, tf32=tf32, host=host))
        virtual = [label for label in self.models if label not in measured]
        if gpus or not measured or not virtual:
            return answer
        try:
            among = self.choose(
                traced, objective=objective, limits=limits, gpus=virtual, points=points, tf32=tf32, host=host
            ).best
            chosen_there = f"among them {among.gpu} at {among.point} would be chosen (--gpu)"
        except ClockwattError as error:
            chosen_there = f"among them none can be chosen: {error}"
        reason = f"{', '.join(virtual)}: virtual, nothing was measured there; {chosen_there.rstrip('.')}."
        return replace(answer, left_out=(*answer.left_out, reason))

    def profile(self, host: str | None) -> HostProfile | None:
        """The profile of a named host; DataFileError if there is none."""
        return None if host is None else HostProfile.read(self.predictors_dir, host)

    def _check(self, *labels: str) -> None:
        """Refuse the label of a GPU that no predictors were fitted for."""
        for label in labels:
            if label not in self.gpus:
                raise ClockwattError(f"--gpu {label}: there are predictors for {self._known()}.")

    def _known(self) -> str:
        """The GPUs that can be asked about, and where what predicts each comes from."""
        return ", ".join(f"{label} ({self.model(label).origin})" for label in self.gpus)


def _name_of(point: str | OperatingPoint) -> str:
    return str(OperatingPoint.parse(point) if isinstance(point, str) else point)
