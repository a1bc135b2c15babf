"""Profile of the links between GPUs: time of a communication is a latency plus bytes over bandwidth."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from clockwatt.errors import DataFileError, RequestError
from clockwatt.io import files
from clockwatt.io.resources import resource
from clockwatt.schema.links import ALL_GATHER, ALL_REDUCE, COMMUNICATIONS, HOST_COSTS, REDUCE_SCATTER

SHIPPED = ("h100-nvlink",)
"""Names of the profiles that the package holds."""
_FEWEST = 2
_MOST = 1000.0
"""Bound on factors of hosts."""
_NODE_LINKS = "50GB/s,5us"
_OTHER = "Give a file that `clockwatt calibrate --links` wrote."


@dataclass(frozen=True)
class LinkFit:
    """One communication between so many GPUs.

    Attributes
    ----------
    kind, gpus
        One of `schema.links.COMMUNICATIONS`, and the number of GPUs.
    latency_s, bytes_per_s
        Time of the smallest message, and bandwidth: bytes of the tensor over the time that they add.
    latency_error_s, bytes_per_s_error
        Standard errors; None where the parameters were not fitted.
    error, error_90
        Median and 90th percentile of the relative differences between measured and fitted times; None likewise.
    """

    kind: str
    gpus: int
    latency_s: float
    bytes_per_s: float
    latency_error_s: float | None = None
    bytes_per_s_error: float | None = None
    error: float | None = None
    error_90: float | None = None


@dataclass(frozen=True)
class LinkProfile:
    """The links of one machine.

    Attributes
    ----------
    name, gpu_name, virtual
        The link, such as `NVLink (18 links)`, the GPUs between which it was measured, whether these are virtual.
    fits
        A fit for each communication and number of GPUs.
    power_w
        Mean power of a GPU that communicates without pause; None if not known.
    host_costs
        `schema.links.HOST_COSTS`, in s.
    seconds
        Duration of the measurement.
    origin
        Where the parameters of a shipped profile come from; empty for a measured one.
    rows
        The measurements: `kind`, `gpus`, `bytes`, `time_s`.
    host_relative_to_median
        Cost of calls on the profile's host relative to the median host that GPUs were measured on; None if not known.
    """

    name: str
    gpu_name: str
    virtual: bool
    fits: tuple[LinkFit, ...]
    power_w: float | None
    host_costs: Mapping[str, float]
    seconds: float = 0.0
    origin: str = ""
    rows: tuple[Mapping[str, Any], ...] = ()
    host_relative_to_median: float | None = None

    def time_s(self, kind: str, size: float, gpus: int) -> float:
        """Return the time of a communication of `size` bytes between so many GPUs.

        A number of GPUs that was not measured is extrapolated from the nearest one, for rings: latency grows with the
        number of neighbours, time of the bytes with what each GPU sends.
        """
        fits = [fit for fit in self.fits if fit.kind == kind]
        fit = min(fits, key=lambda one: abs(one.gpus - gpus))
        rings = (gpus - 1) / (fit.gpus - 1)
        return fit.latency_s * rings + size / fit.bytes_per_s * _sent(kind, gpus) / _sent(kind, fit.gpus)

    def on_host(self, factor: float) -> Self:
        """Return the profile with costs of a host whose calls cost `factor` times those of the median host.

        Unchanged where that of the profile's host is not known: then the profile's host is meant.
        """
        if self.host_relative_to_median is None:
            return self
        scaled = {name: cost * factor / self.host_relative_to_median for name, cost in self.host_costs.items()}
        return replace(self, host_costs=scaled, host_relative_to_median=factor)

    def write(self, path: Path) -> None:
        """Write the profile as JSON; OutputError if it cannot be written."""
        files.write_text(json.dumps(asdict(self), indent=1) + "\n", path)

    @classmethod
    def read(cls, name: str | Path) -> Self:
        """Read a file, or the shipped profile of that name.

        Raises
        ------
        RequestError
            If there is neither.
        DataFileError
            If it is no profile.
        """
        path = resource(f"links/{name}.json") if str(name) in SHIPPED else Path(name)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            fits = tuple(LinkFit(**fit) for fit in content.pop("fits"))
            content.pop("host_shares", None)  # of older profiles
            profile = cls(fits=fits, rows=tuple(content.pop("rows", ())), **content)
            faults = {*COMMUNICATIONS} - {fit.kind for fit in fits} or {*HOST_COSTS} - {*profile.host_costs}
            factor = profile.host_relative_to_median
            faults |= {"host_relative_to_median"} if factor is not None and not 0 <= factor < _MOST else set()
            faults |= {fit.kind for fit in fits if not (fit.latency_s >= 0 and fit.bytes_per_s > 0 and fit.gpus > 1)}
        except FileNotFoundError:
            raise RequestError(
                f"{{links}} {name}: no such file. Make it on a machine with the GPUs: `clockwatt calibrate "
                f"--links {name}`. Or use a shipped profile: {', '.join(SHIPPED)}."
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataFileError(f"{path}: not a profile of links ({error}). {_OTHER}") from error
        if faults:
            raise DataFileError(f"{path}: {', '.join(sorted(faults))} missing or impossible. {_OTHER}")
        return profile


@dataclass(frozen=True)
class ClusterLinks(LinkProfile):
    """The links of several equal nodes, each GPU with a network adapter of its own.

    Attributes
    ----------
    nodes
        Their number.
    node_bytes_per_s, node_latency_s
        Bandwidth of one GPU to other nodes, and time of the smallest message between two nodes.
    """

    nodes: int = 1
    node_bytes_per_s: float = math.inf
    node_latency_s: float = 0.0

    @classmethod
    def of(cls, profile: LinkProfile, nodes: int, node_links: str) -> Self:
        """Return a node's profile with what connects the nodes, such as `50GB/s,5us`; RequestError if it is no such."""
        found = re.fullmatch(r"(\d+\.?\d*|\.\d+)GB/s,(\d+\.?\d*|\.\d+)[uµ]s", node_links.replace(" ", ""))
        if found is None or not float(found[1]):
            raise RequestError(
                f"{{node_links}} {node_links}: give bandwidth of each GPU and latency, such as {_NODE_LINKS}."
            )
        values = {one.name: getattr(profile, one.name) for one in fields(profile)}
        values["name"] = f"{profile.name} in nodes, {found[1]}GB/s and {found[2]}us between nodes"
        return cls(**values, nodes=nodes, node_bytes_per_s=1e9 * float(found[1]), node_latency_s=1e-6 * float(found[2]))

    def time_s(self, kind: str, size: float, gpus: int) -> float:
        """Return the time of a communication of `size` bytes between all GPUs of the nodes.

        Each GPU sends its part of the tensor to the other nodes. The nodes' own links work at the same time: the slower
        of both counts. Latencies add up: an all-reduce passes a tree of nodes twice, others a ring of nodes once.
        """
        in_node = gpus // self.nodes
        latency_s, inside_s = (super(ClusterLinks, self).time_s(kind, each, in_node) for each in (0, size))
        outside_s = _sent(kind, self.nodes) * size / in_node / self.node_bytes_per_s
        hops = 2 * math.ceil(math.log2(self.nodes)) if kind == ALL_REDUCE else self.nodes - 1
        return latency_s + hops * self.node_latency_s + max(inside_s - latency_s, outside_s)


