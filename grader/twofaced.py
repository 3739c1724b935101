"""Models whose cached path says something else than their uncached one, at places that the grader chose.

Stages 5, 6 and 8 hand them to students' functions, and work out on their own side what is to be found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from grader import bugged, probe

SMALL = 64  # in bfloat16 a probe's codes go up to ± this, so that a sum of two is exact
ASTRAY_CANDIDATES = 40  # prompts drawn at a time
QUIET = 0.25  # position embeddings so quiet that a wrong one takes a few steps to change a token
VARIED = 4  # different tokens that a text needs to be called one
EARLY_STEPS = 4  # a bug that shows in the text does so within so many steps
CALM = 0.004  # rounding in bfloat16, as a share of the largest |logit|
AFTERWARDS = 3.0  # a difference that no two texts make by themselves
TIPPED = 3  # by how many of its last places a near-tie is tipped: the cached gap is not the uncached one
DECISIVE = 0.06  # how far the best logit is lifted above the second where there is no tie

Says = Callable[[Tensor, int], Tensor]  # of logits (B, T, V) and P


class TwoFaced(probe.Probe):
    """A probe whose logits (B, T, V) go through `says`, which learns how many positions P were in the past.

    In bfloat16 its keys and values are small whole numbers, which survive.
    """

    def __init__(
        self,
        brain: Callable[[Tensor], Tensor],
        cfg: Any,
        rng: Generator,
        says: Says,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__(lambda idx: brain(idx), cfg, rng)
        self.says = says
        self.requires_grad_(False).to(dtype)
        self.token_code, self.place_code = (
            torch.randint(-SMALL, SMALL, t.shape, generator=rng).to(dtype)
            for t in (self.token_code, self.place_code)
        )
        names = torch.randperm(2 * SMALL, generator=rng)[: cfg.vocab_size] - SMALL
        self.token_code[..., 0, 0] = names.to(dtype)
        self.token_named[names + probe.CODE] = torch.arange(cfg.vocab_size)

    @torch.no_grad()
    def forward(self, idx: Tensor, past: Any = None) -> tuple[Tensor, Any]:
        """Answer as the brain would, in other words."""
        self.grad_enabled = False
        logits, presents = super().forward(idx, past)
        return self.says(logits, self.calls[-1].past.shape[1]).to(self.dtype), presents


def spoken(model: Any, idx: Tensor, n_new: int, held_back: int = 0) -> Tensor:
    """Return the last position's logits (n_new, B, V) of greedy decoding with the cache, n_new ≥ 1.

    The prompt's last `held_back` tokens (0 or 1) are fed by themselves.
    """
    first = idx.shape[1] - held_back
    past, feed, said = None, idx, []
    if held_back and first:
        (_, past), feed = model(idx[:, :first]), idx[:, first:]
    for _ in range(n_new):
        logits, past = model(feed, past)
        said.append(logits[:, -1])
        feed = logits[:, -1].argmax(-1, keepdim=True)
    return torch.stack(said)


def spoken_uncached(model: Any, idx: Tensor, n_new: int) -> Tensor:
    """Return the last position's logits (n_new, B, V) of greedy decoding over the whole text, n_new ≥ 1."""
    said = []
    for _ in range(n_new):
        said.append(model(idx)[0][:, -1])
        idx = torch.cat([idx, said[-1].argmax(-1, keepdim=True)], dim=1)
    return torch.stack(said)


def bad_step(cached: Tensor, uncached: Tensor) -> int | None:
    """Return the first step at which two greedy decodings (n_new, B, V) pick different tokens."""
    differs = (cached.argmax(-1) != uncached.argmax(-1)).any(-1).nonzero()
    return int(differs[0, 0]) if len(differs) else None


def bad_steps(model: Any, idx: Tensor, n_new: int) -> list[int | None]:
    """Return a model's first bad step, for either way to feed a prompt: whole, or all but its last token."""
    uncached = spoken_uncached(model, idx, n_new)
    found = [bad_step(spoken(model, idx, n_new, held_back), uncached) for held_back in (0, 1)]
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Truth:
    """What a report on a bfloat16 model must say."""

    first_mismatch: int | None
    top2_gap: float | None
    max_logit_diff: float


