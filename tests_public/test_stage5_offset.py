"""Stage 5: new positions that start at 0 on every call, that bug and no other; and where it shows."""

import pytest

from grader import bugged, claims, expect, probe, twofaced

check = pytest.mark.check
pytestmark = pytest.mark.usefixtures("own_stage1")  # what is broken on purpose has to be right beforehand


def two_models(student, oracle, rng):
    """Build the student's OffsetBugGPT and our uncached GPT, with the same weights."""
    cfg = oracle.Config(n_layer=2, n_head=3, n_embd=15, block_size=40, vocab_size=29)
    ours = probe.hot(oracle.GPT(cfg), rng)
    return cfg, ours, expect.build(student, "OffsetBugGPT", cfg, ours)


def goes_astray(student, story):
    """Build the student's model; fail unless it continues a prompt as the bug does. Return it."""
    gpt = expect.build(student, "OffsetBugGPT", story.model.cfg, story.model)
    claims.astray(gpt, story)
    return gpt


@check(weight=1, category="the model without a past")
def test_right_without_a_past(student, oracle, rng):
    """OffsetBugGPT: with no past, the logits are right at every position"""
    cfg, ours, gpt = two_models(student, oracle, rng)
    for T in (7, 1):
        idx = probe.ids(rng, cfg, 2, T)
        expect.close(gpt(idx)[0], ours(idx), f"logits (2, {T}, V)")


@check(weight=2, category="where new positions stand")
def test_new_positions_start_at_0(student, oracle, rng):
    """OffsetBugGPT: with a past, each call's positions start at 0, and nothing else is wrong"""
    cfg, ours, gpt = two_models(student, oracle, rng)
    idx = probe.ids(rng, cfg, 2, 9)
    for chunks in ((6, 1, 1, 1), (4, 5), (3, 4, 2)):
        logits, _ = gpt.in_chunks(idx, chunks)
        want, _ = bugged.recomputed(ours, idx, bugged.restarting(chunks))
        claims.broken(logits, want, ours(idx), "logits", chunks)


@check(weight=1, category="the cache")
def test_cache_grows_as_ever(student, oracle, rng):
    """OffsetBugGPT: the cache grows as in stage 1, and holds the keys and values that this bug makes"""
    cfg, ours, gpt = two_models(student, oracle, rng)
    idx = probe.ids(rng, cfg, 2, 8)
    _, presents = gpt.in_chunks(idx, (5, 3))
    _, layers = bugged.recomputed(ours, idx, bugged.restarting((5, 3)))
    for number, ((k, v), layer) in enumerate(zip(presents, layers)):
        expect.close(k, layer.k, f"layer {number}'s keys", chunks=(5, 3))
        expect.close(v, layer.v, f"layer {number}'s values", chunks=(5, 3))


@check(weight=1, category="the text that the bug writes")
def test_text_goes_astray_soon(student, oracle, rng):
    """OffsetBugGPT: its text parts from the right one within a few tokens, as this bug makes it"""
    goes_astray(student, twofaced.early_story(oracle, rng, P0=6, n_new=9))


@check(weight=2, category="first_bad_step")
def test_first_bad_step(student, oracle, rng):
    """first_bad_step: the first new token, counted from 0, that differs; None where none does"""
    for step in (4, 1, None):
        model, idx = twofaced.flipping(oracle, rng, (1, 5, 8), [(0, step)] if step else [])
        claims.step(student.first_bad_step(model, idx, 8), [step], "first_bad_step")


@check(weight=1, category="first_bad_step on your own bug")
def test_first_bad_step_of_the_bug(student, oracle, rng):
    """first_bad_step finds the step at which your own OffsetBugGPT goes astray"""
    story = twofaced.early_story(oracle, rng, P0=5, n_new=6)
    gpt = goes_astray(student, story)
    claims.step(student.first_bad_step(gpt.module, story.idx, 6), [story.step], "first_bad_step")


@check(weight=1, category="first_bad_step at its edges")
def test_first_bad_step_at_the_edges(student, oracle, rng):
    """first_bad_step: no new tokens, one, and a difference that comes too late"""
    model, idx = twofaced.flipping(oracle, rng, (1, 5, 7), [(0, 6)])
    for n_new, want in ((0, None), (1, None), (6, None), (7, 6)):
        got = student.first_bad_step(model, idx, n_new)
        claims.step(got, [want], f"first_bad_step for n_new = {n_new}")
