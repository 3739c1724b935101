"""The work of one step of the student's own loop over their own model: operations, FLOPs, bytes copied.

It is counted where the student's code runs, and could be tampered with there: it explains, and what it lets
pass still has to stand before the clock (`latency`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from grader import expect, probe, roofline

STEPS = 8  # whose work is counted: the difference of two loops
SHORT, LONG = 40, 300  # prompts before those steps
LATER = (16, 40)  # tokens that the shorter loop writes where which steps are counted is drawn
SHAPE = {"n_layer": 3, "n_embd": 64, "block_size": 512, "vocab_size": 61}
LEAST_HEADS, MOST_HEADS = 2, 8
MOST_FLOPS = 1.02  # of the formula's, with attention over the whole block (a buffer may be that long)
MOST_COPIED = 1.75  # of the cache's bytes: torch.cat makes 1.0, a copy more of everything 2.0
MOST_GROWTH = 1.25  # of the operations of a step, with four times the heads or seven times the positions


@dataclass(frozen=True, slots=True)
class Loop:
    """The student's own `generate_cache` over their own `GPT`, wherever they run."""

    stage1: Any
    stage2: Any

    def model(self, like: Any) -> Any:
        """Build the student's model with the weights of one of the oracle's."""
        return expect.build(self.stage1, "GPT", like.cfg, like).module

    def tokens(self, model: Any, idx: Tensor, n_new: int) -> Any:
        """Run the loop; return the tokens that it says it wrote, and leave the cache where it is."""
        if getattr(self.stage2, "is_remote", False):
            return self.stage2.first("generate_cache", model, idx, n_new)
        return self.stage2.generate_cache(model, idx, n_new)[0]

    def work(self, model: Any, idx: Tensor, n_new: int) -> dict[str, int] | None:
        """Count the work of the loop; None where torch can't count it."""
        if getattr(self.stage2, "is_remote", False):
            tally: dict[str, int] | None = self.stage2.counted("generate_cache", model, idx, n_new)
            return tally
        from grader.sandbox import work

        try:
            return work.counted(lambda: self.stage2.generate_cache(model, idx, n_new))
        except Exception:
            return None


@dataclass(frozen=True, slots=True)
class Step:
    """The work of one step on a text of about `positions`, and what the formulas say of it."""

    cfg: Any
    positions: float
    operations: float
    flops: float
    copied_bytes: float

    def formula_flops(self, positions: float) -> float:
        """What a step on so many positions has to compute."""
        cfg = self.cfg
        return roofline.gpt2_flops(cfg.n_layer, cfg.n_embd, cfg.vocab_size, new=1, keys=positions)

    @property
    def cache_bytes(self) -> float:
        return float(2 * self.cfg.n_layer * self.cfg.n_embd * self.positions * 4)


def step_work(
    loop: Loop, oracle: Any, rng: Generator, n_head: int, prompt: int, begin: int = 2
) -> Step | None:
    """Count a step after a prompt: the difference of two loops, the shorter of which writes `begin` tokens.

    None where torch can't count it.
    """
    cfg = oracle.Config(n_head=n_head, **SHAPE)
    like = probe.hot(oracle.GPT(cfg), rng, torch.float32)
    model, idx = loop.model(like), probe.ids(rng, cfg, 1, prompt)
    less = loop.work(model, idx, begin)
    more = loop.work(model, idx, begin + STEPS) if less else None
    if not less or not more:
        return None
    a_step = {name: (more[name] - less[name]) / STEPS for name in more}
    return Step(cfg, prompt + begin - 1 + (STEPS + 1) / 2, **a_step)


def flops(step: Step, metrics: dict[str, Any]) -> None:
    """Fail where a step multiplies more than a cached one needs to, were its buffer as long as the block."""
    formula = step.formula_flops(step.positions)
    metrics["flops_a_step"], metrics["flops_formula"] = round(step.flops), round(formula)
    expect.that(
        step.flops <= MOST_FLOPS * step.formula_flops(step.cfg.block_size),
        f"a step at about {step.positions:.0f} positions takes {step.flops / 1e6:.2f} MFLOP, by the formula "
        f"{formula / 1e6:.2f} (2 for every weight, 4·L·d for every position): {step.flops / formula:.1f} "
        "times as many. What was computed in earlier steps is computed again: mend that in stage 1 or 2",
    )


def copies(step: Step, metrics: dict[str, Any]) -> None:
    """Fail where a step copies the cache more often than `torch.cat` does."""
    times = step.copied_bytes / step.cache_bytes
    metrics["cache_copies_a_step"] = round(times, 2)
    expect.that(
        times <= MOST_COPIED,
        f"a step copies {step.copied_bytes / 1024:.0f} KiB, {times:.1f} times the whole cache; `torch.cat` "
        "copies it once. Look in stages 1 and 2 for clone, stack, contiguous or `to` on what is cached",
    )


def operations(few: Step, many: Step, what: str, metrics: dict[str, Any]) -> None:
    """Fail where a step takes more operations with more of something that one operation can do at once."""
    metrics[f"operations_{what.split()[-1]}"] = f"{few.operations:.0f} → {many.operations:.0f}"
    expect.that(
        many.operations <= MOST_GROWTH * few.operations,
        f"a step takes {few.operations:.0f} operations of torch, and {many.operations:.0f} with more {what}: "
        f"a Python loop goes over the {what.split()[-1]}, where one operation on the whole tensor does it",
    )
