"""Has frameworks mark their phases: when one of them is imported, its trainer gets a callback more.

Every Python of a recorded program runs this, however short it lives: what takes time is imported where it is needed.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing alone would take ten times as long as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def install() -> None:
    """Watch imports from now on."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(_HOOKS))


def install_preflight() -> None:
    """Have the program pretend to have a GPU once it has imported torch."""
    sys.meta_path.insert(0, _Finder({"torch": _preflight}))


class _Finder:
    """Finds nothing itself: lets the others find a module, and runs its hook after it."""

    def __init__(self, hooks: dict[str, Callable[[str], None]]) -> None:
        self._hooks = dict(hooks)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self._hooks:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = None if find is None or finder is self else find(name, path, target)
            if spec is not None:
                _run_after(spec, name, self._hooks)
                return spec
        return None


def _run_after(spec: Any, name: str, hooks: dict[str, Callable[[str], None]]) -> None:
    loader = spec.loader
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module: Any) -> None:
        vars(loader).pop("exec_module", None)
        execute(module)
        hook = hooks.pop(name, None)  # only now: libraries look for a module's spec without importing it
        if hook is None:
            return
        try:
            hook(name)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            # a version of the framework that has it otherwise: the program must not notice
            _told("note", text=f"phases of {name} are not marked by themselves ({error})")

    try:
        loader.exec_module = exec_module
    except AttributeError:  # a loader that cannot be changed
        return


def _told(event: str, **values: Any) -> None:
    from clockwatt_injected import marks

    marks.told(event, **values)


def _library(name: str) -> None:
    module = sys.modules[name]
    version = getattr(module, "__version__", None)
    if isinstance(version, str):
        _told("library", name=name, version=version)


def _torch(name: str) -> None:
    _library(name)
    for what, where in (("CUDA of torch", "cuda"), ("ROCm of torch", "hip")):
        version = getattr(sys.modules["torch"].version, where, None)
        if isinstance(version, str):
            _told("library", name=what, version=version)


def _preflight(_name: str) -> None:
    import importlib

    try:
        child = importlib.import_module("clockwatt.cli.preflight_child")
    except ImportError as error:  # must not go on: it would train on the CPU
        print(f"clockwatt: {sys.executable}: has no clockwatt ({error}). Install it beside torch.", file=sys.stderr)
        sys.exit(1)
    child.begin()


def _keras(name: str) -> None:
    _library(name)
    from clockwatt_injected.keras_phases import Phases

    callbacks = getattr(sys.modules[name], "callbacks", sys.modules[name])
    callback = type("Phases", (Phases, callbacks.Callback), {})

    def add(made: Any) -> None:
        made.callbacks.insert(0, callback())
        if hasattr(made, "_should_call_train_batch_hooks"):  # Keras 2 skips steps that no earlier callback asked for
            made._should_call_train_batch_hooks = True

    _after_init(callbacks.CallbackList, add)


def _lightning(name: str) -> None:
    if name == "lightning.pytorch":
        from clockwatt_injected.lightning_phases import Phases
    else:
        from clockwatt_injected.pytorch_lightning_phases import Phases
    _library(name.split(".")[0])
    _after_init(sys.modules[name].Trainer, lambda trainer: trainer.callbacks.insert(0, Phases()))


def _transformers(name: str) -> None:
    from clockwatt_injected.transformers_phases import Phases

    trainer = sys.modules[name].Trainer
    _after_init(trainer, lambda made: made.add_callback(Phases()))
    _in_phase(trainer, "evaluate", "validation")
    _in_phase(trainer, "predict", "prediction")


def _after_init(owner: Any, add: Callable[[Any], None]) -> None:
    """Have `add` run on each object of a class when it is made; a class below it that calls this one adds once."""
    import functools

    init = owner.__init__

    @functools.wraps(init)
    def with_phases(self: Any, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        add(self)

    owner.__init__ = with_phases


def _in_phase(owner: Any, method: str, phase: str) -> None:
    """Have each outermost call of a method be a phase: `evaluate` calls itself for each of several datasets."""
    import functools

    from clockwatt_injected import marks

    original = getattr(owner, method)
    inside: list[str] = []

    @functools.wraps(original)
    def marked(*arguments: Any, **named: Any) -> Any:
        if inside:
            return original(*arguments, **named)
        inside.append(phase)
        try:
            with marks.phase(phase):
                return original(*arguments, **named)
        finally:
            inside.pop()

    setattr(owner, method, marked)


_HOOKS: dict[str, Callable[[str], None]] = {
    "torch": _torch,
    "numpy": _library,
    "jax": _library,
    "tensorflow": _library,
    "transformers": _library,
    "keras": _keras,
    "tf_keras": _keras,
    "tensorflow.python.keras.callbacks": _keras,  # of TensorFlow before 2.6
    "lightning.pytorch": _lightning,
    "pytorch_lightning": _lightning,
    "transformers.trainer": _transformers,
}
