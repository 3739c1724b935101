"""Stage 7: remember too much.

This bug costs no correctness at all: every logit is as it was. It costs memory, and nobody sees it until the
machine is full. It comes about easily, by keeping whatever was at hand; and by accident, as `q`, `k` and `v`
that are cut out of one tensor keep all of it alive.

You build on your own stage 1: this file imports your `stage1_attention.py`, so that has to be right first.

Sizes: B batch, T new positions in this call, P positions already cached, S = P + T, H heads, D head size,
C = H·D.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from stage1_attention import Attention

Hoard = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]  # k, v, q (B, H, S, D) and x (B, S, C)


class HoardingAttention(Attention):
    """Stage 1's attention, with a cache that keeps the queries and the layer's input too."""

    def forward(self, x: torch.Tensor, past: Hoard | None = None) -> tuple[torch.Tensor, Hoard]:
        """Do what your stage 1 does, and remember two things more.

            k, v    every later position will look at them              needed
            q       only its own position ever asked with it            dead after this call
            x       only k, v and q are ever made from it               dead after this call

        Args:
            x: (B, T, C), any T ≥ 1.
            past: None, or (k, v, q, x) of the P positions so far: (B, H, P, D) three times, and (B, P, C).

        Returns:
            y (B, T, C), stage 1's; and (k_all, v_all, q_all, x_all): (B, H, S, D) three times, as the
            projection gave them, and (B, S, C), what this layer was called with. Cached ones first.

        One size: B = 2, T = 3, P = 5, C = 12, H = 3: k, v and q (2, 3, 8, 4), x (2, 8, 12).

        The trap: why is a query not worth keeping? It is a position's question to the ones before it, asked
        once, and answered in y. Keys and values are what that position has to offer to all that come later.
        """
        y, (k, v) = super().forward(x, None if past is None else (past[0], past[1]))

        B, T, C = x.shape
        H, D = k.shape[1], k.shape[3]
        q = (
            self.c_attn(x)[:, :, :C].view(B, T, H, D).transpose(1, 2)
        )  # (B, H, T, D): q comes first of the three
        past_q, past_x = (q[:, :, :0], x[:, :0]) if past is None else (past[2], past[3])
        return y, (k, v, torch.cat([past_q, q], dim=2), torch.cat([past_x, x], dim=1))


def hoard_ratio(past: Iterable[Hoard]) -> float:
    """Say how many times as much a hoarding cache holds as it needs.

        ratio = bytes of all k, v, q and x ÷ bytes of all k and v

    Args:
        past: tuples (k, v, q, x), one a layer; any dtypes and any sizes.

    Returns:
        The ratio over all layers together, a float: 1.0 would be a cache that hoards nothing.

    One size: in GPT-2 each of the four has the same B·S·C numbers: 2.0. In float32 147,456 bytes a position,
    and 73,728 of them are needed.

    The trap: 2.0 is GPT-2's answer, not the answer. With fewer key/value heads than query heads, or with keys
    and values in int8, what you hoard by mistake is larger than all that you saved.
    """
    held = needed = 0
    for layer in past:
        sizes = [t.numel() * t.element_size() for t in layer]
        held += sum(sizes)
        needed += sum(sizes[:2])  # k and v come first
    return held / needed
