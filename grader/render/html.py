"""A report as one HTML file that needs nothing else, with a policy under which nothing else would load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Template
from markupsafe import Markup

from grader.outcome import Outcome, Verdict
from grader.render import page
from grader.render.prose import parts, plural
from grader.render.summary import about_hidden, advice, count
from grader.render.svg import checked
from grader.report import Report, StageResult

TEMPLATE = "report.html.j2"
STYLE = "report.css"


def render(report: Report, plots: Sequence[str] = ()) -> str:
    """The report as one self-contained page; everything that came from a student is escaped.

    `plots` are SVG of our own making (`svg.checked`), and go in as they are.
    """
    css = (page.FOLDER / STYLE).read_text(encoding="utf-8")
    return _template().render(
        report=report,
        cards={stage.slug: _cards(stage) for stage in report.stages},
        css=Markup(css),  # our own file, and it has no `<`
        policy=page.policy(css),
        plots=[Markup(checked(plot)) for plot in plots],
        tally=_tally(report),
        facts=_facts(report),
        notes=[
            note
            for note in (*report.notes, *report.submission.notes, about_hidden(report), advice(report))
            if note
        ],
    )


@cache
def _template() -> Template:
    """The page's template; a batch fills it in twice for each student, and reading it takes 40 ms."""
    environment = page.environment()
    environment.filters |= {"parts": parts, "count_passed": count}
    return environment.get_template(TEMPLATE)


def _cards(stage: StageResult) -> list[tuple[Outcome, bool]]:
    """A stage's outcomes, and whether each lies open: what went wrong does, once for each message."""
    seen: set[str] = set()
    cards = []
    for outcome in stage.outcomes:
        quiet = outcome.verdict in (Verdict.PASS, Verdict.TODO) or outcome.message in seen
        cards.append((outcome, not quiet))
        seen |= {outcome.message} - {""}
    return cards


def _tally(report: Report) -> list[tuple[str, int]]:
    """How many checks ended each way, in the order of the verdicts; those that did not occur are left out."""
    counted = Counter(o.verdict for stage in report.stages for o in stage.outcomes)
    return [(str(verdict), counted[verdict]) for verdict in Verdict if counted[verdict]]


def _facts(report: Report) -> list[tuple[str, Any]]:
    """What a reader needs to judge or repeat the run; facts that are not known are left out."""
    machine = report.machine
    hardware = (
        f"{machine.cpu}, {plural(machine.cores, 'core')}, {machine.memory_gib:.1f} GiB"
        if machine.cores
        else ""
    )
    versions = [
        f"Python {machine.python}" * bool(machine.python),
        f"torch {machine.torch}" * bool(machine.torch),
    ]
    layers = "; ".join(f"{name}: {state}" for name, state in report.layers.items())
    facts = [
        ("Submission", report.submission.id),
        ("Submission digest", report.submission.digest),
        ("Course", f"{report.course_title} {report.course_version}"),
        ("Course digest", report.course_digest),
        ("Seed", report.seed_id),
        ("Checks", "public only" if report.public_only else "public and hidden"),
        ("Shown to", "the student" if report.for_student else "the instructor"),
        ("Machine", ", ".join(filter(None, (machine.system, hardware, *versions)))),
        ("Load at the start", f"{machine.load_1m:.2f}"),
        ("Threads, power", f"{machine.threads}, {machine.power or 'unknown'}"),
        ("Hardware profile", report.profile),
        ("Isolation", f"{report.isolation} ({layers})" if layers else report.isolation),
        ("Started", f"{report.started}, took {report.seconds:.1f} s"),
        ("Grader", report.grader_version),
    ]
    return [(name, value) for name, value in facts if value]
