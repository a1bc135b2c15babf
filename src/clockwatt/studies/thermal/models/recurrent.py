"""LSTM and GRU: recurrent networks that see the last two minutes and forecast all horizons at once.

torch is imported where it is needed and nowhere else: no other model waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clockwatt.studies.thermal.inputs import Ints, coming_features, history_features, mean_over
from clockwatt.studies.thermal.models.base import Forecaster, Rows, truth, usable_rows
from clockwatt.studies.thermal.models.table import LEAST_ROWS, Scaling, check_learnt
from clockwatt.studies.thermal.traces import Array, Trace

HISTORY_S = 120.0
SEEN_STEPS = 40
"""Values of each sensor that are seen of it, each the mean over so much of it."""

MOST_WINDOWS = 4000
_AT_ONCE = 4096


class Recurrent(Forecaster):
    """A recurrent layer over the history, two dense ones over what it ends in and over the load to come."""

    kind: ClassVar[str]

    def fit(self, traces: Sequence[Trace], rows: Rows | None = None) -> Recurrent:
        """See `Forecaster`."""
        from clockwatt.studies.thermal.models.recurrent_net import train

        chosen = [
            own[own + min(self.task.steps) < len(t)] for t, own in zip(traces, usable_rows(traces, rows), strict=True)
        ]
        total = sum(map(len, chosen))
        check_learnt(total >= LEAST_ROWS, self.name)
        stride = max(1, -(-total // MOST_WINDOWS))
        kept = [own[::stride] for own in chosen]
        self.sequence_scaling_ = Scaling.of(_joined([self._channels(trace) for trace in traces]))
        statics = [self._statics(trace, own) for trace, own in zip(traces, kept, strict=True)]
        self.static_scaling_ = Scaling.of(_joined(statics))
        windows = np.concatenate([self._windows(trace, own) for trace, own in zip(traces, kept, strict=True)])
        static = np.concatenate(
            [self.static_scaling_.matrix(part, len(own)) for part, own in zip(statics, kept, strict=True)]
        )
        change = np.concatenate(
            [
                truth(trace, own, self.task) - trace.temperature_c[own][:, None]
                for trace, own in zip(traces, kept, strict=True)
            ]
        )
        learnt = np.isfinite(change).sum(axis=0) >= LEAST_ROWS
        check_learnt(int(learnt.sum()), self.name)
        spread = np.array(
            [np.nanstd(column) if told else np.nan for column, told in zip(change.T, learnt, strict=True)]
        )
        self.change_scale_ = np.maximum(spread, 0.1)  # NaN where a horizon was not fitted
        # as of the regressions, forecasts stay within the changes in the training data: sensors of another workload
        # may lie far beyond what the network saw
        none = np.full(len(learnt), np.nan)
        self.change_bounds_ = np.stack([none, none])
        self.change_bounds_[:, learnt] = np.nanmin(change[:, learnt], axis=0), np.nanmax(change[:, learnt], axis=0)
        self.weights_ = train(self.kind, windows, static, change / self.change_scale_)
        return self

    def forecast(self, trace: Trace, origins: Ints) -> Array:
        """See `Forecaster`."""
        from clockwatt.studies.thermal.models.recurrent_net import run

        changes = [np.zeros((0, len(self.task.steps)))]
        for start in range(0, len(origins), _AT_ONCE):
            part = origins[start : start + _AT_ONCE]
            static = self.static_scaling_.matrix(self._statics(trace, part), len(part))
            changes.append(run(self.kind, self.weights_, self._windows(trace, part), static))
        change = np.clip(np.concatenate(changes) * self.change_scale_, *self.change_bounds_)
        found = trace.temperature_c[origins][:, None] + change
        if self.task.load == "known":
            later = origins[:, None] + np.asarray(self.task.steps)[None, :]
            found[later >= len(trace)] = np.nan
        return np.asarray(found, float)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """See `Forecaster`."""
        described = {
            name: {"columns": scaling.columns, "mean": scaling.mean.tolist(), "scale": scaling.scale.tolist()}
            for name, scaling in (("sequence", self.sequence_scaling_), ("static", self.static_scaling_))
        }
        return described, {f"weight/{name}": array for name, array in self.weights_.items()} | {
            "change_scale": self.change_scale_, "change_bounds": self.change_bounds_
        }  # fmt: skip

    def restore(self, described: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Recurrent:
        """See `Forecaster`."""
        from clockwatt.studies.thermal.models.recurrent_net import check_weights

        scalings = [
            Scaling(
                [str(name) for name in part["columns"]], np.array(part["mean"], float), np.array(part["scale"], float)
            )
            for part in (described["sequence"], described["static"])
        ]
        self.sequence_scaling_, self.static_scaling_ = scalings
        self.change_scale_ = np.asarray(arrays["change_scale"], float)
        self.change_bounds_ = np.asarray(arrays["change_bounds"], float)
        self.weights_ = {
            name.removeprefix("weight/"): array for name, array in arrays.items() if name.startswith("weight/")
        }
        sizes = len(scalings[0].columns), len(scalings[1].columns), len(self.task.steps)
        shapes = self.change_scale_.shape, self.change_bounds_.shape
        if shapes != ((sizes[2],), (2, sizes[2])) or any(len(s.mean) != len(s.columns) for s in scalings):
            raise ValueError("features, horizons and their scales differ in number")
        check_weights(self.kind, self.weights_, *sizes)
        return self

    def _channels(self, trace: Trace) -> dict[str, Array]:
        """Return the input channels over time, by name; shape (steps,) each."""
        channels = {"temperature_c": trace.temperature_c}
        if self.task.inputs != "temperature":
            channels["power_w"] = trace.power_w
        if self.task.inputs == "sensors":
            channels |= trace.sensors
            if trace.neighbours:
                channels["neighbours_power_w"] = trace.neighbours_w.sum(axis=1)
                channels["neighbours_temperature_c"] = trace.neighbours_c.mean(axis=1)
        return channels

    def _windows(self, trace: Trace, origins: Ints) -> Array:
        """The history of each origin; shape (origins, seen steps, channels). Before the first reading that holds."""
        stride = max(1, round(HISTORY_S / SEEN_STEPS / trace.step_s))
        channels = self.sequence_scaling_.matrix(self._channels(trace), len(trace))
        smooth = mean_over(channels, stride)
        back = stride * np.arange(SEEN_STEPS - 1, -1, -1)
        return np.asarray(smooth[np.maximum(origins[:, None] - back[None, :], 0)])

    def _statics(self, trace: Trace, origins: Ints) -> dict[str, Array]:
        """Return the static inputs at the origin; with a known load also its features until each horizon."""
        found = {name: values[origins] for name, values in history_features(trace, self.task.inputs).items()}
        if self.task.load == "known":
            for steps in self.task.steps:
                # beyond the end of the trace nothing is known: those forecasts are taken out again
                inside = np.minimum(origins, len(trace) - 1 - steps)
                if len(trace) > steps:
                    coming = coming_features(trace, self.task.inputs, inside, steps)
                    found |= {
                        f"{name}:{steps}": np.where(inside == origins, values, np.nan)
                        for name, values in coming.items()
                    }
        return found


class Lstm(Recurrent):
    """Recurrent network with long short-term memory cells."""

    name = "lstm"
    kind = "lstm"


class Gru(Recurrent):
    """Recurrent network with gated recurrent units."""

    name = "gru"
    kind = "gru"


def _joined(parts: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """Return the features of several traces one after another; what one lacks is NaN."""
    names = list(dict.fromkeys(name for part in parts for name in part))
    lengths = [len(next(iter(part.values()))) for part in parts]
    return {
        name: np.concatenate(
            [part.get(name, np.full(count, np.nan)) for part, count in zip(parts, lengths, strict=True)]
        )
        for name in names
    }
