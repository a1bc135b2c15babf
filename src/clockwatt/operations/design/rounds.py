"""Rounds of a design: the first by quotas, later ones where a fitted predictor is most uncertain.

A later round chooses among candidates: operations that were drawn but not measured, from a file with scores of a
predictor. Half are chosen by spread times weight, half uniformly. This module does not depend on predictors.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from clockwatt.config import DesignConfig, DesignRound, Pass
from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.operations.design.draw import DESIGN, drawn_operations
from clockwatt.operations.spec.operation import Operation, OperationSpecError
from clockwatt.schema.records import OPERATION_SCHEMA, OperationRow, row_of

CANDIDATES_SCHEMA = pa.schema(
    [
        *OPERATION_SCHEMA,
        pa.field("spread", pa.float64(), nullable=False),  # of the predictor's estimates of time, relative
        pa.field("weight_s", pa.float64(), nullable=False),  # time spent in such operations in real networks
    ],
    metadata={"kind": "candidates of a design"},
)

Key = tuple[str, str]
"""Operation id and pass."""


@dataclass(frozen=True)
class Candidate:
    """An operation that may be chosen, and its score."""

    row: OperationRow
    spread: float
    weight_s: float

    @property
    def key(self) -> Key:
        """Key that identifies the candidate."""
        return self.row.operation_id, self.row.pass_


def designed_operations(design: DesignConfig, passes: Sequence[Pass]) -> Iterator[OperationRow]:
    """Yield the operations of all rounds, each once.

    Parameters
    ----------
    design
        The campaign's.
    passes
        In which operations are drawn; candidates of other passes are left out.

    Yields
    ------
    OperationRow
        Those drawn first, then those of later rounds.

    Raises
    ------
    DataFileError
        If a file of candidates is missing, damaged or holds too few.
    """
    seen: set[Key] = set()
    for row in drawn_operations(design, passes):
        seen.add((row.operation_id, row.pass_))
        yield row
    for number, entry in enumerate(design.rounds, 1):
        candidates = [each for each in read_candidates(Path(entry.candidates)) if each.row.pass_ in passes]
        fresh = [candidate for candidate in candidates if candidate.key not in seen]
        if len(fresh) < entry.operations:
            raise DataFileError(
                f"{entry.candidates}: holds {len(fresh)} operations that are not drawn yet, not {entry.operations}. "
                f"Draw more candidates, or lower the round's `operations`."
            )
        for chosen in choose(fresh, entry.operations, design.seed):
            seen.add(chosen.key)
            yield _with_origin(chosen.row, design, entry, number)


def choose(candidates: Sequence[Candidate], number: int, seed: int) -> list[Candidate]:
    """Choose some candidates: in turn one by spread times weight, and one evenly.

    The first kind is drawn without replacement with probabilities in proportion to spread times weight (Efraimidis and
    Spirakis 2006), so that near-duplicates of the most uncertain operation do not fill a round. The draw depends on
    each operation and the seed alone: a larger number keeps the earlier ones.

    Parameters
    ----------
    candidates
        Each once.
    number
        At most that many.
    seed
        Of the draw.
    """
    drawn = {each.key: _uniform(f"{seed}/{each.key[0]}/{each.key[1]}") for each in candidates}

    def worth(candidate: Candidate) -> float:
        gain = candidate.spread * candidate.weight_s
        return -math.log(drawn[candidate.key]) / gain if gain > 0 else math.inf

    by_worth = iter(sorted(candidates, key=lambda each: (worth(each), each.key)))
    evenly = iter(sorted(candidates, key=lambda each: _uniform(f"evenly/{seed}/{each.key[0]}/{each.key[1]}")))
    chosen: dict[Key, Candidate] = {}
    while len(chosen) < min(number, len(candidates)):
        order = evenly if len(chosen) % 2 else by_worth
        following = next((each for each in order if each.key not in chosen), None)
        if following is not None:
            chosen[following.key] = following
    return list(chosen.values())


def read_candidates(path: Path) -> list[Candidate]:
    """Read a file of candidates.

    Raises
    ------
    DataFileError
        If it is missing, damaged, or a row's spec, spread or weight is none.
    """
    found: dict[Key, Candidate] = {}
    with files.named_by_user("Give a catalogue's operations.parquet with the columns spread and weight_s."):
        rows = files.read_table(path, CANDIDATES_SCHEMA).to_pylist()
    for number, values in enumerate(rows):
        try:
            Operation.from_json(values["spec"])
        except OperationSpecError as error:
            raise DataFileError(f"{path}: row {number}: {error}") from None
        for name in ("spread", "weight_s"):
            if not 0 <= values[name] < math.inf:
                raise DataFileError(f"{path}: row {number}: {name} is {values[name]}; write a finite number from 0 on.")
        candidate = Candidate(row_of(OperationRow, values), values["spread"], values["weight_s"])
        found.setdefault(candidate.key, candidate)
    return list(found.values())


def _with_origin(row: OperationRow, design: DesignConfig, entry: DesignRound, number: int) -> OperationRow:
    row.source, row.design_round, row.measured_quantities = DESIGN, number, list(design.quantities)
    row.block = row.block or f"{Path(entry.candidates).stem}-{row.operation_id}"
    row.measured_execution = row.measured_execution or ["tf32"]
    return row


def _uniform(text: str) -> float:
    """A number in (0, 1) that depends on a text alone."""
    return (int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) + 1) / (2**64 + 1)
