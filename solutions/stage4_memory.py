"""Stage 4: what the notes cost.

The cache buys time with memory. How much memory is a matter of multiplication, and worth doing by hand once:
it is the number that decides how many users fit on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch


def cache_bytes(past: Iterable[Sequence[torch.Tensor]]) -> int:
    """Add up the bytes of every key and value in a cache.

        bytes of a tensor = its number of elements × the bytes of one element

    Args:
        past: pairs (k, v), one a layer, as your model returned them; any dtype and any shape.

    Returns:
        The sum over all tensors as they are given, an int. Tensors that share storage each count in full.

    One size: GPT-2 in float32 with 1011 positions: 12 pairs, k and v of (1, 12, 1011, 64) each: 74,539,008
    bytes.

    The trap: whatever you take for granted. Layers may differ from each other, and k from v; a number may
    have 4 bytes, or 2, or 1. Ask each tensor.
    """
    ### BEGIN SOLUTION
    return sum(t.numel() * t.element_size() for pair in past for t in pair)
    ### END SOLUTION


def kv_bytes_per_token(n_layer: int, n_kv_head: int, head_dim: int, bytes_per_number: int) -> int:
    """Say what one more token of text costs, before a model has been built at all.

    Args:
        n_layer: L, the layers; each keeps a cache of its own.
        n_kv_head: K, the heads that keys and values have.
        head_dim: D, the numbers in one head's key.
        bytes_per_number: 4 for float32, 2 for bfloat16, 1 for int8.

    Returns:
        The bytes of one position of one sequence, in all layers, an int.

    One size: GPT-2 has 12 layers and 12 heads of 64: in float32 73,728 bytes a token, 72 KiB. Llama 3 8B has
    32 layers and 32 query heads of 128, but 8 key/value heads: in bfloat16 131,072 bytes a token, 128 KiB.

    The trap: the query heads don't come into it. A model that lets several of them share one key and value
    (grouped-query attention) does so for the sake of just this product.
    """
    ### BEGIN SOLUTION
    keys_and_values = 2
    return keys_and_values * n_layer * n_kv_head * head_dim * bytes_per_number
    ### END SOLUTION
