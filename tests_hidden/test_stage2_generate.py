"""Stage 2, harsher: exact ties, prompts of one token, long texts, models used twice, other containers."""

from typing import NamedTuple

import pytest
import torch

from grader import expect, probe

check = pytest.mark.check


class KV(NamedTuple):
    """A pair by another name."""

    k: torch.Tensor
    v: torch.Tensor


def made_of(keys_and_values):
    """Make a NamedTuple of two."""
    return KV(*keys_and_values)


def generate(student, *args, **kwargs):
    """Call the student's loop; return the pair that it must return."""
    return expect.two(
        student.generate_cache(*args, **kwargs), "what generate_cache returns", "(tokens, past)"
    )


@check(weight=0.5, category="other lengths of prompt and text")
@pytest.mark.parametrize(
    ("B", "P", "n_new"), [(1, 1, 9), (2, 1, 5), (1, 17, 2), (3, 5, 13), (1, 3, 34)],
    ids=["one-token", "one-token-each", "long-prompt", "batch", "long-text"],
)  # fmt: skip
def test_tokens_of_other_lengths(student, oracle, rng, B, P, n_new):
    """The tokens are right for short and long prompts and texts"""
    spy, idx, want = probe.story(oracle, rng, (B, P, n_new))
    tokens, _ = generate(student, spy, idx, n_new)
    expect.tokens(tokens, "the tokens", want, start=P)


@check(weight=3, category="what the model is fed")
@pytest.mark.parametrize(("B", "P", "n_new"), [(3, 7, 6), (1, 1, 8)], ids=["batch", "one-token"])
def test_model_is_fed_each_token_once(student, oracle, rng, B, P, n_new):
    """Each token is fed once, in order, on a cache that holds all before it"""
    spy, idx, want = probe.story(oracle, rng, (B, P, n_new))
    generate(student, spy, idx, n_new)
    expect.that(len(spy.calls) >= n_new, "the model was called less often than there are new tokens")
    done = 0
    for i, call in enumerate(spy.calls):
        T = call.fed.shape[1]
        expect.that(
            call.past.shape[1] == done, f"call {i + 1} came with a past of another length than was fed"
        )
        expect.that(T == 1 or (i == 0 and T in (P, P - 1)), f"call {i + 1} was fed {T} positions")
        done += T
        expect.tokens(call.fed, f"what call {i + 1} was fed", want[:, done - T : done])
    expect.that(not spy.complaints, "; ".join(spy.complaints))


@check(weight=0.5, category="the cache that is returned")
@pytest.mark.parametrize("n_new", [1, 2, 11], ids=["one", "two", "many"])
def test_returned_cache(student, oracle, rng, n_new):
    """The cache that comes back is the last call's, whole"""
    spy, idx, want = probe.story(oracle, rng, (3, 7, n_new))
    _, past = generate(student, spy, idx, n_new)
    pairs = expect.cache(past, "the returned cache", spy.cfg, 3, torch.float64)
    S = pairs[0][0].shape[2]
    expect.that(S in (6 + n_new, 7 + n_new), f"after 7 + {n_new} tokens the cache holds {S} positions")
    text, fault = spy.text_in(pairs)
    expect.that(not fault, f"the returned cache is not what the model made: {fault}")
    expect.tokens(text, "the text in the cache", want[:, :S])
    expect.that(not probe.requires_grad(past), "the cache hangs on autograd's graph")


@check(weight=1, category="exact ties")
def test_ties_go_to_the_lowest_id(student, oracle, rng):
    """Where several tokens are exactly equal, the lowest id is taken"""
    cfg = oracle.Config(n_layer=2, n_head=2, n_embd=14, block_size=64, vocab_size=37)
    brain = probe.tied(rng, cfg.vocab_size)
    idx = probe.ids(rng, cfg, 4, 3)
    want = probe.greedy_lowest(brain, idx, 12)
    tokens, _ = generate(student, probe.Probe(brain, cfg, rng), idx, 12)
    expect.tokens(tokens, "the tokens", want, start=3)


