"""Stage 4, harsher: caches in which nothing may be taken for granted."""

from typing import NamedTuple

import pytest
import torch

from grader import expect, probe

check = pytest.mark.check

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.uint8)


class KV(NamedTuple):
    """A pair by another name."""

    k: torch.Tensor
    v: torch.Tensor


@check(weight=2, category="caches of unequal parts")
def test_layers_and_halves_may_differ(student, rng):
    """cache_bytes: layers may differ in length and dtype, and keys from values"""
    for layers in (1, 2, 5):
        past, want = [], 0
        for _ in range(layers):
            pair = []
            for _ in range(2):
                H, S, D, kind = (
                    probe.number(rng, low, high) for low, high in ((1, 6), (2, 19), (1, 9), (0, 5))
                )
                pair.append(torch.zeros(2, H, S, D, dtype=DTYPES[kind]))
                want += 2 * H * S * D * DTYPES[kind].itemsize
            past.append(tuple(pair))
        expect.bytes_are(student.cache_bytes(past), want, f"a cache of {layers} unequal layers")


@check(weight=1, category="views")
def test_views_count_in_full(student, rng):
    """cache_bytes: views, and tensors that share storage, count as what they are, each in full"""
    S = probe.number(rng, 5, 20)
    buffer = torch.zeros(2, 3, 40, 4)
    one_head = torch.zeros(2, 1, S, 4)
    cases = {
        "views into a bigger buffer": ([(buffer[:, :, :S], buffer[:, :, S : 2 * S])], 2 * 2 * 3 * S * 4 * 4),
        "one head seen as six": ([(one_head.expand(2, 6, S, 4), one_head)], (6 + 1) * 2 * S * 4 * 4),
        "the same pair in two layers": ([(one_head, one_head)] * 2, 4 * 2 * S * 4 * 4),
        "transposed views": ([(buffer.transpose(1, 2), buffer[:, :, ::2])], (40 + 20) * 2 * 3 * 4 * 4),
    }
    for what, (past, want) in cases.items():
        expect.bytes_are(student.cache_bytes(past), want, what)


@check(weight=1, category="forms of cache")
def test_forms_of_cache(student, rng):
    """cache_bytes: lists, tuples and NamedTuples, caches of no positions, arguments by name"""
    S = probe.number(rng, 3, 30)
    k, v = torch.zeros(1, 2, S, 3), torch.zeros(1, 2, S, 5, dtype=torch.bfloat16)
    want = 3 * (2 * S * 3 * 4 + 2 * S * 5 * 2)
    for past in ([(k, v)] * 3, ((k, v),) * 3, [[k, v]] * 3, tuple(KV(k, v) for _ in range(3))):
        expect.bytes_are(student.cache_bytes(past=past), want, "a cache of 3 layers")
    expect.bytes_are(student.cache_bytes([(k[:, :, :0], v[:, :, :0])] * 2), 0, "a cache of no positions")


@check(weight=1, category="bytes of one token")
def test_bytes_of_any_token(student, rng):
    """kv_bytes_per_token: any sizes, as an int"""
    for _ in range(5):
        L, K, D, size = (probe.number(rng, low, high) for low, high in ((1, 99), (1, 64), (1, 300), (1, 8)))
        got = student.kv_bytes_per_token(n_layer=L, n_kv_head=K, head_dim=D, bytes_per_number=size)
        expect.bytes_are(
            got, 2 * L * K * D * size, f"a token: {L} layers, {K} heads of {D}, {size} bytes each"
        )
