"""Stage 2: the loop shows the model the prompt once, then one token at a time, and writes the same text."""

import pytest
import torch

from grader import expect, probe

check = pytest.mark.check

PROMPT = "HAMLET.\nTo be, or not to be"


def generate(student, model, idx, n_new):
    """Call the student's loop; return the pair that it must return."""
    return expect.two(
        student.generate_cache(model, idx, n_new), "what generate_cache returns", "(tokens, past)"
    )


@check(weight=2, category="the tokens")
def test_same_tokens_as_uncached(student, oracle, rng):
    """The tokens are those of the uncached loop"""
    spy, idx, want = probe.story(oracle, rng, sizes=(1, 6, 8))
    tokens, _ = generate(student, spy, idx, 8)
    expect.tokens(tokens, "the tokens", want, start=6)


@check(weight=1, category="several texts in one batch")
def test_every_row_of_the_batch(student, oracle, rng):
    """Every row of a batch is continued by its own tokens"""
    spy, idx, want = probe.story(oracle, rng, sizes=(3, 4, 7))
    tokens, _ = generate(student, spy, idx, 7)
    expect.tokens(tokens, "the tokens", want, start=4)


@check(weight=1, category="the prompt's call")
def test_prompt_goes_in_at_once(student, oracle, rng):
    """The first call gets the prompt: all of it, or all but its last token"""
    spy, idx, _ = probe.story(oracle, rng, sizes=(2, 6, 5))
    generate(student, spy, idx, 5)
    expect.that(
        len(spy.fed) >= 5, f"5 new tokens take at least 5 calls of the model, there were {len(spy.fed)}"
    )
    fed = spy.fed[0]
    expect.that(
        fed in (6, 5), f"the first call was fed {fed} positions; the prompt has 6, and goes in in one call"
    )


@check(weight=8, category="what each step feeds")
def test_one_position_a_step(student, oracle, rng):
    """After the prompt, every call is fed exactly one position"""
    spy, idx, _ = probe.story(oracle, rng, sizes=(2, 6, 7))
    generate(student, spy, idx, 7)
    expect.that(
        len(spy.fed) >= 7, f"7 new tokens take at least 7 calls of the model, there were {len(spy.fed)}"
    )
    for i, T in enumerate(spy.fed[1:], start=2):
        again = "; that is the whole text over again, so the cache saves nothing" if 5 + i == T else ""
        expect.that(T == 1, f"call {i} was fed {T} positions, not 1{again}")


@check(weight=1, category="the cache that is returned")
def test_cache_holds_the_text_once(student, oracle, rng):
    """The cache that comes back holds the text: every token once, in order"""
    spy, idx, want = probe.story(oracle, rng, sizes=(2, 5, 6))
    _, past = generate(student, spy, idx, 6)
    pairs = expect.cache(past, "the returned cache", spy.cfg, 2, torch.float64)
    S = pairs[0][0].shape[2]
    expect.that(S in (10, 11), f"after 5 + 6 tokens the cache holds 10 positions (or 11), not {S}")
    text, fault = spy.text_in(pairs)
    expect.that(not fault, f"the returned cache is not what the model made: {fault}")
    expect.tokens(text, "the text in the cache", want[:, :S])
    expect.that(not spy.complaints, "; ".join(spy.complaints))


@check(weight=1, category="the last forward pass")
def test_no_wasted_last_pass(student, oracle, rng):
    """The last new token is not fed: no pass is spent on a token that nobody asked for"""
    spy, idx, _ = probe.story(oracle, rng, sizes=(2, 5, 6))
    generate(student, spy, idx, 6)
    said = f"the last call brought the model to {spy.seen} positions; for 5 + 6 tokens it needs 10"
    expect.that(spy.seen >= 10, said)
    expect.that(spy.seen == 10, said + ", since nobody asks what follows the last one")


@check(weight=1, category="autograd")
def test_no_graph_is_kept(student, oracle, rng):
    """No autograd graph is kept from step to step"""
    spy, idx, _ = probe.story(oracle, rng, sizes=(2, 5, 4))
    tokens, past = generate(student, spy, idx, 4)
    pairs = expect.cache(past, "the returned cache", spy.cfg, 2, torch.float64)
    kept = any(call.past_requires_grad for call in spy.calls) or probe.requires_grad(past)
    expect.that(
        not kept, "the cache still hangs on autograd's graph, which grows with every step: use no_grad"
    )
    expect.that(bool(pairs) and not probe.requires_grad(tokens), "the tokens hang on autograd's graph")


@check(weight=1, category="very few new tokens")
def test_none_and_one_new_token(student, oracle, rng):
    """With n_new = 0 the prompt comes back; with n_new = 1 one token more"""
    spy, idx, want = probe.story(oracle, rng, sizes=(2, 5, 1))
    tokens, _ = generate(student, spy, idx, 0)
    expect.tokens(tokens, "the tokens for n_new = 0", idx, start=5)
    expect.that(len(spy.calls) <= 1, f"n_new = 0 needs no call of the model, there were {len(spy.calls)}")
    tokens, _ = generate(student, spy, idx, 1)
    expect.tokens(tokens, "the tokens for n_new = 1", want, start=5)


@check(weight=1, category="first_mismatch")
def test_first_mismatch(student, rng):
    """first_mismatch: the first column that differs, where the shorter text ends, or None"""
    a = torch.tensor([[5, 6, 7, 8], [1, 2, 3, 4]])
    b = torch.tensor([[5, 6, 7, 9], [1, 0, 3, 4]])
    got = student.first_mismatch(a, b)
    expect.that(expect.integer(got, "first_mismatch") == 1, f"row 1 differs in column 1 already, not {got}")
    got = student.first_mismatch(a, a.clone())
    expect.that(got is None, f"for equal texts it is None, not {expect.shown(got)}")
    got = student.first_mismatch(a, a[:, :3])
    expect.that(expect.integer(got, "first_mismatch") == 3, f"the shorter text ends in column 3, not {got}")


@check(weight=1, category="a trained model")
def test_continues_the_play(student, oracle, rng, small, text):
    """The small trained model continues the play as it does without a cache"""
    idx = torch.tensor([text(PROMPT)])
    want = oracle.generate_nocache(small, idx, 14)
    spy = probe.Probe(small, small.cfg, rng)
    tokens, _ = generate(student, spy, idx, 14)
    got = expect.tensor(tokens, "the tokens", want.shape, torch.int64)
    written, wanted = (text(ids[0].clamp(0, 255).tolist()) for ids in (got, want))
    expect.that(torch.equal(got, want), f"it writes {written!r}, without a cache {wanted!r}")
