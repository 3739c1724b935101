"""Stage 8: what a report on a bfloat16 model says is what the grader finds out about the same model."""

import pytest

from grader import claims, twofaced
from grader.twofaced import Tie

check = pytest.mark.check


@check(weight=2, category="a near-tie")
def test_near_tie(student, oracle, rng):
    """A near-tie: the step at which the texts part, the uncached gap there, the largest difference so far"""
    for step, n_new in ((4, 9), (2, 5)):
        model, idx = twofaced.bf16_model(oracle, rng, 5, n_new, Tie(step))
        claims.report(student.bf16_report(model, idx, n_new), twofaced.truth(model, idx, n_new))


@check(weight=1, category="no near-tie")
def test_no_near_tie(student, oracle, rng):
    """No near-tie: no step and no gap, and the largest difference of all steps"""
    model, idx = twofaced.bf16_model(oracle, rng, 5, 8, Tie(None))
    claims.report(student.bf16_report(model, idx, 8), twofaced.truth(model, idx, 8))


@check(weight=1, category="two paths that are the same to the bit")
def test_same_to_the_bit(student, oracle, rng):
    """Paths that agree to the last bit: no step, no gap, and a difference of 0"""
    model, idx = twofaced.bf16_model(oracle, rng, 5, 7, Tie(None, spikes=(0, 0, 0), calm=0))
    claims.report(student.bf16_report(model, idx, 7), twofaced.Truth(None, None, 0.0))


@check(weight=1, category="very few new tokens")
def test_none_and_one_new_token(student, oracle, rng):
    """With no new tokens, and with one, there is nothing that could differ"""
    model, idx = twofaced.bf16_model(oracle, rng, 4, 3, Tie(1))
    for n_new in (0, 1):
        claims.report(student.bf16_report(model, idx, n_new), twofaced.Truth(None, None, 0.0))


@check(weight=1, category="what comes after the texts parted")
def test_stops_where_the_texts_part(student, oracle, rng):
    """What differs after the texts have parted does not count: by then they have read different things"""
    model, idx = twofaced.bf16_model(oracle, rng, 5, 9, Tie(3, spikes=(0.05, 0.1, 3.0)))
    claims.report(student.bf16_report(model, idx, 9), twofaced.truth(model, idx, 9))
    claims.report(student.bf16_report(model, idx, 4), twofaced.truth(model, idx, 4))
