"""What the checks say of a student's values: right ones pass, others fail with a message that teaches."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from grader import expect, probe
from grader.machine import LAUNCH_S, Machine

GARBAGE = [
    None, 3, True, 2.5, float("nan"), 10**400, "x", [], (), {}, (1, 2), [None], [[1, 2], [3]], object(),
    torch.zeros(3), torch.zeros(()), torch.zeros(2, 3, 4, dtype=torch.int64), torch.zeros(2, 3).to_sparse(),
    torch.zeros(2, 3, device="meta"), torch.zeros(2, 3, dtype=torch.complex64), nn.Linear(1, 1), range(3),
    [10**400] * 3, [float("nan")] * 3, lambda: 3, [(torch.zeros(1), torch.zeros(1))] * 2,
    (torch.zeros(2, 4, 5), [(1, 2)]),
]  # fmt: skip


@pytest.fixture
def cfg(oracle):
    return oracle.Config(n_layer=2, n_head=3, n_embd=6, block_size=11, vocab_size=13)


def message(call, *args, **kwargs):
    """Return what a check that must fail says."""
    with pytest.raises(AssertionError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize("value", GARBAGE, ids=lambda v: type(v).__name__)
def test_garbage_fails_and_never_breaks_the_check(value, cfg):
    machine = Machine()
    machine.prepare("cuda", [0.1, 0.2, 0.3])
    ids = torch.zeros(2, 4, dtype=torch.int64)
    float64 = torch.float64
    message(expect.tensor, value, "it", (2, 7), float64)
    message(expect.pair, value, "it", (2, 3, 4, 2), float64)
    message(expect.pairs, value, "it", 2, (2, 3, 4, 2), float64)
    message(expect.cache, value, "it", cfg, 2, float64)
    message(expect.tokens, value, "it", ids)
    message(expect.seconds, value, machine)
    message(expect.bytes_are, value, 7, "it")
    for part in (value, (value, value), (torch.zeros(2, 4, 13), value), (value, [(value, value)] * 2)):
        model = expect.Checked(lambda idx, past=None, part=part: part, "GPT", cfg, float64)
        message(model, ids)
    if not isinstance(value, nn.Module):
        student = SimpleNamespace(GPT=lambda cfg: value)
        message(expect.build, student, "GPT", cfg, nn.Linear(2, 2))


@pytest.mark.parametrize("value", [True, 1.0, torch.tensor(1), None, "1"], ids=lambda v: type(v).__name__)
def test_an_int_is_nothing_else(value):
    assert "must be an int" in message(expect.integer, value, "it")


def test_integer_is_passed_on():
    assert expect.integer(7, "it") == 7


def test_values_within_the_tolerance_are_close():
    want = torch.randn(2, 5, 3, dtype=torch.float64)
    expect.close(want + want.abs().max() * expect.FLOAT64 / 2, want, "it")
    expect.close(torch.zeros(1, 2, 0, 3), torch.zeros(1, 2, 0, 3), "nothing at all")


@pytest.mark.parametrize(
    ("wrong", "chunks", "said"),
    [
        ([5, 6, 7], (5, 3), "right before position 5, wrong from there on (0 to 7 were compared)"),
        ([5, 6, 7], (5, 3), "position 5 is the first of call 2"),
        ([6], (5, 3), "wrong at position 6 (0 to 7 were compared)"),
        ([6], (5, 3), "is inside call 2, whose first position is right"),
        ([2], (5, 3), "is in the first call, where there is no past yet"),
        (range(8), (), "wrong at every position, 0 to 7"),
    ],
)
def test_message_says_which_positions_are_right(wrong, chunks, said):
    want = torch.ones(2, 8, 3)
    got = want.clone()
    got[:, list(wrong)] += 1
    assert said in message(expect.close, got, want, "logits", chunks=chunks)


def test_message_names_rows_error_and_tolerance():
    want = torch.ones(3, 2, 4, 5)  # keys: positions are dimension 2
    got = want.clone()
    got[1, :, 3] = 1.5
    said = message(expect.close, got, want, "keys", start=7)
    assert "wrong from there on (7 to 10 were compared)" in said
    assert "only batch row 1 of 3" in said
    assert "5.0e-01 of the largest value, 1e-06 is allowed" in said


def test_message_says_with_which_call_a_kept_key_came():
    want = torch.ones(1, 2, 9, 3)
    got = want.clone()
    got[:, :, 1:4] = 0
    said = message(expect.close, got, want, "keys", chunks=[3, 3, 3])
    assert "wrong at position 1 to 3 (0 to 8 were compared)" in said
    assert "After 3 pieces of 3 were fed: position 1 came with call 1 of 3" in said


def test_where_nothing_but_zero_is_right_anything_else_is_wrong():
    assert "The error is inf of the largest value" in message(
        expect.close, torch.ones(1, 2, 3), torch.zeros(1, 2, 3), "it"
    )


def test_message_names_values_that_are_not_finite():
    got = torch.ones(1, 4, 2)
    got[0, 2] = float("nan")
    assert "NaN or infinite values in it, the first at position 2" in message(
        expect.close, got, torch.ones(1, 4, 2), "it"
    )


def test_tokens_message_counts_the_right_ones():
    want = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    got = want.clone()
    got[1, 3] = 0
    said = message(expect.tokens, got, "the tokens", want, start=2)
    assert "new tokens right so far: 1; 0 at column 3, row 1, but the uncached model says 8" in said
    assert "the first new token is wrong" in message(expect.tokens, got, "the tokens", want, start=3)
    got[0, 0] = 9
    assert "the prompt itself is changed at column 0" in message(expect.tokens, got, "it", want, start=2)
    assert "9 at column 0, row 0, but 1 is right" in message(expect.tokens, got, "it", want)


def tampered(oracle, change):
    """Make a student whose GPT is the oracle's, changed."""

    def make(cfg):
        model = oracle.GPT(cfg)
        change(model)
        return model

    return SimpleNamespace(GPT=make)


