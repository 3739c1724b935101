"""The library of known bugs: what a model says that has exactly one thing wrong with its cache.

No cached model stands here. A bug is a rule about a text that was fed in pieces: where the positions of a
piece begin, which keys its queries see, what becomes of a pair while it lies in the cache. `outputs` works
the whole text out under such rules, layer by layer, from the given model's own parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Pieces = list[tuple[Tensor, Tensor]]  # keys and values (B, H, T, D) of every piece so far, the own one last


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a rule may go by: T new positions on P cached, the model's sizes, the call's number from 0."""

    T: int
    P: int
    B: int
    H: int
    D: int
    L: int
    call: int


def right_positions(s: Sizes) -> Tensor:
    """New positions are P … P + T - 1."""
    return torch.arange(s.P, s.P + s.T)


def right_mask(s: Sizes) -> Tensor:
    """Query j sees keys 0 … P + j: (T, S)."""
    return torch.ones(s.T, s.P + s.T, dtype=torch.bool).tril(s.P)


def as_stored(k: Tensor, v: Tensor, age: int) -> tuple[Tensor, Tensor]:
    """A pair comes out of the cache as it went in; `age` is how many calls ago that was, 0 for this one."""
    return k, v


@dataclass(frozen=True, slots=True)
class Bug:
    """One known fault: name, kind (all that a hidden check may say), words for the student, rules."""

    name: str
    kind: str
    words: str
    positions: Callable[[Sizes], Tensor] = right_positions
    mask: Callable[[Sizes], Tensor] = right_mask
    stored: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]] = as_stored
    new_first: tuple[bool, bool] = (False, False)  # keys, values: new ones before the cached
    scale: Callable[[Sizes], float] = lambda s: 1 / math.sqrt(s.D)
    fill: float = -math.inf
    over_queries: bool = False


def _tril(s: Sizes, diagonal: int) -> Tensor:
    return torch.ones(s.T, s.P + s.T, dtype=torch.bool).tril(diagonal)


def _all(s: Sizes) -> Tensor:
    return torch.ones(s.T, s.P + s.T, dtype=torch.bool)


def _own_key_at_least(mask: Tensor) -> Tensor:
    """Give a row that sees nothing its first key, as no softmax can be taken over nothing."""
    mask[~mask.any(dim=1), 0] = True
    return mask


def _position(name: str, words: str, rule: Callable[[Sizes], Tensor]) -> Bug:
    return Bug(
        name, "positions of new tokens", f"{words}: look at `torch.arange` in `GPT.forward`", positions=rule
    )


def _mask(name: str, words: str, rule: Callable[[Sizes], Tensor]) -> Bug:
    return Bug(name, "the causal mask", f"{words}: look at the mask in `Attention.forward`", mask=rule)


def _cache(name: str, words: str, rule: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]) -> Bug:
    return Bug(
        name, "what the cache holds", f"{words}: look at what `Attention.forward` returns", stored=rule
    )


def _from(n: Callable[[Sizes], int]) -> Callable[[Sizes], Tensor]:
    """Positions that begin at `n` once there is a past."""
    return lambda s: torch.arange(s.T) + (n(s) if s.P else 0)


POSITIONS = (
    _position("position-zero", "whose new tokens all begin again at position 0", lambda s: torch.arange(s.T)),
    _position("position-late", "whose new tokens sit one position too late", _from(lambda s: s.P + 1)),
    _position("position-early", "whose new tokens sit one position too early", _from(lambda s: s.P - 1)),
    _position(
        "position-twice", "that adds the past's length twice to the positions", _from(lambda s: 2 * s.P)
    ),
    _position(
        "position-of-batch",
        "that takes the batch size for the past's length (dimension 0, not 2)",
        _from(lambda s: s.B),
    ),
    _position(
        "position-of-heads",
        "that takes the heads for the past's length (dimension 1, not 2)",
        _from(lambda s: s.H),
    ),
    _position(
        "position-of-head-size",
        "that takes the head size for the past's length (dimension 3, not 2)",
        _from(lambda s: s.D),
    ),
    _position(
        "position-of-layers", "that takes the number of layers for the past's length", _from(lambda s: s.L)
    ),
    _position(
        "position-only-alone",
        "that counts the past only when a single token is fed",
        lambda s: torch.arange(s.T) + (s.P if s.T == 1 else 0),
    ),
    _position("position-same", "whose new tokens all sit at one position", lambda s: torch.full((s.T,), s.P)),
    _position("position-all-late", "whose positions begin at 1", lambda s: torch.arange(s.P, s.P + s.T) + 1),
)

