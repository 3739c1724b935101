"""A class's results as one HTML page that loads nothing: who has what, and what went wrong most often."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

from markupsafe import Markup

from grader.gradebook import Gradebook, Row, State
from grader.render import page
from grader.render.prose import one_line

TEMPLATE, STYLE, SCRIPT = "index.html.j2", "index.css", "index.js"
BINS = 10
SHOWN = 15


@dataclass(frozen=True, slots=True)
class Bin:
    """One bar of the histogram: from and to in points, how many students, its height of the tallest's."""

    low: float
    high: float
    students: int
    share: float


def render(book: Gradebook, *, report: str) -> str:
    """The page; `report` is the name of each student's page in their folder. All text is escaped."""
    environment = page.environment()
    environment.filters["link"] = partial(_link, report=report)
    environment.filters["one_line"] = one_line
    css, script = ((page.FOLDER / name).read_text(encoding="utf-8") for name in (STYLE, SCRIPT))
    totals = book.totals
    return environment.get_template(TEMPLATE).render(
        book=book,
        possible=sum(book.possible.values()),
        bins=histogram(totals, sum(book.possible.values())),
        median=statistics.median(totals) if totals else None,
        counts=[(str(state), book.count(state)) for state in State if book.count(state)],
        checks=book.checks()[:SHOWN],
        diagnoses=book.diagnoses()[:SHOWN],
        css=Markup(css),  # our own files, and neither has a `<`
        script=Markup(script),
        policy=page.policy(css, script),
    )


def histogram(totals: list[float], possible: float) -> list[Bin]:
    """How many students have how many points, in `BINS` bins of one width; a full score is in the last."""
    width = possible / BINS
    places = [min(int(total / width), BINS - 1) for total in totals] if width else []
    counted = [places.count(place) for place in range(BINS)]
    most = max(counted, default=0) or 1
    return [Bin(n * width, (n + 1) * width, many, many / most) for n, many in enumerate(counted)]


def _link(row: Row, report: str) -> str:
    """Where the student's page lies, from here; never anything but a path below this folder."""
    return f"./{quote(row.folder)}/{quote(report)}"
