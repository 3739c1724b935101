"""Stage 7: a cache that keeps too much: every output as before, and every byte of it accounted for."""

import pytest
import torch

from grader import bugged, claims, expect, probe

check = pytest.mark.check
pytestmark = pytest.mark.usefixtures("own_stage1")  # what is broken on purpose has to be right beforehand


def two_attentions(student, oracle, rng):
    """Build the student's HoardingAttention and our attention, with the same weights."""
    cfg = oracle.Config(n_layer=2, n_head=3, n_embd=15, block_size=40, vocab_size=29)
    ours = probe.hot(oracle.Attention(cfg), rng)
    return cfg, ours, claims.hoarder(student, cfg, ours)


def layer(B=1, H=2, S=5, D=4, C=8, dtype=torch.float32):
    """Make one layer's k, v, q and x."""
    return (*(torch.ones(B, H, S, D, dtype=dtype) for _ in range(3)), torch.ones(B, S, C, dtype=dtype))


@check(weight=2, category="the outputs")
def test_outputs_are_unchanged(student, oracle, rng):
    """HoardingAttention: the outputs are stage 1's, at every position, in one call and in pieces"""
    cfg, ours, attention = two_attentions(student, oracle, rng)
    x = probe.inputs(rng, cfg, 2, 9)
    for chunks in ((9,), (5, 1, 1, 2), (1, 8)):
        y, _ = attention.in_chunks(x, chunks)
        expect.close(y, ours(x), "attention's y", chunks=chunks)


@check(weight=2, category="what is kept")
def test_queries_and_inputs_are_kept(student, oracle, rng):
    """HoardingAttention: the cache holds (k, v, q, x) of every position, the oldest first"""
    cfg, ours, attention = two_attentions(student, oracle, rng)
    x = probe.inputs(rng, cfg, 2, 9)
    _, kept = bugged.attended(ours, x, bugged.causal(0, 9))
    for chunks in ((9,), (4, 3, 1, 1)):
        _, present = attention.in_chunks(x, chunks)
        for got, name in zip(attention.held(present, 2, 9), claims.HELD):
            want = getattr(kept, name)
            expect.close(got, want, f"the present's {name}", expect.PROJECTION, chunks)


@check(weight=1, category="hoard_ratio of one size")
def test_hoard_ratio_of_one_size(student):
    """hoard_ratio: bytes held by bytes needed; 2 where all four are of one size"""
    claims.near(student.hoard_ratio([layer() for _ in range(3)]), 2.0, "the ratio of GPT-2's kind of cache")


@check(weight=1, category="hoard_ratio of other sizes")
def test_hoard_ratio_of_other_sizes(student):
    """hoard_ratio: keys and values with fewer heads than queries, or in int8, make it larger"""
    k, v, q, x = layer(H=8, D=4, C=32)
    claims.near(
        student.hoard_ratio([(k[:, :2].clone(), v[:, :2].clone(), q, x)] * 2),
        5.0,
        "with 2 heads of keys for 8 of queries",
    )
    small = (k.to(torch.int8), v.to(torch.int8), q, x)
    claims.near(student.hoard_ratio([small]), 5.0, "with keys and values in int8")
    both = [(k, v, q, x), small]
    claims.near(student.hoard_ratio(both), 2.6, "of a float32 layer and one with int8 keys and values")
