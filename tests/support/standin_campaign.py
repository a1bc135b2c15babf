"""Measures operating points of a campaign on the stand-in NVML, as the jobs of the workflow would, in one process.

    python standin_campaign.py CONFIG FOLDER POINT...

Writes, for every point, how long setting it and taking it back took.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

from clockwatt import config
from clockwatt.config import OperatingPoint
from clockwatt.control.points import operating_point
from clockwatt.control.verify import verify
from clockwatt.measure import reference_operations, session
from clockwatt.measure.tasks import Shard
from clockwatt.schema import layout
from support.handmade import operation, write_catalogue
from support.standin_bench import open_standin_bench

LABEL = "a30"


def main(config_file: Path, folder: Path, points: list[str]) -> None:
    """Measure the points; times in s go to `times.json`."""
    campaign = config.load(config_file)
    write_catalogue(folder / "catalogue", [operation(256)])
    times: dict[str, dict[str, float]] = {}
    only_one = reference_operations.anchors()[:1]
    for point in map(OperatingPoint.parse, points):
        took = times[str(point)] = {}
        with (
            mock.patch.object(session, "open_bench", open_standin_bench),
            mock.patch.object(session, "operating_point", _timed(operating_point, took)),
            mock.patch.object(session, "verify", _timed_call(verify, took)),
            mock.patch.object(reference_operations, "anchors", return_value=only_one),
        ):
            session.measure_shard(
                campaign, label=LABEL, point=point, shard=Shard.parse("1/1", networks=False),
                catalogue_dir=folder / "catalogue", store_dir=folder / "store",
                output=folder / layout.operations_file(LABEL, point, 1),
            )  # fmt: skip
    (folder / "times.json").write_text(json.dumps(times))


def _timed(context: Any, took: dict[str, float]) -> Any:
    @contextlib.contextmanager
    def timed(*arguments: Any) -> Iterator[Any]:
        begun = time.monotonic()
        with context(*arguments) as value:
            took["set_s"] = time.monotonic() - begun
            yield value
            ending = time.monotonic()
        took["release_s"] = time.monotonic() - ending

    return timed


def _timed_call(function: Any, took: dict[str, float]) -> Any:
    def timed(*arguments: Any, **options: Any) -> Any:
        begun = time.monotonic()
        result = function(*arguments, **options)
        took["verify_s"] = time.monotonic() - begun
        return result

    return timed


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
