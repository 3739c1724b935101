"""Stage 1: attention with a past must say, at every position, what the uncached gpt2.py says."""

import pytest
import torch

from grader import expect, probe

check = pytest.mark.check


def sizes(oracle):
    """Small sizes, all different, so that no dimension can be taken for another."""
    return oracle.Config(n_layer=2, n_head=3, n_embd=15, block_size=40, vocab_size=29)


def two_attentions(student, oracle, rng):
    """Build the student's Attention and ours, with the same weights."""
    cfg = sizes(oracle)
    ours = probe.hot(oracle.Attention(cfg), rng)
    return cfg, ours, expect.build(student, "Attention", cfg, ours)


def two_models(student, oracle, rng, dtype=torch.float64):
    """Build the student's GPT and ours, with the same weights."""
    cfg = sizes(oracle)
    ours = probe.hot(oracle.GPT(cfg), rng, dtype)
    return cfg, ours, expect.build(student, "GPT", cfg, ours)


@check(weight=1, category="the model without a past")
def test_one_call_without_a_past(student, oracle, rng):
    """With no past, the model gives gpt2.py's logits at every position"""
    cfg, ours, gpt = two_models(student, oracle, rng)
    for T in (7, 1):
        idx = probe.ids(rng, cfg, 2, T)
        logits, _ = gpt(idx)
        expect.close(logits, ours(idx), f"logits (2, {T}, V)")


@check(weight=1, category="attention, one new position")
def test_attention_with_one_new_position(student, oracle, rng):
    """Attention: one new position looks at the whole past and at itself"""
    cfg, ours, attention = two_attentions(student, oracle, rng)
    x = probe.inputs(rng, cfg, 2, 8)
    y, _ = attention.in_chunks(x, (7, 1))
    expect.close(y, ours(x), "attention's y", chunks=(7, 1))


@check(weight=2, category="the mask, several new positions on a past")
def test_attention_with_several_new_positions(student, oracle, rng):
    """Attention: query j of several new ones sees keys 0 to P + j, no more and no fewer"""
    cfg, ours, attention = two_attentions(student, oracle, rng)
    x = probe.inputs(rng, cfg, 2, 11)
    for chunks in ((7, 4), (2, 9)):
        y, _ = attention.in_chunks(x, chunks)
        expect.close(y, ours(x), "attention's y", chunks=chunks)


@check(weight=2, category="the keys and values that attention hands back")
def test_keys_and_values_handed_back(student, oracle, rng):
    """Attention hands back the projection's own keys and values, (B, H, S, D), the oldest first"""
    cfg, ours, attention = two_attentions(student, oracle, rng)
    x = probe.inputs(rng, cfg, 2, 11)
    _, (keys, values) = probe.attended(ours, x, cfg)
    for chunks in ((11,), (7, 4)):
        _, (k, v) = attention.in_chunks(x, chunks)
        expect.close(k, keys, "the keys handed back", expect.PROJECTION, chunks)
        expect.close(v, values, "the values handed back", expect.PROJECTION, chunks)


@check(weight=1, category="the block")
def test_block_passes_its_past_on(student, oracle, rng):
    """Block: with a past it gives gpt2.py's output, and attention's new pair"""
    cfg = sizes(oracle)
    ours = probe.hot(oracle.Block(cfg), rng)
    block = expect.build(student, "Block", cfg, ours)
    x = probe.inputs(rng, cfg, 2, 9)
    y, _ = block.in_chunks(x, (5, 3, 1))
    expect.close(y, ours(x), "the block's x", chunks=(5, 3, 1))


@check(weight=2, category="one position at a time")
def test_one_position_at_a_time(student, oracle, rng):
    """The model fed one position at a time gives the same logits as fed at once"""
    cfg, ours, gpt = two_models(student, oracle, rng)
    idx = probe.ids(rng, cfg, 2, 9)
    logits, _ = gpt.in_chunks(idx, [1] * 9)
    expect.close(logits, ours(idx), "logits", chunks=[1] * 9)


@check(weight=2, category="a prompt in pieces")
def test_prompt_in_pieces(student, oracle, rng):
    """The model fed in pieces of several positions gives the same logits as fed at once"""
    cfg, ours, gpt = two_models(student, oracle, rng)
    idx = probe.ids(rng, cfg, 2, 13)
    for chunks in ((7, 6), (1, 4, 5, 3)):
        logits, _ = gpt.in_chunks(idx, chunks)
        expect.close(logits, ours(idx), "logits", chunks=chunks)


@check(weight=1, category="the cache's dtype")
def test_cache_keeps_the_dtype(student, oracle, rng):
    """The cache has the dtype that the model runs in: float32, bfloat16"""
    for dtype in (torch.float32, torch.bfloat16):
        cfg, _, gpt = two_models(student, oracle, rng, dtype)
        gpt.in_chunks(probe.ids(rng, cfg, 2, 9), (5, 4))


@check(weight=2, category="one prefill continued twice")
def test_one_prefill_continued_twice(student, oracle, rng):
    """A past is never changed: one prefill can be continued in two ways, one after the other"""
    cfg, ours, gpt = two_models(student, oracle, rng)
    prompt, first, second = (probe.ids(rng, cfg, 2, n) for n in (6, 3, 3))
    _, past = gpt(prompt)
    for continuation, which in ((first, "first"), (second, "second"), (first, "repeated")):
        logits, _ = gpt(continuation, past)
        want = ours(torch.cat([prompt, continuation], dim=1))[:, 6:]
        expect.close(logits, want, f"logits of the {which} continuation", start=6)


@check(weight=1, category="a past of no positions")
def test_empty_past_is_no_past(student, oracle, rng):
    """A past of no positions (P = 0) means the same as no past"""
    cfg, ours, gpt = two_models(student, oracle, rng)
    idx = probe.ids(rng, cfg, 2, 5)
    empty = torch.zeros(2, cfg.n_head, 0, cfg.head_dim, dtype=torch.float64)
    for past in (None, [(empty, empty)] * cfg.n_layer):
        logits, _ = gpt(idx, past)
        expect.close(logits, ours(idx), f"logits with past={'None' if past is None else 'pairs with P = 0'}")


@check(weight=1, category="the longest text")
def test_block_size_is_the_limit(student, oracle, rng):
    """Exactly block_size positions are legal; one more raises ValueError"""
    cfg, ours, gpt = two_models(student, oracle, rng)
    idx = probe.ids(rng, cfg, 1, cfg.block_size + 1)
    full = idx[:, : cfg.block_size]
    logits, past = gpt.in_chunks(full, (cfg.block_size - 1, 1))
    expect.close(logits, ours(full), "logits")
    expect.refuses(lambda: gpt.module(idx[:, -1:], past), "one position more than block_size")
