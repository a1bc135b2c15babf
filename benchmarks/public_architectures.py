"""What `architectures.py` traces: modules of torch.nn, families of timm, models of transformers by configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Inputs = dict[str, dict[str, Any]]
Given = list[int] | tuple[list[int], int] | str
"""A shape, or a shape and what its indices are below."""


def _kind(name: str) -> Any:
    return getattr(nn, name)


def given(*inputs: Given | list[Given]) -> Inputs:
    """Inputs by position; a list of inputs is given as a list."""
    found: Inputs = {}
    for position, entry in enumerate(inputs):
        if isinstance(entry, list) and entry and not isinstance(entry[0], int):
            found |= {f"{position}.{number}": _one(one) for number, one in enumerate(entry)}
        else:
            found[str(position)] = _one(entry)
    return found


def _one(entry: Any) -> dict[str, Any]:
    if isinstance(entry, tuple):
        return {"shape": entry[0], "dtype": "int64", "below": entry[1]}
    return {"shape": entry}


class PassedOn(nn.Module):
    """A module with parameters before it, so that its backward pass is traced, too; more arguments as they come."""

    def __init__(self, module: nn.Module, prepare: Callable[..., tuple[Any, ...]] | None = None) -> None:
        super().__init__()
        self.module, self.prepare = module, prepare
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, *inputs: Any) -> Any:
        """Scale the first input where it is a floating-point tensor, and call the module."""
        first, *rest = inputs
        if isinstance(first, torch.Tensor) and first.is_floating_point():
            first = first * self.scale
        taken = (first, *rest) if self.prepare is None else self.prepare(first, *rest)
        return self.module(*taken)


def _sizes(*names: str, of: dict[int, list[int]], **settings: Any) -> dict[str, tuple[Callable[[], nn.Module], Inputs]]:
    """Modules for one, two and three dimensions of the same arguments."""
    return {
        f"{name}{n}d": (lambda name=f"{name}{n}d": PassedOn(_kind(name)(*settings["args"])), given(shape))
        for name in names
        for n, shape in of.items()
    }


def _plain(
    names: str, shape: list[int], *args: Any, **kwargs: Any
) -> dict[str, tuple[Callable[[], nn.Module], Inputs]]:
    return {name: (lambda name=name: PassedOn(_kind(name)(*args, **kwargs)), given(shape)) for name in names.split()}


def _entry(make: Callable[[], nn.Module], *inputs: Any, prepare: Any = None) -> tuple[Callable[[], nn.Module], Inputs]:
    return (lambda: PassedOn(make(), prepare)), given(*inputs)


def _losses(names: str, *inputs: Any, **kwargs: Any) -> dict[str, tuple[Callable[[], nn.Module], Inputs]]:
    return {name: _entry(lambda name=name: _kind(name)(**kwargs), *inputs) for name in names.split()}


_LINES = {1: [2, 4, 16], 2: [2, 4, 16, 16], 3: [2, 4, 8, 8, 8]}

TORCH_NN: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    **_sizes("Conv", "ConvTranspose", of=_LINES, args=(4, 6, 3)),
    **_sizes("LazyConv", "LazyConvTranspose", of=_LINES, args=(6, 3)),
    **_sizes("MaxPool", "AvgPool", of=_LINES, args=(2,)),
    **_sizes("LPPool", of=_LINES, args=(2, 2)),
    **_sizes("AdaptiveAvgPool", "AdaptiveMaxPool", of=_LINES, args=(4,)),
    **_sizes("BatchNorm", "InstanceNorm", of=_LINES, args=(4,)),
    **_sizes("LazyBatchNorm", "LazyInstanceNorm", of=_LINES, args=()),
    **_sizes("ReflectionPad", "ReplicationPad", "ZeroPad", "CircularPad", of=_LINES, args=(1,)),
    **_sizes("ConstantPad", of=_LINES, args=(1, 0.5)),
    **_sizes("Dropout", of=_LINES, args=()),
    **{f"MaxUnpool{n}d": _entry(lambda n=n: getattr(nn, f"MaxUnpool{n}d")(2), shape, (shape, 8))
       for n, shape in {1: [2, 4, 8], 2: [2, 4, 8, 8], 3: [2, 4, 4, 4, 4]}.items()},
    **{f"FractionalMaxPool{n}d": _entry(lambda n=n: getattr(nn, f"FractionalMaxPool{n}d")(2, output_size=3), _LINES[n])
       for n in (2, 3)},
    **_plain("ELU Hardshrink Hardsigmoid Hardtanh Hardswish LeakyReLU LogSigmoid PReLU ReLU ReLU6 RReLU SELU CELU GELU "
             "Sigmoid SiLU Mish Softplus Softshrink Softsign Tanh Tanhshrink Softmin Softmax LogSoftmax GLU Dropout "
             "AlphaDropout FeatureAlphaDropout Identity Flatten", [4, 8]),
    **_plain("Threshold", [4, 8], 0.1, 2.0),
    **_plain("Softmax2d", [2, 4, 8, 8]),
    **_plain("Linear", [4, 8], 8, 5),
    **_plain("LazyLinear", [4, 8], 5),
    **_plain("LayerNorm RMSNorm", [4, 8], 8),
    **_plain("GroupNorm", [2, 4, 8], 2, 4),
    **_plain("LocalResponseNorm CrossMapLRN2d", [2, 4, 8, 8], 2),
    **_plain("SyncBatchNorm", [2, 4, 8, 8], 4),
    **_plain("Unflatten", [4, 8], 1, (2, 4)),
    **_plain("Fold", [2, 16, 9], (4, 4), 2),
    **_plain("Unfold", [2, 4, 8, 8], 2),
    **_plain("PixelShuffle PixelUnshuffle ChannelShuffle", [2, 4, 8, 8], 2),
    **_plain("Upsample UpsamplingNearest2d UpsamplingBilinear2d", [2, 4, 8, 8], scale_factor=2),
    **_plain("RNN GRU LSTM", [4, 6, 8], 8, 5),
    **_plain("RNNCell GRUCell LSTMCell", [4, 8], 8, 5),
    "Bilinear": _entry(lambda: nn.Bilinear(8, 6, 5), [4, 8], [4, 6]),
    "Embedding": _entry(lambda: nn.Embedding(10, 8), ([4, 6], 10)),
    "EmbeddingBag": _entry(lambda: nn.EmbeddingBag(10, 8), ([4, 6], 10)),
    "MultiheadAttention": _entry(lambda: nn.MultiheadAttention(8, 2, batch_first=True), *[[4, 6, 8]] * 3),
    "TransformerEncoderLayer": _entry(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), [4, 6, 8]),
    "TransformerDecoderLayer": _entry(
        lambda: nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), [4, 6, 8], [4, 6, 8]),
    "TransformerEncoder": _entry(
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2), [4, 6, 8]),
    "TransformerDecoder": _entry(
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 2), [4, 6, 8], [4, 6, 8]),
    "Transformer": _entry(lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True), [4, 6, 8], [4, 6, 8]),
    "AdaptiveLogSoftmaxWithLoss": _entry(lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10]), [4, 8], ([4], 20)),
    "Sequential": _entry(lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU()), [4, 8]),
    "CosineSimilarity": _entry(nn.CosineSimilarity, [4, 8], [4, 8]),
    "PairwiseDistance": _entry(nn.PairwiseDistance, [4, 8], [4, 8]),
    **_losses("L1Loss MSELoss SmoothL1Loss HuberLoss PoissonNLLLoss KLDivLoss BCEWithLogitsLoss SoftMarginLoss "
              "MultiLabelSoftMarginLoss HingeEmbeddingLoss", [4, 8], [4, 8]),
    "BCELoss": _entry(nn.BCELoss, [4, 8], [4, 8], prepare=lambda x, y: (x.sigmoid(), y.sigmoid())),
    **_losses("NLLLoss CrossEntropyLoss MultiMarginLoss", [4, 8], ([4], 8)),
    "NLLLoss2d": _entry(nn.NLLLoss2d, [2, 4, 8, 8], ([2, 8, 8], 4)),
    **_losses("MultiLabelMarginLoss", [4, 8], ([4, 8], 8)),
    **_losses("MarginRankingLoss", [4], [4], [4]),
    **_losses("CosineEmbeddingLoss", [4, 8], [4, 8], [4]),
    **_losses("GaussianNLLLoss", [4, 8], [4, 8], [4, 8]),
    **_losses("TripletMarginLoss TripletMarginWithDistanceLoss", [4, 8], [4, 8], [4, 8]),
    "LinearCrossEntropyLoss": _entry(lambda: nn.LinearCrossEntropyLoss(8, 10), [4, 8], ([4], 10)),
    "CTCLoss": _entry(nn.CTCLoss, [20, 4, 8], ([4, 6], 8),
                      prepare=lambda x, y: (x.log_softmax(2), y, (20, 20, 20, 20), (6, 6, 6, 6))),
    "weight_norm": _entry(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), [4, 8]),
    "spectral_norm": _entry(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)), [4, 8]),
    "ModuleList": _entry(lambda: _Lists(), [[4, 8], [4, 8]]),
}  # fmt: skip
"""Modules, with what constructs them and their inputs by position."""


class _Lists(nn.Module):
    """A module that takes a list of tensors, with modules and parameters in containers."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(8, 4), nn.Linear(8, 4)])
        self.heads = nn.ModuleDict({"sum": nn.Linear(4, 2)})
        self.scales = nn.ParameterList([torch.ones(4), torch.ones(4)])
        self.more = nn.ParameterDict({"shift": torch.ones(2)})

    def forward(self, images: list[torch.Tensor]) -> torch.Tensor:
        """Each through its part, added up."""
        parts = zip(self.parts, self.scales, images, strict=True)
        return self.heads["sum"](sum(part(image) * scale for part, scale, image in parts)) + self.more["shift"]


