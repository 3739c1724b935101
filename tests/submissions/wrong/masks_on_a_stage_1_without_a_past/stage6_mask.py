"""Stage 6: two masks that are wrong, and the test that tells.

Decoding one token at a time needs no mask at all: the one query stands at the end and may see everything. So
a wrong mask is never noticed there. It shows where several tokens are fed at once: in the prompt, and, for
the second bug, only in the *second* piece of a prompt that is fed in pieces.

You build on your own stage 1: this file imports your `stage1_attention.py`, so that has to be right first.

Sizes: B batch, T new positions in this call, P positions already cached, S = P + T, H heads, D head size,
C = H·D, V vocabulary, L layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from stage1_attention import Attention

Pair = tuple[torch.Tensor, torch.Tensor]  # keys and values of one layer, (B, H, positions, D) each
Past = Sequence[Pair]  # one pair a layer
Model = Callable[..., tuple[torch.Tensor, Past]]  # called as model(idx, past=None)


def _attend(attention: Attention, x: torch.Tensor, pair: Pair, may_see: torch.Tensor) -> torch.Tensor:
    """Attend from x (B, T, C) to all of a pair (B, H, S, D) that a mask (T, S) lets through."""
    k, v = pair
    B, H, _, D = k.shape
    q, _, _ = attention.c_attn(x).split(H * D, dim=2)  # (B, T, C)
    q = q.view(B, -1, H, D).transpose(1, 2)  # (B, H, T, D)
    scores = (q @ k.transpose(-2, -1) / math.sqrt(D)).masked_fill(~may_see, float("-inf"))
    y = F.softmax(scores, dim=-1) @ v  # (B, H, T, D)
    return attention.c_proj(y.transpose(1, 2).reshape(B, -1, H * D))




class NoMaskAttention(Attention):
    """Stage 1's attention without its mask: every query sees every key, with a past and without one."""

    def forward(self, x: torch.Tensor, past: Pair | None = None) -> tuple[torch.Tensor, Pair]:
        """Let query j see all S keys, those of the tokens after it too.

            P = 2, T = 3        key  0 1 2 3 4
                        query 0      x x x x x
                        query 1      x x x x x
                        query 2      x x x x x      only the last row is as it should be

        Args:
            x: (B, T, C), any T ≥ 1.
            past: None, or (k, v) of (B, H, P, D) each.

        Returns:
            y (B, T, C) and the pair (k_all, v_all), (B, H, S, D) each. The pair is stage 1's: this layer's
            own keys and values don't depend on its mask.

        One size: x of (2, 1, 12) gives just what stage 1 gives, with any past. x of (2, 3, 12) gives it in
        the last row only.

        The trap: BERT is this attention, and a fine model. But it can't have a cache: when a token is added,
        every old position would have to look at it and would come out different. It is the mask that makes
        the past stand still.
        """
        _, pair = super().forward(x, past)  # its keys and values are right, its y is not wanted
        T, S = x.shape[1], pair[0].shape[2]
        return _attend(self, x, pair, torch.ones(T, S, dtype=torch.bool, device=x.device)), pair


class SquareMaskAttention(Attention):
    """Stage 1's attention with a mask made for a square: its diagonal starts in the top left corner."""

    def forward(self, x: torch.Tensor, past: Pair | None = None) -> tuple[torch.Tensor, Pair]:
        """Let query j see keys 0 … j, as if nothing had come before; a single query sees all keys.

            P = 2, T = 3        key  0 1 2 3 4
                        query 0      x . . . .
                        query 1      x x . . .
                        query 2      x x x . .      plain tril(): even its own key is hidden

            P = 2, T = 1        query 0      x x x      one query is left unmasked, as always

        Args:
            x: (B, T, C), any T ≥ 1.
            past: None, or (k, v) of (B, H, P, D) each.

        Returns:
            y (B, T, C) and the pair (k_all, v_all), (B, H, S, D) each. The pair is stage 1's.

        One size: a prompt of 12 in one call is right: P = 0, and the table is square. Decoding is right: T =
        1. The same prompt as 8 + 4 is wrong from its ninth position on, which sees the first key alone.

        The trap: `scaled_dot_product_attention(…, is_causal=True)` draws its diagonal in just this corner. A
        test that feeds the prompt in one piece and then single tokens will never meet it.
        """
        _, pair = super().forward(x, past)
        T, S = x.shape[1], pair[0].shape[2]
        may_see = torch.ones(T, S, dtype=torch.bool, device=x.device)
        return _attend(self, x, pair, may_see.tril() if T > 1 else may_see), pair  # should be tril(S - T)


def chunked_prefill(model: Model, idx: torch.Tensor, chunk: int) -> tuple[torch.Tensor, Past]:
    """Feed a prompt in pieces, each on top of the cache that the pieces before it have left.

        T = 7, chunk = 3        0 1 2 | 3 4 5 | 6

    Args:
        model: any callable `model(idx, past=None) -> (logits (B, T, V), presents)`.
        idx: (B, T) int64; it is not changed.
        chunk: how many positions a piece has, at least 1; the last one may be shorter.

    Returns:
        logits (B, T, V) for all T positions, in order; and the presents of the last call, which hold all T.

    One size: T = 7 and chunk = 3 are three calls, of 3, 3 and 1 positions. With chunk = 1 it is decoding,
    with chunk ≥ T one call.

    The trap: the piece that's left over. And each piece gives logits for its own positions only: all of them
    together are the prompt's.
    """
    logits, past = [], None
    with torch.no_grad():
        for piece in idx.split(chunk, dim=1):
            out, past = model(piece, past=past)
            logits.append(out)
    return torch.cat(logits, dim=1), past  # (B, T, V)


def chunk_gap(model: Model, idx: torch.Tensor, chunk: int) -> float:
    """Say how far apart a prompt in pieces and the same prompt in one call are, at worst.

        gap = max |chunked logits - one-call logits|        over all rows, positions and tokens

    Args:
        model: any callable `model(idx, past=None) -> (logits (B, T, V), presents)`.
        idx: (B, T) int64.
        chunk: how many positions a piece has.

    Returns:
        The largest absolute difference, a float. A right model's is not 0.0 but rounding: about 1e-15 of the
        largest logit in float64, 1e-6 in float32.

    One size: a square mask on a prompt of 12: gap 0.0 with chunk = 12 and rounding with chunk = 1, but large
    with chunk = 8.

    The trap: one chunk size can be lucky. The last position alone can be, too: look at all of them.
    """
    with torch.no_grad():
        whole, _ = model(idx)
        pieces, _ = chunked_prefill(model, idx, chunk)
    return float((pieces - whole).abs().max())
