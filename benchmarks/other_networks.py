"""Operations of networks that neither the shipped data nor the fresh set has, to be measured as time alone.

    python benchmarks/other_networks.py --output CATALOGUE_DIR [--seed N] [--part K/N --cache DIR] [--most 14000]

A seed draws the settings of models of timm and torchvision, and models of transformers by configuration: pass, number
format, TF32, batch, image or sequence. Each is traced; where its roofline lies above 0.15 s or it needs more than
40 GiB, its batch is quartered. Operations of the fresh sets are left out, so that they stay judges, and those that are
shipped already. What is left, shuffled, goes to `operations.parquet` of the folder, at the TF32 setting of a pass that
has it; `clockwatt measure --catalogue-dir` measures it, `pack_reference.py` ships it. Traces go to `--cache`, so that
several processes can share the work, each with a part; the last one writes the catalogue.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.gpu.specs import find_spec
from clockwatt.io.resources import resource
from clockwatt.operations.catalogue import SOURCE_NETWORK, trace_rows
from clockwatt.operations.networks import FAULTS
from clockwatt.schema import layout, records
from clockwatt.schema.execution import of_tf32

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of this script is what Python looks into
from benchmarks.fresh.draw import SETS, estimate
from benchmarks.operations_alone import write_operations

GPU = "NVIDIA H200"
LONGEST_S, MOST_BYTES = 0.15, 40 * 2**30
QUARTERED = 3
TRANSFORMERS = 110
IMAGES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
SIZES = (64, 96, 128, 160, 192, 256, 288, 320)
TIMM = """
resnet26 resnet50d resnest26d res2net50_26w_4s skresnet18 dla34 dla60x selecsls42 hgnetv2_b0 hgnetv2_b3 mobilenetv1_100
mobilenetv2_140 mobilenetv3_small_100 mobileone_s1 tf_efficientnet_lite0 tf_efficientnet_lite2 efficientnet_es
efficientnet_b1_pruned mixnet_s mixnet_l semnasnet_075 mobilevit_s mobilevit_xs mobilevitv2_100 mobilevitv2_150
repghostnet_100 repvit_m1 edgenext_small edgenext_xx_small convnext_atto convnext_pico convformer_s18 caformer_s18
poolformer_s12 poolformerv2_s12 pvt_v2_b1 pvt_v2_b2 twins_pcpvt_small twins_svt_small crossvit_small_240 cait_xxs24_224
beit_base_patch16_224 eva02_tiny_patch14_224 deit_small_patch16_224 deit_tiny_patch16_224 vit_small_patch16_224
vit_tiny_patch16_224 vit_base_patch32_224 vit_large_patch16_224 flexivit_small levit_192 levit_384 tiny_vit_5m_224
tiny_vit_21m_224 gcvit_tiny gcvit_xxtiny coatnet_0_rw_224 maxvit_rmlp_pico_rw_256 maxxvit_rmlp_nano_rw_256
inception_next_tiny inception_v4 inception_resnet_v2 nfnet_l0 nf_resnet50 dm_nfnet_f0 resnetv2_50 ese_vovnet19b_dw
ese_vovnet39b regnetz_b16 resmlp_12_224 mixer_s16_224 mixer_b16_224 gmixer_12_224 darknet53 cs3darknet_m rdnet_tiny
starnet_s1 mambaout_tiny fastvit_t8 fastvit_s12 efficientvit_b1 efficientvit_b2 efficientvit_m2 visformer_tiny
visformer_small swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 sequencer2d_s nextvit_small shvit_s1
vitamin_small_224 pit_s_224 pit_xs_224 convit_tiny hrnet_w18_small halonet26t sebotnet33ts_256 resnet18 resnet101
resnet152 resnext101_32x4d seresnet50 legacy_senet154 dpn68 densenetblur121d xception41 nasnetalarge tresnet_m
regnetx_040 regnety_040 convmixer_768_32 cspresnet50 cspresnext50 gernet_m haloregnetz_b eva_large_patch14_196
samvit_base_patch16 hiera_tiny_224 mobilenetv4_hybrid_medium mvitv2_tiny davit_small focalnet_tiny_srf
xcit_tiny_12_p16_224 volo_d1_224 nest_small coat_tiny
""".split()  # noqa: SIM905  # more than a hundred words
TORCHVISION = """
resnet152 wide_resnet101_2 mobilenet_v3_small shufflenet_v2_x0_5 shufflenet_v2_x1_5 mnasnet1_3 densenet169 densenet201
inception_v3 googlenet efficientnet_b5 regnet_x_400mf regnet_y_8gf swin_b swin_v2_t swin_v2_s convnext_tiny alexnet
vgg16 squeezenet1_1 resnet34 resnet101 mobilenet_v2 regnet_x_1_6gf vit_b_16 vit_l_32 deeplabv3_resnet101 mvit_v1_b
swin3d_b
""".split()  # noqa: SIM905
_VIDEO = ("swin3d", "mvit")
_TOKENS = {"dtype": "int64"}

Drawn = tuple[str, bool, dict[str, Any]]
"""Pass, TF32 and the network as a campaign has it."""


def drawn(configs: Path, seed: int) -> list[Drawn]:
    """All passes, in an order that the seed decides; configurations of transformers' models go to a folder."""
    rng = random.Random(seed)
    found = [*_vision(rng), *(_transformer(rng, configs) for _ in range(TRANSFORMERS))]
    rng.shuffle(found)
    return found


