"""Models with one known bug, or with none: what stages 5 to 9 are held against, and what they are handed.

What a bugged model must say is recomputed without a cache, from explicit positions and from explicit lists of
the keys that each query sees. `Cached` is the other way round: a model with a real cache that follows given
rules, right or wrong, for students to find out about. It lives on the trusted side alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from grader import expect, probe

Pair = tuple[Tensor, Tensor]  # keys and values (B, H, S, D)
Rows = Callable[[int, int], Tensor]  # of P and T: which of S keys each of T queries sees, (T, S) bool
TELLING_DRAWS = 100

# Which keys the queries of one call see, and where its new positions stand


def causal(P: int, T: int) -> Tensor:
    """Query j sees keys 0 … P + j."""
    return torch.ones(T, P + T, dtype=torch.bool).tril(P)


def unmasked(P: int, T: int) -> Tensor:
    """Every query sees every key."""
    return torch.ones(T, P + T, dtype=torch.bool)


def square(P: int, T: int) -> Tensor:
    """A plain `tril()` on (T, S): query j sees keys 0 … j; a single query is left unmasked."""
    return unmasked(P, T).tril() if T > 1 else unmasked(P, T)


def onwards(P: int, T: int) -> Tensor:
    """New positions stand at P … P + T - 1."""
    return torch.arange(P, P + T)


def from_0(P: int, T: int) -> Tensor:
    """New positions start at 0 on every call."""
    return torch.arange(T)


def in_calls(rows: Rows, chunks: Sequence[int]) -> Tensor:
    """Say which keys (S, S) each query sees when S positions come in pieces."""
    S = sum(chunks)
    visible = torch.zeros(S, S, dtype=torch.bool)
    for P, T in _calls(chunks):
        visible[P : P + T, : P + T] = rows(P, T)
    return visible


def restarting(chunks: Sequence[int]) -> Tensor:
    """Return the position ids (S,) that start at 0 in every piece."""
    return torch.cat([from_0(P, T) for P, T in _calls(chunks)])


def _calls(chunks: Sequence[int]) -> list[tuple[int, int]]:
    """Return P and T of each call."""
    return list(zip(itertools.accumulate(chunks, initial=0), chunks))


# What a model says, recomputed without a cache


@dataclass(frozen=True, slots=True)
class Layer:
    """What one attention layer worked with: k, v, q (B, H, S, D) and its input x (B, S, C)."""

    k: Tensor
    v: Tensor
    q: Tensor
    x: Tensor


def attended(attention: Any, x: Tensor, visible: Tensor) -> tuple[Tensor, Layer]:
    """Return y (B, S, C) of the oracle's attention where each query sees the keys in `visible` (S, S)."""
    q, k, v = _projected(attention, x)
    return _mixed(attention, q, k, v, visible), Layer(k, v, q, x)


def recomputed(
    model: Any, idx: Tensor, positions: Tensor | None = None, visible: Tensor | None = None
) -> tuple[Tensor, list[Layer]]:
    """Return the logits (B, S, V) and every layer of the oracle's GPT at these positions, with these keys."""
    S = idx.shape[1]
    visible = causal(0, S) if visible is None else visible
    x = model.wte(idx) + model.wpe(onwards(0, S) if positions is None else positions)
    layers = []
    for block in model.h:
        y, layer = attended(block.attn, block.ln_1(x), visible)
        layers.append(layer)
        x = x + y
        x = x + block.mlp(block.ln_2(x))
    return model.lm_head(model.ln_f(x)), layers


def _projected(attention: Any, x: Tensor) -> tuple[Tensor, ...]:
    """Return q, k, v (B, H, T, D)."""
    shape = (*x.shape[:2], attention.n_head, -1)
    return tuple(
        part.reshape(shape).transpose(1, 2).contiguous() for part in attention.c_attn(x).chunk(3, -1)
    )


