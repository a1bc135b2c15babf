import io
import json
import pickle
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clockwatt.errors import DataFileError
from clockwatt.io.rounding import to_bits
from clockwatt.predict.models.predictors import PREDICTORS, TARGETS, load_predictor, save_predictor


class Payload:
    """Pickled, it makes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture(params=list(PREDICTORS))
def predictor(request):
    return PREDICTORS[request.param](trees=5).fit(*data())


def data():
    rng = np.random.default_rng(0)
    features = pd.DataFrame({
        "operation_class": rng.choice(["conv2d", "relu"], 60), "roofline_time_s": rng.uniform(1e-6, 1e-3, 60),
        "power_limit_w": 165.0, "log_flops": rng.uniform(10, 30, 60),
    })  # fmt: skip
    targets = pd.DataFrame({name: features["roofline_time_s"] * rng.uniform(1, 2, 60) for name in TARGETS})
    return features, targets


def replaced(path, member, content):
    """Replace one member of an .npz file."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members[member] = content
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in members.items():
            archive.writestr(name, value)


def test_predictor_comes_back_with_the_same_bytes_of_predictions(predictor, tmp_path):
    save_predictor(predictor, tmp_path / "a.npz")
    save_predictor(type(predictor)(trees=5).fit(*data()), tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    again = load_predictor(tmp_path / "a.npz").predict(data()[0])
    pd.testing.assert_frame_equal(again, predictor.predict(data()[0]), check_exact=True)


def test_no_library_of_fitting_is_needed_to_predict(predictor, tmp_path, monkeypatch):
    save_predictor(predictor, tmp_path / "a.npz")
    for library in ("sklearn", "xgboost"):
        monkeypatch.setitem(sys.modules, library, None)
    assert np.isfinite(load_predictor(tmp_path / "a.npz").predict(data()[0])).all(axis=None)


def test_pickled_object_in_the_file_is_refused_and_not_run(predictor, tmp_path):
    path, witness = tmp_path / "a.npz", tmp_path / "ran"
    save_predictor(predictor, path)
    buffer = io.BytesIO()
    np.save(buffer, np.array([Payload(witness)], dtype=object), allow_pickle=True)
    for member in ("value.npy", "description.npy", "extra.npy"):
        save_predictor(predictor, path)
        replaced(path, member, buffer.getvalue())
        with pytest.raises(DataFileError, match=r"a\.npz: not a predictor"):
            load_predictor(path)
    assert not witness.exists()
    np.load(io.BytesIO(buffer.getvalue()), allow_pickle=True)
    assert witness.exists(), "the payload would have run"


def test_pickle_in_place_of_the_file_is_refused_and_not_run(tmp_path):
    path, witness = tmp_path / "a.npz", tmp_path / "ran"
    path.write_bytes(pickle.dumps(Payload(witness)))
    with pytest.raises(DataFileError, match=r"a\.npz"):
        load_predictor(path)
    assert not witness.exists()


@pytest.mark.parametrize("change", [
    {"format": 99}, {"format": 2}, {"predictor": "os"}, {"parameters": {"command": "true"}}, {"targets_": ["price"]},
    {"columns_": "log_flops"}, {"columns_": []}, {"scales_": {"power_corrected_w": "1"}},
])  # fmt: skip
def test_tampered_description_is_refused(predictor, tmp_path, change):
    path = tmp_path / "a.npz"
    save_predictor(predictor, path)
    with np.load(path) as archive:
        description = json.loads(archive["description"].tobytes())
    buffer = io.BytesIO()
    np.save(buffer, np.frombuffer(json.dumps(description | change).encode(), dtype=np.uint8))
    replaced(path, "description.npy", buffer.getvalue())
    with pytest.raises(DataFileError, match="not a predictor"):
        load_predictor(path)


def test_a_file_of_the_format_before_is_refused_in_one_line(tmp_path):
    trees = {"roots": np.zeros(1, np.int32), "feature": np.full(1, -1, np.int16), "value": np.zeros((1, 1), np.float32),
             "threshold": np.zeros(1, np.float32), "right": np.zeros(1, np.int32)}  # fmt: skip
    description = np.frombuffer(json.dumps({"format": 2, "predictor": "roofline"}).encode(), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", description=description, **trees)
    with pytest.raises(DataFileError, match=r"a\.npz: .*format 2, not 3.*clockwatt fit") as refused:
        load_predictor(tmp_path / "a.npz")
    assert "\n" not in str(refused.value)


def test_values_of_leaves_have_few_digits():
    for name, predictor in PREDICTORS.items():
        value = predictor(trees=5).fit(*data()).trees_.value
        kept = to_bits(value, 12) if name == "forest" else np.rint(value * 1024) / 1024
        np.testing.assert_array_equal(value, kept)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", b"text"])
def test_damaged_file_is_named(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataFileError, match=r"a\.npz"):
        load_predictor(tmp_path / "a.npz")


def test_missing_file_is_named(tmp_path):
    with pytest.raises(DataFileError, match="clockwatt fit"):
        load_predictor(tmp_path / "a.npz")


@pytest.mark.parametrize("shape", ["(10000000000,)", "(1000000000000000,)"])
def test_a_file_that_says_it_is_larger_than_memory_is_refused(tmp_path, shape):
    path = tmp_path / "one.npz"
    save_predictor(PREDICTORS["baseline"]().fit(*data()), path)
    head = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    replaced(path, "leaf.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
    with pytest.raises(DataFileError, match="not a predictor of this version"):
        load_predictor(path)


def test_a_compressed_file_with_a_damaged_byte_is_refused_or_says_the_same(tmp_path):
    path = tmp_path / "one.npz"
    features, targets = data()
    predictor = PREDICTORS["roofline"](trees=20).fit(features, targets)
    save_predictor(predictor, path)
    with np.load(path) as archive:
        np.savez_compressed(path, **{name: archive[name] for name in archive.files})
    whole, refused = bytearray(path.read_bytes()), []
    for place in range(200, len(whole) - 200, len(whole) // 60):
        damaged = whole.copy()
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:  # the date of a member may be another
            pd.testing.assert_frame_equal(load_predictor(path).predict(features), predictor.predict(features))
        except DataFileError as error:
            refused.append(str(error))
    assert len(refused) > 50
    assert all("one.npz" in message for message in refused)


@pytest.mark.parametrize("scale", [float("nan"), 0.0, -1.0])
def test_a_scale_that_is_none_is_refused(tmp_path, scale):
    path = tmp_path / "one.npz"
    predictor = PREDICTORS["roofline"](trees=2).fit(*data())
    predictor.scales_ = dict.fromkeys(predictor.scales_, scale)
    save_predictor(predictor, path)
    with pytest.raises(DataFileError, match="scale"):
        load_predictor(path)