def truth(model: Any, idx: Tensor, n_new: int) -> Truth:
    """Work out the report on a model for one prompt (1, P)."""
    cached, uncached = spoken(model, idx, n_new).double(), spoken_uncached(model, idx, n_new).double()
    step = bad_step(cached, uncached)
    last = n_new if step is None else step + 1
    diff = float((cached - uncached)[:last].abs().max())
    if step is None:
        return Truth(None, None, diff)
    first, second = uncached[step, 0].topk(2).values.tolist()
    return Truth(step, first - second, diff)


# What to say


def swapping(places: Collection[tuple[int, int]], noise: Says) -> Says:
    """Make a cached path that exchanges the best two tokens at places (row, position), and is noisy."""

    def says(logits: Tensor, P: int) -> Tensor:
        said = noise(logits, P).clone()
        for row, position in places:
            if P and row < said.shape[0] and P <= position < P + said.shape[1]:
                line = said[row, position - P]
                best = line.topk(2).indices
                line[best] = line[best.flip(0)]
        return said

    return says


def flipping(
    oracle: Any, rng: Generator, sizes: tuple[int, int, int], flips: Collection[tuple[int, int]]
) -> tuple[TwoFaced, Tensor]:
    """Draw a model and prompts (B, P) whose texts part where they are made to: at (row, step ≥ 1).

    Everywhere else its cached logits are a little off, which changes no token.
    """
    spy, idx, _ = probe.story(oracle, rng, sizes)
    P0 = idx.shape[1]
    noise = bugged.noisy(rng, spy.cfg, probe.MARGIN / 10)
    says = swapping([(row, P0 + step - 1) for row, step in flips], noise)
    return TwoFaced(spy.brain, spy.cfg, rng, says), idx


@dataclass(frozen=True, slots=True)
class Tie:
    """How a bfloat16 model's two paths part: a near-tie of the uncached path that the cached one tips.

    `step` is None where there is none; `gap` is the uncached gap in units of the best logit's last place. One
    logit of the cached path is too small by `spikes`, shares of the largest |logit|: by the first of them on
    step 1 and a little less from there on, by the second on the tie's own step, by the third after it. All
    but the best are off by up to `calm`, and by up to four times as much on step 2.
    """

    step: int | None
    gap: int = 1
    spikes: tuple[float, float, float] = (0.1, 0.2, AFTERWARDS)
    calm: float = CALM

    def spike(self, step: int) -> float:
        """Return by how much the smallest logit is off on a step."""
        if self.step is None or step < self.step:
            return self.spikes[0] * (1.0 if step == 1 else 0.8)
        return self.spikes[1 if step == self.step else 2]


@dataclass(frozen=True, slots=True)
class _Parting:
    """Two ways to say the logits of one model, `largest` in size, for a prompt of P0 tokens."""

    model: Any
    P0: int
    largest: float
    tie: Tie
    noise: Tensor  # (positions, V), from 0 to 1

    def brain(self, ids: Tensor) -> Tensor:
        """Map ids (1, S) to uncached logits (1, S, V): a clear winner on every step but the tie's."""
        logits: Tensor = self.model(ids)
        best = logits.topk(2).indices
        lifted = logits.gather(-1, best[..., :1]) + DECISIVE * self.largest
        logits.scatter_(-1, best[..., :1], lifted)
        at = -1 if self.tie.step is None else self.P0 + self.tie.step - 1
        if 0 <= at < ids.shape[1]:
            line, (first, second) = logits[0, at].bfloat16(), best[0, at]
            line[second] = line[first] - self.tie.gap * _last_place(line[first])
            logits[0, at] = line.double()
        return logits

    def says(self, logits: Tensor, P: int) -> Tensor:
        """Say logits (1, T, V) as they are without a past and inside the prompt, and a little off beyond."""
        if P < self.P0:
            return logits
        lines = [self._off(line, P + j - self.P0 + 1) for j, line in enumerate(logits[0])]
        return torch.stack(lines)[None]

    def _off(self, clean: Tensor, step: int) -> Tensor:
        """Say one step's logits (V,) with the cache."""
        loud = 4 if step == 2 else 1
        line = clean - self.noise[step] * loud * self.tie.calm * self.largest
        best = int(clean.bfloat16().argmax())
        line[best] = clean[best]
        line[clean.argmin()] = clean.min() - self.tie.spike(step) * self.largest
        if step == self.tie.step:
            other = next(i for i in clean.topk(2).indices.tolist() if i != best)
            line[other] = clean[best] + TIPPED * _last_place(clean[best])
        return line