MASKS = (
    _mask("mask-none", "without a causal mask: every query sees every key", _all),
    _mask(
        "mask-none-alone",
        "that masks nothing as long as there is no past",
        lambda s: right_mask(s) if s.P else _all(s),
    ),
    _mask(
        "mask-none-on-a-past",
        "that masks nothing once there is a past",
        lambda s: _all(s) if s.P else right_mask(s),
    ),
    _mask(
        "mask-top-left",
        "whose mask starts its diagonal in the top left corner (plain `tril()` or `is_causal=True`), so that "
        "new queries see only the oldest keys",
        lambda s: _tril(s, 0),
    ),
    _mask(
        "mask-top-left-several",
        "whose mask starts its diagonal in the top left corner when several positions are fed on a past",
        lambda s: _tril(s, 0) if s.T > 1 else _all(s),
    ),
    _mask("mask-future", "whose queries see one key too many, of the future", lambda s: _tril(s, s.P + 1)),
    _mask("mask-past", "whose queries do not see themselves", lambda s: _own_key_at_least(_tril(s, s.P - 1))),
    _mask(
        "mask-past-on-a-past",
        "whose queries do not see themselves once there is a past",
        lambda s: _own_key_at_least(_tril(s, s.P - 1)) if s.P else right_mask(s),
    ),
    _mask(
        "mask-future-on-a-past",
        "whose queries see one key of the future once there is a past",
        lambda s: _tril(s, s.P + 1) if s.P else right_mask(s),
    ),
    _mask(
        "mask-forgets-the-past",
        "whose new queries see only the new keys and none of the past",
        lambda s: torch.cat([torch.zeros(s.T, s.P, dtype=torch.bool), _tril(s, 0)[:, : s.T]], dim=1),
    ),
    _mask(
        "mask-square-first",
        "that lays its T×T mask over the oldest T keys and leaves the rest open",
        lambda s: torch.cat([_tril(s, 0)[:, : s.T], torch.ones(s.T, s.P, dtype=torch.bool)], dim=1),
    ),
)


def _scaled(s: Tensor) -> Tensor:
    return s / math.sqrt(s.shape[-1])


CACHES = (
    _cache(
        "cache-swapped",
        "that reads its cached keys as values and values as keys",
        lambda k, v, age: (v, k) if age else (k, v),
    ),
    _cache(
        "cache-values-are-keys",
        "whose cache holds the keys in the values' place",
        lambda k, v, age: (k, k) if age else (k, v),
    ),
    _cache(
        "cache-keys-are-values",
        "whose cache holds the values in the keys' place",
        lambda k, v, age: (v, v) if age else (k, v),
    ),
    _cache(
        "cache-scaled",
        "that scales its cached keys once more than the new ones",
        lambda k, v, age: (_scaled(k) if age else k, v),
    ),
    _cache(
        "cache-scaled-every-call",
        "that scales the cached keys again in every call",
        lambda k, v, age: (k * k.shape[-1] ** (-0.5 * age), v),
    ),
    _cache(
        "cache-half",
        "whose cached keys and values went through half precision",
        lambda k, v, age: (k.half().to(k.dtype), v.half().to(v.dtype)) if age else (k, v),
    ),
    _cache(
        "cache-bfloat16",
        "whose cached keys and values went through bfloat16",
        lambda k, v, age: (k.bfloat16().to(k.dtype), v.bfloat16().to(v.dtype)) if age else (k, v),
    ),
    _cache(
        "cache-first-row",
        "in which every row of the batch reads the first row's past",
        lambda k, v, age: (k[:1].expand_as(k), v[:1].expand_as(v)) if age else (k, v),
    ),
    Bug(
        "order-new-first",
        "the order of old and new",
        "that puts the new keys and values before the cached ones: look at the order in `torch.cat`",
        new_first=(True, True),
    ),
    Bug(
        "order-keys-new-first",
        "the order of old and new",
        "that puts the new keys before the cached ones, but not the values: look at the order in `torch.cat`",
        new_first=(True, False),
    ),
    Bug(
        "order-values-new-first",
        "the order of old and new",
        "that puts the new values before the cached ones, but not the keys: look at the order in `torch.cat`",
        new_first=(False, True),
    ),
)

