from __future__ import annotations

import operator
from functools import reduce

import numpy as np
import torch
from torch.utils._pytree import tree_leaves


def n_bytes(t: torch.Tensor) -> int:
    return int(np.prod(t.shape, dtype=np.int64)) * t.element_size()


def cache_bytes(past) -> int:
    return reduce(operator.add, map(n_bytes, tree_leaves(past)), 0)


def kv_bytes_per_token(n_layer: int, n_kv_head: int, head_dim: int, bytes_per_number: int) -> int:
    return int(np.array([n_layer, n_kv_head, head_dim, bytes_per_number, 2], dtype=np.int64).prod())
