"""Draw the third set of networks for training steps on two GPUs, before anything of it is measured.

    python benchmarks/parallel_draw.py

A seed draws kinds without those of the first two sets, then precision, optimizer and input. A draw counts if clockwatt
can trace and split the network, and predicts 15 to 150 ms and at most 40 GB for a step on one H100. Stages of pipelines
begin where clockwatt's prediction balances them. Writes `benchmarks/parallel/drawn.json`, and configurations of models
of transformers beside it.
"""

import json
import random
from pathlib import Path
from typing import Any

import clockwatt
from clockwatt.errors import ClockwattError

SEED = 20261127
FOLDER = Path(__file__).parent / "parallel"
TORCHVISION = (
    "resnext50_32x4d", "wide_resnet50_2", "regnet_y_3_2gf", "regnet_x_1_6gf", "efficientnet_v2_s", "efficientnet_b3",
    "swin_t", "swin_v2_t", "maxvit_t", "mnasnet1_0", "mobilenet_v2", "vgg11_bn",
)  # fmt: skip
TIMM = (
    "mixer_b16_224", "resmlp_24_224", "beit_base_patch16_224", "poolformer_s24", "xcit_tiny_12_p16_224", "gmlp_s16_224",
    "convnextv2_tiny", "deit3_small_patch16_224", "mobilevit_s", "convmixer_768_32",
)  # fmt: skip
_TRANSFORMERS: dict[str, dict[str, Any]] = {
    "opt": {"architectures": ["OPTForCausalLM"], "vocab_size": 50272},
    "gpt_neox": {
        "architectures": ["GPTNeoXForCausalLM"], "vocab_size": 50304, "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "intermediate_size": 3072,
    },
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"], "vocab_size": 32000, "hidden_size": 896, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864,
    },
    "mistral": {
        "architectures": ["MistralForCausalLM"], "vocab_size": 32000, "hidden_size": 1024, "num_hidden_layers": 12,
        "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 3584, "sliding_window": None,
    },
    "phi": {
        "architectures": ["PhiForCausalLM"], "vocab_size": 51200, "hidden_size": 1024, "num_hidden_layers": 20,
        "num_attention_heads": 16, "intermediate_size": 4096,
    },
    "roberta": {"architectures": ["RobertaForMaskedLM"], "vocab_size": 50265, "max_position_embeddings": 514},
    "distilbert": {"architectures": ["DistilBertForMaskedLM"], "vocab_size": 30522},
    "electra": {
        "architectures": ["ElectraForMaskedLM"], "vocab_size": 30522, "embedding_size": 768, "hidden_size": 768,
        "num_attention_heads": 12, "intermediate_size": 3072,
    },
}  # fmt: skip
_COUNTS = {"torchvision": 3, "timm": 2, "transformers": 3}


def main() -> None:
    """Draw and write."""
    rng = random.Random(SEED)
    kinds = {"torchvision": TORCHVISION, "timm": TIMM, "transformers": tuple(_TRANSFORMERS)}
    networks: dict[str, Any] = {}
    for kind, count in _COUNTS.items():
        left = list(kinds[kind])
        while sum(one["kind"] == kind for one in networks.values()) < count:
            name = left.pop(rng.randrange(len(left)))
            network = {"kind": kind, **drawn(rng, kind, name)}
            try:
                networks[name] = network | {"begins": checked(network)}
            except (ClockwattError, ValueError) as error:
                print(f"{name}: not drawn, {error}")
    used = {f"{name}.json" for name, one in networks.items() if one["kind"] == "transformers"}
    for path in (FOLDER / "configs").glob("*.json"):
        if path.name not in used:
            path.unlink()
    (FOLDER / "drawn.json").write_text(json.dumps(networks, indent=1) + "\n", encoding="utf-8")


def drawn(rng: random.Random, kind: str, name: str) -> dict[str, Any]:
    """Return constructor, input, precision and optimizer of a network; write its configuration, if it has one."""
    precision = rng.choice(("tf32", "bf16-mixed"))
    optimizer = rng.choice(("sgd", "adamw"))
    if kind != "transformers":
        constructor = f"timm:{name}" if kind == "timm" else name
        shape = [rng.choice((32, 64)), 3, 224, 224]
        return {"constructor": constructor, "input": [shape, None], "precision": precision, "optimizer": optimizer}
    path = FOLDER / "configs" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    config = {"model_type": name, **_TRANSFORMERS[name]}
    path.write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    shape = [rng.choice((8, 16, 32)), rng.choice((128, 256, 512))]
    return {
        "constructor": f"hf:{path.relative_to(FOLDER.parents[1])}", "input": [shape, config["vocab_size"]],
        "precision": precision, "optimizer": "adamw",
    }  # fmt: skip


def checked(network: dict[str, Any]) -> str:
    """Return the module with which the second stage of a pipeline begins; ValueError if a step is too short or long."""
    shape, below = network["input"]
    inputs: Any = {"shape": shape, "dtype": "int64", "below": below} if below else tuple(shape)
    answer = clockwatt.predict(
        network["constructor"], inputs, gpu="h100", training=True, precision=network["precision"],
        optimizer=network["optimizer"], gpus_per_node=2, strategy="pipeline", links="h100-nvlink", microbatches=4,
    )  # fmt: skip
    single = answer.single
    if single.memory is None or not 15e-3 < single.time_s < 150e-3 or single.memory.allocated_bytes > 40e9:
        raise ValueError(f"a step takes {1e3 * single.time_s:.1f} ms")
    print(network, f"{1e3 * single.time_s:.1f} ms on one GPU, {1e3 * answer.time_s:.1f} ms as a pipeline")
    return answer.stages[1]


if __name__ == "__main__":
    main()
