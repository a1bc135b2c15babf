"""Operations with indices: messages along edges of graphs, rows of embedding tables, biases by relative position."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from clockwatt.operations.design.block import Block, Calls, Input
from clockwatt.operations.design.extremes import half_precision
from clockwatt.operations.design.sizes import LARGEST_TENSOR, Sizes
from clockwatt.operations.spec.encode import dtype_of

_MOST_NODES, _MOST_EDGES = 2**18, 2**21
_LARGEST_TABLE = 2**27
"""Elements of the largest table of embeddings."""
_HEADS = (4, 6, 8, 12, 16, 24, 32, 64)
_BUCKETS = (32, 64, 128)


def graph(sizes: Sizes) -> Block:
    """Gather the features of nodes along edges, or add messages of edges to nodes."""
    nodes, edges, width = sizes.until(
        lambda: (sizes.integer(32, _MOST_NODES), sizes.integer(64, _MOST_EDGES), sizes.width(1024)),
        lambda drawn: max(drawn[0], drawn[1]) * drawn[2] <= LARGEST_TENSOR,
    )
    chosen = "float32" if sizes.chance(0.7) else half_precision(sizes)
    features, messages = Input((nodes, width), chosen), Input((edges, width), chosen)
    index, wide = Input((edges,), "int64", grad=False), Input((edges, width), "int64", grad=False)
    reduction = sizes.one_of(("mean", "amax", "sum"))
    cases: tuple[tuple[Callable[..., Any], list[Input]], ...] = (
        (lambda x, i: x[i], [features, index]),
        (lambda x, i: torch.index_select(x, 0, i), [features, index]),
        (lambda x, i: torch.gather(x, 0, i), [features, wide]),
        (lambda m, i: m.new_zeros(nodes, width).index_add(0, i, m), [messages, index]),
        (lambda m, i: m.new_zeros(nodes, width).index_add_(0, i, m), [messages, index]),
        (lambda m, i: m.new_zeros(nodes, width).scatter_add(0, i, m), [messages, wide]),
        (lambda m, i: m.new_zeros(nodes, width).scatter_add_(0, i, m), [messages, wide]),
        (lambda m, i: m.new_zeros(nodes, width).scatter_reduce(0, i, m, reduction), [messages, wide]),
    )
    function, inputs = sizes.one_of(cases, (18, 12, 10, 14, 18, 10, 10, 8))
    return Block(Calls(function), inputs)


def table(sizes: Sizes) -> Block:
    """Draw embeddings: bags that are summed or averaged, or single rows, as in recommender models."""
    rows = sizes.integer(16, 4_000_000)
    width = sizes.until(
        lambda: sizes.one_of((1, 8, 16, 32, 64, 128, 256)), lambda width: rows * width <= _LARGEST_TABLE
    )
    batch, chosen = sizes.integer(16, 65536), "float32" if sizes.chance(0.8) else half_precision(sizes)
    bag = sizes.integer(1, 100) if sizes.chance(0.6) else 1
    with torch.device("meta"):
        if sizes.chance(0.6):
            mode = sizes.one_of(("sum", "mean", "max"), (55, 35, 10))
            return Block(
                nn.EmbeddingBag(rows, width, mode=mode, dtype=dtype_of(chosen)),
                [Input((batch, bag), "int64", grad=False)],
            )
        layer = nn.Embedding(rows, width, dtype=dtype_of(chosen))
    return Block(layer, [Input((batch,) if sizes.chance(0.7) else (batch, bag), "int64", grad=False)])


def position_bias(sizes: Sizes) -> Block:
    """Draw relative position biases: gathered, permuted and added to scores before softmax, as in T5 and Swin."""
    heads, buckets, chosen = sizes.one_of(_HEADS), sizes.one_of(_BUCKETS), half_precision(sizes)
    batch, queries, keys = sizes.until(
        lambda: (sizes.batch(64), *(sizes.integer(1, 1024) for _ in range(2))),
        lambda drawn: math.prod(drawn) * heads <= LARGEST_TENSOR // 4,
    )
    with torch.device("meta"):
        layer = nn.Embedding(buckets, heads, dtype=dtype_of(chosen))

    def call(biases: nn.Module, scores: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        bias = biases(index).permute(2, 0, 1).unsqueeze(0)
        return functional.softmax((scores + bias).float(), dim=-1).type_as(scores)

    scores, index = Input((batch, heads, queries, keys), chosen), Input((queries, keys), "int64", grad=False)
    return Block(Calls(call, layer), [scores, index])
