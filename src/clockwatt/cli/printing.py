"""Answers of `clockwatt predict` and `clockwatt recommend` as tables and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from clockwatt.cli.tables import fits, print_whole, table_of
from clockwatt.gpu.specs import spec_or_none
from clockwatt.predict.answer import RATIOS
from clockwatt.predict.warning_kinds import WarningKind, is_of
from clockwatt.schema.optimizers import NO_OPTIMIZER

if TYPE_CHECKING:
    from rich.table import Table

    from clockwatt.predict.answer import Answer, Relative
    from clockwatt.predict.memory import PassMemory
    from clockwatt.predict.parallel.answer import ParallelAnswer
    from clockwatt.predict.parallel.choice import ParallelRecommendation
    from clockwatt.predict.recommend import Recommendation

_TWO_DECIMALS = 0.1
_THREE_DIGITS = 100
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
_RATIOS = {"time": "time_s", "energy": "energy_j"}
MOST_ROWS = 20
"""Candidates that a table lists."""


def passed(answer: Answer) -> str:
    """`resnet50 32×3×224×224, training with adamw`."""
    shape = "×".join(map(str, answer.input_shape))
    network = answer.network.rpartition(":")[2] if answer.network.startswith("clockwatt.") else answer.network
    step = answer.optimizer or {}
    optimizer = step.get("optimizer", "sgd")
    settings = [
        *([optimizer.replace(NO_OPTIMIZER, "no optimizer")] if optimizer != "sgd" else []),
        *([f"{step['accumulate']} accumulated batches"] if "accumulate" in step else []),
        *(["clipped gradients"] if "clip_norm" in step else []),
        *([f"{step['loss']} loss"] if "loss" in step else []),
    ]
    trained = f" with {' and '.join(settings)}" if settings else ""
    return f"{network} {shape}".strip() + f", {answer.pass_}{trained}"


def precision(answer: Answer) -> str:
    """How a pass computes: `TF32`, `float32` or another format; on a GPU without TF32 never in that."""
    spec = spec_or_none(answer.gpu_name)
    exact = spec is not None and spec.flop_per_cycle_per_sm.tf32 is None
    return (answer.execution.without_tf32 if exact else answer.execution).words


def measured_words(now: Mapping[str, Any]) -> str:
    """What was measured for an answer."""
    words = (
        f"Measured now: {now['operations']} operations in {now['seconds']:.0f} s; {now['looked_up']} were in the "
        f"store; {now['left']} are predicted. Device time: ± {100 * now['half_width_before']:.1f} % before, "
        f"± {100 * now['half_width']:.1f} % now."
    )
    if now["energies"]:
        words += (
            f" Energy of {now['energies']} operations in {now['energies_s']:.0f} s: dynamic energy "
            f"± {100 * now['energy_half_width_before']:.1f} % before, ± {100 * now['energy_half_width']:.1f} % now."
        )
    return words


def sum_words(answers: Iterable[Answer]) -> str | None:
    """Return the GPUs whose times are sums of back-to-back times, in a line; None where no GPU's are."""
    gpus = dict.fromkeys(answer.gpu for answer in answers if answer.expected.device_s is None)
    if not gpus:
        return None
    return f"On {' and '.join(gpus)}, time and energy are too low if the pass is host-bound."


def warnings_of(answers: Iterable[Answer]) -> list[str]:
    """Return the warnings of answers and what they are compared with, each once; `sum_words` replaces one."""
    warnings: dict[str, None] = {}
    for answer in answers:
        warnings |= dict.fromkeys(answer.warnings)
        if (standard := answer.relative_to) is not None:
            warnings |= dict.fromkeys(standard.warnings)
            if standard.mixed:
                warnings["A virtual GPU is compared with a measured one."] = None
    return [warning for warning in warnings if not is_of(warning, WarningKind.NO_HOST_TIME)]


_SAME = 0.005
"""Relative difference that is shown as none."""
_BETWEEN_SOURCES = 0.1
"""Relative difference that a measured and a modelled pass may have in the same precision."""