def __getattr__(name: str) -> Callable[[], nn.Module]:
    if name not in TORCH_NN:
        raise AttributeError(name)
    return TORCH_NN[name][0]


def timm_families() -> dict[str, str]:
    """A small model of each family of timm: of those with a known input size, the one with the shortest name."""
    import timm

    small = ("tiny", "small", "nano", "pico", "atto", "xxs", "_s", "18", "26", "b0", "base")
    chosen = {}
    for family in timm.list_modules():
        models = [name for name in timm.list_models(module=family) if not name.startswith("test_")]
        if models:
            rank = {name: next((at for at, word in enumerate(small) if word in name), len(small)) for name in models}
            chosen[family] = min(models, key=lambda name: (rank[name], len(name), name))
    return chosen


_TEXT = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
_GROUPED = _TEXT | {"num_key_value_heads": 2}
_IDS = {"input": [2, 32]}
_PIXELS = {"inputs": {"pixel_values": {"shape": [2, 3, 64, 64]}}}
_IMAGES = {"image_size": 64, "patch_size": 16, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
           "intermediate_size": 128}  # fmt: skip
_TWO_SIDES = {"vocab_size": 512, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
              "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
              "is_encoder_decoder": True, "max_position_embeddings": 128}  # fmt: skip
_EXPERTS = _GROUPED | {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
                       "decoder_sparse_step": 1}  # fmt: skip