@check(weight=1, category="the caller's prompt")
def test_prompt_is_not_changed(student, oracle, rng):
    """The tensor that holds the prompt is not changed"""
    spy, idx, _ = probe.story(oracle, rng, (2, 5, 4))
    before = idx.clone()
    mine, _ = generate(student, spy, idx, 0)  # a tensor of the student's own, which can be looked at again
    expect.tokens(mine, "the tokens for n_new = 0", before)
    generate(student, spy, mine, 4)
    expect.that(len(spy.calls) >= 4, "the model was called less often than there are new tokens")
    after, _ = generate(student, spy, mine, 0)
    expect.tokens(after, "the prompt, after text was generated from it", before)
    expect.tokens(idx, "the prompt, after text was generated from it", before)


@check(weight=1, category="the same loop used twice")
def test_used_twice(student, oracle, rng):
    """A second text, and a second model, start afresh"""
    spy, idx, want = probe.story(oracle, rng, (4, 5, 5))
    other_spy, other_idx, other_want = probe.story(oracle, rng, (2, 3, 4))
    texts = [(spy, idx[:2], want[:2]), (spy, idx[2:3], want[2:3]), (other_spy, other_idx, other_want)]
    for model, prompt, tokens in [*texts, (spy, idx[1:], want[1:])]:
        (B, P), total = prompt.shape, tokens.shape[1]
        got, past = generate(student, model, prompt, total - P)
        expect.tokens(got, "the tokens", tokens, start=P)
        pairs = expect.cache(past, "the returned cache", model.cfg, B, torch.float64)
        S = pairs[0][0].shape[2]
        expect.that(S in (total - 1, total), f"the cache of a new text of {total} tokens holds {S} positions")


@check(weight=0.5, category="other forms of cache, calls by keyword")
@pytest.mark.parametrize(
    "forms", [(tuple, tuple), (tuple, list), (list, made_of)], ids=["tuples", "lists", "named"]
)
def test_other_containers_and_keywords(student, oracle, rng, forms):
    """The model's cache may be made of lists, tuples or NamedTuples; arguments may be named"""
    spy, idx, want = probe.story(oracle, rng, (2, 6, 6), forms=forms)
    tokens, _ = generate(student, model=spy, idx=idx, n_new=6)
    expect.tokens(tokens, "the tokens", want, start=6)
    expect.that(not spy.complaints, "; ".join(spy.complaints))


@check(weight=1, category="a text as long as the model can read")
def test_text_of_block_size(student, oracle, rng):
    """A text may be as long as block_size"""
    spy, idx, want = probe.story(oracle, rng, (2, 9, 12), block_size=21)
    tokens, _ = generate(student, spy, idx, 12)
    expect.tokens(tokens, "the tokens", want, start=9)


@check(weight=1, category="first_mismatch")
def test_first_mismatch_at_the_edges(student, rng):
    """first_mismatch: any row, any column, any lengths, and an int"""
    a = torch.randint(100, (3, 17), generator=rng)
    for column in (0, 1, 9, 16):
        for row in range(3):
            b = a.clone()
            b[row, column] += 1
            b[(row + 1) % 3, column:] += 3
            got = expect.integer(student.first_mismatch(a, b), "first_mismatch")
            expect.that(got == column, f"the texts differ in column {column} first, not {got}")
            got = expect.integer(student.first_mismatch(b[:, :17], a[:, : column + 1]), "first_mismatch")
            expect.that(got == column, f"texts of unequal length differ in column {column} first, not {got}")
    for n, m in ((17, 5), (5, 17), (0, 3), (1, 0)):
        got = expect.integer(student.first_mismatch(a=a[:, :n], b=a[:, :m]), "first_mismatch")
        expect.that(
            got == min(n, m), f"of {n} and {m} equal columns the shorter ends at {min(n, m)}, not {got}"
        )
    for n in (17, 1, 0):
        got = student.first_mismatch(a[:, :n], a[:, :n].clone())
        expect.that(got is None, f"two equal texts of {n} columns have no mismatch, not {expect.shown(got)}")
