"""Unmodified scripts of Keras 2 and 3, Lightning and the Hugging Face Trainer mark their phases by themselves."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from clockwatt.telemetry.recording.layout import Run, program_environment
from clockwatt.telemetry.recording.marks import Marks, read_marks

KERAS = """
import keras, numpy
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
model.compile(optimizer="sgd", loss="mse")
x, y = numpy.zeros((12, 4), "float32"), numpy.zeros((12, 2), "float32")
model.fit(x, y, batch_size=4, epochs=2, validation_data=(x, y), verbose=0)
model.predict(x, verbose=0)
"""

LIGHTNING = """
import torch
import {package} as lightning

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
    def training_step(self, batch, index):
        return self.layer(batch[0]).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

data = torch.utils.data.TensorDataset(torch.zeros(12, 4))
trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Net(), torch.utils.data.DataLoader(data, batch_size=4))
"""

TRANSFORMERS = """
import torch
from transformers import Trainer, TrainingArguments

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
    def forward(self, x, labels=None):
        return {"loss": self.layer(x).sum()}

rows = [{"x": torch.zeros(4), "labels": torch.zeros(1)} for _ in range(12)]
arguments = TrainingArguments(
    "out", per_device_train_batch_size=4, num_train_epochs=2, report_to=[], save_strategy="no", use_cpu=True,
    disable_tqdm=True,
)
trainer = Trainer(model=Net(), args=arguments, train_dataset=rows)
trainer.train()
trainer.evaluate({"one": rows, "two": rows})
trainer.predict(rows)
"""


def marks_of(script: str, tmp_path: Path, **environ: str) -> Marks:
    folder = tmp_path / "marks"
    folder.mkdir()
    path = tmp_path / "train.py"
    path.write_text(script)
    recorded = program_environment(folder, "token", hooks=True, environ={**os.environ, **environ})
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=recorded, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return read_marks(folder, Run(number=1, start_ns=0, start_us=0), os.uname().nodename, 1e9)


def indices(phases: pd.DataFrame, name: str) -> list[int]:
    return phases.loc[phases["name"] == name, "index"].tolist()


def check_training(marks: Marks, steps: list[int]) -> None:
    """Two epochs with their steps, within one training."""
    phases = marks.phases
    assert phases["complete"].all()
    assert (phases["name"] == "training").sum() == 1
    assert indices(phases, "epoch") == [0, 1]
    assert indices(phases, "step") == steps
    outer = phases[phases["name"] == "training"].iloc[0]
    for each in phases[phases["name"].isin(["epoch", "step"])].itertuples():
        assert outer["start_s"] <= each.start_s <= each.end_s <= outer["end_s"]
    epochs, inner = (phases[phases["name"] == name] for name in ("epoch", "step"))
    for number, epoch in enumerate(epochs.itertuples()):
        within = inner.iloc[3 * number : 3 * number + 3]
        assert (within["start_s"] >= epoch.start_s).all()
        assert (within["end_s"] <= epoch.end_s).all()
    assert marks.notes == []


FRAMEWORKS = {
    "keras": KERAS,
    "lightning": LIGHTNING.format(package="lightning"),
    "pytorch_lightning": LIGHTNING.format(package="pytorch_lightning"),
    "transformers": TRANSFORMERS,
}


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Marks:
    """Marks of all of them, one after the other: most of what each takes is the import of PyTorch."""
    folder = tmp_path_factory.mktemp("together")
    return marks_of("\n".join(FRAMEWORKS.values()), folder, KERAS_BACKEND="torch", KERAS_HOME=str(folder))


def marks_by(framework: str, together: Marks) -> Marks:
    """From the beginning of its training to that of the next."""
    phases = together.phases
    begins = phases.loc[phases["name"] == "training", "start_s"].sort_values().tolist()
    assert len(begins) == len(FRAMEWORKS)
    turn = list(FRAMEWORKS).index(framework)
    begin, end = [*begins, float("inf")][turn : turn + 2]
    own = phases[(phases["start_s"] >= begin) & (phases["start_s"] < end)]
    return dataclasses.replace(together, phases=own.reset_index(drop=True))


def test_keras_on_torch(together: Marks) -> None:
    marks = marks_by("keras", together)
    check_training(marks, [0, 1, 2, 0, 1, 2])
    names = marks.phases["name"].value_counts()
    assert (names["validation"], names["prediction"]) == (2, 1)
    assert {"keras", "torch", "numpy"} <= set(marks.libraries)


KERAS_2 = """
import sys

class Callback:
    def on_train_begin(self, logs=None): pass

class CallbackList:  # Keras 2 looks for callbacks of steps once, when it makes the list
    def __init__(self, callbacks=None):
        self.callbacks = list(callbacks or ())
        self._should_call_train_batch_hooks = bool(self.callbacks)
    def call(self, hook, *arguments):
        for callback in self.callbacks:
            getattr(callback, hook)(*arguments)

callbacks = sys.modules[__name__]
__version__ = "2.15.0"
"""
FIT_GENERATOR = """
import {module} as keras
made = keras.CallbackList()
made.call("on_train_begin")
for epoch in range(2):
    made.call("on_epoch_begin", epoch)
    for batch in range(3):
        if made._should_call_train_batch_hooks:
            made.call("{begin}", batch, {{}})
            made.call("{end}", batch, {{}})
    made.call("on_epoch_end", epoch)
made.call("on_train_end")
"""


@pytest.mark.parametrize(
    ("module", "begin", "end"),
    [("keras", "on_batch_begin", "on_batch_end"), ("tf_keras", "on_train_batch_begin", "on_train_batch_end")],
)
def test_keras_2_as_it_calls_its_callbacks(tmp_path: Path, module: str, begin: str, end: str) -> None:
    (tmp_path / f"{module}.py").write_text(KERAS_2)
    marks = marks_of(FIT_GENERATOR.format(module=module, begin=begin, end=end), tmp_path)
    check_training(marks, [0, 1, 2, 0, 1, 2])
    assert marks.libraries[module] == "2.15.0"


@pytest.mark.parametrize("package", ["lightning", "pytorch_lightning"])
def test_lightning(together: Marks, package: str) -> None:
    marks = marks_by(package, together)
    check_training(marks, [0, 1, 2, 0, 1, 2])
    assert package in marks.libraries


def test_the_trainer_of_hugging_face(together: Marks) -> None:
    marks = marks_by("transformers", together)
    check_training(marks, [0, 1, 2, 3, 4, 5])
    names = marks.phases["name"].value_counts()
    assert (names["validation"], names["prediction"]) == (1, 1)
    assert "transformers" in marks.libraries


def test_a_framework_that_has_it_otherwise_runs_unmarked_and_that_is_told(tmp_path: Path) -> None:
    package = tmp_path / "keras"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '99'\n")
    marks = marks_of("import keras; print(keras.__version__)", tmp_path)
    assert marks.phases.empty
    assert marks.libraries["keras"] == "99"
    (note,) = marks.notes
    assert note.startswith("phases of keras are not marked by themselves")


def test_the_users_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys; sys.own = __name__")
    script = """
import os, subprocess, sys
assert sys.own == "sitecustomize"
assert "clockwatt_injected" in sys.modules
assert not any("injected" in entry for entry in sys.path)
if len(sys.argv) == 1:  # and in a child
    subprocess.run([sys.executable, sys.argv[0], "child"], check=True)
"""
    marks_of(script, tmp_path, PYTHONPATH=str(tmp_path / "own"))
