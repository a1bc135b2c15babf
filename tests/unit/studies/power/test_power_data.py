import gzip
import struct

import numpy as np
import pytest

from clockwatt.errors import DataFileError
from clockwatt.studies.power.data import examples
from clockwatt.studies.power.tasks import TASKS

ECG, DENSE = TASKS["ecg_resnet"], TASKS["dense_512"]


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
    made = examples(task, None, 300, seed=1)
    assert (made.x.shape, made.x.dtype, made.count, made.source) == ((300, *task.shape), np.float32, 300, "made")
    assert set(made.y) == set(range(task.classes))
    assert not np.array_equal(made.x, examples(task, None, 300, seed=2).x)


def test_many_examples_are_few_that_come_again():
    made = examples(DENSE, None, 60_000, seed=0)
    assert made.count == 60_000
    assert len(made.x) == len(made.y) < 10_000


def test_mnists_own_files_are_read(tmp_path):
    images, labels = mnist(tmp_path)
    read = examples(DENSE, tmp_path, 5, seed=0)
    assert (read.count, read.source) == (200, str(tmp_path))
    np.testing.assert_array_equal(read.y, labels)
    np.testing.assert_allclose(read.x[7], images[7].ravel() / 255, rtol=1e-6)


def test_arrays_are_read(tmp_path):
    x = np.zeros((70, 12, 4096), np.float32)
    x[3] = 1
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.arange(70) % 5)
    read = examples(ECG, tmp_path, 5, seed=0)
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
        (np.zeros((100, 784), np.float32), np.zeros(100, int), "a batch of dense_512 has 128"),
        (np.zeros((200, 784), np.float32), np.full(200, 10), "labels from 10 to 10; dense_512 has 0 to 9"),
        (np.array([{}] * 200), np.zeros(200, int), "no array of numbers"),
    ],
)
def test_foreign_arrays_are_told(tmp_path, x, y, why):
    arrays(tmp_path, x, y)
    with pytest.raises(DataFileError, match=why):
        examples(DENSE, tmp_path, 5, seed=0)


def test_a_folder_without_data_is_told(tmp_path):
    with pytest.raises(DataFileError, match=r"neither x\.npy nor train-images-idx3-ubyte"):
        examples(DENSE, tmp_path, 5, seed=0)
    with pytest.raises(DataFileError, match=r"x\.npy: no such file"):
        examples(ECG, tmp_path, 5, seed=0)
    with pytest.raises(DataFileError, match="is no folder"):
        examples(ECG, tmp_path / "none", 5, seed=0)


@pytest.mark.parametrize("cut", [2, 10, -1])
def test_a_damaged_file_of_mnist_is_told(tmp_path, cut):
    mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataFileError, match="train-images-idx3-ubyte"):
        examples(DENSE, tmp_path, 5, seed=0)
