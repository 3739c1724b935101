"""Outcomes to points: what no set of outcomes may ever do."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grader.course import Stage
from grader.outcome import Check, Outcome, Verdict, Visibility
from grader.scoring import earned_points, possible_points

settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")  # a busy machine is no failure

NOT_BROKEN = [v for v in Verdict if v is not Verdict.BROKEN]


def make_stage(points: float = 12.0, hidden_points: float = 5.0) -> Stage:
    return Stage("stage1", "t", "stage1_x.py", points, hidden_points, "s", ("a", "b", "c"))


@st.composite
def stages(draw: st.DrawFn) -> Stage:
    points = draw(st.floats(0.01, 1000))
    return make_stage(points, points * draw(st.floats(0, 0.99)))


def outcomes(verdicts: st.SearchStrategy[Verdict], min_size: int = 0) -> st.SearchStrategy[list[Outcome]]:
    checks = st.builds(
        Check, st.just("stage1.x"), st.just("t"), st.sampled_from(Visibility), st.floats(0.1, 10)
    )
    return st.lists(st.builds(Outcome, checks, verdicts), min_size=min_size, max_size=8)


@given(stages(), outcomes(st.sampled_from(Verdict)), st.booleans())
def test_points_stay_between_nothing_and_what_is_possible(
    stage: Stage, ran: list[Outcome], hidden: bool
) -> None:
    earned = earned_points(stage, ran, hidden=hidden)

    assert math.isfinite(earned)
    assert 0 <= earned <= possible_points(stage, hidden=hidden) + 1e-9


@given(stages(), outcomes(st.just(Verdict.PASS)), st.sampled_from(list(Visibility)), st.floats(0.1, 10))
def test_all_passed_in_both_groups_earns_everything(
    stage: Stage, ran: list[Outcome], visibility: Visibility, weight: float
) -> None:
    both = [Outcome(Check("stage1.y", "t", v, weight), Verdict.PASS) for v in Visibility]

    assert earned_points(stage, ran + both, hidden=True) == pytest.approx(stage.points)


@given(stages(), outcomes(st.sampled_from(NOT_BROKEN), min_size=1), st.data())
def test_one_check_more_passed_never_costs_points(
    stage: Stage, ran: list[Outcome], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(ran) - 1))
    better = [*ran[:index], replace(ran[index], verdict=Verdict.PASS), *ran[index + 1 :]]

    assert earned_points(stage, better, hidden=True) >= earned_points(stage, ran, hidden=True)


@given(stages(), outcomes(st.sampled_from(NOT_BROKEN)), st.data())
def test_the_order_of_outcomes_does_not_matter(stage: Stage, ran: list[Outcome], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(ran))

    assert earned_points(stage, shuffled, hidden=True) == earned_points(stage, ran, hidden=True)


@given(stages(), outcomes(st.just(Verdict.PASS)), st.booleans())
def test_a_broken_check_leaves_the_stage_unscored(stage: Stage, ran: list[Outcome], hidden: bool) -> None:
    broken = Outcome(Check("stage1.y", "t"), Verdict.BROKEN)

    assert earned_points(stage, [*ran, broken], hidden=hidden) == 0


@given(stages(), outcomes(st.sampled_from([v for v in NOT_BROKEN if v is not Verdict.PASS])))
def test_nothing_but_a_pass_earns_points(stage: Stage, ran: list[Outcome]) -> None:
    assert earned_points(stage, ran, hidden=True) == 0


@given(stages(), outcomes(st.just(Verdict.PASS)))
def test_hidden_checks_earn_nothing_in_a_public_run(stage: Stage, ran: list[Outcome]) -> None:
    only_hidden = [o for o in ran if o.check.visibility is Visibility.HIDDEN]

    assert earned_points(stage, only_hidden, hidden=False) == 0


@pytest.mark.parametrize("passed", range(7))
def test_full_points_need_every_check(passed: int) -> None:
    verdicts = [Verdict.PASS] * passed + [Verdict.FAIL] * (7 - passed)
    ran = [Outcome(Check(f"stage1.c{n}", "t"), verdict) for n, verdict in enumerate(verdicts)]
    stage = make_stage(hidden_points=0.0)

    earned = earned_points(stage, ran, hidden=True)

    assert (earned == stage.points) == (passed == 7)
    assert earned == math.floor(stage.points * passed / 7 * 100) / 100


def test_points_follow_weights() -> None:
    heavy = Outcome(Check("stage1.heavy", "t", weight=3.0), Verdict.PASS)
    light = Outcome(Check("stage1.light", "t", weight=1.0), Verdict.FAIL)

    assert earned_points(make_stage(8.0, 0.0), [heavy, light], hidden=True) == 6.0


def test_no_planned_checks_earn_nothing() -> None:
    assert earned_points(make_stage(), [], hidden=True) == 0