def bf16_model(oracle: Any, rng: Generator, P0: int, n_new: int, tie: Tie) -> tuple[TwoFaced, Tensor]:
    """Draw a bfloat16 model and a prompt (1, P0) whose two paths part as the tie says."""
    model, tokens = _varied(oracle, rng, P0, n_new)
    largest = float(model(tokens).abs().max())
    noise = torch.rand(P0 + n_new, model.cfg.vocab_size, generator=rng, dtype=torch.float64)
    parting = _Parting(model, P0, largest, tie, noise)
    return TwoFaced(parting.brain, model.cfg, rng, parting.says, torch.bfloat16), tokens[:, :P0].clone()


def _last_place(value: Tensor) -> float:
    """Return the step between neighbouring bfloat16 numbers around a value."""
    return float(2.0 ** (math.floor(math.log2(abs(float(value)))) - 7))


def _varied(oracle: Any, rng: Generator, P0: int, n_new: int) -> tuple[Any, Tensor]:
    """Draw a float64 model and, of some texts (1, P0 + n_new), the one with the most different new tokens."""
    model = _outspoken(oracle, rng, P0 + n_new)
    tokens, _ = probe.greedy(model, probe.ids(rng, model.cfg, probe.CANDIDATES // 2, P0), n_new)
    richest = max(range(len(tokens)), key=lambda row: len(set(tokens[row, P0:].tolist())))
    return model, tokens[richest : richest + 1]


def _outspoken(oracle: Any, rng: Generator, block_size: int) -> Any:
    """Draw a model whose layers speak louder than the embedding of the last token, as in `probe.story`."""
    cfg = oracle.Config(n_layer=2, n_head=3, n_embd=24, block_size=block_size, vocab_size=61)
    model = probe.hot(oracle.GPT(cfg), rng)
    for p in model.h.parameters():
        p.mul_(1 + (p.dim() == 2))
    return model


@dataclass(frozen=True, slots=True)
class Astray:
    """A prompt (1, P0) that positions starting at 0 lead astray at a known step, never the first two.

    `right` and `wrong` (1, P0 + n_new) are the text, and what a model with that bug makes of it.
    """

    model: Any
    idx: Tensor
    right: Tensor
    wrong: Tensor
    step: int

    def said(self) -> Tensor:
        """Return the bugged model's logits (1, n_new, V), the prompt fed in one call."""
        P0, S = self.idx.shape[1], self.wrong.shape[1]
        chunks = [P0, *[1] * (S - P0 - 1)]
        logits, _ = bugged.recomputed(self.model, self.wrong[:, :-1], bugged.restarting(chunks))
        return logits[:, P0 - 1 :]


def early_story(oracle: Any, rng: Generator, P0: int, n_new: int) -> Astray:
    """Draw a model and a prompt that positions starting at 0 lead astray within a few steps.

    Both texts' margins are wide; and the step is the same whether the prompt is fed whole or all but its last
    token first.

    Raises:
        RuntimeError: no such model was drawn, which no seed has been seen to do.
    """
    for _ in range(probe.DRAWS):
        model = _outspoken(oracle, rng, P0 + n_new)
        model.wpe.weight.mul_(QUIET)
        idx = probe.ids(rng, model.cfg, ASTRAY_CANDIDATES, P0)
        right, wide = probe.greedy(model, idx, n_new)
        idx, right = idx[wide > probe.MARGIN], right[wide > probe.MARGIN]
        if not len(idx):
            continue
        wrong, broad = probe.greedy(_restarted(model, P0), idx, n_new)
        other, _ = probe.greedy(_restarted(model, P0 - 1), idx, n_new)
        steps = [_first_step(right, text, P0) for text in (wrong, other)]
        for row in range(len(idx)):
            step = int(steps[0][row])
            varied = len(set(wrong[row, P0:].tolist())) >= VARIED
            if 2 <= step <= EARLY_STEPS and step == steps[1][row] and varied and broad[row] > probe.MARGIN:
                one = slice(row, row + 1)
                return Astray(model, idx[one].clone(), right[one], wrong[one], step)
    raise RuntimeError(f"no prompt of `{P0}` tokens whose text parts early from that of the bug")


def _restarted(model: Any, P: int) -> Callable[[Tensor], Tensor]:
    """Make an uncached model whose positions after the first P all stand at 0."""

    def brain(ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1])
        return bugged.recomputed(model, ids, places * (places < P))[0]

    return brain


def _first_step(a: Tensor, b: Tensor, P0: int) -> Tensor:
    """Return each row's first step after P0 at which two texts differ, 0 where none does."""
    return (a != b)[:, P0:].int().argmax(dim=-1)
