"""A synthetic campaign through every stage of analysis."""

import pytest

from clockwatt.dataset.build import build_dataset
from clockwatt.predict.fit import fit
from clockwatt.predict.validate import validate
from support import synthetic


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    made = synthetic.write_campaign(tmp_path_factory.mktemp("campaign"), synthetic.campaign())
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    fit(made.config, made.dataset, made.catalogue, made.predictors)
    validate(made.config, made.dataset, made.catalogue, made.predictors, made.validation)
    return made
