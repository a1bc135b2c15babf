"""Transformers for language, built from their configurations with the library `transformers`; nothing is downloaded.

Each constructor can be named as a network of a campaign, e.g. `clockwatt.operations.transformer_networks:gpt2`, with
token ids as input: `input: [8, 256]`, `input_dtype: int64` and `input_below` the size of the vocabulary. The optional
extra `clockwatt[transformers]` installs the library.
"""

from __future__ import annotations

from typing import Any

import torch

from clockwatt.operations.hugging_face import UNMASKED, library


class LanguageModel(torch.nn.Module):
    """A model of `transformers` as a network from token ids to the scores of the next or masked token.

    Parameters
    ----------
    model
        What `transformers` gives, with a head over the vocabulary.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Scores of shape (batch, length, vocabulary) for ids of shape (batch, length); no cache is kept."""
        scores: torch.Tensor = self.model(input_ids=token_ids, **self._options()).logits
        return scores

    def _options(self) -> dict[str, Any]:
        return {"use_cache": False} if getattr(self.model.config, "use_cache", False) else {}


def bert_base() -> LanguageModel:
    """BERT-base (Devlin et al., 2019) with the head that predicts masked tokens; ids below 30522.

    12 layers, width 768, 12 heads, feed-forward width 3072, up to 512 positions: `BertConfig` as it comes.

    Raises
    ------
    ImportError
        If `transformers` is not installed.
    """
    transformers = library()
    return LanguageModel(transformers.BertForMaskedLM(transformers.BertConfig(attn_implementation=UNMASKED)))


def bert_large() -> LanguageModel:
    """BERT-large (Devlin et al., 2019) with the head that predicts masked tokens; ids below 30522.

    24 layers, width 1024, 16 heads, feed-forward width 4096, up to 512 positions.

    Raises
    ------
    ImportError
        If `transformers` is not installed.
    """
    transformers = library()
    shape = transformers.BertConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        attn_implementation=UNMASKED,
    )
    return LanguageModel(transformers.BertForMaskedLM(shape))


def gpt2() -> LanguageModel:
    """GPT-2 small (Radford et al., 2019) with its head over the vocabulary; ids below 50257.

    12 layers, width 768, 12 heads, feed-forward width 3072, up to 1024 positions: `GPT2Config` as it comes.

    Raises
    ------
    ImportError
        If `transformers` is not installed.
    """
    transformers = library()
    return LanguageModel(transformers.GPT2LMHeadModel(transformers.GPT2Config(attn_implementation=UNMASKED)))


def gpt2_medium() -> LanguageModel:
    """GPT-2 medium (Radford et al., 2019) with its head over the vocabulary; ids below 50257.

    24 layers, width 1024, 16 heads, feed-forward width 4096, up to 1024 positions.

    Raises
    ------
    ImportError
        If `transformers` is not installed.
    """
    transformers = library()
    shape = transformers.GPT2Config(n_embd=1024, n_layer=24, n_head=16, attn_implementation=UNMASKED)
    return LanguageModel(transformers.GPT2LMHeadModel(shape))


def llama() -> LanguageModel:
    """A decoder in the style of Llama (Touvron et al., 2023) with grouped-query attention; ids below 32000.

    The shape of TinyLlama-1.1B (Zhang et al., 2024): 22 layers, width 2048, 32 heads of queries over 4 of keys and
    values, feed-forward width 5632, up to 2048 positions, rotary embeddings, SiLU gates and RMS norms. In float32 its
    attention runs unfused on a GPU: only FlashAttention takes grouped queries, and only in half precision.

    Raises
    ------
    ImportError
        If `transformers` is not installed.
    """
    transformers = library()
    shape = transformers.LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        attn_implementation=UNMASKED,
    )
    return LanguageModel(transformers.LlamaForCausalLM(shape))


def llama3_1b() -> LanguageModel:
    """A decoder of the shape of Llama 3.2 1B (Grattafiori et al., 2024), with a head of its own; ids below 128256.

    16 layers, width 2048, 32 heads of queries over 8 of keys and values, feed-forward width 8192; otherwise as `llama`.

    Raises
    ------
    ImportError
        If `transformers` is not installed.
    """
    transformers = library()
    shape = transformers.LlamaConfig(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=131072,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        attn_implementation=UNMASKED,
    )
    return LanguageModel(transformers.LlamaForCausalLM(shape))
