"""A transformer encoder of BERT's sizes with random weights, of plain PyTorch: nothing is downloaded."""

from __future__ import annotations

import torch
from torch import nn

PADDING = 0
"""Token that is not attended to."""

HEAD_WIDTH = 64
"""Width of a head, as in BERT; a smaller model has fewer heads."""


class Encoder(nn.Module):
    """Embeddings and layers of BERT (post-norm, GELU, four times as wide inside).

    Parameters
    ----------
    vocabulary
        How many tokens there are.
    positions
        Longest sequence.
    hidden
        Width, a multiple of `HEAD_WIDTH`.
    layers
        How many.
    dropout
        In training.
    """

    def __init__(self, *, vocabulary: int, positions: int, hidden: int, layers: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden, padding_idx=PADDING)
        self.positions = nn.Embedding(positions, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(
            hidden, hidden // HEAD_WIDTH, 4 * hidden, dropout, "gelu", layer_norm_eps=1e-12, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.apply(_initialise)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map token ids of shape (batch, length) to vectors of shape (batch, length, hidden)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        embedded = self.dropout(self.norm(self.tokens(tokens) + self.positions(places)))
        vectors: torch.Tensor = self.layers(embedded, src_key_padding_mask=tokens == PADDING)
        return vectors


def _initialise(module: nn.Module) -> None:
    """Initialise as BERT: normal with a standard deviation of 0.02."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
