import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from clockwatt.config import CampaignConfig, json_schema, load
from clockwatt.config.reference import BEGIN, END, main, reference

CONFIG = Path(__file__).parents[2] / "config"


def test_schema_does_not_drift():
    assert (CONFIG / "schema.json").read_text() == json_schema(), "run python -m clockwatt.config.reference"


def test_readme_does_not_drift():
    readme = (CONFIG / "README.md").read_text()
    assert f"{BEGIN}\n\n{reference()}\n{END}" in readme, "run python -m clockwatt.config.reference"


def test_every_key_has_a_meaning():
    readme = (CONFIG / "README.md").read_text()
    for line in readme[readme.index(BEGIN) : readme.index(END)].splitlines():
        if line.startswith("| `"):
            assert line.rstrip(" |").endswith("."), line


def test_every_campaign_that_is_shipped_is_valid():
    campaigns = [CONFIG / "config.yaml", *(CONFIG / "examples").glob("*.yaml")]
    assert len(campaigns) >= 3
    for path in campaigns:
        assert isinstance(load(path), CampaignConfig)
        jsonschema.validate(yaml.safe_load(path.read_text()), json.loads(json_schema()))


def test_tables_are_made_anew_between_the_marks(tmp_path):
    (tmp_path / "README.md").write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n")
    main(tmp_path)
    readme = (tmp_path / "README.md").read_text()
    assert readme.startswith("before\n")
    assert readme.endswith("\nafter\n")
    assert "stale" not in readme
    assert "| `clocks_mhz` | integer > 0, `default`, or a list | `[default]` |" in readme


def test_readme_without_marks_is_refused(tmp_path):
    (tmp_path / "README.md").write_text("no marks here")
    with pytest.raises(ValueError, match="no lines"):
        main(tmp_path)
