"""The class's grades: what a spreadsheet makes of them, and what the page shows."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from grader.errors import CourseError
from grader.gradebook import Gradebook, Row, State, from_json, row_of, to_csv, to_dict
from grader.outcome import Check, Outcome, Verdict
from grader.render import index, page
from grader.report import Machine, Report, StageResult, SubmissionInfo

ATTACK = '"><img src=x onerror=alert(1)><script>alert(2)</script>'


def outcome(name: str, verdict: Verdict, **more: str) -> Outcome:
    return Outcome(Check(name, f"Title of {name}"), verdict, 0.5, metrics=dict(more))


def report(*stages: StageResult) -> Report:
    what = ("Course", "1", "c" * 64, "0.1.0", "public", Machine(), "any", "confined", {}, False)
    return Report(SubmissionInfo("ada", "d" * 64, ("noted",)), *what, "2026-11-29T10:00:00", 7.0, stages)


def stage(number: int, earned: float, *outcomes: Outcome) -> StageResult:
    scored = all(o.verdict is not Verdict.BROKEN for o in outcomes)
    return StageResult(f"stage{number}", "T", f"stage{number}_x.py", earned, 10, outcomes, scored)


def book(*rows: Row) -> Gradebook:
    return Gradebook("Course 1", rows, {"stage1": 10, "stage2": 5.5}, {"stage1.a": "Title of a"})


def table(of: Gradebook) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(of), newline="")))


def test_a_report_comes_to_a_row() -> None:
    row = row_of(
        report(
            stage(
                1, 6.25, outcome("stage1.a", Verdict.PASS), outcome("stage1.b", Verdict.FAIL, diagnosis="bug")
            ),
            stage(2, 0, outcome("stage2.a", Verdict.TODO), outcome("stage2.b", Verdict.SKIP)),
        ),
        "ada",
    )
    assert (row.state, row.total, row.stages) == (State.GRADED, 6.25, {"stage1": 6.25, "stage2": 0})
    assert row.verdicts == {"pass": 1, "fail": 1, "todo": 1, "skip": 1}
    assert (row.failed, row.unwritten, row.diagnoses) == (("stage1.b",), ("stage2.a",), ("bug",))
    assert (row.checks_s, row.report_s, row.notes) == (2.0, 7.0, ("noted",))


def test_a_broken_check_leaves_its_stage_without_points() -> None:
    row = row_of(report(stage(1, 0, outcome("stage1.a", Verdict.BROKEN)), stage(2, 5)), "ada")
    assert (row.state, row.stages) == (State.BROKEN, {"stage2": 5})


def test_nothing_counts_of_what_could_not_be_read() -> None:
    row = row_of(report(stage(1, 0, outcome("stage1.a", Verdict.TODO))), "ada", State.UNREADABLE)
    assert (row.total, row.failed, row.unwritten) == (None, (), ())


def test_points_are_blank_and_not_nought_where_nothing_was_graded() -> None:
    rows = table(
        book(Row("ada", State.GRADED, "ada", stages={"stage1": 0, "stage2": 0}), Row("bob", State.MISSING))
    )
    assert [(r["stage1"], r["stage2"], r["total"], r["possible"]) for r in rows] == [
        ("0", "0", "0", "15.5"),
        ("", "", "", "15.5"),
    ]
    assert [(r["fail"], r["state"]) for r in rows] == [("0", "graded"), ("", "missing")]


def test_points_are_written_plainly() -> None:
    (row,) = table(book(Row("ada", State.GRADED, "ada", stages={"stage1": 10, "stage2": 0.1 + 0.2})))
    assert (row["stage1"], row["stage2"], row["total"]) == ("10", "0.3", "10.3")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r=", " ="])
def test_no_cell_is_a_formula(start: str) -> None:
    text = f"{start}cmd|' /C calc'!A0"
    row = Row(text, State.GRADED, "x", name=text, email=text, notes=(text,))
    for cell in next(iter(table(book(row)))).values():
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", " "))


def test_commas_quotes_and_lines_stay_in_their_cells() -> None:
    name = 'Lovelace, "Ada"\r\nstage1'
    (row,) = table(book(Row("ada,1", State.MISSING, name=name, notes=("a\nb", "c;d"))))
    assert (row["student"], row["name"], row["remarks"]) == ("ada,1", 'Lovelace, "Ada" stage1', "a b; c;d")


def test_the_summary_is_json_and_names_who_needs_a_look() -> None:
    rows = (
        Row("ada", State.GRADED, "ada", stages={"stage1": 4.0}, failed=("stage1.a",), diagnoses=("bug",)),
        Row("bob", State.MISSING),
        Row("eve", State.UNREADABLE, "eve", notes=("why",), on_roster=False),
        Row("fay", State.GRADED, "fay", stages={"stage1": 1.0}, failed=("stage1.a", "stage1.b")),
        Row("gil", State.GRADED, "gil", verdicts={"protocol": 2, "pass": 1}),
        Row("hal", State.GRADED, "hal", verdicts={"protocol": 0, "pass": 1}),
    )
    summary = json.loads(json.dumps(to_dict(book(*rows)), allow_nan=False))
    assert summary["students"] == {"graded": 4, "unreadable": 1, "missing": 1, "broken": 0}
    assert (summary["median"], summary["missing"], summary["not_on_roster"]) == (2.5, ["bob"], ["eve"])
    assert summary["unreadable"] == {"eve": ["why"]}
    assert [(c["id"], c["failed"]) for c in summary["checks"]] == [("stage1.a", 2), ("stage1.b", 1)]
    assert summary["diagnoses"] == {"bug": 1}
    assert summary["protocol"] == ["gil"]


def test_a_class_with_nothing_graded_has_no_median() -> None:
    assert to_dict(book(Row("bob", State.MISSING)))["median"] is None


def test_a_summary_is_read_back_whole() -> None:
    whole = replace(hostile(), seconds={"wall": 1.25})
    assert from_json(json.dumps(to_dict(whole), allow_nan=False)) == whole


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"schema": "kvgrade/summary/v1"}, "it says `kvgrade/summary/v1`"),
        ({"schema": "kvgrade/report/v1"}, "another version wrote it"),
        ({"rows": "none"}, "no summary of a batch: Expected `array`"),
        ({"stages": {"stage1": 0.5}}, "the row of `ada` can't be"),
        ({"rows": [{"student": "ada", "state": "graded", "stages": {"stage1": -1}}]}, "can't be"),
        ({"rows": [{"student": "ada", "state": "graded", "stages": {"stage9": 1}}]}, "['stage9']"),
        ({"rows": [{"student": "ada", "state": "graded", "folder": "../x"}]}, "folder `../x`"),
        ({"rows": [{"student": "ada", "state": "graded", "folder": ".."}]}, "folder `..`"),
        ({"rows": [{"student": "ada", "state": "fine"}]}, "Invalid enum value"),
    ],
)
def test_what_is_no_summary_of_ours_is_said(changed: dict[str, object], said: str) -> None:
    summary = to_dict(book(Row("ada", State.GRADED, "ada", stages={"stage1": 4.0})))
    with pytest.raises(CourseError, match=re.escape(said)):
        from_json(json.dumps(summary | changed))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "kvgrade/summary/v2", "course": NaN}'])
def test_what_is_no_json_is_no_summary(text: str) -> None:
    with pytest.raises(CourseError, match="no summary of a batch"):
        from_json(text)


class Page(HTMLParser):
    """Every element of a page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def hostile() -> Gradebook:
    row = Row(
        ATTACK, State.GRADED, "a~b%c", name=ATTACK, email=ATTACK, stages={"stage1": 1.0}, notes=(ATTACK,)
    )
    row = replace(row, failed=(ATTACK,), diagnoses=(ATTACK,))
    return replace(
        book(row), title=ATTACK, remarks=(ATTACK,), titles={ATTACK: ATTACK}, conditions={"a": ATTACK}
    )