def _vision(rng: random.Random) -> Iterator[Drawn]:
    import timm

    fresh = {one["network"]["name"] for one in json.loads(SETS["first"].passes.read_text())}
    models: list[tuple[str, int, bool]] = []
    for name in TIMM:
        known = timm.get_pretrained_cfg(name)
        size = known.input_size[-1] if known else 224
        models.append((f"timm:{name}", size, not (known and known.fixed_input_size) and size <= 256))
    models += [(name, 224, not name.startswith(("vit", *_VIDEO))) for name in TORCHVISION]
    for name, size, free in models:
        if name in fresh:
            continue
        for pass_ in (records.INFERENCE, records.TRAINING):
            dtype = rng.choice(["float32"] * 3 + ["bfloat16"] * 2 + [_half(pass_)])
            tf32, batch = rng.random() < 0.6, rng.choice(IMAGES)
            pixels = size if not free or rng.random() < 0.6 else rng.choice(SIZES)
            shape = [min(batch, 4), 3, 16, 224, 224] if name.startswith(_VIDEO) else [batch, 3, pixels, pixels]
            yield pass_, tf32, {"name": name, "input": shape, "dtype": dtype}


def _half(pass_: str) -> str:
    return "float16" if pass_ == records.INFERENCE else "bfloat16"


_KINDS = ("bert", "roberta", "distilbert", "electra", "albert", "gpt2", "llama", "qwen2", "mistral", "opt", "gpt_neox",
          "t5", "bart", "vit", "dinov2", "whisper", "wav2vec2", "decode")  # fmt: skip
_WIDTHS = (192, 320, 384, 448, 512, 640, 768, 896, 1024, 1152, 1280, 1536, 1792, 2048, 2560)
_LENGTHS = (16, 48, 64, 100, 128, 160, 192, 256, 320, 384, 448, 512, 640, 896, 1024, 1536, 2048)
_PATCHES = ((16, 128), (14, 182), (16, 192), (16, 288), (32, 320), (8, 64), (14, 224), (16, 384))
"""Pixels of a side of a patch, and of an image."""
_ENCODERS = {"bert": "Bert", "roberta": "Roberta", "electra": "Electra", "albert": "Albert"}
_DECODERS = {"llama": "Llama", "qwen2": "Qwen2", "mistral": "Mistral"}


