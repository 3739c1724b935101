"""Stage 2: write text with the cache, one position at a time.

The model now remembers. What is left is the loop around it: show it the prompt once, and from then on only
the token that it has just written.

Sizes: B batch, P0 prompt positions, V vocabulary, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Past = Sequence[tuple[torch.Tensor, torch.Tensor]]  # one pair (k, v) a layer
Model = Callable[..., tuple[torch.Tensor, Past]]  # called as model(idx, past=None)


def generate_cache(model: Model, idx: torch.Tensor, n_new: int) -> tuple[torch.Tensor, Past | None]:
    """Continue a prompt greedily, feeding the prompt once and then one position a call.

        call 1        the prompt, P0 positions      logits[:, -1] scores token 1
        call 2        token 1                       logits[:, -1] scores token 2
        …
        call n_new    token n_new - 1               logits[:, -1] scores token n_new

    The last token is picked and not fed: nobody asks what would come after it.

    Args:
        model: any callable `model(idx, past=None) -> (logits (B, T, V), presents)`, like your stage 1.
        idx: (B, P0) int64; it is not changed.
        n_new: how many tokens to add; with 0 the prompt comes back and the model need not be called.

    Returns:
        tokens (B, P0 + n_new), the prompt and what follows; and the cache after the last call, None if there
        was none.

    One size: P0 = 12, n_new = 1000: one call with 12 positions, 999 calls with one, a cache of 1011
    positions, and tokens (1, 1012).

    The trap: after the prompt, the token you picked is all that the model has not seen. Feed it the prompt's
    last token again, or the whole text, and the cache holds positions twice. And switch autograd off: a
    thousand steps of graph are a second cache that nobody wants. A tie goes to the lowest id, as `argmax`
    does it.
    """
    raise NotImplementedError("stage2: generate_cache")


def first_mismatch(a: torch.Tensor, b: torch.Tensor) -> int | None:
    """Find the first column in which two batches of text differ; None if they are the same.

    Args:
        a: (B, Ta) token ids.
        b: (B, Tb) token ids, of the same B.

    Returns:
        The least column, over all rows, at which some row differs. Where one text is the beginning of the
        other, that is the column at which the shorter one ends.

    One size: [[5, 6, 7], [1, 2, 3]] and [[5, 6, 9], [1, 8, 3]] differ first in column 1: row 1 does so
    before row 0. [[5, 6]] and [[5, 6, 7]] differ in column 2.

    The trap: an int means an int, not a 0-d tensor; and comparing tensors of unequal length is an error in
    torch, or worse, broadcasting.
    """
    raise NotImplementedError("stage2: first_mismatch")
