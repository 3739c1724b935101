"""Pairs of students whose files are alike, as one HTML page that loads nothing, their lines side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from grader.likeness import FEWEST, Pair, shown
from grader.render import page
from grader.render.prose import one_line

TEMPLATE, STYLES = "similarity.html.j2", ("index.css", "similarity.css")
MOST_COUPLES = 100  # shown; the table has them all


def render(
    couples: Mapping[tuple[str, str], Sequence[Pair]], unseen: Sequence[str], *, course: str, works: int
) -> str:
    """The page; `unseen` says of which files more is there than was compared. All text is escaped."""
    environment = page.environment()
    environment.filters["one_line"] = one_line
    css = "".join((page.FOLDER / name).read_text(encoding="utf-8") for name in STYLES)
    return environment.get_template(TEMPLATE).render(
        couples=list(couples.items())[:MOST_COUPLES],
        more=max(len(couples) - MOST_COUPLES, 0),
        course=course,
        works=works,
        fewest=FEWEST,
        unseen=unseen,
        shown=shown,
        css=Markup(css),  # our own files, and neither has a `<`
        policy=page.policy(css),
    )