SCORES = (
    Bug("scale-none", "the scores", "that does not divide its scores by √D", scale=lambda s: 1.0),
    Bug(
        "scale-width",
        "the scores",
        "that divides its scores by √C, not √D",
        scale=lambda s: 1 / math.sqrt(s.H * s.D),
    ),
    Bug("scale-linear", "the scores", "that divides its scores by D, not √D", scale=lambda s: 1 / s.D),
    Bug(
        "fill-zero",
        "the causal mask",
        "that fills masked scores with 0 and not −∞, so that they still count",
        fill=0.0,
    ),
    Bug(
        "fill-ten",
        "the causal mask",
        "that fills masked scores with −10 and not −∞, so that they still count",
        fill=-10.0,
    ),
    Bug(
        "softmax-queries",
        "the scores",
        "that takes its softmax over the queries, not the keys",
        over_queries=True,
    ),
)

BUGS: tuple[Bug, ...] = (*POSITIONS, *MASKS, *CACHES, *SCORES)
RIGHT = Bug("right", "", "")


@torch.no_grad()
def outputs(like: nn.Module, cfg: Any, chunks: list[Tensor], bug: Bug) -> list[Tensor]:
    """What `like` (the given GPT, Block or Attention) puts out for each piece under a bug's rules."""
    B = chunks[0].shape[0]
    lengths = [c.shape[1] for c in chunks]
    sizes = [
        Sizes(T, sum(lengths[:n]), B, cfg.n_head, cfg.head_dim, cfg.n_layer, n) for n, T in enumerate(lengths)
    ]
    if hasattr(like, "wte"):
        places = [bug.positions(s).clamp(0, cfg.block_size - 1) for s in sizes]
        xs = [like.wte(c) + like.wpe(p) for c, p in zip(chunks, places, strict=True)]  # type: ignore[operator]
        for block in like.h:  # type: ignore[union-attr]
            xs = _block(block, xs, sizes, bug)
        return [like.lm_head(like.ln_f(x)) for x in xs]  # type: ignore[operator]
    if hasattr(like, "attn"):
        return _block(like, list(chunks), sizes, bug)
    return _attention(like, list(chunks), sizes, bug)


def _block(block: Any, xs: list[Tensor], sizes: list[Sizes], bug: Bug) -> list[Tensor]:
    ys = _attention(block.attn, [block.ln_1(x) for x in xs], sizes, bug)
    xs = [x + y for x, y in zip(xs, ys, strict=True)]
    return [x + block.mlp(block.ln_2(x)) for x in xs]


def _attention(attention: Any, xs: list[Tensor], sizes: list[Sizes], bug: Bug) -> list[Tensor]:
    """Attend piece by piece; every earlier piece's pair is read as the bug would have kept it."""
    pieces: Pieces = []
    ys = []
    for x, s in zip(xs, sizes, strict=True):
        q, k, v = (
            part.unflatten(2, (s.H, s.D)).transpose(1, 2) for part in attention.c_attn(x).chunk(3, dim=2)
        )  # (B, H, T, D) each
        pieces.append((k, v))
        read = [bug.stored(*pair, len(pieces) - 1 - n) for n, pair in enumerate(pieces)]
        keys, values = (_joined([pair[i] for pair in read], bug.new_first[i]) for i in (0, 1))
        scores = q @ keys.mT * bug.scale(s)
        scores = scores.masked_fill(~bug.mask(s), bug.fill)
        weights = scores.softmax(dim=2 if bug.over_queries else 3).nan_to_num(0.0)
        ys.append(attention.c_proj((weights @ values).transpose(1, 2).flatten(2)))
    return ys


def _joined(parts: list[Tensor], new_first: bool) -> Tensor:
    """Join pieces in the order of time; or each new one before all that was there."""
    return torch.cat(parts[::-1] if new_first else parts, dim=2)
