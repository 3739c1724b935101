"""Write the table of stages in docs/course.md from the manifest; `tests/test_docs.py` holds it fresh."""

from __future__ import annotations

from pathlib import Path

from grader import course as courses
from grader import report as reports
from grader.course import Course
from grader.render.prose import points

PAGE = Path("docs") / "course.md"
BEGIN = "<!-- the stages, written by tools/course_table.py: begin -->\n"
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
    """The page with the table between its two marks made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table(course) + END + after


def main() -> None:
    """Refresh the page of the course that this file lies in."""
    course = courses.find(Path(__file__).parent)
    path = course.root / PAGE
    reports.write(path, refreshed(path.read_text(encoding="utf-8"), course))


if __name__ == "__main__":
    main()
