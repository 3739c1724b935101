"""Stage 5, harsher: long texts in many pieces, branches, batches, and first steps that are hard to see."""

from typing import NamedTuple

import pytest
import torch

from grader import bugged, claims, expect, probe, twofaced

check = pytest.mark.check
pytestmark = pytest.mark.usefixtures("own_stage1")

PIECES = {"ones": [1] * 24, "uneven": [9, 1, 4, 10], "late": [17, 7]}


class KV(NamedTuple):
    """A pair by another name."""

    k: torch.Tensor
    v: torch.Tensor


def two(student, oracle, rng, dtype=torch.float64, **other):
    """Build the student's OffsetBugGPT and our uncached GPT, with the same weights."""
    sizes = {"n_layer": 3, "n_head": 2, "n_embd": 14, "block_size": 32, "vocab_size": 37} | other
    cfg = oracle.Config(**sizes)
    ours = probe.hot(oracle.GPT(cfg), rng, dtype)
    return cfg, ours, expect.build(student, "OffsetBugGPT", cfg, ours)


@check(weight=1, category="a long text in many pieces")
@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES.keys())
def test_long_text_in_pieces(student, oracle, rng, pieces):
    """OffsetBugGPT: the bug and no other, however a long text is cut"""
    cfg, ours, gpt = two(student, oracle, rng)
    idx = probe.ids(rng, cfg, 3, sum(pieces))
    logits, presents = gpt.in_chunks(idx, pieces)
    want, layers = bugged.recomputed(ours, idx, bugged.restarting(pieces))
    claims.broken(logits, want, ours(idx), "logits", pieces)
    for (k, v), layer in zip(presents, layers):
        expect.close(k, layer.k, "keys", chunks=pieces)
        expect.close(v, layer.v, "values", chunks=pieces)


@check(weight=1, category="a past that is used again")
def test_branches_and_forms_of_past(student, oracle, rng):
    """OffsetBugGPT: one past continued twice, pasts of other forms and of no positions, by keyword"""
    cfg, ours, gpt = two(student, oracle, rng)
    prompt, first, second = (probe.ids(rng, cfg, 2, n) for n in (6, 3, 3))
    _, past = gpt(prompt)
    _, pairs = probe.remembered(ours, prompt)
    for end, before in (
        (first, past), (second, past), (first, past), (second, tuple(KV(*pair) for pair in pairs)),
    ):  # fmt: skip
        whole = torch.cat([prompt, end], dim=1)
        want, _ = bugged.recomputed(ours, whole, bugged.restarting((6, 3)))
        logits, _ = gpt(past=before, idx=end)
        claims.broken(logits, want[:, 6:], ours(whole)[:, 6:], "logits on a past", (6, 3), start=6)
    empty = torch.zeros(2, cfg.n_head, 0, cfg.head_dim, dtype=torch.float64)
    logits, _ = gpt(prompt, [(empty, empty)] * cfg.n_layer)
    expect.close(logits, ours(prompt), "logits on a past of no positions")


@check(weight=1, category="the longest text")
def test_block_size_is_still_the_limit(student, oracle, rng):
    """OffsetBugGPT: block_size is the limit for past and present together, as in stage 1"""
    cfg, ours, gpt = two(student, oracle, rng, block_size=12)
    idx = probe.ids(rng, cfg, 2, 13)
    _, past = gpt(idx[:, :6])  # not as many as a head is wide
    expect.refuses(lambda: gpt.module(idx[:, 6:], past), "6 + 7 positions, block_size 12,")
    logits, _ = gpt(idx[:, 6:12], past)
    want, _ = bugged.recomputed(ours, idx[:, :12], bugged.restarting((6, 6)))
    expect.close(logits, want[:, 6:], "logits up to block_size", start=6)
    expect.close(gpt(idx[:, :12])[0], ours(idx[:, :12]), "logits of a text as long as block_size")
    expect.refuses(lambda: gpt.module(idx), "13 positions without a past, block_size 12,")


@check(weight=1, category="other sizes and dtypes")
def test_other_sizes_and_dtypes(student, oracle, rng):
    """OffsetBugGPT: one head and one layer, float32 and bfloat16"""
    one = {"n_head": 1, "n_layer": 1, "n_embd": 13}
    for dtype, sizes in ((torch.float64, one), (torch.float32, {}), (torch.bfloat16, {})):
        cfg, ours, gpt = two(student, oracle, rng, dtype, **sizes)
        idx = probe.ids(rng, cfg, 2, 9)
        logits, _ = gpt.in_chunks(idx, (4, 1, 4))
        want, _ = bugged.recomputed(ours, idx, bugged.restarting((4, 1, 4)))
        expect.close(logits, want, f"logits of this bug, {dtype}", expect.TOLERANCE[dtype], (4, 1, 4))


@check(weight=1, category="the text that the bug writes")
def test_other_texts_go_astray_soon(student, oracle, rng):
    """OffsetBugGPT: other texts go astray within a few tokens, too"""
    for P0 in (3, 11):
        story = twofaced.early_story(oracle, rng, P0, n_new=8)
        gpt = expect.build(student, "OffsetBugGPT", story.model.cfg, story.model)
        claims.astray(gpt, story)


@check(weight=1, category="first_bad_step of other texts")
@pytest.mark.parametrize(
    ("P0", "n_new", "steps", "want"),
    [(7, 12, [11], 11), (1, 9, [3], 3), (6, 8, [], None), (3, 9, [2, 3, 8], 2)],
    ids=["last", "one-token-prompt", "noise-only", "several"],
)
def test_first_bad_step_of_other_texts(student, oracle, rng, P0, n_new, steps, want):
    """first_bad_step: late and early steps, after short prompts and long; of tokens, not of logits"""
    model, idx = twofaced.flipping(oracle, rng, (1, P0, n_new), [(0, step) for step in steps])
    claims.step(student.first_bad_step(model=model, idx=idx, n_new=n_new), [want], "first_bad_step")


@check(weight=2, category="first_bad_step of a batch")
def test_first_bad_step_of_any_row(student, oracle, rng):
    """first_bad_step: the first step at which any row of a batch goes wrong"""
    model, idx = twofaced.flipping(oracle, rng, (3, 4, 7), [])
    for row in range(3):
        flips = [(row, 2), ((row + 1) % 3, 5)]
        model.says = twofaced.swapping([(i, 3 + step) for i, step in flips], bugged.unchanged)
        claims.step(student.first_bad_step(model, idx, 7), [2], f"first_bad_step, row {row} wrong first,")


@check(weight=1, category="first_bad_step of right models")
@pytest.mark.parametrize("name", ["ok", "square-mask"])
def test_first_bad_step_of_real_caches(student, oracle, rng, name):
    """first_bad_step: None for a real cache that is right, and for one that is right token by token"""
    spy, idx, _ = probe.story(oracle, rng, (2, 5, 8))
    model = bugged.Cached(spy.brain, bugged.BUGS.get(name, bugged.RIGHT))
    claims.step(student.first_bad_step(model, idx, 8), [None], "first_bad_step")
