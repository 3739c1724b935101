"""Stage 5: forget where you are.

The first bug that everyone writes. Nothing crashes, every shape is right, and the text is fluent: it is only
not the text that the model would have written. You know what a right cache does, so now break it, in this one
way and in no other, and then find out how long it takes to show.

You build on your own stage 1: this file imports your `stage1_attention.py`, so that has to be right first.

Sizes: B batch, T new positions in this call, P positions already cached, V vocabulary, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from stage1_attention import GPT

Pair = tuple[torch.Tensor, torch.Tensor]  # keys and values of one layer, (B, H, positions, D) each
Past = Sequence[Pair]  # one pair a layer
Model = Callable[..., tuple[torch.Tensor, Past]]  # called as model(idx, past=None)


class OffsetBugGPT(GPT):
    """Stage 1's GPT, but for one thing: its new positions start at 0 on every call."""

    def forward(self, idx: torch.Tensor, past: Past | None = None) -> tuple[torch.Tensor, list[Pair]]:
        """Do what your stage 1 does, and tell the new tokens that they stand at 0 … T-1, whatever the past.

            right   x = wte(idx) + wpe(P … P+T-1)
            here    x = wte(idx) + wpe(0 … T-1)

        Args:
            idx: (B, T) int64, the new tokens only.
            past: None, or a list or tuple of L pairs, one a layer.

        Returns:
            logits (B, T, V) and L presents, as in stage 1: the cache grows as it should, and the mask is
            right.

        Raises:
            ValueError: S = P + T is more than block_size, as in stage 1.

        One size: a prompt of 5 in one call stands at 0, 1, 2, 3, 4, and its logits are right to the last bit.
        The next token should stand at 5, and stands at 0; the one after it should stand at 6, and stands at
        0.

        The trap: break one thing. Without a past this model is right, and it has to stay right.
        """
        T = idx.shape[1]
        P = 0 if past is None else past[0][0].shape[2]
        if self.cfg.block_size < P + T:
            raise ValueError(f"`{P}` cached + `{T}` new positions exceed block_size `{self.cfg.block_size}`")

        pos = torch.arange(T, device=idx.device)  # the bug: should be P … P+T-1
        x = self.wte(idx) + self.wpe(pos)  # (B, T, C)
        presents = []
        for layer, block in enumerate(self.h):
            x, present = block(x, None if past is None else past[layer])
            presents.append(present)
        return self.lm_head(self.ln_f(x)), presents  # (B, T, V)


def first_bad_step(model: Model, idx: torch.Tensor, n_new: int) -> int | None:
    """Find the first generated token on which a model and its own cache disagree.

        cached      the prompt in one call, then one new token a call, with the past
        uncached    the whole text again for every token, without a past

    Args:
        model: any callable `model(idx, past=None) -> (logits (B, T, V), presents)`.
        idx: (B, P0) int64, the prompt; it is not changed.
        n_new: how many tokens to compare at most.

    Returns:
        The step, counted from 0, on which some row picks another token with the cache than without; None if
        they agree n_new times, so always None for n_new = 0.

    One size: a prompt of 5, then "a b c" uncached and "a b d" cached: 2, though d is the text's column 7.

    The trap: compare the two readings of *one* model, not yours with a right one: a test that needs a right
    model to begin with is no help to whoever has none. Token 0 comes from the same call on both sides, so a
    bug that needs a past can't show before token 1. And it may hide for longer: a wrong model often picks the
    right token.
    """
    text, new, past = idx, idx, None
    with torch.no_grad():
        for step in range(n_new):
            cached, past = model(new, past=past)
            uncached, _ = model(text)
            new = cached[:, -1].argmax(dim=-1, keepdim=True)  # (B, 1)
            if not torch.equal(new, uncached[:, -1].argmax(dim=-1, keepdim=True)):
                return step
            text = torch.cat([text, new], dim=1)  # one text: up to here both have picked the same
    return None
