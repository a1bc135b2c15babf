import pytest

from clockwatt.workflow.fingerprint import fingerprint


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
    path.write_text(path.read_text() + "# changed\n")
    assert fingerprint("top", root=project) != before


def test_changes_with_what_a_package_ships_beside_its_modules(project):
    before = fingerprint("top", root=project)
    (project / "top" / "page.css").write_text("body {}\n")
    assert fingerprint("top", root=project) != before


@pytest.mark.parametrize("changed", ["aside", "below/other"])
def test_does_not_change_with_what_is_not(project, changed):
    before = fingerprint("top", root=project)
    (project / f"{changed}.py").write_text("CHANGED = 1\n")
    assert fingerprint("top", root=project) == before


def test_does_not_depend_on_the_place(project, tmp_path):
    before = fingerprint("top", root=project)
    moved = tmp_path / "elsewhere" / "clockwatt"
    moved.parent.mkdir()
    project.rename(moved)
    assert fingerprint("top", root=moved) == before


def test_covers_shipped_files(project):
    assert fingerprint("top", root=project) != fingerprint("top", root=project, resources=("gpus.yaml",))


def test_unknown_package_is_an_error(project):
    with pytest.raises(FileNotFoundError, match="no such package"):
        fingerprint("nowhere", root=project)


def test_of_the_project_itself_is_stable():
    assert fingerprint("dataset") == fingerprint("dataset")
    assert fingerprint("dataset") != fingerprint("figures")
