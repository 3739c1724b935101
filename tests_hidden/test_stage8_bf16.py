"""Stage 8, harsher: exact ties, early and late ones, differences that are largest where one does not look."""

import pytest

from grader import claims, twofaced
from grader.twofaced import Tie

check = pytest.mark.check


def told(student, oracle, rng, P0, n_new, tie):
    """Draw a model and hold the student's report on it against the truth."""
    model, idx = twofaced.bf16_model(oracle, rng, P0, n_new, tie)
    got = student.bf16_report(model=model, idx=idx, n_new=n_new)
    claims.report(got, twofaced.truth(model, idx, n_new))


@check(weight=2, category="near-ties of other kinds")
@pytest.mark.parametrize(
    ("P0", "n_new", "tie"),
    [
        (7, 12, Tie(11)),
        (6, 8, Tie(1)),
        (1, 9, Tie(5)),
        (4, 8, Tie(4, gap=0)),
        (5, 9, Tie(6, gap=7)),
        (13, 15, Tie(12)),
    ],
    ids=["last-step", "first-possible", "one-token-prompt", "exact-tie", "wide", "long"],
)
def test_near_ties_of_other_kinds(student, oracle, rng, P0, n_new, tie):
    """Near-ties: late and early ones, exact ones, wide ones, after long prompts and short"""
    told(student, oracle, rng, P0, n_new, tie)


@check(weight=2, category="where the difference is largest")
@pytest.mark.parametrize(
    "spikes", [(3.0, 0.1, 0.1), (0.05, 3.0, 0.05), (0.05, 0.1, 3.0)], ids=["before", "there", "after"]
)
def test_where_the_difference_is_largest(student, oracle, rng, spikes):
    """The largest difference may lie before the texts part, just there, or where it counts no more"""
    told(student, oracle, rng, 5, 9, Tie(4, spikes=spikes))


@check(weight=1, category="texts that never part")
@pytest.mark.parametrize(
    ("spikes", "calm"), [((0.3, 0, 0), twofaced.CALM), ((0, 0, 0), twofaced.CALM), ((0, 0, 0), 0)],
    ids=["loud", "calm", "silent"],
)  # fmt: skip
def test_texts_that_never_part(student, oracle, rng, spikes, calm):
    """Texts that never part: no step, no gap, and the largest difference of all"""
    told(student, oracle, rng, 6, 12, Tie(None, spikes=spikes, calm=calm))


@check(weight=1, category="a report on several models")
def test_several_models_in_turn(student, oracle, rng):
    """One report after another, on models with and without a near-tie"""
    for tie in (Tie(3), Tie(None), Tie(2, gap=0), Tie(None, spikes=(0, 0, 0), calm=0)):
        told(student, oracle, rng, 4, 6, tie)
