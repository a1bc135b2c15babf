import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from clockwatt.dataset.build import build_dataset
from clockwatt.predict.fit import fit
from clockwatt.predict.validate import validate
from standin_nvml import StandInNvml, Worker, build
from support import synthetic
from support.shared import made_once

# nothing of it is timed: machines that run the tests are shared; the same few examples in every run: a red test means a
# change is bad, and more examples of other seeds are looked for by tools/random_examples.py
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("clockwatt", UNTIMED, derandomize=True, max_examples=30)
settings.register_profile("random", UNTIMED, print_blob=True)  # for tools/random_examples.py
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "clockwatt"))


@pytest.fixture(scope="module", autouse=True)
def _nowhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run where no campaign is: what `results/` of a checkout holds would answer in place of what is shipped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("nowhere"))
        yield


@pytest.fixture(scope="session")
def _standin_nvml(tmp_path_factory: pytest.TempPathFactory) -> StandInNvml:
    folder = tmp_path_factory.mktemp("standin_nvml")
    return StandInNvml(build(folder), folder / "state")


@pytest.fixture(scope="session")
def in_worker(_standin_nvml: StandInNvml) -> Iterator[Worker]:
    """Calls a module-level function in a process whose NVML is the stand-in."""
    worker = Worker(_standin_nvml)
    yield worker
    worker.close()


@pytest.fixture
def nvml(_standin_nvml: StandInNvml) -> StandInNvml:
    """A stand-in NVML with three cards: two A30 and an RTX 2080 Ti."""
    _standin_nvml.install("NVIDIA A30", "NVIDIA A30", "NVIDIA GeForce RTX 2080 Ti")
    return _standin_nvml


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> synthetic.Campaign:
    """The synthetic campaign after every stage of analysis; not to be changed."""

    def analyse(folder: Path) -> None:
        made = synthetic.write_campaign(folder, synthetic.campaign())
        build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
        fit(made.config, made.dataset, made.catalogue, made.predictors)
        validate(made.config, made.dataset, made.catalogue, made.predictors, made.validation)

    return synthetic.Campaign(synthetic.campaign(), made_once(tmp_path_factory, "synthetic", analyse))


@pytest.fixture
def as_pytorch_starts() -> None:
    """A step computes as PyTorch's switches say, which other tests set."""
    from clockwatt.operations import numerics
    from clockwatt.schema.execution import DEFAULT

    numerics.apply(DEFAULT)
