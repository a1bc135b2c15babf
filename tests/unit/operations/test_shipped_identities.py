"""What is traced today has the identities under which it was measured: shipped measurements stay of use."""

import functools

import pandas as pd
import pytest

from clockwatt import config
from clockwatt.io.resources import resource
from clockwatt.operations.trace.trace import trace_network
from clockwatt.schema import layout

SHIPPED = resource("reference") / "h200"
NETWORKS = ["mobilenet_v3_large", "swin_t", "vit_b_16", "densenet121", "googlenet"]
TRANSFORMERS = ["gpt2", "bert_base", "llama3_1b"]


@functools.cache
def shipped():
    """The campaign that is shipped, and its calls; not to be changed."""
    return config.load(SHIPPED / "config.yaml"), pd.read_parquet(SHIPPED / layout.CATALOGUE / layout.CALLS_FILE)


@pytest.mark.parametrize("pass_", config.PASSES)
@pytest.mark.parametrize("name", [*NETWORKS, *TRANSFORMERS])
def test_a_shipped_network_is_traced_into_the_operations_that_were_measured(name, pass_):
    campaign, calls = shipped()
    network = next(entry for entry in campaign.networks if entry.name.rpartition(":")[2] == name)
    measured = calls[(calls["network_id"] == network.network_id) & (calls["pass"] == pass_)].sort_values("position")
    traced = trace_network(network, pass_, campaign.training)
    assert [call.operation.operation_id for call in traced.calls] == measured["operation_id"].tolist()
