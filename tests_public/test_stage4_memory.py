"""Stage 4: the bytes that a cache holds, counted and worked out."""

import pytest
import torch

from grader import expect, probe

check = pytest.mark.check


def layer(B=1, H=2, S=5, D=4, dtype=torch.float32):
    """Make one layer's keys and values."""
    return torch.ones(B, H, S, D, dtype=dtype), torch.ones(B, H, S, D, dtype=dtype)


@check(weight=1, category="a plain cache")
def test_bytes_of_a_cache(student, rng):
    """cache_bytes: a small cache, and GPT-2's of 1011 positions in float32: 74,539,008 bytes"""
    S = probe.number(rng, 7, 99)  # drawn, so that no answer can be known beforehand
    past = [layer(B=2, H=3, S=S, D=5) for _ in range(3)]
    expect.bytes_are(student.cache_bytes(past), 720 * S, f"3 layers of 2 tensors (2, 3, {S}, 5) float32")
    # one number of storage, seen as (1, 12, 1011, 64): a cache counts as its tensors say
    keys = torch.zeros(1).expand(1, 12, 1011, 64)
    expect.bytes_are(student.cache_bytes([(keys, keys)] * 12), 74_539_008, "GPT-2's cache, 1011 positions")


@check(weight=1, category="dtypes")
def test_bytes_follow_the_dtype(student, rng):
    """cache_bytes: a number has 4 bytes, or 8, or 2, or 1"""
    S = probe.number(rng, 7, 99)
    for dtype, size in ((torch.float64, 8), (torch.float32, 4), (torch.bfloat16, 2), (torch.int8, 1)):
        past = [layer(H=3, S=S, dtype=dtype) for _ in range(2)]
        what = f"2 layers of 2 tensors (1, 3, {S}, 4) {dtype}"
        expect.bytes_are(student.cache_bytes(past), 48 * S * size, what)


@check(weight=1, category="bytes of one token")
def test_bytes_of_a_token(student, rng):
    """kv_bytes_per_token: GPT-2 and Llama 3 8B"""
    expect.bytes_are(student.kv_bytes_per_token(12, 12, 64, 4), 73_728, "a token of GPT-2 in float32")
    llama = {"n_layer": 32, "n_kv_head": 8, "head_dim": 128, "bytes_per_number": 2}
    expect.bytes_are(student.kv_bytes_per_token(**llama), 131_072, "a token of Llama 3 8B in bfloat16")
    L = probe.number(rng, 2, 99)
    expect.bytes_are(
        student.kv_bytes_per_token(L, 5, 48, 2), 960 * L, f"a token: {L} layers, 5 heads of 48, 2 bytes"
    )
