"""Stage 1: attention that keeps its notes.

`gpt2.py` reads the whole text again for every new token. Nothing it computes about the old positions changes
when the text grows: a causal mask means that the past can't see the future. So compute keys and values once,
keep them, and let each new position look back at the kept ones.

You write three forwards. Each is `gpt2.py`'s with a few lines changed; start by copying those. The
parameters keep their names, so the weights of a `gpt2.GPT` load into yours:
`mine.load_state_dict(theirs.state_dict())`.

Sizes: B batch, T new positions in this call, P positions already cached, S = P + T, H heads, D head size,
C = H·D, V vocabulary, L layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn as nn
import torch.nn.functional as F
from gpt2 import MLP, Config

Pair = tuple[torch.Tensor, torch.Tensor]  # keys and values of one layer, (B, H, positions, D) each
Cache = Sequence[Pair]  # one pair a layer


class Attention(nn.Module):
    """Let T new positions look back at the P cached ones and at each other."""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.n_head = cfg.n_head
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)  # q, k and v, side by side in that order
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x: torch.Tensor, past: Pair | None = None) -> tuple[torch.Tensor, Pair]:
        """Attend from the new positions to all S = P + T, and hand back the longer cache.

            y = softmax(q kᵀ / √D + mask) v        q: the T new ones only; k, v: all S, the cached ones first

        Query j of this call stands at position P + j, so it may see keys 0 … P + j:

            P = 2, T = 3        key  0 1 2 3 4
                        query 0      x x x . .
                        query 1      x x x x .
                        query 2      x x x x x      T rows, S columns

        Args:
            x: (B, T, C), any T ≥ 1.
            past: None, or (k, v) of (B, H, P, D) each, any P ≥ 0; P = 0 means the same as None.

        Returns:
            y (B, T, C) and the pair (k_all, v_all), (B, H, S, D) each: the projection's own keys and values,
            unscaled, in position order, in x's dtype.

        One size: B = 2, T = 3, P = 5, C = 12, H = 3 make D = 4: scores (2, 3, 3, 8), k_all (2, 3, 8, 4),
        y (2, 3, 12).

        The trap: `tril()` draws its diagonal from the top left corner, and on a T×S table that hides most of
        the past. With T = 1 any mask at all seems to work, so check yourself with T > 1 on top of a past.
        And never write into `past`: whoever gave it to you may want to continue the same text in two ways.
        """
        B, T, C = x.shape
        H, D = self.n_head, C // self.n_head

        q, k, v = self.c_attn(x).split(C, dim=2)  # (B, T, C) each, new positions only
        q = q.view(B, T, H, D).transpose(1, 2)  # (B, H, T, D)
        k = k.view(B, T, H, D).transpose(1, 2)  # (B, H, T, D)
        v = v.view(B, T, H, D).transpose(1, 2)  # (B, H, T, D)

        if past is None:
            past = k[:, :, :0], v[:, :, :0]  # no past is a past of no positions
        past_k, past_v = past
        # cat copies. That leaves the caller's past alone, and it lets go of c_attn's output: k and v are
        # views of it, and a cache of views would keep every q alive too.
        k = torch.cat([past_k, k / math.sqrt(D)], dim=2)  # (B, H, S, D)
        v = torch.cat([past_v, v], dim=2)  # (B, H, S, D)
        S = k.shape[2]

        scores = q @ k.transpose(-2, -1) / math.sqrt(D)  # (B, H, T, S)
        # the diagonal moves P = S - T to the right: query j stands at P + j
        may_see = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(diagonal=S - T)
        scores = scores.masked_fill(~may_see, float("-inf"))
        y = F.softmax(scores, dim=-1) @ v  # (B, H, T, D)

        y = y.transpose(1, 2).reshape(B, T, C)
        return self.c_proj(y), (k, v)


class Block(nn.Module):
    """Add what attention and then the MLP have to say to the residual stream."""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(cfg.n_embd, eps=1e-5)
        self.attn = Attention(cfg)
        self.ln_2 = nn.LayerNorm(cfg.n_embd, eps=1e-5)
        self.mlp = MLP(cfg)

    def forward(self, x: torch.Tensor, past: Pair | None = None) -> tuple[torch.Tensor, Pair]:
        """Pass the past on to attention, and attention's new cache back up.

            x = x + attn(ln_1(x), past)
            x = x + mlp(ln_2(x))

        Args:
            x: (B, T, C).
            past: this layer's pair, or None.

        Returns:
            x (B, T, C) and this layer's present, the pair that `Attention.forward` made.

        One size: x (2, 3, 12) on a past of 5 gives x (2, 3, 12) and k, v of (2, 3, 8, 4).

        The trap: there is hardly one. The MLP and the layer norms treat each position on its own, so they
        need no cache; see that you cache neither.
        """
        y, present = self.attn(self.ln_1(x), past)
        x = x + y
        x = x + self.mlp(self.ln_2(x))
        return x, present


class GPT(nn.Module):
    """Turn T new token ids, and the notes on the P before them, into scores for every possible next token."""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.cfg = cfg
        self.wte = nn.Embedding(cfg.vocab_size, cfg.n_embd)  # what the token is
        self.wpe = nn.Embedding(cfg.block_size, cfg.n_embd)  # where it stands
        self.h = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layer))
        self.ln_f = nn.LayerNorm(cfg.n_embd, eps=1e-5)
        self.lm_head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight  # tied: one matrix reads tokens and writes them

    def forward(self, idx: torch.Tensor, past: Cache | None = None) -> tuple[torch.Tensor, list[Pair]]:
        """Run the new tokens through all layers at their true positions.

            x = wte(idx) + wpe(P … P+T-1),  then the L blocks, each with its own pair,  then lm_head(ln_f(x))

        Args:
            idx: (B, T) int64, the new tokens only.
            past: None, or a list or tuple of L pairs, one a layer.

        Returns:
            logits (B, T, V) for the T new positions, and presents, a new list of L pairs (B, H, S, D).

        Raises:
            ValueError: S = P + T is more than block_size. `past` is still good; S = block_size is legal.

        One size: GPT-2 with 12 tokens cached and 1 new: idx (1, 1), position 12, logits (1, 1, 50257), and
        12 pairs of (1, 12, 13, 64).

        The trap: `arange(T)` starts at 0. With a past the first new token stands at P, and a model that is
        told 0 every time still writes fluent text, just not the right one. P is the *third* size of a cached
        key.
        """
        T = idx.shape[1]
        P = 0 if past is None else past[0][0].shape[2]
        if self.cfg.block_size < P + T:
            raise ValueError(f"`{P}` cached + `{T}` new positions exceed block_size `{self.cfg.block_size}`")

        pos = torch.arange(P, P + T, device=idx.device)  # where the new tokens stand
        x = self.wte(idx) + self.wpe(pos)  # (B, T, C)
        presents = []  # a list of our own: the caller's is not touched
        for layer, block in enumerate(self.h):
            x, present = block(x, None if past is None else past[layer])
            presents.append(present)
        return self.lm_head(self.ln_f(x)), presents  # (B, T, V)
