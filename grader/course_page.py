"""The table of stages in docs/course.md, made from the manifest."""

from __future__ import annotations

from pathlib import Path

from grader import report as reports
from grader.course import Course
from grader.render.prose import points

PAGE = Path("docs") / "course.md"
BEGIN = "<!-- the stages, written by `grade dev stubs`: begin -->\n"
END = "<!-- the stages: end -->\n"


def table(course: Course) -> str:
    """The stages, their points and what a student writes in each, as a Markdown table."""
    rows = ["| stage | file | points | of them hidden | what you do |", "|---|---|--:|--:|---|"]
    for stage in course.stages:
        name = f"**{stage.slug}** {stage.title}"
        file = f"[`{stage.file}`](../exercises/{stage.file})"
        figures = f"{points(stage.points)} | {points(stage.hidden_points)}"
        rows.append(f"| {name} | {file} | {figures} | {stage.summary} |")
    total = sum(stage.points for stage in course.stages)
    hidden = sum(stage.hidden_points for stage in course.stages)
    rows.append(f"| total | | {points(total)} | {points(hidden)} | |")
    return "\n".join(rows) + "\n"


def refreshed(page: str, course: Course) -> str:
    """The page with the table between its two marks made anew; a page without the marks as it is."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    return before + BEGIN + table(course) + END + after if begin and end else page


def stale(course: Course) -> tuple[Path, ...]:
    """The page, where there is one and its table is not what the manifest says."""
    path = course.root / PAGE
    if not path.is_file():
        return ()
    page = path.read_text(encoding="utf-8")
    return (path,) * (refreshed(page, course) != page)


def refresh(course: Course) -> tuple[Path, ...]:
    """Write the page anew where it is stale; return it if so."""
    paths = stale(course)
    for path in paths:
        reports.write(path, refreshed(path.read_text(encoding="utf-8"), course))
    return paths
