"""A third vendor of GPUs in one file: found, opened and measured like any other."""

import contextlib

from clockwatt import config
from clockwatt.config import OperatingPoint
from clockwatt.gpu import registry
from clockwatt.gpu.interface import InstalledGpu, Vendor
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.io import files
from clockwatt.measure.bench import registry as benches
from clockwatt.measure.bench.virtual import VirtualBench
from clockwatt.measure.session import measure_shard
from clockwatt.measure.tasks import Shard
from clockwatt.schema.records import MEASUREMENT_SCHEMA
from clockwatt.telemetry.logger import virtual_logger


class AcmeGpu(VirtualGpu):
    """What a driver binding would be."""

    vendor = "acme"


class Acme(Vendor):
    name = AcmeGpu.vendor

    def claims(self, device):
        return device.startswith("ACME ")

    def installed(self):
        return [InstalledGpu(self.name, self.open("").identity.uuid, "ACME A30")]

    def lost(self):
        return 0

    def visible(self, environ):
        return self.installed()

    def open(self, uuid):
        return AcmeGpu("a30", seed=0)

    def open_configured(self, device, *, seed, key, environ):
        return self.open_model(device, seed=seed)

    def open_model(self, device, *, seed):
        return AcmeGpu(device.removeprefix("ACME "), seed=seed)


@contextlib.contextmanager
def open_acme_bench(gpu, settings):
    with virtual_logger(gpu, settings.session_id, settings.telemetry_dir, settings.config.telemetry) as logger:
        yield VirtualBench(gpu, logger, settings.config.seed, settings.catalogue_dir)


def test_a_third_vendor_is_measured(campaign, catalogue, tmp_path):
    content = campaign.model_dump(mode="json") | {"gpus": {"acme": {"device": "ACME A30", "clocks_mhz": [900]}}}
    mine = config.parse(content, source="test")
    output = tmp_path / "1.parquet"
    with registry.register(Acme()), benches.register(Acme.name, open_acme_bench):
        assert "acme" in {found.vendor for found in registry.visible_gpus({})}
        measure_shard(
            mine, label="acme", point=OperatingPoint(sm_clock_mhz=900), shard=Shard(1, 1, networks=False),
            catalogue_dir=catalogue, store_dir=tmp_path / "store", output=output,
        )  # fmt: skip
    rows = files.read_table(output, MEASUREMENT_SCHEMA).to_pandas()
    measured = rows[(rows["status"] == "ok") & (rows["time_device_s"] > 0)]
    assert len(measured) > 5
    assert (measured["sm_clock_median_mhz"] == 900).all()
