"""Predict training on 8 to 1,024 GPUs, and compare how throughput falls with what torchtitan publishes.

python benchmarks/many_nodes.py
"""

import json
import tempfile
from pathlib import Path

import result_file

from clockwatt.predict.api import load
from clockwatt.predict.parallel.answer import Steps
from clockwatt.predict.request import Request

LLAMA_8B = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
}  # fmt: skip
LLAMA = "Llama 3.1 8B, 2 × 8,192 tokens"
NODE_LINKS = "50GB/s,5us"
"""400 Gb/s for each GPU, as torchtitan states; the latency is assumed."""
GPUS_OF_A_NODE = 8
NODES, NODES_OF_H200 = (1, 2, 4, 8, 16, 32, 64, 128), (1, 4, 8)
COMPARED = (("h100", 8, 128), ("h200", 32, 64))
"""GPU, and the two numbers of GPUs whose throughput is published."""
PUBLISHED = {
    ("h100", 8): (5762, 6667, 8532), ("h100", 128): (5605, 6514, 8380),
    ("h200", 32): (10938,), ("h200", 64): (10753,),
}  # fmt: skip
"""Tokens per second and GPU: eager, compiled, compiled with float8; on H200 the last alone."""


def main() -> None:
    """Predict all and write the table."""
    predictors, rows = load(), []
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "llama.json"
        config.write_text(json.dumps(LLAMA_8B))
        llama = {"network": f"hf:{config}", "inputs": ("2,8192",), "precision": "bf16", "optimizer": "adamw"}
        cases = (
            ("h100", LLAMA, "fsdp", NODES, llama),
            ("h200", LLAMA, "fsdp", NODES_OF_H200, llama),
            ("h100", "ResNet-50, 64 images", "ddp", NODES, {"network": "resnet50", "inputs": ("64,3,224,224",)}),
        )
        for gpu, title, strategy, numbers, asked in cases:
            request = Request.of(
                gpus=gpu, pass_="training", links="h100-nvlink", strategy=strategy, gpus_per_node=GPUS_OF_A_NODE,
                **asked,
            )  # fmt: skip
            tracer = predictors.tracer.trained(request.training)
            steps = Steps(predictors, request, predictors.network(request), tracer.trace)
            first = None
            for nodes in numbers:
                more = {"nodes": nodes, "node_links": NODE_LINKS} if nodes > 1 else {}
                answer = steps.answer(request.model_copy(update=more))
                each = answer.items_per_s / answer.gpus
                first = first or each
                rows.append(
                    (
                        gpu, title, strategy, answer.gpus, f"{1e3 * answer.time_s:.1f}", f"{each:,.0f}",
                        f"{100 * each / first:.1f}", published(gpu, answer.gpus) if title == LLAMA else "–",
                    )
                )  # fmt: skip
    shares = {tuple(row[:4]): float(row[6]) for row in rows}
    changes = {
        gpu: 100 * (shares[gpu, LLAMA, "fsdp", more] / shares[gpu, LLAMA, "fsdp", fewer] - 1)
        for gpu, fewer, more in COMPARED
    }
    beyond = [changes[gpu] - one for gpu, fewer, more in COMPARED for one in changed(gpu, fewer, more)]
    off = f"{min(beyond):.0f} to {max(beyond):.0f} %"
    result_file.write(
        "several-gpus",
        "From one node to many, compared with published throughput",
        (
            *("GPU", "network, batch of one GPU", "strategy", "GPUs", "step, ms", "per second and GPU"),
            *("relative to 8 GPUs, %", "published, per second and GPU"),
        ),
        rows,
        notes=(
            "All steps are predicted: none was measured. Images or tokens per second are those of each GPU.",
            "Published: [torchtitan](https://github.com/pytorch/torchtitan), in its folder `benchmarks/`.",
            "Three published values: eager, compiled, compiled with float8. A single value: compiled with float8.",
            *(
                f"From {fewer} to {more} {gpu.upper()}s, throughput changes by {changes[gpu]:+.1f} % (predicted) and "
                f"by {', '.join(f'{one:+.1f}' for one in changed(gpu, fewer, more))} % (published)."
                for gpu, fewer, more in COMPARED
            ),
            f"So the prediction is {off} too optimistic: it omits that GPUs wait for the slowest of many.",
            "Predicted throughput can rise, since with more GPUs each one updates fewer parameters.",
            "Throughput itself is not comparable, for three reasons:",
            "(1) In torchtitan, activations are computed again, and gradients are reduced in float32.",
            "(2) Its H100s have a power limit of 500 W and slower memory.",
            "(3) The prediction has all weights in bfloat16. It keeps all activations, which do not fit into an H100.",
            f"Network: `{NODE_LINKS}` (the latency is assumed). Links in a node: `h100-nvlink`.",
            "vTrain, Echo and MLPerf train with tensor parallelism or fused kernels. clockwatt predicts neither.",
        ),
        hardware="2 cores, no GPU",
    )


def published(gpu: str, gpus: int) -> str:
    """Return the published tokens per second and GPU."""
    return ", ".join(f"{value:,}" for value in PUBLISHED.get((gpu, gpus), ())) or "–"


def changed(gpu: str, fewer: int, more: int) -> list[float]:
    """Return how the published throughput of each GPU changes, in percent, in each variant."""
    pairs = zip(PUBLISHED[gpu, fewer], PUBLISHED[gpu, more], strict=True)
    return [100 * (after / before - 1) for before, after in pairs]


if __name__ == "__main__":
    main()
