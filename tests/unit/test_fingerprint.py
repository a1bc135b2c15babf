import json

import pytest

from clockwatt.workflow import fingerprint as module
from clockwatt.workflow.fingerprint import fingerprint, fingerprints


@pytest.fixture
def project(tmp_path):
    """A project in which `top` imports `below`, which imports `ground`; nobody imports `aside`."""
    root = tmp_path / "clockwatt"
    sources = {
        "__init__": "",
        "ground": "ZERO = 0\n",
        "aside": "ASIDE = 0\n",
        "below/__init__": "",
        "below/stage": "from clockwatt.ground import ZERO\n",
        "below/other": "",
        "top/__init__": "",
        "cli/__init__": "",
        "cli/options": "OPTION = 0\n",
        "cli/top": "from clockwatt.cli.options import OPTION\nfrom clockwatt.top.stage import run\n",
        "top/stage": "def run():\n    from clockwatt.below import stage\n    return stage.ZERO\n",
    }
    for name, source in sources.items():
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return root


@pytest.mark.parametrize(
    "changed", ["top/stage", "top/__init__", "below/stage", "below/__init__", "ground", "__init__"]
)
def test_changes_with_what_is_imported(project, changed):
    before = fingerprint("top", root=project)
    path = project / f"{changed}.py"
    path.write_text(path.read_text() + "CHANGED = 1\n")
    assert fingerprint("top", root=project) != before


def test_changes_with_what_lies_beside_the_modules_for_them_to_read(project):
    before = fingerprint("top", root=project)
    (project / "top" / "assets").mkdir()
    (project / "top" / "assets" / "page.css").write_text("body {}\n")
    assert fingerprint("top", root=project) != before


@pytest.mark.parametrize("said", ["# a comment\n", "\n\n", '"""Of the module."""\n'])
def test_does_not_change_with_what_is_only_said(project, said):
    before = fingerprint("top", root=project)
    path = project / "below/stage.py"
    path.write_text(said + path.read_text() + said + "NAME = 1\n")
    spoken = fingerprint("top", root=project)
    path.write_text("from clockwatt.ground import ZERO\nNAME = 1\n")
    assert fingerprint("top", root=project) == spoken != before


def test_does_not_change_with_what_is_imported_for_types_alone(project):
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from clockwatt import aside\n"
    (project / "__init__.py").write_text(source)
    before = fingerprint("top", root=project)
    (project / "aside.py").write_text("CHANGED = 1\n")
    assert fingerprint("top", root=project) == before


def test_text_that_code_uses_counts(project):
    path = project / "ground.py"
    path.write_text('ZERO = (\n    "first"\n)\n')
    before = fingerprint("top", root=project)
    path.write_text('ZERO = (\n    "second"\n)\n')
    assert fingerprint("top", root=project) != before


@pytest.mark.parametrize("changed", ["aside", "below/other", "cli/options", "cli/top"])
def test_does_not_change_with_what_is_not(project, changed):
    before = fingerprint("top", root=project)
    path = project / f"{changed}.py"
    path.write_text(path.read_text() + "CHANGED = 1\n")
    assert fingerprint("top", root=project) == before


def test_does_not_depend_on_the_place(project, tmp_path):
    before = fingerprint("top", root=project)
    moved = tmp_path / "elsewhere" / "clockwatt"
    moved.parent.mkdir()
    project.rename(moved)
    assert fingerprint("top", root=moved) == before


def test_shipped_file_that_a_module_names_counts(project, tmp_path, monkeypatch):
    monkeypatch.setattr("clockwatt.workflow.fingerprint.resource", tmp_path.joinpath)
    path = project / "ground.py"
    path.write_text(path.read_text() + 'TABLE = resource("table.yaml")\n')
    (tmp_path / "table.yaml").write_text("a: 1\n")
    before = fingerprint("top", root=project)
    (tmp_path / "table.yaml").write_text("a: 2\n")
    assert fingerprint("top", root=project) != before


def test_unknown_command_is_an_error(project):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        fingerprint("nowhere", root=project)


def test_of_the_project_itself_is_stable():
    assert fingerprint("dataset") == fingerprint("dataset")
    assert len({fingerprint(stage) for stage in ("catalogue", "dataset", "fit", "figures")}) == 4


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Where another process would find what this one read."""
    path = tmp_path / "kept.json"
    monkeypatch.setattr(module, "_KEPT", path)
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    forget()
    yield path
    forget()


def forget():
    module._SOURCES.clear()
    module._kept.cache_clear()


def test_sources_are_read_once_for_all_processes(kept, monkeypatch):
    stages = ("dataset", "fit")
    before = fingerprints(stages)
    assert kept.exists()
    forget()
    monkeypatch.setattr(module, "_read", lambda source: pytest.fail(f"read again: {source[:50]}"))
    assert fingerprints(stages) == before


@pytest.mark.parametrize("damage", ["cut", "empty", "another reader"])
def test_what_was_kept_wrongly_is_read_anew(kept, damage):
    before = fingerprints(["dataset"])
    content = json.loads(kept.read_text())
    wrong = {"reader": "another", "sources": {name: ["00", [], []] for name in content["sources"]}}
    said = {"cut": kept.read_text()[:-100], "empty": "", "another reader": json.dumps(wrong)}[damage]
    kept.write_text(said)
    forget()
    assert fingerprints(["dataset"]) == before
    assert json.loads(kept.read_text()) == content


def test_where_nothing_can_be_kept_it_is_the_same(kept, monkeypatch):
    before = fingerprints(["dataset"])
    forget()
    kept.with_name("file").touch()
    monkeypatch.setattr(module, "_KEPT", kept.with_name("file") / "kept.json")
    assert fingerprints(["dataset"]) == before