def tf32_words(answer: Answer, where: str = "") -> str | None:
    """Return what TF32 would take and save, `where` (` on h200`), in a line; None where that is not worth saying."""
    other = answer.in_tf32
    if other is None:
        return None
    takes = [quantity(other.time_s, "s"), *([] if other.energy_j is None else [quantity(other.energy_j, "J")])]
    pairs = {"time": (answer.time_s, other.time_s), "energy": (answer.energy_j, other.energy_j)}
    saved = {name: 1 - one / whole for name, (whole, one) in pairs.items() if whole and one}
    if other.source == answer.source and saved and all(abs(share) < _SAME for share in saved.values()):
        return None
    if other.source != answer.source:
        saved = {name: share for name, share in saved.items() if abs(share) >= _BETWEEN_SOURCES}
    less = [
        f"{100 * abs(share):.0f} % {'less' if share > 0 else 'more'} {name}"
        if abs(share) >= _SAME
        else f"the same {name}"
        for name, share in saved.items()
    ]
    return f"With --precision tf32{where}: {', '.join(takes)}, {other.source}{'; ' * bool(less)}{', '.join(less)}."


def memory_words(memory: PassMemory, of: str = "Memory", *, verbose: bool = False) -> str:
    """`Memory: 2.9 GiB allocated, 3.4 GiB reserved, of 140 GiB: fits.`; `verbose` adds intervals and parts."""
    from clockwatt.predict.memory import CONTEXT_BYTES

    ends = (memory.allocated_low_bytes, memory.allocated_high_bytes) if verbose else None
    of_reserved = (memory.reserved_low_bytes, memory.reserved_high_bytes) if verbose else None
    of += " of the eager pass" * memory.eager
    text = f"{of}: {binary(memory.allocated_bytes, ends)} allocated"
    text += f", {binary(memory.reserved_bytes, of_reserved)} reserved"
    if memory.gpu_bytes is not None:
        free = memory.gpu_bytes - memory.used_bytes
        verdict = "fits" if memory.fits else "does not fit"
        if memory.close:
            verdict = f"probably {verdict}"
        if memory.fits and memory.reserved_bytes > free:
            verdict = f"{verdict}, but PyTorch must free cached blocks, which takes time"
        whole = binary(memory.gpu_bytes)
        shared = memory.used_bytes != CONTEXT_BYTES
        text += f"; {binary(free)} of {whole} are free: {verdict}" if shared else f", of {whole}: {verdict}"
    if not verbose:
        return f"{text}."
    parts = (f"{name.replace('_', ' ')} {binary(size)}" for name, size in memory.parts.items() if size)
    return f"{text}. At the peak: {', '.join(parts)}."


def binary(size: float, ends: tuple[float, float] | None = None) -> str:
    """`2.9 GiB`, `98 MiB (96–101)`; the ends of an interval in the unit of the size."""
    units = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
    scale, unit = next((one for one in units if size >= one[0]), units[-1])
    interval = "" if ends is None else f" ({'–'.join(rounded(end / scale) for end in ends)})"
    return f"{rounded(size / scale)} {unit}{interval}"


def print_recommendation(answer: Recommendation, more: Mapping[str, Any], *, verbose: bool) -> None:
    """Print the candidates, best first; `more` was measured for them, `verbose` adds predictors, regret and notes."""
    best = answer.best
    virtual = " (VIRTUAL GPUs)" if best.virtual else ""
    # no title of the table, which a narrow terminal breaks within words
    print(f"{passed(best)}{'' if _several(answer) else f', {precision(best)}'}: least {answer.objective}{virtual}")
    table = _choices(answer, two_lines=False)
    print_whole(table if fits(table) else _choices(answer, two_lines=True))
    for line in _below_choices(answer, more, verbose=verbose):
        print(line)


def left_out_words(reasons: Sequence[str], where: str = "") -> Iterator[str]:
    """Yield what was left out and why, a line for each reason; nothing without reasons."""
    if reasons:
        yield f"Left out{where}:"
    yield from (f"  {reason}" for reason in reasons)


