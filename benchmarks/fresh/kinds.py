"""What the fresh set draws from: for every kind of network, a function that draws one of its size and input."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ZOO = "benchmarks.fresh.zoo:"
BOTH = ("inference", "training")
TOKENS = {"dtype": "int64"}


@dataclass(frozen=True)
class Drawn:
    """A network before its batch is known.

    Attributes
    ----------
    name
        As in a campaign; empty where `config` says it.
    inputs
        Keyword (empty: by position) to the sizes behind the batch and the other settings of the input.
    batches
        That may be drawn.
    config
        Of a model of transformers, without its file.
    more
        Further keys of the network in a campaign.
    """

    name: str
    inputs: Mapping[str, tuple[list[int], Mapping[str, Any]]]
    batches: tuple[int, ...]
    config: Mapping[str, Any] | None = None
    passes: tuple[str, ...] = BOTH
    dtypes: tuple[str, ...] = ("float32", "float32", "float32", "bfloat16", "bfloat16", "float16")
    more: Mapping[str, Any] = field(default_factory=dict)


_IMAGES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_FEW = (1, 2, 4, 6, 8, 12, 16, 24)
_SEQUENCES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)


def _image(size: int, channels: int = 3) -> dict[str, tuple[list[int], Mapping[str, Any]]]:
    return {"": ([channels, size, size], {})}


def _sizes(rng: random.Random, low: int, high: int, step: int = 32) -> int:
    return rng.randrange(low, high + 1, step)


def torchvision_other(rng: random.Random, shipped: frozenset[str]) -> Drawn:
    """A classification network of torchvision that the shipped data lacks."""
    import torchvision

    names = [name for name in torchvision.models.list_models(module=torchvision.models) if name not in shipped]
    name = rng.choice([one for one in names if one not in ("vit_h_14", "regnet_y_128gf")])
    fixed = name.startswith(("vit_", "maxvit"))
    return Drawn(name, _image(224 if fixed else _sizes(rng, 96, 320)), _IMAGES)


def shipped_otherwise(rng: random.Random, shipped: frozenset[str]) -> Drawn:
    """A network of the shipped data at another image and batch."""
    name = rng.choice(sorted(one for one in shipped if ":" not in one and not one.startswith(("vit_", "inception"))))
    return Drawn(name, _image(rng.choice([64, 96, 128, 160, 192, 256, 288, 320, 384])), _IMAGES)


def segmentation(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """A segmentation network of torchvision."""
    import torchvision

    names = torchvision.models.list_models(module=torchvision.models.segmentation)
    return Drawn(rng.choice(names), _image(_sizes(rng, 160, 512)), (2, 4, 6, 8, 12, 16))


def detection(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """Backbone and head of a detector of torchvision."""
    kind = rng.randrange(8)
    size = {6: 300, 7: 320}.get(kind) or _sizes(rng, 256, 640, 64)
    return Drawn(f"{ZOO}detector_{kind}", _image(size), _FEW)


def video(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """A video network of torchvision."""
    name = rng.choice(["r3d_18", "mc3_18", "r2plus1d_18", "s3d", "mvit_v1_b", "mvit_v2_s", "swin3d_t", "swin3d_s"])
    frames, size = rng.choice([8, 16]), rng.choice([112, 160, 224])
    if name.startswith("mvit"):
        frames, size = 16, 224
    if name == "s3d":
        frames, size = 16, 224
    return Drawn(name, {"": ([3, frames, size, size], {})}, (1, 2, 4, 6, 8))


_TOO_LARGE = re.compile(
    r"giant|huge|gigantic|enormous|xxl|so400|so150|_7b|large_patch8|dpn131|tnt|naflex|_xl|test_|gmlp_b"
)


def timm_model(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """A model of timm: the family is drawn first, so that large families do not fill the set."""
    import timm

    families: dict[str, list[str]] = {}
    for name in timm.list_models():
        if not _TOO_LARGE.search(name):
            families.setdefault(re.match(r"[a-z]+", name)[0], []).append(name)  # type: ignore[index]
    name = rng.choice(families[rng.choice(sorted(families))])
    known = timm.get_pretrained_cfg(name)
    size = known.input_size[-1] if known is not None else 224
    free = known is not None and not known.fixed_input_size and size <= 320
    return Drawn(f"timm:{name}", _image(_sizes(rng, 128, 320) if free and rng.random() < 0.6 else size), _IMAGES)


_WIDTHS = {256: 4, 384: 6, 512: 8, 768: 12, 1024: 16}


def _masked(rng: random.Random, length: int, below: int, share: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Token ids, with an attention mask for a share of the draws, and where its branch goes."""
    ids = {"input_ids": ([length], TOKENS | {"below": below})}
    if rng.random() >= share:
        return ids, {}
    mask = {"attention_mask": ([length], TOKENS | {"below": 2, "values": "lengths"})}
    return ids | mask, {"data_dependent_branch": "false"}


