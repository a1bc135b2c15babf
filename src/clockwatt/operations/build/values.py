"""What values an operation's tensors may hold: which are indices, which are positive, which keep a loop harmless."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from clockwatt.operations.spec.operation import RECURRENT_CLASSES, Operation, TensorSpec

_POSITIVE: dict[str, tuple[int, str]] = {
    **dict.fromkeys(("batch_norm", "instance_norm"), (2, "running_var")),
    **dict.fromkeys(
        ("sqrt", "rsqrt", "log", "log2", "log10", "log1p", "reciprocal", "bernoulli", "multinomial"), (0, "input")
    ),
    **dict.fromkeys(("pow", "ipow", "float_power", "binary_cross_entropy"), (0, "input")),
    **dict.fromkeys(("acos", "arccos", "asin", "arcsin", "atanh", "arctanh", "erfinv", "logit", "ndtri"), (0, "input")),
    **dict.fromkeys(("bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1"), (0, "input")),
    **dict.fromkeys(("scaled_modified_bessel_k0", "scaled_modified_bessel_k1"), (0, "input")),
    **dict.fromkeys(("xlogy", "xlog1py", "rpow"), (1, "other")),
    "kl_div": (1, "target"),
    **dict.fromkeys(("div", "divide", "true_divide", "floor_divide", "fmod", "remainder"), (1, "other")),
}
"""The argument, by position and by name, whose values must lie in (0, 1), by operation class."""

_ALONG_DIM = frozenset(
    {"gather", "scatter", "scatter_add", "scatter_reduce", "index_select", "index_add", "index_copy", "index_fill"}
)
"""Operation classes that take (input, dim, index)."""

_PROBABILITY: dict[str, tuple[int, str]] = {
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout"), (1, "p")),
    "bernoulli": (1, "p"),
    "scaled_dot_product_attention": (4, "dropout_p"),
}
"""The argument that is a probability, by operation class."""

_FIXED_POINTS = ("silu", "hardswish", "gelu", "mish", "elu", "celu", "selu", "leaky_relu")
"""Classes that leave large values as they are, in floating-point arithmetic."""

_LARGE = 32.0
_TINY = 1e-6


def argument(args: tuple[Any, ...], kwargs: Mapping[str, Any], place: tuple[int, str]) -> Any:
    """The argument at a position or of a name, None if it is not given."""
    position, name = place
    return args[position] if position < len(args) else kwargs.get(name)


def positive_argument(operation_class: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The argument whose values must lie in (0, 1), None if there is none."""
    place = _POSITIVE.get(operation_class)
    return None if place is None else argument(args, kwargs, place)


def index_bounds(
    operation_class: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[torch.Tensor, int]]:
    """Arguments that are indices, each with the number that they stay below."""
    match operation_class:
        case "getitem" | "setitem":
            yield from _subscripts(args[0], args[1])
        case "index_put":
            yield from _subscripts(args[0], tuple(args[1]))
        case "embedding":
            yield argument(args, kwargs, (0, "input")), argument(args, kwargs, (1, "weight")).shape[0]
        case "cross_entropy" | "nll_loss":
            scores, target = argument(args, kwargs, (0, "input")), argument(args, kwargs, (1, "target"))
            yield target, scores.shape[min(1, scores.dim() - 1)]
        case "embedding_bag":
            yield argument(args, kwargs, (0, "input")), argument(args, kwargs, (1, "weight")).shape[0]
        case "grouped_mm":
            ends = argument(args, kwargs, (2, "offs"))
            if ends is not None:
                yield ends, _grouped_size(args[0], args[1])
        case "one_hot":
            classes = argument(args, kwargs, (1, "num_classes"))
            if classes is not None and classes > 0:
                yield argument(args, kwargs, (0, "input")), classes
        case "take":
            yield argument(args, kwargs, (1, "index")), argument(args, kwargs, (0, "input")).numel()
        case _ if operation_class in _ALONG_DIM:
            dim = argument(args, kwargs, (1, "dim"))
            yield argument(args, kwargs, (2, "index")), argument(args, kwargs, (0, "input")).shape[dim]