def _several(answer: Recommendation) -> bool:
    """Return whether the candidates have several precisions."""
    return len(answer.execution) > 1


def _below_choices(answer: Recommendation, more: Mapping[str, Any], *, verbose: bool) -> Iterator[str]:
    best, several, count = answer.best, _several(answer), len(answer.candidates)
    if count > MOST_ROWS:
        yield f"{count - MOST_ROWS} more candidates with --json."
    if best.relative_to is not None:
        words = standard_words(best.relative_to)
        if several:
            where = f"the same GPU at {best.relative_to.point}." if best.relative_to.gpu == best.gpu else words
            words = f"PyTorch's default precision on {where}"
        yield f"×: relative to {words}"

    def place(one: Answer) -> str:
        return f"{one.gpu} at {one.point}{f' in {one.execution}' if several else ''}"

    yield f"Best: {place(best)}."
    if answer.as_good > 1:
        names = ", ".join(place(one) for one in answer.candidates[1 : answer.as_good])
        yield f"Perhaps as good: {f'the first {answer.as_good} rows' if several else names}."
    if {one.point for one in answer.candidates} == {"default"}:
        yield "Only the point default was measured. To choose a clock, run a campaign at several clocks."
    of_best = "" if len(answer.platforms) == 1 else f" on {best.gpu}"
    if best.memory is not None:
        yield memory_words(best.memory, f"Memory{of_best}", verbose=verbose)
    if (line := tf32_words(best, of_best)) is not None:
        yield line
    for label, now in more.get("measured_now", {}).items():
        yield f"{label}: {measured_words(now)}"
    yield from left_out_words(answer.left_out)
    if not several:
        differs = {one.gpu: precision(one) for one in answer.candidates if precision(one) != precision(best)}
        yield from (f"{gpu} has no TF32: it computes in {words}." for gpu, words in differs.items())
    if (line := sum_words(answer.candidates)) is not None:
        yield line
    for warning in warnings_of([best]):
        of_several = is_of(warning, WarningKind.DIFFERENT_HOSTS)
        yield f"Warning{'' if of_several else of_best}: {warning}"
    of_others = warnings_of(one for one in answer.candidates if one.gpu != best.gpu)
    yield from (f"Warning: {warning}" for warning in of_others if is_of(warning, WarningKind.EMULATED_PRECISION))
    if answer.allowed < count:
        yield f"{count - answer.allowed} of {count} candidates exceed the limits (listed last)."
    if (known := answer.regret) is not None:
        yield (
            f"Checked on {known['networks']} networks, measured whole on {best.gpu} at {known['points']} operating "
            f"points. The chosen point takes {100 * known['mean_regret']:.1f} % more {answer.objective} than the best, "
            "on average. "
            f"Choosing {known['fixed_point']} for all of them takes {100 * known['fixed_mean_regret']:.1f} % more."
        )
    if not verbose:
        return
    for other in answer.platforms[1:]:
        yield f"Best of {other.gpu}: {place(other)}, {answer.times_the_best(other):.2f} × the {answer.objective}."
    origins = {one.gpu: one.predictors for one in answer.candidates}
    yield f"Predictors: {'; '.join(f'{gpu}: {origin}' for gpu, origin in origins.items())}."
    yield from (f"Note: {note}" for note in best.notes)
    if answer.regret is None:
        yield (
            f"The regret of this choice is unknown: no held-out network has predicted and measured {answer.objective} "
            f"at several operating points of {best.gpu} in {best.execution}. To know it, measure more networks."
        )


