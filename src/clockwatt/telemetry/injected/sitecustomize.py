"""Run by every Python that a recorded program starts: has frameworks mark their phases, then runs the user's own.

`clockwatt preflight` has the program pretend to have a GPU instead.

The folder of this file stands first on PYTHONPATH. It belongs to the program's Python, which need not be clockwatt's.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder


def _begin() -> None:
    if "CLOCKWATT_MARKS" in os.environ:
        import clockwatt_injected.hooks

        clockwatt_injected.hooks.install()
    if "CLOCKWATT_PREFLIGHT" in os.environ:
        import clockwatt_injected.hooks

        clockwatt_injected.hooks.install_preflight()
    # what it holds is imported; the program must not find this folder's names beside its own
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]


def _run_the_users_own() -> None:
    """The user's `sitecustomize`, which this one hides, under its own name; its errors are its own."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_begin()
_run_the_users_own()