def rename(model):
    model.embedding = model.wte
    del model.wte


def untie(model):
    model.lm_head.weight = nn.Parameter(torch.zeros_like(model.lm_head.weight))


def behead(model):
    del model.lm_head


@pytest.mark.parametrize(
    "change", [lambda m: None, untie, behead, lambda m: m.register_buffer("bias", torch.ones(1))]
)
def test_head_may_be_tied_untied_or_absent_and_buffers_extra(oracle, cfg, rng, change):
    ours = probe.hot(oracle.GPT(cfg), rng)
    built = expect.build(tampered(oracle, change), "GPT", cfg, ours)
    assert torch.equal(built.module.wte.weight, ours.wte.weight)
    assert built.module.wte.weight.dtype == torch.float64
    assert not built.module.training
    if hasattr(built.module, "lm_head"):
        assert torch.equal(built.module.lm_head.weight, ours.wte.weight)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (rename, "lacks `wte.weight`"),
        (lambda m: setattr(m, "scale", nn.Parameter(torch.ones(1))), "It has `scale`, which gpt2.py has not"),
        (lambda m: setattr(m, "wpe", nn.Embedding(3, 6)), "`wpe.weight` must be (11, 6), not (3, 6)"),
    ],
    ids=["renamed", "added", "reshaped"],
)
def test_other_parameters_are_named(oracle, cfg, change, said):
    assert said in message(expect.build, tampered(oracle, change), "GPT", cfg, oracle.GPT(cfg))


def test_what_is_not_defined_is_named():
    assert "`GPT` is not defined in your file" in message(expect.member, SimpleNamespace(), "GPT")


def test_checked_model_hands_on_the_students_own_present(cfg):
    pair = torch.zeros(2, 3, 4, 2), torch.zeros(2, 3, 4, 2)
    own = [pair, pair]
    model = expect.Checked(lambda idx, past=None: (torch.zeros(2, 4, 13), own), "GPT", cfg, torch.float32)
    _, present = model(torch.zeros(2, 4, dtype=torch.int64))
    assert present is own


def test_refusal_must_be_a_value_error():
    expect.refuses(lambda: int("x"), "that")
    assert "must raise ValueError" in message(expect.refuses, lambda: 3, "that")
    with pytest.raises(ZeroDivisionError):
        expect.refuses(lambda: 1 // 0, "that")


MISTAKES = {
    "the mean of all steps": lambda t: [sum(t) / len(t)] * len(t),
    "times since the start": lambda t: [sum(t[: i + 1]) for i in range(len(t))],
    "in milliseconds": lambda t: [s * 1e3 for s in t],
    "in nanoseconds": lambda t: [s * 1e9 for s in t],
    "charged for work queued before it": lambda t: [t[0] + 0.7 - LAUNCH_S, *t[1:]],
    "only handing the work over was timed": lambda t: [LAUNCH_S] * len(t),
    "time ran backwards": lambda t: [-1.0, *t[1:]],
}


@pytest.mark.parametrize("said", MISTAKES)
def test_familiar_mistakes_in_timing_are_named(said):
    machine = Machine()
    machine.prepare("cuda", [0.1, 0.3, 0.2], leftover_s=0.7)
    assert said in message(expect.seconds, MISTAKES[said](machine.seconds), machine)


def test_exact_times_pass():
    machine = Machine()
    machine.prepare("cpu", [0.1, 0.3, 2])
    expect.seconds([0.1, 0.3, 2], machine)
