import gzip
import struct

import numpy as np
import pytest
from scipy.io import savemat

from clockwatt.errors import DataFileError
from clockwatt.studies.power.data import batch_of, examples
from clockwatt.studies.power.tasks import TASKS
from clockwatt.studies.power.training import main

ECG, DENSE, CINC17 = TASKS["ecg_resnet"], TASKS["dense_512"], TASKS["ecg_cinc17"]


def idx(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}i", *values.shape) + values.tobytes()


def mnist(folder, count=200):
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(count, 28, 28), dtype=np.uint8)
    labels = rng.integers(10, size=count, dtype=np.uint8)
    (folder / "train-images-idx3-ubyte").write_bytes(idx(images))
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    return images, labels


@pytest.mark.parametrize("name", TASKS)
def test_data_of_the_right_shape_is_made(name):
    task = TASKS[name]
    made = examples(task, None, 300, 2, seed=1)
    assert (made.x.shape, made.x.dtype, made.count, made.source) == ((300, *task.shape), np.float32, 300, "made")
    assert set(made.y) == set(range(task.classes))
    assert not np.array_equal(made.x, examples(task, None, 300, 2, seed=2).x)


def test_many_examples_are_few_that_come_again():
    made = examples(DENSE, None, 60_000, 2, seed=0)
    assert made.count == 60_000
    assert len(made.x) == len(made.y) < 10_000


def test_mnists_own_files_are_read(tmp_path):
    images, labels = mnist(tmp_path)
    read = examples(DENSE, tmp_path, 5, 128, seed=0)
    assert (read.count, read.source) == (200, str(tmp_path))
    np.testing.assert_array_equal(read.y, labels)
    np.testing.assert_allclose(read.x[7], images[7].ravel() / 255, rtol=1e-6)


def test_arrays_are_read(tmp_path):
    x = np.zeros((70, 12, 4096), np.float32)
    x[3] = 1
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.arange(70) % 5)
    read = examples(ECG, tmp_path, 5, 2, seed=0)
    assert read.x[3].min() == 1
    assert read.y.tolist() == [number % 5 for number in range(70)]


def arrays(folder, x, y):
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)


@pytest.mark.parametrize(
    ("x", "y", "why"),
    [
        (np.zeros((200, 785), np.float32), np.zeros(200, int), "takes float"),
        (np.zeros((200, 784), int), np.zeros(200, int), "takes float"),
        (np.zeros((200, 784), np.float32), np.zeros(199, int), "needs 200 whole numbers"),
        (np.zeros((200, 784), np.float32), np.zeros(200), "needs 200 whole numbers"),
        (np.zeros((100, 784), np.float32), np.zeros(100, int), "holds 100 examples; a batch has 128"),
        (np.zeros((200, 784), np.float32), np.full(200, 10), "labels from 10 to 10; dense_512 has 0 to 9"),
        (np.array([{}] * 200), np.zeros(200, int), "no array of numbers"),
    ],
)
def test_foreign_arrays_are_told(tmp_path, x, y, why):
    arrays(tmp_path, x, y)
    with pytest.raises(DataFileError, match=why):
        examples(DENSE, tmp_path, 5, 128, seed=0)


def test_a_folder_without_data_is_told(tmp_path):
    with pytest.raises(DataFileError, match=r"neither x\.npy nor train-images-idx3-ubyte"):
        examples(DENSE, tmp_path, 5, 128, seed=0)
    with pytest.raises(DataFileError, match=r"x\.npy: no such file"):
        examples(ECG, tmp_path, 5, 2, seed=0)
    with pytest.raises(DataFileError, match="is no folder"):
        examples(ECG, tmp_path / "none", 5, 2, seed=0)


@pytest.mark.parametrize("cut", [2, 10, -1])
def test_a_damaged_file_of_mnist_is_told(tmp_path, cut):
    mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataFileError, match="train-images-idx3-ubyte"):
        examples(DENSE, tmp_path, 5, 128, seed=0)


def cinc17(folder, lengths):
    rng = np.random.default_rng(0)
    labels = ["NAO~"[number % 4] for number in range(len(lengths))]
    for number, length in enumerate(lengths):
        recorded = {"val": rng.integers(-900, 900, size=(1, length), dtype=np.int16)}
        savemat(folder / f"A{number:05}.mat", recorded, format="4")
    (folder / "REFERENCE.csv").write_text("".join(f"A{number:05},{name}\n" for number, name in enumerate(labels)))


def test_recordings_of_cinc17_are_read_whole_with_like_lengths_beside_each_other(tmp_path):
    lengths = [2714 + 37 * (number * 29 % 70) for number in range(70)]
    cinc17(tmp_path, lengths)
    read = examples(CINC17, tmp_path, 5, 32, seed=0)
    of_x = [one.shape[1] for one in read.x]
    assert sorted(of_x) == sorted(lengths)
    assert all(max(of_x[first : first + 32]) - min(of_x[first : first + 32]) <= 37 * 31 for first in (0, 32))
    assert read.y.tolist() == [lengths.index(length) % 4 for length in of_x]
    assert read.x[0].std() == pytest.approx(1, abs=1e-3)
    batch = batch_of(read.x[:32])
    assert batch.shape == (32, 1, max(of_x[:32]))
    shortest = int(np.argmin(of_x[:32]))
    assert not batch[shortest, 0, of_x[shortest] :].any()


def test_what_is_no_data_of_cinc17_is_told(tmp_path):
    with pytest.raises(DataFileError, match=r"REFERENCE\.csv: cannot be read"):
        examples(CINC17, tmp_path, 5, 32, seed=0)
    cinc17(tmp_path, [300] * 8)
    with pytest.raises(DataFileError, match="names 8 recordings; a batch has 32"):
        examples(CINC17, tmp_path, 5, 32, seed=0)
    assert len(examples(CINC17, tmp_path, 5, 8, seed=0).y) == 8
    (tmp_path / "A00003.mat").write_bytes(b"none")
    with pytest.raises(DataFileError, match=r"A00003\.mat: holds no single lead"):
        examples(CINC17, tmp_path, 5, 32, seed=0)
    (tmp_path / "A00003.mat").unlink()
    with pytest.raises(DataFileError, match=r"A00003\.mat: no such file, but REFERENCE\.csv names it"):
        examples(CINC17, tmp_path, 5, 32, seed=0)
    (tmp_path / "REFERENCE.csv").write_text("A00000,X\n")
    with pytest.raises(DataFileError, match=r"'A00000,X' is no name and one of N, A, O, ~"):
        examples(CINC17, tmp_path, 5, 32, seed=0)


def test_cinc17_is_trained_on_recordings_of_any_length_with_another_optimizer(tmp_path, capsys):
    cinc17(tmp_path, [301 + 5 * number for number in range(64)])
    options = ["--device=cpu", "--precision=fp32", "--epochs=1", f"--data={tmp_path}", "--optimizer=rmsprop"]
    assert main("ecg_cinc17", "", options) == 0
    assert "64 examples an epoch" in capsys.readouterr().out
