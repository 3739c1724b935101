"""What a report amounts to in words: one cause told once, what was not shown, what to do next."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from grader.outcome import Outcome, Verdict, Visibility
from grader.render.prose import first_place, plural, points
from grader.report import EXIT_BROKEN, WITHHELD, Report, StageResult

EARLIER = re.compile(r"\bstages? \d+(?: (?:and|or) \d+)?\b")  # what a message says is to blame


class Manner(StrEnum):
    """How a block of checks is told: each for itself, several for one cause, or as not yet written."""

    SINGLE = "single"
    SHARED = "shared"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Block:
    """Checks that are told together; `repeated` where the message has already been shown in this stage."""

    manner: Manner
    outcomes: tuple[Outcome, ...]
    repeated: bool = False

    @property
    def spokesman(self) -> Outcome:
        """The outcome whose message is shown: the first one that has any."""
        return next((o for o in self.outcomes if o.message), self.outcomes[0])


def blocks(outcomes: Sequence[Outcome], *, finished: bool = True) -> list[Block]:
    """Group a stage's outcomes, so far or all of them, into what is shown.

    While outcomes come in, blocks are only ever added at the end, so each can be shown at once. Checks that
    until now all share one cause are therefore held back until another comes or the stage has `finished`.
    """
    active = [o for o in outcomes if o.verdict is not Verdict.TODO]
    waiting = tuple(o for o in outcomes if o.verdict is Verdict.TODO)
    if not _share_a_cause(active):
        told = _singly(active)
    elif not finished:
        told = []
    else:
        told = [Block(Manner.SHARED, tuple(active))] if len(active) > 1 else _singly(active)
    if finished and waiting:
        told.append(Block(Manner.WAITING, waiting))
    return told


def _share_a_cause(outcomes: Sequence[Outcome]) -> bool:
    """Whether all ended alike for one reason; a hidden check with its reason withheld goes by its verdict."""
    if not outcomes or outcomes[0].verdict is Verdict.PASS or _is_withheld(outcomes[0]):
        return False
    first = outcomes[0]
    return all(
        o.verdict is first.verdict and (o.message == first.message or _is_withheld(o)) for o in outcomes
    )


def _is_withheld(outcome: Outcome) -> bool:
    return outcome.check.visibility is Visibility.HIDDEN and (
        not outcome.message or outcome.message.startswith(WITHHELD)
    )


def _singly(outcomes: Sequence[Outcome]) -> list[Block]:
    seen: set[str] = set()
    told = []
    for outcome in outcomes:
        told.append(Block(Manner.SINGLE, (outcome,), repeated=outcome.message in seen))
        seen |= {outcome.message} - {""}
    return told


def why_waiting(told: Block) -> str:
    """Say where to begin: the first place not written yet that checks ran into, or what they all say."""
    place = _begin_at(told.outcomes)
    if place:
        return f"begin at {place}"
    messages = {o.message for o in told.outcomes if not _is_withheld(o)}
    return messages.pop() if len(messages) == 1 else ""


def _begin_at(outcomes: Sequence[Outcome]) -> str:
    places = {first_place(o.message) or first_place(o.traceback) for o in outcomes} - {""}
    return min(places, key=_file_and_line, default="")


def _file_and_line(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return file, int(line)


def count(outcomes: Sequence[Outcome]) -> str:
    """Say how many of the checks passed: `9 of 12 checks`."""
    passed = sum(o.verdict is Verdict.PASS for o in outcomes)
    return f"{passed} of {plural(len(outcomes), 'check')}"


def about_hidden(report: Report) -> str:
    """Say honestly what the public checks alone do not tell, or nothing where there are no hidden checks."""
    outcomes = [o for stage in report.stages for o in stage.outcomes]
    hidden = [o for o in outcomes if o.check.visibility is Visibility.HIDDEN]
    public = [o for o in outcomes if o.check.visibility is Visibility.PUBLIC]
    unrun_points = sum(stage.hidden_points for stage in report.stages)
    all_public = bool(public) and all(o.verdict is Verdict.PASS for o in public)
    opening = "All PUBLIC checks passed; " if all_public else ""
    if not hidden:
        more = f"{points(unrun_points)} more point{'s' * (unrun_points != 1)}"
        unrun = f"{opening}hidden checks, {more}, were not run."
        return unrun[0].upper() + unrun[1:] if unrun_points else ""
    if all(o.verdict is Verdict.TODO for o in hidden):
        return ""
    missed = sum(o.verdict is not Verdict.PASS for o in hidden)
    if not missed:
        return f"{opening}{plural(len(hidden), 'hidden check')} passed too."
    withheld = (
        ", and a student is not shown why" if not report.for_student else "; their details are not shown"
    )
    return f"{opening}{missed} of {plural(len(hidden), 'hidden check')} did not pass{withheld}."


def advice(report: Report) -> str:
    """Say what to do next."""
    verdicts = {o.verdict for stage in report.stages for o in stage.outcomes}
    if report.exit_status == EXIT_BROKEN:
        return (
            "A check broke by the grader's own fault, so its stage is not scored: "
            "run `grade doctor`, then tell your instructor."
        )
    if Verdict.PROTOCOL in verdicts:
        return "A worker's reply was not well formed: a person should look at the checks marked `protocol`."
    for stage in report.stages:
        if any(o.verdict.counts_against for o in stage.outcomes):
            return _advice_for(stage)
    if Verdict.INCONCLUSIVE in verdicts:
        return "A timing was too noisy to judge: close other programs, then run the same command again."
    if Verdict.SKIP in verdicts:
        return "Checks were skipped, see why above; `grade next` shows what to do first."
    return "`grade next` shows what comes next."


def _advice_for(stage: StageResult) -> str:
    against = [o for o in stage.outcomes if o.verdict.counts_against]
    if all(o.verdict is Verdict.TODO for o in against):
        file = _begin_at(against).partition(":")[0] or stage.file
        slug = file.partition("_")[0]
        return f"Write `{file}` while `grade watch {slug}` runs; a nudge: `grade hint {slug}`."
    elsewhere = [found[0] if (found := EARLIER.search(o.message)) else "" for o in against]
    what = f"Look into {elsewhere[0]}" if all(elsewhere) else f"Mend `{stage.file}`"
    return f"{what}, then `grade {stage.slug}` again; for a nudge, `grade hint {stage.slug}`."
