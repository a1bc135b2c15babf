"""Write the shipped profile of links between H100: bandwidth as NVIDIA states it, costs of the host measured here.

    python benchmarks/links_h100.py

Costs are processor times of one process without GPU, which is alone in its group, and the CUDA calls that it lacks.
"""

import re
import time
from importlib import metadata
from pathlib import Path

import torch
from torch import distributed

from clockwatt.io.resources import resource
from clockwatt.measure.links import host_calls
from clockwatt.predict.parallel.links import LinkFit, LinkProfile
from clockwatt.schema.links import ALL_GATHER, COMMUNICATIONS, REDUCE_SCATTER

RING_BYTES_PER_S = 370e9
"""What NCCL sends over 18 links of NVLink 4: https://github.com/NVIDIA/nccl-tests/issues/212."""
LATENCY_S = 20e-6
"""Assumed."""
CALL_S = 8.1e-6
"""Host time of a CUDA call on the median host: `HostOverheads.call_s` of the shipped predictors of the H100."""
CUDA_CALLS = {"ddp_parameter_s": 2, "ddp_bucket_s": 5, "ddp_buffer_s": 2, "fsdp_group_s": 20}
"""Calls that only a GPU needs, counted in PyTorch's sources.

Of DDP: a gradient is copied into its bucket and back, a buffer into the broadcast tensor and back; a bucket is reduced
between two events. Of FSDP2: two gathers and a reduction of a group, each with copies, events and a wait.
"""


def main() -> None:
    """Measure and write."""
    host_calls._STEPS = 100
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    costs = host_calls.host_costs(torch.device("cpu"), time.process_time)
    costs = {name: cost + CUDA_CALLS.get(name, 0) * CALL_S for name, cost in costs.items()}
    halves = (ALL_GATHER, REDUCE_SCATTER)
    fits = tuple(
        LinkFit(kind, 2, LATENCY_S, RING_BYTES_PER_S * (2 if kind in halves else 1)) for kind in COMMUNICATIONS
    )
    cpu = re.search("model name\\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))[1]
    origin = (
        f"Bandwidth: NVIDIA, https://github.com/NVIDIA/nccl-tests/issues/212. Latency: assumed. Host: processor times "
        f"with PyTorch {metadata.version('torch')} on {cpu}, and {CALL_S:.2g} s for each CUDA call. Power: not known."
    )
    profile = LinkProfile("NVLink (18 links)", "NVIDIA H100 80GB HBM3", False, fits, None, costs, origin=origin)
    profile.write(resource("links/h100-nvlink.json"))
    print(costs)


if __name__ == "__main__":
    main()