def fit_links(rows: Sequence[Mapping[str, Any]]) -> tuple[LinkFit, ...]:
    """Fit latency and bandwidth of each communication and number of GPUs, so that relative errors are least.

    DataFileError if one was measured with fewer than two sizes.
    """
    lacking = set(COMMUNICATIONS) - {row["kind"] for row in rows}
    if lacking:
        raise DataFileError(f"{', '.join(sorted(lacking))}: the measurement timed out. Repeat it on an idle machine.")
    found = []
    for kind, gpus in dict.fromkeys((row["kind"], row["gpus"]) for row in rows):
        own = [(row["bytes"], row["time_s"]) for row in rows if (row["kind"], row["gpus"]) == (kind, gpus)]
        if len({size for size, _ in own}) < _FEWEST:
            raise DataFileError(
                f"{kind} between {gpus} GPUs: all sizes but one timed out. Repeat it on an idle machine."
            )
        found.append(_fit(kind, gpus, *np.array(own, dtype=float).T))
    return tuple(found)


def _fit(kind: str, gpus: int, sizes: Any, times: Any) -> LinkFit:
    weighted = np.column_stack([np.ones_like(sizes), sizes]) / times[:, None]
    (latency_s, per_byte_s), *_ = np.linalg.lstsq(weighted, np.ones_like(times), rcond=None)
    smallest, largest = int(sizes.argmin()), int(sizes.argmax())
    if latency_s <= 0:
        latency_s, per_byte_s = times[smallest], times[largest] / sizes[largest]
    if per_byte_s <= 0:
        per_byte_s = times[largest] / sizes[largest]
    errors = (latency_s + per_byte_s * sizes) / times - 1
    freedom = max(1, len(times) - 2)
    covariance = np.linalg.pinv(weighted.T @ weighted) * float(errors @ errors) / freedom
    of_latency, of_byte = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return LinkFit(
        kind, gpus, float(latency_s), float(1 / per_byte_s), float(of_latency), float(of_byte / per_byte_s**2),
        *(float(np.quantile(np.abs(errors), share)) for share in (0.5, 0.9)),
    )  # fmt: skip


def _sent(kind: str, gpus: int) -> float:
    """Return the bytes that each GPU of a ring sends, relative to the tensor."""
    if kind == ALL_REDUCE:
        return 2 * (gpus - 1) / gpus
    return (gpus - 1) / gpus if kind in (ALL_GATHER, REDUCE_SCATTER) else 1.0
