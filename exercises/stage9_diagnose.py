"""Stage 9: write the test.

For eight stages somebody else's test has told you whether your cache is right. Now you get a model,
somebody's, and nothing else: not its weights, and no right model to compare it with. Say whether its cache is
right, and if not, what is wrong.

A test is a small experiment for one hypothesis: "if *this* were wrong, then *that* would happen". You have
built each of these bugs. For each, ask what can be seen from outside that no right model shows, and none of
the other bugs.

Sizes: B batch, T new positions in a call, P positions already cached, S = P + T, H heads, D head size, V
vocabulary, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from gpt2 import Config

Past = Sequence[tuple[torch.Tensor, torch.Tensor]]  # one pair (k, v) a layer
Model = Callable[..., tuple[torch.Tensor, Past]]  # called as model(idx, past=None)


def diagnose(model: Model, cfg: Config) -> str:
    """Say what is wrong with a model's cache, by calling it.

        "ok"            nothing: one text has one answer, however it is cut into calls
        "position"      on a past, new tokens are told another position than P … P+T-1 (stage 5)
        "no-mask"       queries see the tokens after them (stage 6)
        "square-mask"   T > 1 queries on a past see keys 0 … j, not 0 … P + j (stage 6)
        "stale-cache"   once there is a past, new keys and values are used in that call and never stored: the
                        cache stops growing
        "other"         anything else that no right model does, an exception or a NaN too

    Args:
        model: any callable `model(idx, past=None) -> (logits (B, T, V), presents)`, presents being L pairs
            (k, v) of (B, H, S, D), which you may look at. It is built in any way, in any floating dtype.
        cfg: its sizes.

    Returns:
        One of the six. Where a model has several of the bugs, one of them.

    One size: a block_size of 4 and a vocabulary of 2 are room enough; no model you get has less.

    The trap: a test that never says "ok" catches every bug. Right models round, each in its own way: one text
    in two cuts differs in the seventh digit of float32. And a bug that hides from one experiment shows in
    another: single tokens never meet a mask, a single call never meets a past, one past length can be the
    right one by chance.
    """
    raise NotImplementedError("stage9: diagnose")
