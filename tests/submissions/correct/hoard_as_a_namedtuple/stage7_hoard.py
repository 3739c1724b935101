from __future__ import annotations

from typing import NamedTuple

import torch
import torch.utils._pytree as pytree
from stage1_attention import Attention


class Hoard(NamedTuple):
    k: torch.Tensor
    v: torch.Tensor
    q: torch.Tensor
    x: torch.Tensor


class HoardingAttention(Attention):
    """Listens to its own projection."""

    def forward(self, x, past=None):
        heard = []
        hook = self.c_attn.register_forward_hook(lambda module, args, out: heard.append(out))
        try:
            y, present = super().forward(x, None if past is None else tuple(past[:2]))
        finally:
            hook.remove()
        k, v = present
        q = heard[0].tensor_split(3, dim=-1)[0].unflatten(-1, (k.size(1), k.size(3))).movedim(1, 2)
        if past is None:
            return y, Hoard(k, v, q.contiguous(), x.clone())
        return y, Hoard(k, v, torch.cat((past[2], q), -2), torch.cat((past[3], x), -2))


def hoard_ratio(past) -> float:
    held = sum(t.nbytes for t in pytree.tree_leaves(list(map(tuple, past))))
    needed = sum(pytree.tree_leaves([(k.nbytes, v.nbytes) for k, v, *_ in past]))
    return held / needed
