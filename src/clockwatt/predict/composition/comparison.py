"""Networks composed from costs of their operations, compared with the same networks measured whole."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pyarrow as pa

from clockwatt.predict.composition.networks import Catalogue, CostsOfNetwork
from clockwatt.predict.composition.overheads import Overheads
from clockwatt.predict.composition.pipeline import compose
from clockwatt.schema.costs import ENERGY_CORRECTED

MEASURED = "measured"
PREDICTED = "predicted"

VALIDATION_SCHEMA = pa.schema(
    [
        pa.field("gpu", pa.string()),
        pa.field("gpu_name", pa.string()),
        pa.field("virtual", pa.bool_()),
        pa.field("point", pa.string()),
        pa.field("tf32", pa.bool_()),
        pa.field("network_id", pa.string()),
        pa.field("network", pa.string()),
        pa.field("pass", pa.string()),
        pa.field("source", pa.string()),  # of the operations' costs: measured, or predicted with the network left out
        pa.field("measured_time_s", pa.float64()),
        pa.field("measured_energy_j", pa.float64()),
        pa.field("measured_power_w", pa.float64()),
        pa.field("time_s", pa.float64()),
        pa.field("latency_s", pa.float64()),
        pa.field("device_s", pa.float64()),
        pa.field("host_s", pa.float64()),
        pa.field("energy_dynamic_j", pa.float64()),
        pa.field("energy_j", pa.float64()),
        pa.field("power_w", pa.float64()),
        pa.field("plain_time_s", pa.float64()),
        pa.field("plain_energy_j", pa.float64()),
        pa.field("calls", pa.int64()),
        pa.field("calls_without_cost", pa.int64()),
    ],
    metadata={"kind": "validation"},
)
"""One whole network against one composition, see `pipeline.Composition`; what is not known of the host is null."""

OverheadsFor = Callable[[str, str], Overheads]
"""Name of a network and operating point to what it costs beyond its calls."""


def compositions(
    whole: pd.DataFrame,
    catalogue: Catalogue,
    overheads: OverheadsFor,
    source: str,
    costs: CostsOfNetwork,
) -> pd.DataFrame:
    """Compose every network that was measured whole, repeatably, on the host on which it was measured.

    Where the speed of that host is not known, since it varied, only passes are left with which it kept up: they are
    composed for a host that does, and what a host decides, `host_s` and `latency_s`, is missing.

    Parameters
    ----------
    whole
        From `whole_networks`. Networks that are not in the catalogue, flagged so in the dataset, are passed over.
    catalogue
        What they call.
    overheads
        What networks cost beyond their calls.
    source, costs
        Where the costs of operations come from; one of `MEASURED` and `PREDICTED`.

    Returns
    -------
    pandas.DataFrame
        Columns of `VALIDATION_SCHEMA` but for what they all have in common: `gpu`, `gpu_name` and `virtual`.
    """
    rows = []
    for measured in whole[whole["repeatable"]].to_dict("records"):
        key = (str(measured["subject_id"]), str(measured["pass"]))
        if key not in catalogue.calls:
            continue
        network, point, tf32 = catalogue.networks[key], str(measured["point"]), bool(measured["tf32"])
        of_operations = costs(network.network, key[1], point, tf32)
        factor = float(measured["host_factor"]) if measured["host_steady"] else 0.0
        of_operations = of_operations.assign(time_host_corrected_s=factor * of_operations["time_host_corrected_s"])
        on_host = overheads(network.network, point).on_host(factor)
        composition = compose(catalogue.calls[key], network, of_operations, on_host).to_dict()
        if not measured["host_steady"]:
            composition |= {"host_s": None, "latency_s": None}
        rows.append(
            {
                "point": point,
                "tf32": tf32,
                "network_id": key[0],
                "network": network.network,
                "pass": key[1],
                "source": source,
                "measured_time_s": measured["time_eager_corrected_s"],
                "measured_energy_j": measured[ENERGY_CORRECTED],
                "measured_power_w": measured["power_corrected_w"],
                **composition,
            }
        )
    columns = [name for name in VALIDATION_SCHEMA.names if name not in ("gpu", "gpu_name", "virtual")]
    numbers = [name for name in columns if VALIDATION_SCHEMA.field(name).type == pa.float64()]
    # one that no composition tells is a column of None, which compares with nothing
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(numbers, float))
