"""What stages 5 to 9 hand back, checked: a number, a report, a diagnosis, a hoard, a stage 1 to build on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from grader import bugged, expect, probe, twofaced

HELD = ("k", "v", "q", "x")
SEED_OF_STAGE1, SEED_OF_STAGE2 = 1, 2
# A difference of two bfloat16 numbers, taken in bfloat16, is off by 2⁻⁹ of itself.
BFLOAT16_DIFFERENCE = 1 / 128


def number(value: object, what: str) -> float:
    """Return a float, or an int that will do for one: not a 0-d tensor, a bool, NaN or infinite."""
    if type(value) is int and abs(value) < 2**53:
        return float(value)
    if type(value) is not float:
        expect.fail(f"{what} must be a float, not {expect.shown(value)}")
    expect.that(math.isfinite(value), f"{what} is `{value}`")
    return value


def near(value: object, want: float, what: str, share: float = 1e-6, least: float = 1e-9) -> None:
    """Fail unless a number is `want` within a share of it, or within `least`."""
    got = number(value, what)
    expect.that(abs(got - want) <= max(share * abs(want), least), f"{what} is {want:.6g}, not {got:.6g}")


def step(value: object, wants: Sequence[int | None], what: str) -> None:
    """Fail unless a step is an int, or None, that is among the right ones."""
    if value is not None:
        expect.integer(value, what)
    right = " or ".join(f"`{want}`" for want in wants)
    expect.that(value in wants, f"{what} is {right}, not {expect.shown(value)}")


def report(value: Any, want: twofaced.Truth) -> None:
    """Fail unless a Bf16Report says the truth."""
    if not isinstance(value, tuple) or len(value) != 3:  # once it has travelled, its fields have no names
        expect.fail(f"bf16_report must return a Bf16Report of three fields, not {expect.shown(value)}")
    mismatch, gap, diff = value
    step(mismatch, [want.first_mismatch], "first_mismatch")
    if want.top2_gap is None:
        expect.that(gap is None, f"top2_gap is None where the texts never part, not {expect.shown(gap)}")
    else:
        where = f"top2_gap, the uncached one at step {want.first_mismatch},"
        near(gap, want.top2_gap, where, BFLOAT16_DIFFERENCE)
    near(diff, want.max_logit_diff, "max_logit_diff", BFLOAT16_DIFFERENCE)


def broken(
    got: Tensor, want: Tensor, right: Tensor, what: str, chunks: Sequence[int], start: int = 0
) -> None:
    """Fail unless a checked tensor is what the bug makes of it; say so where nothing is broken at all."""
    whole = bool(torch.isfinite(got).all()) and not _close(want, right)
    if whole and _close(got, right):
        fed = ", ".join(map(str, chunks))
        expect.fail(f"{what}: nothing is broken; fed in pieces of {fed} this is what a right one says")
    expect.close(got, want, f"{what}, held against this bug's", chunks=chunks, start=start)


def astray(gpt: expect.Checked, story: twofaced.Astray) -> None:
    """Fail unless a checked model continues a prompt to the bug's own text, with the bug's own logits."""
    n_new = story.wrong.shape[1] - story.idx.shape[1]
    said = twofaced.spoken(gpt, story.idx, n_new)
    told = torch.cat([story.idx, said.argmax(-1).T], dim=1)
    expect.that(not torch.equal(told, story.right), "the text is the right one: nothing is broken")
    expect.tokens(told, "the text", story.wrong)
    expect.close(said.transpose(0, 1), story.said(), "the text is this bug's, but its logits")


def _close(got: Tensor, want: Tensor) -> bool:
    return float((got - want).abs().max()) <= expect.FLOAT64 * float(want.abs().max())


def diagnosis(value: object, wants: Sequence[str], of: str) -> None:
    """Fail unless a diagnosis is one of the names, and one of the right ones."""
    if type(value) is not str or value not in bugged.NAMES:
        expect.fail(f"a diagnosis is one of {', '.join(map(repr, bugged.NAMES))}, not {expect.shown(value)}")
    right = " or ".join(f'"{want}"' for want in wants)
    expect.that(value in wants, f'{of} is {right}, not "{value}"')


@dataclass(frozen=True, slots=True)
class Hoarder:
    """A student's HoardingAttention: call it as usual; the form of every reply is checked first.

    Returns (y, present), where `present` is the student's own object, to be handed back as `past`.
    """

    module: Any
    cfg: Any
    dtype: torch.dtype

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Any]:
        x = args[0] if args else kwargs["x"]
        past = args[1] if len(args) > 1 else kwargs.get("past")
        y, present = expect.two(
            self.module(*args, **kwargs), "what HoardingAttention returns", "(y, present)"
        )
        B, T, C = x.shape
        self.held(present, B, T + expect.length(past))
        return expect.tensor(y, "attention's y", (B, T, C), self.dtype), present

    def held(self, present: Any, B: int, S: int) -> list[Tensor]:
        """Return a present's k, v, q (B, H, S, D) and x (B, S, C)."""
        if not isinstance(present, list | tuple) or len(present) != len(HELD):
            expect.fail(f"the present must be a tuple (k, v, q, x), not {expect.shown(present)}")
        heads = (B, self.cfg.n_head, S, self.cfg.head_dim)
        shapes = [heads, heads, heads, (B, S, self.cfg.n_embd)]
        return [
            expect.tensor(t, f"the present's {name}", shape, self.dtype)
            for t, name, shape in zip(present, HELD, shapes)
        ]

    def in_chunks(self, x: Tensor, chunks: Sequence[int], past: Any = None) -> tuple[Tensor, Any]:
        """Feed (B, N, C) in pieces, each on the last one's present; return all outputs."""
        outs = []
        for piece in torch.split(x, list(chunks), dim=1):
            out, past = self(piece, past) if past is not None else self(piece)
            outs.append(out)
        return torch.cat(outs, dim=1), past


def hoarder(student: Any, cfg: Any, like: Any) -> Hoarder:
    """Build the student's HoardingAttention with the weights and dtype of the oracle's attention."""
    built = expect.build(student, "HoardingAttention", cfg, like)
    return Hoarder(built.module, cfg, built.dtype)


def stage1_stands(own: Any, oracle: Any) -> None:
    """Fail unless a student's own stage 1 gives what gpt2.py gives, in pieces, and leaves its past alone."""
    rng = Generator().manual_seed(SEED_OF_STAGE1)
    cfg = oracle.Config(n_layer=2, n_head=3, n_embd=15, block_size=13, vocab_size=29)
    ours = probe.hot(oracle.GPT(cfg), rng)
    gpt = expect.build(own, "GPT", cfg, ours)
    idx = probe.ids(rng, cfg, 2, 9)
    want, layers = bugged.recomputed(ours, idx)
    first, past = gpt.in_chunks(idx[:, :5], (4, 1))
    for _ in range(2):
        rest, presents = gpt(idx[:, 5:], past)
        expect.close(torch.cat([first, rest], dim=1), want, "logits", chunks=(4, 1, 4))
    for (k, v), layer in zip(presents, layers):
        expect.close(k, layer.k, "keys")
        expect.close(v, layer.v, "values")


def stage2_stands(own: Any, oracle: Any) -> None:
    """Fail unless a student's own stage 2 writes the tokens of the uncached loop."""
    spy, idx, want = probe.story(oracle, Generator().manual_seed(SEED_OF_STAGE2), sizes=(1, 5, 6))
    tokens, _ = expect.two(own.generate_cache(spy, idx, 6), "what generate_cache returns", "(tokens, past)")
    expect.tokens(tokens, "the tokens", want, start=5)
