"""Predictors of what operations and networks cost, fitted to a dataset; called, it predicts as `api.predict` does.

Packages, each importing only from those before it: `features`, `models`, `composition`, `evaluation`, `hosts`,
`costs`, `measured_costs`, and on top `answerer`, `recommend`, `fit`, `validate`, `api`. Nothing here imports torch
before a network is traced.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """Makes `clockwatt.predict(...)` a call, and leaves it a package that modules are imported from."""

    def __call__(self, network: Any = None, inputs: Any = None, **question: Any) -> Any:
        """See `clockwatt.predict.api.Predictors.predict`."""
        from clockwatt.predict.api import predict

        return predict(network, inputs, **question)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name: pools of processes call what they are given by name."""
        return importlib.import_module, (self.__name__,)


sys.modules[__name__].__class__ = _CallablePackage