def encoder(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """An encoder in the style of BERT, with or without an attention mask."""
    width = rng.choice(list(_WIDTHS))
    layers, length, below = rng.choice([2, 4, 6, 8, 12]), rng.choice([32, 64, 96, 128, 200, 256, 384, 512]), 30522
    kind = rng.choice(["bert", "roberta", "distilbert", "electra"])
    shape: dict[str, Any] = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": _WIDTHS[width],
                             "intermediate_size": 4 * width, "vocab_size": below,
                             "max_position_embeddings": 520}  # fmt: skip
    if kind == "distilbert":
        shape = {"dim": width, "n_layers": layers, "n_heads": _WIDTHS[width], "hidden_dim": 4 * width,
                 "vocab_size": below}  # fmt: skip
    if kind == "electra":
        shape["embedding_size"] = min(width, 256)
    name = {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert", "electra": "Electra"}[kind]
    head = rng.choice([f"{name}ForMaskedLM", f"{name}ForSequenceClassification", f"{name}Model"])
    inputs, more = _masked(rng, length, below, 0.4)
    return Drawn("", inputs, _SEQUENCES, {"model_type": kind, "architectures": [head], **shape}, more=more)


def _decoder(rng: random.Random) -> tuple[dict[str, Any], int]:
    width, layers = rng.choice([512, 768, 1024, 1280, 1536, 2048]), rng.choice([2, 4, 6, 8, 12, 16])
    below = rng.choice([8192, 32000, 50257])
    kind = rng.choice(["gpt2", "llama", "qwen2", "mistral", "opt", "gpt_neox"])
    heads = width // rng.choice([64, 128])
    if kind == "gpt2":
        return {"model_type": kind, "architectures": ["GPT2LMHeadModel"], "n_embd": width, "n_layer": layers,
                "n_head": heads, "vocab_size": below, "n_positions": 4096}, below  # fmt: skip
    shape: dict[str, Any] = {
        "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": below,
        "intermediate_size": rng.choice([2, 3, 4]) * width, "max_position_embeddings": 4096,
    }  # fmt: skip
    if kind == "opt":
        shape["ffn_dim"], shape["word_embed_proj_dim"] = shape.pop("intermediate_size"), width
    if kind in ("llama", "qwen2", "mistral"):
        shape["num_key_value_heads"] = rng.choice([one for one in (heads, heads // 2, heads // 4) if one >= 1])
    if kind == "mistral":
        shape["sliding_window"] = None
    head = {"llama": "Llama", "qwen2": "Qwen2", "mistral": "Mistral", "opt": "OPT", "gpt_neox": "GPTNeoX"}[kind]
    return {"model_type": kind, "architectures": [f"{head}ForCausalLM"], **shape}, below


def decoder(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """A decoder in the style of GPT-2, Llama, Qwen, Mistral, OPT or GPT-NeoX."""
    config, below = _decoder(rng)
    length = rng.choice([64, 128, 200, 256, 512, 768, 1024, 2048])
    inputs, more = _masked(rng, length, below, 0.0)
    return Drawn("", inputs, (1, 2, 4, 6, 8, 12, 16), config, more=more)


def decoding(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """One step of decoding behind kept keys and values."""
    config, below = _decoder(rng)
    while config["model_type"] in ("opt", "gpt_neox"):
        config, below = _decoder(rng)
    more = {"cache_length": rng.choice([64, 128, 250, 512, 1000, 2000, 3000])}
    return Drawn(
        "", {"": ([1], TOKENS | {"below": below})}, (1, 2, 4, 8, 16, 32, 64), config, ("inference",), more=more
    )


def sequences(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """An encoder and decoder in the style of T5 or BART."""
    width, layers = rng.choice([256, 512, 768]), rng.choice([2, 4, 6])
    heads, below = width // 64, 32128
    config: dict[str, Any] = {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": width, "d_kv": 64,
        "d_ff": 4 * width, "num_layers": layers, "num_heads": heads, "vocab_size": below,
        "feed_forward_proj": rng.choice(["relu", "gated-gelu"]),
    } if rng.random() < 0.5 else {
        "model_type": "bart", "architectures": ["BartForConditionalGeneration"], "d_model": width,
        "encoder_layers": layers, "decoder_layers": layers, "encoder_attention_heads": heads, "vocab_size": below,
        "decoder_attention_heads": heads, "encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width,
    }  # fmt: skip
    tokens = TOKENS | {"below": below}
    inputs = {"input_ids": ([rng.choice([64, 128, 256, 512])], tokens),
              "decoder_input_ids": ([rng.choice([32, 64, 128])], tokens)}  # fmt: skip
    # with layers dropped at a rate of 0, its comparison with a random number is false; masks are not looked at
    return Drawn("", inputs, _SEQUENCES[:-2], config, more={"data_dependent_branch": "false"})


def hf_vision(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """A vision transformer of transformers."""
    width = rng.choice(list(_WIDTHS))
    patch, size = rng.choice([(8, 96), (14, 224), (16, 160), (16, 224), (16, 256), (32, 256)])
    kind, head = rng.choice([("vit", "ViTForImageClassification"), ("dinov2", "Dinov2Model"), ("deit", "DeiTModel"),
                             ("clip_vision_model", "CLIPVisionModel")])  # fmt: skip
    config = {"model_type": kind, "architectures": [head], "hidden_size": width, "num_attention_heads": _WIDTHS[width],
              "num_hidden_layers": rng.choice([2, 4, 6, 8, 12]), "intermediate_size": 4 * width,
              "image_size": size, "patch_size": patch}  # fmt: skip
    return Drawn("", {"pixel_values": ([3, size, size], {})}, _IMAGES[:-1], config)


def audio(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """Whisper with a few tokens to decode, or wav2vec 2.0."""
    width, layers = rng.choice([256, 384, 512, 768]), rng.choice([2, 4, 6])
    heads = width // 64
    more = {"data_dependent_branch": "false"}
    if rng.random() < 0.6:
        config = {"model_type": "whisper", "architectures": ["WhisperModel"], "d_model": width,
                  "encoder_layers": layers, "decoder_layers": 2, "encoder_attention_heads": heads,
                  "decoder_attention_heads": heads, "encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width,
                  "apply_spec_augment": False}  # fmt: skip
        inputs = {"input_features": ([80, 3000], {}),
                  "decoder_input_ids": ([rng.choice([8, 32, 64])], TOKENS | {"below": 51865})}  # fmt: skip
        return Drawn("", inputs, _FEW, config, more=more)
    config = {"model_type": "wav2vec2", "architectures": ["Wav2Vec2Model"], "hidden_size": width,
              "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": 4 * width,
              "apply_spec_augment": False, "layerdrop": 0.0}  # fmt: skip
    return Drawn("", {"input_values": ([rng.choice([16000, 32000, 48000])], {})}, _FEW, config, more=more)


def unet(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """A U-Net."""
    return Drawn(
        f"{ZOO}unet_{rng.choice([16, 24, 32, 48, 64])}_{rng.choice([3, 4])}", _image(_sizes(rng, 64, 384, 32)), _FEW
    )


def diffusion(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """The U-Net of a diffusion model."""
    width = rng.choice([32, 64, 96, 128])
    return Drawn(f"{ZOO}diffusion_{width}_{width // 16}", _image(rng.choice([16, 32, 48, 64]), 4), _IMAGES[:10])


def recurrent(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """An LSTM, a GRU, or a tagger of token ids."""
    width, layers, length = (
        rng.choice([64, 128, 256, 384, 512, 768]),
        rng.choice([1, 2, 3]),
        rng.choice([16, 32, 64, 100, 200]),
    )
    kind = rng.choice(["lstm", "lstm", "gru", "gru", "tagger"])
    if kind == "tagger":
        return Drawn(f"{ZOO}tagger_20000_{width}_{layers}", {"": ([length], TOKENS | {"below": 20000})}, _IMAGES[3:])
    inputs = rng.choice([16, 40, 80, 128, 300])
    return Drawn(
        f"{ZOO}{kind}_{inputs}_{width}_{layers}_{rng.choice([0, 1])}", {"": ([length, inputs], {})}, _IMAGES[3:]
    )


def mixer(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """An MLP-Mixer."""
    size, patch = rng.choice([(32, 4), (64, 8), (128, 16), (192, 16), (224, 16), (224, 32), (256, 16)])
    name = f"{ZOO}mixer_{size}_{patch}_{rng.choice([128, 256, 384, 512])}_{rng.choice([4, 6, 8, 12])}"
    return Drawn(name, _image(size), _IMAGES)


def dcgan(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """The generator of a DCGAN."""
    return Drawn(f"{ZOO}dcgan_{rng.choice([16, 32, 64, 96])}_{rng.choice([3, 4, 5])}", {"": ([128], {})}, _IMAGES[3:])


def volumes(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """A 3-D CNN."""
    sizes = [rng.choice([16, 32, 48, 64]), *[rng.choice([32, 48, 64, 96])] * 2]
    return Drawn(f"{ZOO}volumes_{rng.choice([8, 16, 24, 32])}_{rng.choice([3, 4])}", {"": ([1, *sizes], {})}, _FEW)


def autoencoder(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """A convolutional autoencoder."""
    name = f"{ZOO}autoencoder_{rng.choice([16, 24, 32, 64])}_{rng.choice([3, 4])}"
    return Drawn(name, _image(_sizes(rng, 64, 256, 32)), _IMAGES)


def wavenet(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """1-D convolutions in the style of WaveNet."""
    name = f"{ZOO}wavenet_{rng.choice([16, 32, 64, 96])}_{rng.choice([8, 16, 24])}"
    return Drawn(name, {"": ([1, rng.choice([2000, 4096, 8000, 16000])], {})}, _FEW)


def mlp(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """A multilayer perceptron."""
    inputs, width = rng.choice([64, 200, 784, 1024, 3000]), rng.choice([256, 500, 1024, 2048, 4096])
    name = f"{ZOO}mlp_{inputs}_{width}_{rng.choice([3, 5, 8, 16])}_{rng.choice([0, 1, 2])}"
    return Drawn(name, {"": ([inputs], {})}, (256, 500, 1024, 2048, 4096, 10000, 16384, 65536))


def pointnet(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """PointNet."""
    points = rng.choice([512, 1024, 2000, 4096])
    return Drawn(f"{ZOO}pointnet_{rng.choice([32, 64, 96])}", {"": ([3, points], {})}, _IMAGES[3:13])


def superres(rng: random.Random, shipped: frozenset[str]) -> Drawn:  # noqa: ARG001
    """Super-resolution with a pixel shuffle."""
    name = f"{ZOO}superres_{rng.choice([16, 32, 64])}_{rng.choice([4, 8, 16])}_{rng.choice([2, 3, 4])}"
    return Drawn(name, _image(_sizes(rng, 48, 192, 16)), _FEW)


KINDS: dict[str, tuple[int, Callable[[random.Random, frozenset[str]], Drawn]]] = {
    "torchvision": (48, torchvision_other), "shipped, other shape": (12, shipped_otherwise),
    "segmentation": (14, segmentation), "detection": (16, detection), "video": (12, video), "timm": (56, timm_model),
    "encoder": (28, encoder), "decoder": (30, decoder), "decoding step": (14, decoding), "sequence": (10, sequences),
    "vision transformer": (10, hf_vision), "audio": (10, audio), "u-net": (10, unet), "diffusion": (5, diffusion),
    "recurrent": (14, recurrent), "mixer": (6, mixer), "dcgan": (6, dcgan), "3-d cnn": (6, volumes),
    "autoencoder": (5, autoencoder), "wavenet": (7, wavenet), "mlp": (7, mlp), "pointnet": (6, pointnet),
    "super-resolution": (6, superres),
}  # fmt: skip
"""Kind to how many passes of it are drawn, and how."""

LAID_OUT_KINDS: dict[str, tuple[int, Callable[[random.Random, frozenset[str]], Drawn]]] = {
    kind: (count, KINDS[kind][1])
    for kind, count in (
        *(("torchvision", 20), ("timm", 20), ("segmentation", 6), ("u-net", 6), ("diffusion", 6), ("encoder", 12)),
        *(("decoder", 10), ("vision transformer", 8), ("sequence", 4), ("mlp", 4)),
    )
}
"""Kinds that are run under autocast, most of which have images to lay out; two passes of each network."""