def _mixed(attention: Any, q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
    """Let queries (B, H, T, D) look at the visible ones (T, S) of keys and values (B, H, S, D)."""
    scores = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(~visible, -math.inf)
    y: Tensor = attention.c_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
    return y


# Models with a real cache, right or wrong


def appended(past: Tensor, new: Tensor) -> Tensor:
    """Old first, new after them."""
    return torch.cat([past, new], dim=2)


def prepended(past: Tensor, new: Tensor) -> Tensor:
    """The new ones before the old."""
    return torch.cat([new, past], dim=2)


def all_kept(past: Pair, present: Pair) -> Pair:
    """Hand back everything that was attended to."""
    return present


def none_kept(past: Pair, present: Pair) -> Pair:
    """Once there is a past, hand that back and forget what is new."""
    return past if past[0].shape[2] else present


def unchanged(logits: Tensor, P: int) -> Tensor:
    """Say what was computed."""
    return logits


@dataclass(frozen=True, slots=True)
class Rules:
    """How a cached model works; the defaults are right.

    `positions` and `sees` are functions of P and T. `joins` makes the keys (and values) that are attended to
    of past and new ones; `keeps` the present of the past and of those; `says` the logits, also of P. `form`
    makes of a present's two tensors the pair to hand back.
    """

    positions: Callable[[int, int], Tensor] = onwards
    sees: Rows = causal
    joins: Callable[[Tensor, Tensor], Tensor] = appended
    keeps: Callable[[Pair, Pair], Pair] = all_kept
    says: Callable[[Tensor, int], Tensor] = unchanged
    form: Callable[[Tensor, Tensor], Any] = lambda k, v: (k, v)


RIGHT = Rules()
BUGS = {
    "position": Rules(positions=from_0),
    "no-mask": Rules(sees=unmasked),
    "square-mask": Rules(sees=square),
    "stale-cache": Rules(keeps=none_kept),
}
NAMES = ("ok", *BUGS, "other")


class Cached(nn.Module):
    """A model `model(idx, past=None) -> (logits, presents)` with the oracle's weights and a real cache.

    Whatever it is called with that no model could take raises ValueError. It records how many positions each
    call was fed (`fed`) and found in the past (`found`).
    """

    def __init__(self, weights: Any, rules: Rules = RIGHT) -> None:
        super().__init__()
        self.weights, self.cfg, self.rules = weights, weights.cfg, rules
        self.fed: list[int] = []
        self.found: list[int] = []

    @torch.no_grad()
    def forward(self, idx: Tensor, past: Any = None) -> tuple[Tensor, list[Any]]:
        """Answer by the rules."""
        model, rules = self.weights, self.rules
        idx, pairs = self._taken(idx, past)
        P, T = pairs[0][0].shape[2], idx.shape[1]
        self.fed.append(T)
        self.found.append(P)
        if self.cfg.block_size < P + T:
            raise ValueError(f"`{P + T}` positions are more than block_size `{self.cfg.block_size}`")
        x = model.wte(idx) + model.wpe(rules.positions(P, T))
        presents = []
        for block, pair in zip(model.h, pairs):
            q, *new = _projected(block.attn, block.ln_1(x))
            k, v = (rules.joins(old, mine) for old, mine in zip(pair, new))
            presents.append(rules.form(*(t.clone() for t in rules.keeps(pair, (k, v)))))
            x = x + _mixed(block.attn, q, k, v, rules.sees(P, T))
            x = x + block.mlp(block.ln_2(x))
        return rules.says(model.lm_head(model.ln_f(x)), P), presents

    def _taken(self, idx: object, past: object) -> tuple[Tensor, list[Pair]]:
        """Return ids (B, T) and L pairs, of P = 0 where there is no past."""
        cfg, dtype = self.cfg, self.weights.wte.weight.dtype
        whole = isinstance(idx, Tensor) and idx.dim() == 2 and idx.dtype in (torch.int64, torch.int32)
        if not isinstance(idx, Tensor) or not whole or not idx.numel():
            raise ValueError(f"the model takes token ids (B, T) int64, T ≥ 1, not {expect.shown(idx)}")
        if not 0 <= int(idx.min()) <= int(idx.max()) < cfg.vocab_size:
            raise ValueError(f"the model was fed a token id outside 0 … {cfg.vocab_size - 1}")
        B, idx = idx.shape[0], idx.detach().to(torch.int64)
        if past is None:
            empty = torch.zeros(B, cfg.n_head, 0, cfg.head_dim, dtype=dtype)
            return idx, [(empty, empty)] * cfg.n_layer
        try:
            pairs = expect.cache(past, "the model's past", cfg, B, dtype)
        except AssertionError as error:
            raise ValueError(str(error)) from error
        return idx, pairs


class Remembering(Cached):
    """A cached model that goes on from its own last call, whichever past it is handed."""

    def __init__(self, weights: Any, rules: Rules = RIGHT) -> None:
        super().__init__(weights, rules)
        self.last: Any = None

    def forward(self, idx: Tensor, past: Any = None) -> tuple[Tensor, list[Any]]:
        logits, self.last = super().forward(idx, None if past is None else self.last)
        return logits, list(self.last)


def in_a_buffer(k: Tensor, v: Tensor) -> Pair:
    """Make a pair of views into buffers (B, S + 8, H, D) that were not yet written behind S."""
    return _buffered(k), _buffered(v)


def _buffered(t: Tensor) -> Tensor:
    B, H, S, D = t.shape
    buffer = torch.full((B, S + 8, H, D), math.nan, dtype=t.dtype)
    buffer[:, :S] = t.transpose(1, 2)
    return buffer[:, :S].transpose(1, 2)


def noisy(rng: Generator, cfg: Any, share: float) -> Callable[[Tensor, int], Tensor]:
    """Make a `says` that is off by up to a share of the largest |logit| wherever there is a past."""
    noise = torch.rand(cfg.block_size, cfg.vocab_size, generator=rng, dtype=torch.float64) * 2 - 1

    def says(logits: Tensor, P: int) -> Tensor:
        off = noise[P : P + logits.shape[1]] * share * float(logits.abs().max())
        return logits + off.to(logits.dtype) if P else logits

    return says


def cold(model: Any) -> Any:
    """Give a hot model weights as small as GPT-2's first ones, at which it says one token over and over."""
    for p in model.parameters():
        p.mul_(0.1 if float(p.mean().abs()) < 0.5 else 1.0)  # a layer norm's gains stay around 1
    return model


def loud(model: Any, times: float) -> Any:
    """Make all logits so many times larger."""
    model.ln_f.weight.mul_(times)
    model.ln_f.bias.mul_(times)
    return model


def shortened(oracle: Any, model: Any, block_size: int) -> Any:
    """Cut a model down to the first positions."""
    sizes = {name: getattr(model.cfg, name) for name in ("n_layer", "n_head", "n_embd", "vocab_size")}
    short = oracle.GPT(oracle.Config(block_size=block_size, **sizes))
    weights = model.state_dict()
    weights["wpe.weight"] = weights["wpe.weight"][:block_size]
    short.load_state_dict(weights)
    return short.eval().requires_grad_(False)


def telling(
    model: Any, rng: Generator, size: tuple[int, int], difference: Callable[[Tensor], Tensor]
) -> tuple[Tensor, float]:
    """Draw ids (B, T) whose largest |difference| (B, T, V) of logits hides.

    It is negative, for which the model comes to say the opposite where need be; in a later row than the
    first; and before the last position, unless this model's lies there for one text like the other. Returns
    the ids and that largest |difference|.
    """
    for _ in range(TELLING_DRAWS):
        idx = probe.ids(rng, model.cfg, *size)
        off = difference(idx)
        row, position, token = (int(i) for i in torch.unravel_index(off.abs().argmax(), off.shape))
        if position < size[1] - 1:
            break
    if off[row, position, token] > 0:
        model.ln_f.weight.neg_()
        model.ln_f.bias.neg_()
    return idx if row else idx.flip(0), float(off.abs().max())
