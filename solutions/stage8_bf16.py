"""Stage 8: when right is not equal.

A cached model and an uncached one add the same numbers in another order. In float32 that moves the seventh
digit and hardly ever a token. bfloat16 keeps three digits at most: now and then the two best tokens are
closer than the rounding, and the two right models go different ways. From there on they write different
texts, and a test that wants equal texts calls a right cache wrong.

Sizes: V vocabulary, P0 prompt positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

Past = Sequence[tuple[torch.Tensor, torch.Tensor]]  # one pair (k, v) a layer
Model = Callable[..., tuple[torch.Tensor, Past]]  # called as model(idx, past=None)


class Bf16Report(NamedTuple):
    """What comparing cached with uncached greedy decoding found."""

    first_mismatch: int | None  # the step, from 0, on which they pick different tokens; None if they never do
    top2_gap: (
        float | None
    )  # on that step: how far the uncached best logit is above its second; None without one
    max_logit_diff: (
        float  # the largest |cached - uncached| logit, over all steps up to and including that one
    )


def bf16_report(model: Model, idx: torch.Tensor, n_new: int) -> Bf16Report:
    """Decode greedily with the cache and without it, side by side, until the two disagree.

        step 0          cached: the prompt              uncached: the prompt
        step s          cached: token s-1, the past     uncached: prompt and tokens 0 … s-1
        each step       |cached - uncached|, for each of the V logits of the last position

    Args:
        model: any callable `model(idx, past=None) -> (logits (B, T, V), presents)`, already in bfloat16.
        idx: (1, P0) int64, one prompt; it is not changed.
        n_new: how many steps to take at most.

    Returns:
        A Bf16Report of an int, a float and a float; of None, None and a float if they never disagree. With
        n_new = 0 nothing has been compared: None, None, 0.0.

    One size: the paths agree on tokens 0 … 8 and differ on token 9, where the uncached logits' best two are
    5.25 and 5.21875, and the cached ones 5.21875 and 5.25: first_mismatch 9, top2_gap 0.03125, and
    max_logit_diff is at least as much.

    The trap: stop at the first disagreement. Up to it both paths have read the same text, so every difference
    is rounding; after it they read different texts, and the numbers mean nothing. And the right test is not
    "equal tokens" but "equal tokens until a near-tie": if each logit is off by max_logit_diff at most, the
    best two can only change places if top2_gap is at most twice that. A larger gap is a bug, in any dtype.
    """
    ### BEGIN SOLUTION
    text, new, past = idx, idx, None
    largest = 0.0
    with torch.no_grad():
        for step in range(n_new):
            logits, past = model(new, past=past)
            cached = logits[0, -1].double()  # (V,): in bfloat16 the difference would be rounded too
            uncached = model(text)[0][0, -1].double()  # (V,)
            largest = max(largest, float((cached - uncached).abs().max()))
            if cached.argmax() != uncached.argmax():
                best, second = uncached.topk(2).values.tolist()
                return Bf16Report(step, best - second, largest)
            new = cached.argmax().view(1, 1)
            text = torch.cat([text, new], dim=1)
    return Bf16Report(None, None, largest)
    ### END SOLUTION
