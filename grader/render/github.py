"""GitHub Actions: a step summary in Markdown, and annotations as workflow commands.

What a student wrote stands in fenced blocks or escaped, so it is neither markup nor a workflow command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from grader.marks import Mark
from grader.outcome import Outcome, Verdict
from grader.render import summary
from grader.render.prose import first_place, one_line, points, printable
from grader.report import Report, StageResult

LIMIT_BYTES = 1024 * 1024  # of a step's summary; what is longer is thrown away whole
SHOWN = 10  # annotations of a kind and step; GitHub drops the rest
CUT = "\n\n*This is cut: the whole is in the report.*\n"
MARKUP = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~@&:])")
BACKTICKS = re.compile(r"`+")


def render(report: Report, *, room_bytes: int = LIMIT_BYTES) -> str:
    """One report as a step summary of at most so many bytes."""
    head = f"## {points(report.earned)} of {points(report.possible)} points\n\n"
    table = "| stage | points | checks |\n|---|---:|---|\n" + "".join(
        f"| {_plain(f'{s.slug} {s.title}')} | {points(s.earned)} of {points(s.possible)} "
        f"| {summary.count(s.outcomes)} |\n"
        for s in report.stages
    )
    after = [f"\n{_plain(text)}\n" for text in (summary.about_hidden(report), summary.advice(report)) if text]
    return _fitting([head, table, *after, *(part for s in report.stages for part in _wrong(s))], room_bytes)


def class_table(
    marks: Sequence[Mark], possible: Mapping[str, float], *, room_bytes: int = LIMIT_BYTES
) -> str:
    """A class as a step summary: a line a student."""
    of = points(sum(possible.values()))
    head = f"## {len(marks)} students\n\n| student | state | {' | '.join(possible)} | points of {of} |\n"
    rule = f"|---|---|{'---:|' * (len(possible) + 1)}\n"
    lines = []
    for mark in marks:
        cells = [points(mark.stages[slug]) if slug in mark.stages else "" for slug in possible]
        total = "" if mark.total is None else points(mark.total)
        lines.append(f"| {_plain(mark.student)} | {mark.row.state} | {' | '.join(cells)} | {total} |\n")
    return _fitting([head + rule, *lines], room_bytes)


def workflow_commands(report: Report, *, folder: str = "") -> list[str]:
    """A workflow command for each check that did not pass, as many as GitHub shows."""
    wrong = [(stage, o) for stage in report.stages for o in stage.outcomes if o.verdict.counts_against]
    lines = [_annotation(stage, outcome, folder) for stage, outcome in wrong]
    if len(lines) > SHOWN:
        more = command("error", f"{len(lines) - SHOWN + 1} more checks did not pass", title="and more")
        lines = [*lines[: SHOWN - 1], more]
    total = f"{points(report.earned)} of {points(report.possible)} points"
    return [*lines, command("notice", total, title="Points")]


def command(name: str, message: str, **properties: str) -> str:
    """A workflow command, escaped as GitHub's own toolkit does it."""
    said = ",".join(f"{key}={_property(value)}" for key, value in properties.items() if value)
    return f"::{name}{' ' * bool(said)}{said}::{_data(message)}"


def stopped(token: str) -> str:
    """Makes GitHub take no line for a command until `resumed`; the token must be unguessable."""
    return f"::stop-commands::{token}"


def resumed(token: str) -> str:
    return f"::{token}::"


def _annotation(stage: StageResult, outcome: Outcome, folder: str) -> str:
    place = first_place(outcome.message) or first_place(outcome.traceback)
    file, _, line = place.rpartition(":")
    is_own = file == stage.file
    title = f"{stage.slug}: {one_line(outcome.check.title)}"
    message = printable(outcome.message) or str(outcome.verdict)
    return command("error", message, file=folder + stage.file, line=line if is_own else "", title=title)


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _wrong(stage: StageResult) -> Iterable[str]:
    for outcome in stage.outcomes:
        if outcome.verdict not in (Verdict.PASS, Verdict.TODO):
            title = f"\n### {_plain(f'{stage.slug}: {outcome.check.title}')}\n\n`{outcome.verdict}`\n"
            yield title + (_fenced(outcome.message) if outcome.message else "")


def _plain(text: str) -> str:
    """Text in one line that no Markdown gives a meaning to."""
    return MARKUP.sub(r"\\\1", one_line(text))


def _fenced(text: str) -> str:
    """Text in a block of code whose fence is longer than any within."""
    text = printable(text)
    fence = "`" * max(3, *(len(run) + 1 for run in BACKTICKS.findall(text)), 3)
    return f"\n{fence}text\n{text}\n{fence}\n"


def _fitting(parts: Sequence[str], room_bytes: int) -> str:
    """As many whole parts as fit, with a remark where not all do."""
    kept: list[str] = []
    left = room_bytes - len(CUT.encode())
    for part in parts:
        left -= len(part.encode("utf-8", "backslashreplace"))
        if left < 0:
            return "".join((*kept, CUT)) if room_bytes >= len(CUT.encode()) else ""
        kept.append(part)
    return "".join(kept)