def test_nothing_that_a_student_named_becomes_markup() -> None:
    harmless = Page(
        index.render(book(Row("ada", State.GRADED, "ada", stages={"stage1": 1.0})), report="r.html")
    )
    page = Page(index.render(hostile(), report="r.html"))
    assert not [
        attrs for tag, attrs in page.elements if tag == "img" or any(a.startswith("on") for a in attrs)
    ]
    assert sum(tag == "script" for tag, _ in page.elements) == 1
    assert {tag for tag, _ in page.elements} - {tag for tag, _ in harmless.elements} <= {
        "br",
        "p",
        "tbody",
        "code",
        "dd",
        "dt",
    }


def test_the_page_loads_nothing() -> None:
    text = index.render(hostile(), report="report.html")
    page = Page(text)
    assert not [attrs for tag, attrs in page.elements if "src" in attrs or tag in ("link", "iframe", "base")]
    policy = next(attrs["content"] for _, attrs in page.elements if "http-equiv" in attrs)
    assert str(policy).startswith("default-src 'none'; style-src 'sha256-")
    assert not re.search(r"url\(|@import|https?:", text)


def test_a_link_leads_into_the_students_folder_and_nowhere_else() -> None:
    rows = [
        Row("ada", State.GRADED, "javascript:alert(1)"),
        Row("b", State.GRADED, "ü ?#"),
        Row("c", State.MISSING),
    ]
    page = Page(index.render(book(*rows), report="report.html"))
    links = [attrs["href"] for tag, attrs in page.elements if tag == "a"]
    assert links == ["./javascript%3Aalert%281%29/report.html", "./%C3%BC%20%3F%23/report.html"]


def test_the_histogram_holds_everybody_once() -> None:
    bins = index.histogram([0, 1.5, 1.6, 14.9, 15.5], 15.5)
    assert [bar.students for bar in bins] == [2, 1, 0, 0, 0, 0, 0, 0, 0, 2]
    assert max(bar.share for bar in bins) == 1
    assert [bar.students for bar in index.histogram([], 15.5)] == [0] * index.BINS


def test_our_own_style_and_script_cannot_end_their_elements() -> None:
    for name in (index.STYLE, index.SCRIPT):
        assert "</" not in (page.FOLDER / name).read_text(encoding="utf-8")
