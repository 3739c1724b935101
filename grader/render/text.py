"""A report on the terminal: rich renderables, a block of lines for a check or for several with one cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from grader.outcome import Outcome, Verdict, Visibility
from grader.render.prose import Kind, one_line, parts, plural, points, printable
from grader.render.summary import Block, Manner, about_hidden, advice, blocks, count, why_waiting
from grader.report import WITHHELD, Report, StageResult

WIDEST = 100
BAR_WIDTH = 24
OUTPUT_LINES = 8
STYLES = {Kind.TEXT: "", Kind.PLACE: "bold cyan", Kind.CODE: "bold"}
COLOURS = {
    Verdict.PASS: "green",
    Verdict.TODO: "dim",
    Verdict.SKIP: "dim",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.PROTOCOL: "magenta",
    Verdict.BROKEN: "magenta",
}
REFUSED = "red"


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The signs in front of a check: passed, not passed, waiting, undecided."""

    passed: str = "✓"
    refused: str = "✗"
    waiting: str = "·"
    undecided: str = "~"

    def sign(self, verdict: Verdict) -> str:
        if verdict is Verdict.PASS:
            return self.passed
        if verdict in (Verdict.TODO, Verdict.SKIP):
            return self.waiting
        return self.refused if verdict.counts_against else self.undecided


UNICODE = Glyphs()
ASCII = Glyphs(passed="+", refused="x", waiting=".", undecided="~")


def render(report: Report, *, glyphs: Glyphs = UNICODE) -> RenderableType:
    """The whole report: every stage's checks, then the summary."""
    lines: list[RenderableType] = []
    for stage in report.stages:
        lines += [header(stage.slug, stage.title), *(block(b, glyphs) for b in blocks(stage.outcomes))]
    return Group(*lines, summary(report))


def header(slug: str, title: str) -> RenderableType:
    """A stage's first line."""
    return Text.assemble("\n", (slug, "bold"), "  ", one_line(title))


def block(told: Block, glyphs: Glyphs = UNICODE) -> RenderableType:
    """The lines of one check, or of several that are told together."""
    if told.manner is Manner.WAITING:
        return _line(glyphs.waiting, "dim", _waiting(told), "")
    outcome = told.spokesman
    colour = COLOURS.get(outcome.verdict, REFUSED)
    sign = glyphs.sign(outcome.verdict)
    if told.manner is Manner.SHARED:
        title = Text(f"{plural(len(told.outcomes), 'check')}, one cause")
        line = _line(sign, colour, title, _verdict(outcome))
    else:
        line = _line(sign, colour, _title(outcome), f"{_verdict(outcome)} {_seconds(outcome)}".strip())
    below = [] if outcome.verdict is Verdict.PASS else _below(outcome, repeated=told.repeated)
    return Group(line, *below)


def summary(report: Report) -> RenderableType:
    """Each stage's bar and points, the total, what was not shown, and what to do next."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for stage in report.stages:
        table.add_row(*_bar(stage))
    total: list[RenderableType] = []
    if len(report.stages) > 1:
        total.append(Text(f"total  {points(report.earned)} of {points(report.possible)} points", "bold"))
    notes = [*(one_line(note) for note in report.notes), about_hidden(report), advice(report)]
    told = [_flow(note) for note in notes if note]
    return Constrain(Group(Text(), table, *total, Text(), *told), WIDEST)


def _line(sign: str, colour: str, title: Text, right: str) -> RenderableType:
    grid = Table.grid(expand=True, padding=(0, 1, 0, 0))
    grid.add_column(width=1)
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(Text(sign, colour), title, Text(right, "dim"))
    return _within(grid, indent=2, expand=True)


def _within(content: RenderableType, *, indent: int, expand: bool = False) -> RenderableType:
    return Constrain(Padding(content, (0, 0, 0, indent), expand=expand), WIDEST)


def _title(outcome: Outcome) -> Text:
    title = Text(one_line(outcome.check.title))
    if outcome.check.visibility is Visibility.HIDDEN:
        title.append("  hidden", "dim italic")
    return title


def _verdict(outcome: Outcome) -> str:
    """The verdict's name, unless the sign says it all."""
    return "" if outcome.verdict in (Verdict.PASS, Verdict.FAIL) else str(outcome.verdict)


def _seconds(outcome: Outcome) -> str:
    withheld = outcome.check.visibility is Visibility.HIDDEN and not outcome.seconds
    return "" if withheld else f"{outcome.seconds:.2f} s"


def _waiting(told: Block) -> Text:
    title = Text(f"not written yet: {plural(len(told.outcomes), 'check')} waiting", "dim")
    why = why_waiting(told)
    return title.append(", ").append(_flow(why)) if why else title


def _below(outcome: Outcome, *, repeated: bool) -> Iterator[RenderableType]:
    """The teaching message, and the end of what the student's code printed, indented beneath."""
    if repeated and outcome.message.startswith(WITHHELD):
        return
    if repeated:
        yield _within(Text("the same as above", "dim"), indent=6)
        return
    if outcome.message:
        yield _within(_flow(outcome.message), indent=6)
    printed = printable(outcome.output).rstrip().split("\n") if outcome.output.strip() else []
    if printed:
        left_out = " …" if len(printed) > OUTPUT_LINES else ""
        tail = "\n".join(f"│ {line}" for line in printed[-OUTPUT_LINES:])
        yield _within(
            Text(f"your code printed:{left_out}\n{tail}", "dim", overflow="ellipsis", no_wrap=True), indent=6
        )


def _flow(message: str) -> Text:
    """A message with its places and code set apart; never read as rich markup."""
    flow = Text()
    for kind, part in parts(message):
        flow.append(f"`{part}`" if kind is Kind.CODE else part, STYLES[kind])
    return flow


def _bar(stage: StageResult) -> tuple[RenderableType, ...]:
    bar = ProgressBar(
        total=stage.possible, completed=stage.earned, width=BAR_WIDTH, style="dim", complete_style="yellow",
        finished_style="green",
    )  # fmt: skip
    gained = f"{points(stage.earned)} of {points(stage.possible)} points" if stage.scored else "not scored"
    return Text(stage.slug, "bold"), bar, Text(gained), Text(f"{count(stage.outcomes)} passed", "dim")