def _choices(answer: Recommendation, *, two_lines: bool) -> Table:
    """Candidates, best first; `two_lines` puts points, modes and intervals below what they belong to."""
    several = _several(answer)
    ratios = ("time", "energy") if several or answer.best.relative_to is not None else ()
    left = ("GPU, point", *(["precision"] if several else []))
    costs = ("time (90 %)", "energy (90 %)", *([f"{name} ×" for name in ratios] or ["power"]))
    table = table_of(*left, *costs, "source", right=costs)
    between = "\n" if two_lines else " "
    for row, candidate in enumerate(answer.candidates[:MOST_ROWS]):
        known = candidate.relative_to
        numbers = [*_costs(candidate), *("–" if known is None else ratio(known, _RATIOS[name]) for name in ratios)]
        if several:  # has no columns for the intervals of ratios
            numbers[2:] = (number.partition(" ")[0] for number in numbers[2:])
        elif not ratios:
            numbers.append(quantity(candidate.expected.power_w, "W"))
        point = candidate.point if candidate.measured_point else f"{candidate.point} (not measured)"
        table.add_row(
            f"{candidate.gpu}{between}{point}",
            *([candidate.execution.replace("+", f"{between}+")] if several else []),
            *(number.replace(" (", f"{between}(") for number in numbers),
            candidate.source if row < answer.allowed else "over limit",
            style="bold" if row == 0 else None if row < answer.allowed else "dim",
        )  # fmt: skip
    return table


def _costs(candidate: Answer) -> tuple[str, str]:
    """Time and energy with their intervals."""
    expected, ends = candidate.expected, candidate.intervals
    return with_ends(expected.time_s, ends.get("time_s"), "s"), with_ends(expected.energy_j, ends.get("energy_j"), "J")


def print_json(
    answer: Answer | ParallelAnswer | Recommendation | ParallelRecommendation,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Print the answer as one JSON document; `more` has further keys: what was measured for the answer."""
    print(json.dumps(answer.to_dict() | dict(more), indent=2))


def with_ends(value: float | None, ends: tuple[float, float] | None, unit: str) -> str:
    """`1.28 ms (1.22–1.33)`, a value and its interval in the same unit; a dash where it is unknown."""
    shown = quantity(value, unit)
    if not value or ends is None:
        return shown
    scale = 10.0 ** round(math.log10(value / float(shown.split()[0].replace(",", ""))))
    shown_ends = (f"{end / scale:.0f}" if end / scale >= _THREE_DIGITS else f"{end / scale:.3g}" for end in ends)
    return f"{shown} ({'–'.join(shown_ends)})"


def ratio(relative: Relative, quantity_name: str) -> str:
    """`1.40 (1.22–1.61)`; a dash where it is not known."""
    name = RATIOS[quantity_name]
    value, ends = getattr(relative, name), relative.intervals.get(name)
    if value is None:
        return "–"
    return _factor(value) if ends is None else f"{_factor(value)} ({'–'.join(map(_end, ends))})"


def rounded(value: float) -> str:
    """`6,100`: three digits, without an exponent."""
    shown = float(f"{value:.3g}")
    return f"{shown:,.0f}" if shown >= _THREE_DIGITS else f"{shown:g}"


def _factor(value: float) -> str:
    """Two decimals, or two digits where that would be none."""
    return f"{value:.2f}" if value >= _TWO_DECIMALS else f"{value:.2g}"


def _end(value: float) -> str:
    """End of a ratio's interval; a further digit where two would show 1, which decides."""
    shown = _factor(value)
    return f"{value:.3f}" if shown == "1.00" and value != 1 else shown


def standard_words(relative: Relative) -> str:
    """`h200 (NVIDIA H200) at default.`."""
    kind = "VIRTUAL GPU" if relative.virtual else relative.gpu_name
    return f"{relative.gpu} ({kind}) at {relative.point}."


def quantity(value: float | None, unit: str) -> str:
    """A value to three digits with an SI prefix, long times in whole seconds; a dash where it is unknown."""
    if value is None:
        return "–"
    shown = float(f"{value:.3g}")  # which of 999.6 makes 1,000
    if shown == 0:
        return f"0 {unit}"
    if unit == "s" and abs(shown) >= 1000:
        return f"{value:,.0f} s"
    scale, prefix = next(((scale, prefix) for scale, prefix in _PREFIXES if abs(shown) >= scale), _PREFIXES[-1])
    return f"{shown / scale:.3g} {prefix}{unit}"