def _transformer(rng: random.Random, configs: Path) -> Drawn:  # one draw after another, in a fixed order
    kind, width = rng.choice(_KINDS), rng.choice(_WIDTHS)
    heads, below = width // (64 if width % 64 == 0 else 32), rng.choice([16384, 30522, 32000, 50257, 65024])
    length = rng.choice(_LENGTHS)
    pass_ = rng.choice([records.INFERENCE, records.TRAINING])
    dtype = rng.choice(["float32", "bfloat16", "bfloat16", "float32", _half(pass_)])
    batch, inner = rng.choice([1, 2, 4, 8, 16, 32, 48, 64]), rng.choice([2, 3, 4]) * width
    usual = {"hidden_size": width, "num_hidden_layers": 2, "num_attention_heads": heads}
    config: dict[str, Any] = {"model_type": kind}
    more: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    tokens = _TOKENS | {"below": below}
    if kind in _ENCODERS:
        length, name = min(length, 512), _ENCODERS[kind]
        config |= {"architectures": [rng.choice([f"{name}Model", f"{name}ForMaskedLM"])], **usual,
                   "intermediate_size": inner, "vocab_size": below, "max_position_embeddings": 520}  # fmt: skip
        if kind in ("electra", "albert"):
            config["embedding_size"] = 128
    elif kind == "distilbert":
        length = min(length, 512)
        config |= {"architectures": ["DistilBertModel"], "dim": width, "n_layers": 2, "n_heads": heads,
                   "hidden_dim": inner, "vocab_size": below}  # fmt: skip
    elif kind == "gpt2":
        config |= {"architectures": ["GPT2LMHeadModel"], "n_embd": width, "n_layer": 2, "n_head": heads,
                   "vocab_size": below, "n_positions": 4096}  # fmt: skip
    elif kind in (*_DECODERS, "decode"):
        config["model_type"] = "llama" if kind == "decode" else kind
        shared = [number for number in (heads, heads // 2, heads // 4) if number >= 1 and heads % number == 0]
        config |= {"architectures": [f"{_DECODERS[config['model_type']]}ForCausalLM"], **usual,
                   "num_key_value_heads": rng.choice(shared), "intermediate_size": inner, "vocab_size": below,
                   "max_position_embeddings": 4096}  # fmt: skip
        if kind == "mistral":
            config["sliding_window"] = None
    elif kind == "opt":
        config |= {"architectures": ["OPTForCausalLM"], **usual, "ffn_dim": inner, "word_embed_proj_dim": width,
                   "vocab_size": below, "max_position_embeddings": 4096}  # fmt: skip
    elif kind == "gpt_neox":
        config |= {"architectures": ["GPTNeoXForCausalLM"], **usual, "intermediate_size": inner, "vocab_size": below,
                   "max_position_embeddings": 4096}  # fmt: skip
    elif kind in ("t5", "bart"):
        length, even = min(length, 512), _even(width)
        config |= _t5(rng, even, below) if kind == "t5" else _bart(even, below)
        inputs = {"input_ids": {"shape": [batch, length], **tokens},
                  "decoder_input_ids": {"shape": [batch, rng.choice([16, 48, 96, 160])], **tokens}}  # fmt: skip
        more["data_dependent_branch"] = "false"
    elif kind in ("vit", "dinov2"):
        patch, pixels = rng.choice(
            [(16, 128), (14, 182), (16, 192), (16, 288), (32, 320), (8, 64), (14, 224), (16, 384)]
        )
        config |= {"architectures": [{"vit": "ViTModel", "dinov2": "Dinov2Model"}[kind]], **usual,
                   "intermediate_size": 4 * width, "image_size": pixels, "patch_size": patch}  # fmt: skip
        inputs = {"pixel_values": {"shape": [batch, 3, pixels, pixels]}}
    elif kind == "whisper":
        batch = min(batch, 16)
        config |= {"architectures": ["WhisperModel"], **_both_sides(_even(width)), "apply_spec_augment": False}
        spoken = _TOKENS | {"below": 51865}
        inputs = {"input_features": {"shape": [batch, 80, 3000]},
                  "decoder_input_ids": {"shape": [batch, rng.choice([4, 16, 48])], **spoken}}  # fmt: skip
        more["data_dependent_branch"] = "false"
    else:
        batch, even = min(batch, 16), _even(width)
        config |= {"architectures": ["Wav2Vec2Model"], "hidden_size": even, "num_hidden_layers": 2,
                   "num_attention_heads": even // 64, "intermediate_size": 4 * even, "apply_spec_augment": False,
                   "layerdrop": 0.0}  # fmt: skip
        inputs = {"input_values": {"shape": [batch, rng.choice([8000, 24000, 40000, 64000])]}}
        more["data_dependent_branch"] = "false"
    network: dict[str, Any] = {"name": f"hf:{_written(config, configs)}", "dtype": dtype, **more}
    if kind == "decode":
        pass_, network["cache_length"] = records.INFERENCE, rng.choice([100, 200, 384, 768, 1500, 2500])
        batch, length = rng.choice([1, 2, 4, 6, 8, 24, 48]), 1
    if inputs:
        network["inputs"] = inputs
    else:
        network |= {"input": [batch, length], "input_dtype": "int64", "input_below": below}
    return pass_, rng.random() < 0.6, network


def _even(width: int) -> int:
    return min(width, 1024) // 64 * 64


def _both_sides(width: int) -> dict[str, Any]:
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder")
             for name, value in (("layers", 2), ("attention_heads", width // 64), ("ffn_dim", 4 * width))}  # fmt: skip
    return {"d_model": width, **sides}


def _t5(rng: random.Random, width: int, below: int) -> dict[str, Any]:
    return {"architectures": ["T5ForConditionalGeneration"], "d_model": width, "d_kv": 64, "d_ff": 4 * width,
            "num_layers": 2, "num_heads": width // 64, "vocab_size": below,
            "feed_forward_proj": rng.choice(["relu", "gated-gelu"])}  # fmt: skip


def _bart(width: int, below: int) -> dict[str, Any]:
    return {"architectures": ["BartForConditionalGeneration"], **_both_sides(width), "vocab_size": below,
            "max_position_embeddings": 1024}  # fmt: skip


def _written(config: dict[str, Any], folder: Path) -> Path:
    text = json.dumps(config, sort_keys=True)
    path = folder / f"{config['model_type']}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
    path.write_text(text)
    return path


def traced(entry: Drawn) -> pd.DataFrame | None:
    """The operations of a pass, with `tf32`; None where it cannot be traced or is too large."""
    pass_, tf32, network = entry
    for _ in range(QUARTERED):
        parsed = NetworkConfig.model_validate(network)
        try:
            found = trace_rows(parsed, pass_, TrainingConfig())
        except FAULTS as error:
            print(f"{parsed.network_id} {pass_}: {str(error)[:160]}", flush=True)
            return None
        seconds, needed = estimate(found, find_spec(GPU), tf32=tf32)
        if seconds <= LONGEST_S and needed <= MOST_BYTES:
            return records.table_of(found.operations, records.OPERATION_SCHEMA).to_pandas().assign(tf32=tf32)
        given = [network["input"]] if "input" in network else [one["shape"] for one in network["inputs"].values()]
        for shape in given:
            shape[0] = max(1, shape[0] // 4)
    return None


def write(cache: Path, most: int, output: Path) -> None:
    """A catalogue of what was traced, less what is shipped or in the fresh set."""
    rows = pd.concat([pd.read_parquet(path) for path in sorted(cache.glob("*.parquet"))], ignore_index=True)
    rows = rows[rows["device_work"]]
    rows = rows[~rows["operation_id"].isin(known_operations())]
    rows = rows.sample(frac=1, random_state=3).drop_duplicates(["operation_id", "pass"]).head(most)
    rows["measured_execution"] = [[of_tf32(bool(tf32))] for tf32 in rows["tf32"]]
    rows["measured_quantities"], rows["source"] = [[records.TIME]] * len(rows), SOURCE_NETWORK
    table = pa.Table.from_pandas(rows[records.OPERATION_SCHEMA.names], records.OPERATION_SCHEMA, preserve_index=False)
    write_operations(table, output)
    print(f"{output}: {len(rows)} operations")


def known_operations() -> set[str]:
    """Ids of operations that the fresh sets or the shipped data of the H200 have."""
    shipped = [resource("reference") / name / layout.CATALOGUE for name in ("h200", "h200-wide")]
    folders = (*(one.catalogue for one in SETS.values()), *shipped)
    tables = [pd.read_parquet(folder / layout.OPERATIONS_FILE, columns=["operation_id"]) for folder in folders]
    return set(pd.concat(tables)["operation_id"])


def main() -> int:
    """Draw, trace and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=2026, help="another one draws other settings of the same models")
    parser.add_argument("--cache", type=Path, default=Path("results/other-networks"))
    parser.add_argument("--part", default="1/1", metavar="K/N")
    parser.add_argument("--most", type=int, default=14_000)
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    given.cache.mkdir(parents=True, exist_ok=True)
    for number, entry in enumerate(drawn(given.cache, given.seed)):
        path = given.cache / f"{number:03d}.parquet"
        if number % parts != part - 1 or path.exists():
            continue
        rows = traced(entry)
        if rows is not None:
            rows.to_parquet(path)
            print(f"{number} {entry[2]['name']} {entry[0]}: {len(rows)} operations", flush=True)
    if part == parts:
        write(given.cache, given.most, given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
