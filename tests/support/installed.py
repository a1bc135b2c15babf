"""clockwatt installed from its wheel, with no checkout in sight."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support.workdir import REPOSITORY


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel, and beside it what the tests run with in place of its dependencies."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def run(
        self, *arguments: str | Path, at: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a module there, with its arguments; standard error goes to standard output."""
        own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return subprocess.run(
            [self.python, "-m", *map(str, arguments)], cwd=at, env={**own, **(environment or {})}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=3600,
        )  # fmt: skip


def install(folder: Path) -> Installed:
    """Build the wheel and install it into a new virtual environment below `folder`."""
    uv = shutil.which("uv")
    assert uv is not None, "the tests of the wheel build it with uv"

    def call(*arguments: str | Path) -> None:
        subprocess.run([uv, "--quiet", *map(str, arguments)], cwd=REPOSITORY, check=True)

    call("build", "--wheel", "--out-dir", folder / "wheel")
    installed = Installed(folder / "venv")
    venv.create(installed.folder, with_pip=False, symlinks=True)
    (wheel,) = (folder / "wheel").glob("*.whl")
    call("pip", "install", "--no-deps", "--python", installed.python, wheel)
    (packages,) = installed.folder.glob("lib/python*/site-packages")
    # a folder named so is searched, but not for .pth files of its own: the checkout's package stays out of sight
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    said = installed.run("clockwatt", "--help", at=folder)
    assert said.returncode == 0, said.stdout
    return installed
