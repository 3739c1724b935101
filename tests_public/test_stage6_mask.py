"""Stage 6: two masks, each wrong in exactly its own way, and the prompt in pieces that shows it."""

import pytest
import torch

from grader import bugged, claims, expect, probe

check = pytest.mark.check
pytestmark = pytest.mark.usefixtures("own_stage1")  # what is broken on purpose has to be right beforehand


def two_attentions(student, oracle, rng, name):
    """Build the student's attention and ours, with the same weights."""
    cfg = oracle.Config(n_layer=2, n_head=3, n_embd=15, block_size=40, vocab_size=29)
    ours = probe.hot(oracle.Attention(cfg), rng)
    return cfg, ours, expect.build(student, name, cfg, ours)


@check(weight=1, category="no mask, without a past")
def test_no_mask_without_a_past(student, oracle, rng):
    """NoMaskAttention: with no past, every query sees every key, those after it too"""
    cfg, ours, attention = two_attentions(student, oracle, rng, "NoMaskAttention")
    for T in (7, 2, 1):
        x = probe.inputs(rng, cfg, 2, T)
        want, _ = bugged.attended(ours, x, bugged.unmasked(0, T))
        claims.broken(attention(x)[0], want, ours(x), "attention's y", [T])


@check(weight=1, category="no mask, on a past")
def test_no_mask_on_a_past(student, oracle, rng):
    """NoMaskAttention: with a past, every query sees the whole past and all that is new"""
    cfg, ours, attention = two_attentions(student, oracle, rng, "NoMaskAttention")
    x = probe.inputs(rng, cfg, 2, 9)
    for chunks in ((5, 4), (3, 1, 5)):
        y, _ = attention.in_chunks(x, chunks)
        want, _ = bugged.attended(ours, x, bugged.in_calls(bugged.unmasked, chunks))
        claims.broken(y, want, ours(x), "attention's y", chunks)


@check(weight=1, category="the square mask, where it is right")
def test_square_mask_is_right_at_first(student, oracle, rng):
    """SquareMaskAttention: right without a past, and right for single positions on one"""
    cfg, ours, attention = two_attentions(student, oracle, rng, "SquareMaskAttention")
    x = probe.inputs(rng, cfg, 2, 8)
    for chunks in ((8,), (5, 1, 1, 1), [1] * 8):
        y, _ = attention.in_chunks(x, chunks)
        expect.close(y, ours(x), "attention's y, which is still right here", chunks=chunks)


@check(weight=2, category="the square mask, where it is wrong")
def test_square_mask_is_wrong_in_the_second_piece(student, oracle, rng):
    """SquareMaskAttention: several queries on a past see keys 0 to j, and nothing else"""
    cfg, ours, attention = two_attentions(student, oracle, rng, "SquareMaskAttention")
    x = probe.inputs(rng, cfg, 2, 11)
    for chunks in ((7, 4), (2, 9), (3, 1, 5, 2)):
        y, _ = attention.in_chunks(x, chunks)
        want, _ = bugged.attended(ours, x, bugged.in_calls(bugged.square, chunks))
        claims.broken(y, want, ours(x), "attention's y", chunks)


@check(weight=1, category="the keys and values that are handed back")
@pytest.mark.parametrize("name", ["NoMaskAttention", "SquareMaskAttention"], ids=["no-mask", "square"])
def test_cache_is_stage_1s(student, oracle, rng, name):
    """The cache is stage 1's: the projection's own keys and values, the oldest first"""
    cfg, ours, attention = two_attentions(student, oracle, rng, name)
    x = probe.inputs(rng, cfg, 2, 9)
    _, (k, v) = attention.in_chunks(x, (4, 3, 1, 1))
    _, layer = bugged.attended(ours, x, bugged.causal(0, 9))
    expect.close(k, layer.k, "the keys handed back", expect.PROJECTION)
    expect.close(v, layer.v, "the values handed back", expect.PROJECTION)


@check(weight=2, category="chunked_prefill")
def test_chunked_prefill(student, oracle, rng):
    """chunked_prefill: pieces of `chunk` positions, the last one shorter, and every position's logits"""
    cfg = oracle.Config(n_layer=2, n_head=3, n_embd=15, block_size=40, vocab_size=29)
    ours = probe.hot(oracle.GPT(cfg), rng)
    for T, chunk, pieces in ((7, 3, [3, 3, 1]), (6, 2, [2, 2, 2]), (4, 9, [4])):
        idx = probe.ids(rng, cfg, 2, T)
        spy = probe.Probe(ours, cfg, rng)
        logits, presents = expect.two(
            student.chunked_prefill(spy, idx, chunk), "what chunked_prefill returns", "(logits, presents)"
        )
        expect.that(spy.fed == pieces, f"{T} positions in pieces of {chunk} are {pieces}, not {spy.fed}")
        logits = expect.tensor(logits, "logits", (2, T, cfg.vocab_size), torch.float64)
        expect.close(logits, ours(idx), "logits", chunks=pieces)
        pairs = expect.pairs(presents, "presents", cfg.n_layer, (2, 3, T, 5), torch.float64)
        text, fault = spy.text_in(pairs)
        expect.that(not fault, f"presents are not what the model made: {fault}")
        expect.tokens(text, "the text in the cache", idx)


@check(weight=2, category="chunk_gap")
def test_chunk_gap(student, oracle, rng):
    """chunk_gap: rounding for a right model, and the whole of the difference for a wrong one"""
    cfg = oracle.Config(n_layer=2, n_head=3, n_embd=15, block_size=40, vocab_size=29)
    ours = probe.hot(oracle.GPT(cfg), rng)
    for name, chunk, pieces in (("square-mask", 5, (5, 3)), ("no-mask", 3, (3, 3, 2))):
        rules = bugged.BUGS[name]

        def difference(idx, rules=rules, pieces=pieces):
            whole, _ = bugged.recomputed(ours, idx, visible=rules.sees(0, 8))
            cut, _ = bugged.recomputed(ours, idx, visible=bugged.in_calls(rules.sees, pieces))
            return cut - whole

        idx, gap = bugged.telling(ours, rng, (2, 8), difference)
        got = student.chunk_gap(bugged.Cached(ours, rules), idx, chunk)
        claims.near(got, gap, f"chunk_gap of a model with {name}, in pieces of {chunk},")
        claims.near(student.chunk_gap(bugged.Cached(ours), idx, chunk), 0.0, "chunk_gap of a right model")
    single = student.chunk_gap(bugged.Cached(ours, bugged.BUGS["square-mask"]), idx, 1)
    claims.near(single, 0.0, "chunk_gap of a square mask, one position at a time,")