def ignored_index(operation_class: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
    """The index that a loss ignores, wherever it lies; None for other operations, and if it is the usual -100."""
    is_loss = operation_class in ("cross_entropy", "nll_loss")
    return argument(args, kwargs, (4, "ignore_index")) if is_loss else None


def _subscripts(indexed: torch.Tensor, subscript: Any) -> Iterator[tuple[torch.Tensor, int]]:
    entries = subscript if isinstance(subscript, tuple) else (subscript,)
    consumed = sum(entry is not None and entry is not Ellipsis for entry in entries)
    dim = 0
    for entry in entries:
        if entry is Ellipsis:
            dim += indexed.dim() - consumed
        elif entry is not None:
            if isinstance(entry, torch.Tensor):
                yield entry, indexed.shape[dim]
            dim += entry.dim() if isinstance(entry, torch.Tensor) and entry.dtype == torch.bool else 1


def _grouped_size(one: torch.Tensor, other: torch.Tensor) -> int:
    """Size of the dimension that the groups of a grouped matrix product divide: rows, columns or the inner one."""
    if one.dim() == 2:
        return one.shape[0] if other.dim() == 3 else one.shape[1]
    return other.shape[-1]


def selectors(operation_class: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """Arguments whose non-zero elements decide on the size of the output."""
    match operation_class:
        case "nonzero" | "argwhere":
            yield argument(args, kwargs, (0, "input"))
        case "where" if len(args) + len(kwargs) == 1:
            yield argument(args, kwargs, (0, "condition"))
        case "masked_select":
            yield argument(args, kwargs, (1, "mask"))
        case "getitem":
            subscript = args[1] if isinstance(args[1], tuple) else (args[1],)
            yield from (one for one in subscript if isinstance(one, torch.Tensor) and one.dtype == torch.bool)


def without_values(
    operation_class: str, mutates: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments without the scalars whose value changes neither time nor energy.

    Stochastic depth has another probability in every block: kept, it would make hundreds of operations of one. A
    probability strictly between 0 and 1 becomes 0.5 (0 and 1 take other code), and the factor of an in-place product 1.
    """
    place = _PROBABILITY.get(operation_class)
    value: float | None = 0.5
    if mutates and operation_class in ("mul", "div"):
        place, value = (1, "other"), 1.0
    if place is None:
        return args, kwargs
    given = argument(args, kwargs, place)
    if not isinstance(given, float) or (value == 0.5 and not 0 < given < 1):
        return args, kwargs
    position, name = place
    if position < len(args):
        return (*args[:position], value, *args[position + 1 :]), kwargs
    return args, kwargs | {name: value}


def fill(
    storage: torch.Tensor, spec: TensorSpec, *, role: str, generator: torch.Generator | None, scale: float = 1.0
) -> None:
    """Fill a flat storage with values that `spec` allows.

    Parameters
    ----------
    storage
        Filled in place; shape (elements,).
    spec
        Of the tensor that views it.
    role
        As `role` gives it.
    generator
        On the storage's device.
    scale
        Standard deviation of values that may be of any size.
    """
    if storage.is_meta:
        return
    if spec.nonzero is not None:
        storage.zero_()
        storage[torch.arange(spec.nonzero, device=storage.device) * storage.numel() // max(spec.nonzero, 1)] = 1
    elif role == "ends":
        groups = torch.arange(1, storage.numel() + 1, device=storage.device)
        storage.copy_(groups * (spec.below or 0) // storage.numel())
    elif storage.dtype == torch.bool:
        storage.random_(0, 2, generator=generator)
    elif not storage.is_floating_point() and not storage.is_complex():
        storage.random_(0, min(spec.below or 2, torch.iinfo(storage.dtype).max), generator=generator)
    elif role == "one":
        storage.fill_(1.0)
    elif spec.positive:
        storage.uniform_(0.25, 0.75, generator=generator)
    else:
        storage.normal_(std=scale, generator=generator)
        if role == "tiny":
            storage.mul_(_TINY)
        elif role == "large":
            storage.abs_().add_(_LARGE)


def role(operation: Operation, tensor: int) -> str:
    """What a tensor's values do when an in-place operation is called over and over.

    A sum grows by tiny steps, a product multiplies by one, and an activation starts where it changes nothing, so that
    after 100,000 calls nothing is infinite, undefined or zero that was not so after the first.

    Returns
    -------
    str
        `plain`, `tiny`, `one` or `large`; `ends` of the groups of a grouped product, which are of equal size.
    """
    if operation.operation_class == "grouped_mm" and not operation.tensors[tensor].floating:
        return "ends"
    if not operation.mutates:
        return "plain"
    if tensor in operation.mutates:
        return "large" if operation.operation_class in _FIXED_POINTS else "plain"
    if operation.operation_class in ("copy", "setitem", "batch_norm"):
        return "plain"
    return "one" if operation.operation_class in ("mul", "div") else "tiny"


def scale(operation: Operation, tensor: int) -> float:
    """Standard deviation of a tensor's values: 1, but weights of recurrent layers are as large as PyTorch starts them.

    It starts them uniform between ±1/√hidden, of which the deviation is 1/√(3 · hidden). Larger ones saturate the
    gates: states then stand still from step to step, and the layer draws less than any network's.
    """
    if operation.operation_class.removesuffix("_cell") not in RECURRENT_CLASSES:
        return 1.0
    states, weights = _states_and_weights(operation)
    shapes = [operation.tensors[number].shape for number in _numbers(states)]
    # the last state is an LSTM's cell, which no projection makes smaller
    if tensor not in _numbers(weights) or not shapes or not shapes[-1] or shapes[-1][-1] == 0:
        return 1.0
    return float((3 * shapes[-1][-1]) ** -0.5)


def _states_and_weights(operation: Operation) -> tuple[Any, list[Any]]:
    """Encoded arguments of a recurrent operation, such as `torch.lstm` or `lstm_cell`."""
    args, kwargs = operation.args, operation.kwargs
    if operation.operation_class.endswith("_cell"):
        given = dict(zip(("input", "hx", "w_ih", "w_hh", "b_ih", "b_hh"), args, strict=False)) | kwargs
        return given.get("hx"), [given.get(name) for name in ("w_ih", "w_hh", "b_ih", "b_hh")]
    given = dict(zip(("input", "hx", "params"), args, strict=False)) | kwargs
    return given.get("hx"), [given.get("params")]


def _numbers(encoded: Any) -> Iterator[int]:
    """Tensors in encoded arguments, in their order."""
    if isinstance(encoded, dict):
        if "tensor" in encoded:
            yield encoded["tensor"]
        encoded = encoded.get("tuple", ())
    if isinstance(encoded, list | tuple):
        for entry in encoded:
            yield from _numbers(entry)