_HEARS = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
          "conv_dim": [32, 32, 32], "conv_stride": [5, 2, 2], "conv_kernel": [10, 3, 3], "num_feat_extract_layers": 3,
          "vocab_size": 32, "apply_spec_augment": False, "num_conv_pos_embeddings": 16}  # fmt: skip
_WAVES = {"inputs": {"input_values": {"shape": [2, 8000]}}}


def _config(kind: str, head: str, content: dict[str, Any], inputs: dict[str, Any] = _IDS, **more: Any) -> Any:
    return {"model_type": kind, "architectures": [head], **content, **more}, inputs


TRANSFORMERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "bert": _config("bert", "BertForMaskedLM", _TEXT),
    "roberta": _config("roberta", "RobertaForMaskedLM", _TEXT),
    "distilbert": _config("distilbert", "DistilBertForMaskedLM",
                          {"vocab_size": 512, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128}),
    "albert": _config("albert", "AlbertForMaskedLM", _TEXT, embedding_size=32),
    "electra": _config("electra", "ElectraForPreTraining", _TEXT, embedding_size=32),
    "xlm-roberta": _config("xlm-roberta", "XLMRobertaForSequenceClassification", _TEXT),
    "deberta": _config("deberta", "DebertaForMaskedLM", _TEXT, pos_att_type=["c2p", "p2c"], relative_attention=True),
    "deberta-v2": _config("deberta-v2", "DebertaV2ForSequenceClassification", _TEXT, pos_att_type=["c2p", "p2c"],
                          relative_attention=True, position_buckets=16),
    "mpnet": _config("mpnet", "MPNetModel", _TEXT),
    "modernbert": _config("modernbert", "ModernBertForMaskedLM", _TEXT, pad_token_id=0, cls_token_id=1, sep_token_id=2,
                          bos_token_id=1, eos_token_id=2),
    "camembert": _config("camembert", "CamembertForMaskedLM", _TEXT),
    "longformer": _config("longformer", "LongformerForMaskedLM", _TEXT, attention_window=[16, 16]),
    "xlnet": _config("xlnet", "XLNetLMHeadModel",
                     {"vocab_size": 512, "d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 128}),
    "fnet": _config("fnet", "FNetForMaskedLM", _TEXT),
    "esm": _config("esm", "EsmForMaskedLM", _TEXT, pad_token_id=1, mask_token_id=3),
    "layoutlm": _config("layoutlm", "LayoutLMModel", _TEXT),
    "gpt2": _config("gpt2", "GPT2LMHeadModel", {"vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 4}),
    "gpt_neo": _config("gpt_neo", "GPTNeoForCausalLM", {"vocab_size": 512, "hidden_size": 64, "num_layers": 2,
                       "num_heads": 4, "attention_types": [[["global", "local"], 1]]}),
    "gpt_neox": _config("gpt_neox", "GPTNeoXForCausalLM", _TEXT),
    "gptj": _config("gptj", "GPTJForCausalLM",
                    {"vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8}),
    "gpt_bigcode": _config("gpt_bigcode", "GPTBigCodeForCausalLM",
                           {"vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 4}),
    "gpt_oss": _config("gpt_oss", "GptOssForCausalLM", _EXPERTS, head_dim=16, layer_types=["sliding_attention",
                       "full_attention"]),
    "opt": _config("opt", "OPTForCausalLM", {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2,
                   "num_attention_heads": 4, "ffn_dim": 128, "word_embed_proj_dim": 64}),
    "bloom": _config("bloom", "BloomForCausalLM", {"vocab_size": 512, "hidden_size": 64, "n_layer": 2, "n_head": 4}),
    "falcon": _config("falcon", "FalconForCausalLM", _TEXT, multi_query=True),
    "codegen": _config("codegen", "CodeGenForCausalLM",
                       {"vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8}),
    "llama": _config("llama", "LlamaForCausalLM", _GROUPED),
    "mistral": _config("mistral", "MistralForCausalLM", _GROUPED, sliding_window=16),
    "mixtral": _config("mixtral", "MixtralForCausalLM", _EXPERTS),
    "qwen2": _config("qwen2", "Qwen2ForCausalLM", _GROUPED),
    "qwen2_moe": _config("qwen2_moe", "Qwen2MoeForCausalLM", _EXPERTS, shared_expert_intermediate_size=64),
    "qwen3": _config("qwen3", "Qwen3ForCausalLM", _GROUPED, head_dim=16),
    "qwen3_moe": _config("qwen3_moe", "Qwen3MoeForCausalLM", _EXPERTS, head_dim=16),
    "gemma": _config("gemma", "GemmaForCausalLM", _GROUPED, head_dim=16),
    "gemma2": _config("gemma2", "Gemma2ForCausalLM", _GROUPED, head_dim=16, sliding_window=16),
    "gemma3_text": _config("gemma3_text", "Gemma3ForCausalLM", _GROUPED, head_dim=16, sliding_window=16),
    "phi": _config("phi", "PhiForCausalLM", _TEXT),
    "phi3": _config("phi3", "Phi3ForCausalLM", _GROUPED, pad_token_id=0),
    "stablelm": _config("stablelm", "StableLmForCausalLM", _TEXT, num_key_value_heads=4),
    "starcoder2": _config("starcoder2", "Starcoder2ForCausalLM", _GROUPED),
    "cohere": _config("cohere", "CohereForCausalLM", _GROUPED),
    "olmo2": _config("olmo2", "Olmo2ForCausalLM", _GROUPED),
    "granite": _config("granite", "GraniteForCausalLM", _GROUPED),
    "deepseek_v3": _config("deepseek_v3", "DeepseekV3ForCausalLM", _TEXT, num_key_value_heads=4, n_routed_experts=8,
                           n_group=2, topk_group=1, num_experts_per_tok=2, moe_intermediate_size=64, kv_lora_rank=16,
                           q_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16,
                           first_k_dense_replace=1),
    "mamba": _config("mamba", "MambaForCausalLM", {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2}),
    "mamba2": _config("mamba2", "Mamba2ForCausalLM", {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2,
                      "num_heads": 8, "head_dim": 16, "n_groups": 1, "state_size": 16, "chunk_size": 16}),
    "t5": _config("t5", "T5ForConditionalGeneration", {"vocab_size": 512, "d_model": 64, "d_kv": 16, "d_ff": 128,
                  "num_layers": 2, "num_heads": 4, "is_encoder_decoder": True}),
    "mt5": _config("mt5", "MT5ForConditionalGeneration", {"vocab_size": 512, "d_model": 64, "d_kv": 16, "d_ff": 128,
                   "num_layers": 2, "num_heads": 4, "is_encoder_decoder": True}),
    "switch_transformers": _config("switch_transformers", "SwitchTransformersForConditionalGeneration", {
        "vocab_size": 512, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "num_experts": 4,
        "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, "num_decoder_layers": 2,
        "is_encoder_decoder": True}),
    "bart": _config("bart", "BartForConditionalGeneration", _TWO_SIDES),
    "pegasus": _config("pegasus", "PegasusForConditionalGeneration", _TWO_SIDES),
    "marian": _config("marian", "MarianMTModel", _TWO_SIDES, pad_token_id=0, decoder_start_token_id=0),
    "m2m_100": _config("m2m_100", "M2M100ForConditionalGeneration", _TWO_SIDES),
    "whisper": _config("whisper", "WhisperForConditionalGeneration", _TWO_SIDES | {"max_target_positions": 32},
                       {"input": [2, 80, 3000]}, num_mel_bins=80, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                       decoder_start_token_id=1),
    "wav2vec2": _config("wav2vec2", "Wav2Vec2ForCTC", _HEARS, _WAVES),
    "hubert": _config("hubert", "HubertModel", _HEARS, _WAVES),
    "wavlm": _config("wavlm", "WavLMModel", _HEARS, _WAVES),
    "vit": _config("vit", "ViTForImageClassification", _IMAGES, _PIXELS),
    "dinov2": _config("dinov2", "Dinov2Model", _IMAGES, _PIXELS),
    "clip": _config("clip", "CLIPModel", {"text_config": _TEXT | {"projection_dim": 32},
                    "vision_config": _IMAGES | {"projection_dim": 32}, "projection_dim": 32},
                    {"inputs": {"input_ids": {"shape": [2, 16], "dtype": "int64", "below": 512},
                                "pixel_values": {"shape": [2, 3, 64, 64]}}}),
}  # fmt: skip
"""Configurations, and what is given to the network."""
