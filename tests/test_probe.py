"""The probe answers as a cached model does, sees what it is fed, and says if its cache was tampered with."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from grader import probe

EXACT = {"rtol": 0.0, "atol": 1e-12}


class KV(NamedTuple):
    k: torch.Tensor
    v: torch.Tensor


@pytest.fixture
def model(oracle, rng):
    cfg = oracle.Config(n_layer=3, n_head=2, n_embd=10, block_size=19, vocab_size=23)
    return probe.hot(oracle.GPT(cfg), rng)


@pytest.fixture
def spy(model, rng):
    return probe.Probe(model, model.cfg, rng)


@pytest.fixture
def idx(model, rng):
    return probe.ids(rng, model.cfg, 3, 11)


def test_hot_weights_are_wide_and_gains_near_one(oracle, rng):
    model = probe.hot(
        oracle.GPT(oracle.Config(n_layer=2, n_head=2, n_embd=48, block_size=19, vocab_size=97)), rng
    )
    assert model.wte.weight.dtype == torch.float64
    assert not model.training
    assert 0.19 < float(model.wte.weight.std()) < 0.21
    assert 0.9 < float(model.ln_f.weight.mean()) < 1.1
    assert abs(float(model.ln_f.bias.mean())) < 0.1
    assert model.lm_head.weight is model.wte.weight


def test_remembered_keys_and_values_are_the_projections(model, idx):
    logits, pairs = probe.remembered(model, idx)
    torch.testing.assert_close(logits, model(idx), **EXACT)
    x = model.h[0].ln_1(model.wte(idx) + model.wpe(torch.arange(11)))
    y, (k, v) = probe.attended(model.h[0].attn, x, model.cfg)
    torch.testing.assert_close(y, model.h[0].attn(x), **EXACT)
    torch.testing.assert_close(pairs[0][0], k, **EXACT)
    torch.testing.assert_close(pairs[0][1], v, **EXACT)
    assert torch.equal(v.transpose(1, 2).reshape(3, 11, 10), model.h[0].attn.c_attn(x)[..., 20:])


@pytest.mark.parametrize("pieces", [[11], [1] * 11, [4, 6, 1], [3, 3, 5]], ids=str)
def test_probe_fed_in_pieces_agrees_with_the_uncached_model(model, spy, idx, pieces):
    outs, past = [], None
    for piece in idx.split(pieces, dim=1):
        logits, past = spy(piece, past)
        outs.append(logits)
    torch.testing.assert_close(torch.cat(outs, dim=1), model(idx), **EXACT)
    assert spy.fed == pieces
    assert spy.seen == 11
    assert spy.complaints == []
    text, fault = spy.text_in(past)
    assert torch.equal(text, idx)
    assert fault == ""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_codes_are_exact(oracle, rng, dtype):
    model = probe.hot(oracle.GPT(oracle.Config(2, 3, 12, 64, 256)), rng, dtype)
    spy = probe.Probe(model, model.cfg, rng)
    idx = probe.ids(rng, model.cfg, 4, 64)
    _, past = spy(idx)
    assert past[0][0].dtype == dtype
    text, fault = spy.text_in(past)
    assert torch.equal(text, idx)
    assert fault == ""


def test_two_layers_positions_or_halves_never_have_the_same_code(spy):
    _, past = spy(torch.zeros(1, 9, dtype=torch.int64))
    codes = torch.cat([t.transpose(1, 2).flatten(2).flatten(0, 1) for pair in past for t in pair])
    assert len(torch.unique(codes, dim=0)) == 9 * 6


def test_pasts_may_be_cloned_and_put_into_other_containers(model, spy, idx):
    _, past = spy(idx[:, :5])
    for form in (
        tuple(past), [list(pair) for pair in past], [KV(*pair) for pair in past],
        [tuple(t.clone() for t in pair) for pair in past],
    ):  # fmt: skip
        logits, _ = spy(idx[:, 5:], form)
        torch.testing.assert_close(logits, model(idx)[:, 5:], **EXACT)
    assert spy.complaints == []


def test_no_past_and_a_past_of_no_positions_are_the_same(model, spy, idx):
    logits, past = spy(idx[:, :0])
    assert logits.shape == (3, 0, 23)
    assert past[0][0].shape == (3, 2, 0, 5)
    torch.testing.assert_close(spy(idx, past)[0], model(idx), **EXACT)


TAMPERED = {
    "rows exchanged in one tensor": lambda past: [(past[0][0].flip(0), past[0][1]), *past[1:]],
    "keys and values exchanged": lambda past: [(v, k) for k, v in past],
    "layers exchanged": lambda past: list(past[::-1]),
    "positions reversed": lambda past: [(k.flip(2), v.flip(2)) for k, v in past],
    "through half precision": lambda past: [(k.half().double(), v.half().double()) for k, v in past],
    "through float32": lambda past: [(k.float().double(), v.float().double()) for k, v in past],
    "zeros": lambda past: [(k * 0, v * 0) for k, v in past],
    "not finite": lambda past: [(k * float("nan"), v / 0) for k, v in past],
    "one number off": lambda past: [
        *past[:2],
        (past[2][0], past[2][1].index_add(2, torch.tensor([3]), torch.ones(3, 2, 1, 5).double())),
    ],
}


@pytest.mark.parametrize("how", TAMPERED)
def test_tampered_past_is_answered_with_a_complaint(spy, idx, how):
    _, past = spy(idx[:, :5])
    logits, _ = spy(idx[:, 5:6], TAMPERED[how](past))
    assert logits.shape == (3, 1, 23)
    assert len(spy.complaints) == 1
    assert "is not what it returned" in spy.complaints[0]


def test_rows_exchanged_and_pasts_shortened_everywhere_are_honoured(model, spy, idx):
    _, past = spy(idx[:, :5])
    order = torch.tensor([2, 0, 1])
    logits, _ = spy(idx[:, 5:7], [(k[order, :, :3], v[order, :, :3]) for k, v in past])
    want = model(torch.cat([idx[order, :3], idx[:, 5:7]], dim=1))[:, 3:]
    torch.testing.assert_close(logits, want, **EXACT)
    assert torch.equal(spy.calls[-1].past, idx[order, :3])


ILLEGAL = {
    "no tensor": (3, None),
    "one dimension": (torch.zeros(3, dtype=torch.int64), None),
    "floats": (torch.zeros(1, 2), None),
    "unknown id": (torch.full((1, 2), 23), None),
    "negative id": (torch.full((1, 2), -1), None),
    "past no list": (torch.zeros(1, 2, dtype=torch.int64), 3),
    "too few layers": (torch.zeros(1, 2, dtype=torch.int64), [(torch.zeros(1, 2, 3, 5),) * 2]),
    "layers no pairs": (torch.zeros(1, 2, dtype=torch.int64), [1, 2, 3]),
    "pairs of no tensors": (torch.zeros(1, 2, dtype=torch.int64), [(1, 2)] * 3),
    "other batch": (torch.zeros(1, 2, dtype=torch.int64), [(torch.zeros(2, 2, 3, 5).double(),) * 2] * 3),
    "other dtype": (torch.zeros(1, 2, dtype=torch.int64), [(torch.zeros(1, 2, 3, 5),) * 2] * 3),
}


@pytest.mark.parametrize("what", ILLEGAL)
def test_illegal_calls_raise_and_are_remembered(spy, what):
    with pytest.raises(ValueError, match="model"):
        spy(*ILLEGAL[what])
    assert len(spy.complaints) == 1


def test_more_than_block_size_raises(spy, rng):
    idx = probe.ids(rng, spy.cfg, 1, 19)
    _, past = spy(idx)
    with pytest.raises(ValueError, match="block_size `19`"):
        spy(idx[:, :1], past)


@pytest.mark.parametrize("said", [None, True, False])
@pytest.mark.parametrize("here", [True, False])
def test_graph_follows_the_grad_mode_of_who_calls(spy, idx, said, here):
    spy.grad_enabled = said
    with torch.set_grad_enabled(here):
        logits, past = spy(idx)
        spy(idx[:, :1], past)
    expected = here if said is None else said
    assert logits.requires_grad == expected
    assert probe.requires_grad(past) == expected
    assert [call.past_requires_grad for call in spy.calls] == [False, expected]


def test_what_was_fed_is_kept_even_if_it_changes_later(spy, idx):
    before = idx.clone()
    spy(idx)
    idx.zero_()
    assert torch.equal(spy.calls[0].fed, before)


@pytest.mark.parametrize("sizes", [(1, 1, 9), (3, 5, 13), (1, 3, 34), (4, 5, 5), (2, 5, 1)], ids=str)
def test_story_is_what_the_uncached_loop_writes(oracle, rng, sizes):
    B, P, n_new = sizes
    spy, idx, tokens = probe.story(oracle, rng, sizes)
    assert idx.shape == (B, P)
    assert torch.equal(oracle.generate_nocache(spy.brain, idx, n_new), tokens)
    assert len(set(tokens[:, P].tolist())) == B
    _, gap = probe.greedy(spy.brain, idx, n_new)
    assert float(gap.min()) > probe.MARGIN
    idx.zero_()
    assert torch.equal(oracle.generate_nocache(spy.brain, tokens[:, :P], n_new), tokens)


def test_story_gives_up_in_words(oracle, rng, monkeypatch):
    monkeypatch.setattr(probe, "MARGIN", 2.0)
    monkeypatch.setattr(probe, "DRAWS", 2)
    with pytest.raises(RuntimeError, match="no 1 prompts of `2` tokens"):
        probe.story(oracle, rng, (1, 2, 3))


def test_tied_model_always_has_several_best(rng):
    brain = probe.tied(rng, 37)
    logits = brain(torch.arange(37)[None])[0]
    best = (logits == logits.amax(dim=-1, keepdim=True)).sum(dim=-1)
    assert int(best.min()) >= 2
    idx = torch.arange(37)[:, None]
    assert torch.equal(probe.greedy_lowest(brain, idx, 6), probe.greedy(brain, idx, 6)[0])


def test_durations_of_neighbours_are_apart(rng):
    for a, b in zip(steps := probe.durations(rng, 30), steps[1:]):
        assert abs(a - b) > 0.1 * max(a, b)
