"""Record phases of Keras 2 and 3, in Pythons that have them: `fit_generator` where there is one, else `fit`.

uv venv -p 3.7 keras23; uv pip install -p keras23 keras==2.3.1 tensorflow-cpu==2.2.3 'protobuf<3.21' 'h5py<3'
python benchmarks/keras_calls.py keras23/bin/python:keras keras23/bin/python:tensorflow.keras
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

import result_file

from clockwatt.telemetry.recording.layout import Run, program_environment
from clockwatt.telemetry.recording.marks import read_marks

SCRIPT = """
import importlib, sys, numpy
keras = importlib.import_module("tensorflow").keras if sys.argv[1] == "tensorflow.keras" else importlib.import_module(sys.argv[1])
model = keras.models.Sequential([keras.layers.Dense(2, input_shape=(4,))])
model.compile(optimizer="rmsprop", loss="mse")
x, y = numpy.zeros((12, 4), "float32"), numpy.zeros((12, 2), "float32")

def batches():
    while True:
        for first in (0, 4, 8):
            yield x[first:first + 4], y[first:first + 4]

old = hasattr(model, "fit_generator")
fit, predict = (model.fit_generator, model.predict_generator) if old else (model.fit, model.predict)
fit(batches(), steps_per_epoch=3, epochs=2, validation_data=(x, y), verbose=0)
predict(batches(), steps=3)
print(getattr(keras, "__version__", None) or importlib.import_module("tensorflow").__version__, fit.__name__, sep=";")
"""  # noqa: E501, run by any Python from 3.7 on
EXPECTED = {"training": 1, "epoch": 2, "step": 6, "validation": 2, "prediction": 1}


def main() -> None:
    """Run the script everywhere, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pythons", nargs="+", metavar="PYTHON:MODULE", help="interpreter, and the name of its Keras")
    rows = [_row(*each.rsplit(":", 1)) for each in parser.parse_args().pythons]
    columns = ["module", "Keras", "Python", "backend", "call", *(f"{name} ({many})" for name, many in EXPECTED.items())]
    result_file.write(
        "reproductions", "Report on power limits: phases of Keras", columns, rows,
        file=result_file.RESULTS / "reproductions-keras.json",
        notes=[
            "In brackets: phases of two epochs of three steps, each with validation.",
            "Each environment has the Keras and TensorFlow of its row; the script shows how to make one.",
            "Keras 2.1 has no callbacks of validation and prediction. Keras 3 on torch: `tests/unit/telemetry`.",
        ],
    )  # fmt: skip


def _row(python: str, module: str) -> list[str | int]:
    legacy = {"TF_USE_LEGACY_KERAS": "1"} if module == "tf_keras" else {}
    with tempfile.TemporaryDirectory() as folder:
        recorded = program_environment(Path(folder), "token", hooks=True, environ={**os.environ, **legacy})
        done = subprocess.run([python, "-c", SCRIPT, module], env=recorded, capture_output=True, text=True, check=True)
        marks = read_marks(Path(folder), Run(number=1, start_ns=0, start_us=0), os.uname().nodename, 1e9)
    version, call = done.stdout.strip().splitlines()[-1].split(";")
    names = marks.phases["name"].value_counts()
    versions = marks.libraries
    backend = next(f"{name} {versions[name]}" for name in ("tensorflow", "torch") if name in versions)
    return [
        module,
        version,
        versions["Python of the program"],
        backend,
        call,
        *(int(names.get(n, 0)) for n in EXPECTED),
    ]


if __name__ == "__main__":
    main()
