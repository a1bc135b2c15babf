"""Name of the link between GPUs, from `nvidia-smi topo -m`."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence

UNKNOWN = "unknown link"
_BY_PCIE = {
    "PIX": "PCIe (one switch)",
    "PXB": "PCIe (several switches)",
    "PHB": "PCIe (host bridge)",
    "NODE": "PCIe (one NUMA node)",
    "SYS": "PCIe (between CPUs)",
}


def link_name(indices: Sequence[int]) -> str:
    """Return the name of the slowest link between some GPUs, by their indices; `UNKNOWN` without nvidia-smi."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return UNKNOWN
    try:
        shown = subprocess.run([command, "topo", "-m"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return slowest_link(shown, indices)


def slowest_link(matrix: str, indices: Sequence[int]) -> str:
    """Return the slowest link between some GPUs in the output of `nvidia-smi topo -m`."""
    rows = [re.sub(r"\x1b\[[0-9;]*m", "", line).split() for line in matrix.splitlines()]
    links = {int(row[0][3:]): row[1:] for row in rows if row and re.fullmatch(r"GPU\d+", row[0]) and len(row) > 2}
    links = {index: row for index, row in links.items() if "X" in row}
    try:
        found = [links[one][other] for one in indices for other in indices if one != other]
    except (KeyError, IndexError):
        return UNKNOWN
    for code in reversed(_BY_PCIE):
        if code in found:
            return _BY_PCIE[code]
    lanes = [int(code[2:]) for code in found if re.fullmatch(r"NV\d+", code)]
    return f"NVLink ({min(lanes)} links)" if lanes and len(lanes) == len(found) else UNKNOWN
