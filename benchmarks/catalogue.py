"""How long the catalogue of all torchvision classification networks takes, and how much memory.

    python benchmarks/catalogue.py

Traces every network at batch 32 in both passes into a temporary folder, in a process of its own, and prints wall time
(import of PyTorch included), the peak of the resident memory summed over it and its children, and what the catalogue
holds.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
from pathlib import Path

import psutil
import result_file

SIZE = {"inception_v3": 299}
PERIOD_S = 0.05


def catalogue(folder: Path) -> None:
    import torchvision

    from clockwatt import config
    from clockwatt.operations.catalogue import write_catalogue

    names = torchvision.models.list_models(module=torchvision.models)
    networks = [{"name": name, "input": [32, 3, SIZE.get(name, 224), SIZE.get(name, 224)]} for name in names]
    campaign = config.parse({"campaign": "all", "gpus": {"a30": {"device": "virtual:a30"}}, "networks": networks})
    write_catalogue(campaign, folder)


class PeakMemory(threading.Thread):
    """Samples the resident memory of a process and its children."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self.peak_bytes = 0

    def run(self) -> None:
        """Sample until the process ends."""
        while self._root.is_running() and self._root.status() != psutil.STATUS_ZOMBIE:
            total = 0
            for process in (self._root, *self._root.children(recursive=True)):
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.peak_bytes = max(self.peak_bytes, total)
            time.sleep(PERIOD_S)


def report(folder: Path, cost: str) -> None:
    from clockwatt.io import files
    from clockwatt.schema.records import CALL_SCHEMA, OPERATION_SCHEMA

    operations = files.read_table(folder / "operations.parquet", OPERATION_SCHEMA).to_pandas()
    calls = files.read_table(folder / "calls.parquet", CALL_SCHEMA).to_pandas()
    found = []
    for pass_, rows in operations.groupby("pass"):
        found.append([pass_, int((calls["pass"] == pass_).sum()), len(rows)])
        print(f"{pass_}: {len(rows)} unique operations in {(calls['pass'] == pass_).sum()} calls")
        print(
            "  by kind:",
            rows["kind"].value_counts().to_dict(),
            "FLOPs by:",
            rows["flops_source"].value_counts().to_dict(),
        )
    columns = ["pass", "calls", "unique operations"]
    result_file.write("tracing", "All classifiers of torchvision, both passes", columns, found, notes=[cost])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = time.monotonic()
        process = multiprocessing.get_context("spawn").Process(target=catalogue, args=(folder,))
        process.start()
        assert process.pid is not None
        memory = PeakMemory(process.pid)
        memory.start()
        process.join()
        cost = f"{time.monotonic() - started:.1f} s in one process, at most {memory.peak_bytes / 2**30:.2f} GiB."
        print(cost)
        if process.exitcode:
            raise SystemExit(process.exitcode)
        report(folder, cost)
