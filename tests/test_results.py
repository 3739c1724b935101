"""The folder of results: nobody's name leaves it, and no report is lost to a worse one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from grader import results
from grader.faults import Mistake
from grader.gradebook import Gradebook, Row, State
from grader.outcome import Check, Outcome, Verdict, Visibility
from grader.report import Machine, Report, StageResult, SubmissionInfo, to_json
from grader.results import BROKEN, PARTIAL, Conditions, Shelf

CONDITIONS = Conditions("c" * 64, "0.1.0", "seed", "confined", "any", False)
SECRET = "expected 42, got 41"


def report(verdict: Verdict = Verdict.PASS, digest: str = "d" * 64) -> Report:
    check = Check("stage1.a", "A", Visibility.HIDDEN, 1.0, "a category")
    stage = StageResult("stage1", "T", "stage1_x.py", 1, 1, (Outcome(check, verdict, 0.1, SECRET),))
    if verdict is Verdict.BROKEN:
        stage = replace(stage, scored=False)
    made = ("Course", "1", "c" * 64, "0.1.0", "seed", Machine(), "any", "confined", {}, False)
    return Report(SubmissionInfo("ada", digest), *made, "2026-11-29T10:00:00", 1.0, (stage,))


HOSTILE = [
    "..",
    ".",
    "../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "",
    " ",
    "-rf",
    ".hidden",
    "a\x00b",
    "a\nb",
    "\x1b[2J",
    os.fsdecode(b"\xff\xfe"),
    "\u202egnp.exe",
    "x" * 5000,
    "é" * 300,
    "index.html",
    "SCORES.csv",
    "summary.json",
    "=cmd()",
    "<b>",
    "con:",
]


def test_no_name_leaves_the_folder_of_results(tmp_path: Path) -> None:
    names = results.folders(HOSTILE)
    assert len({name.casefold() for name in names.values()}) == len(HOSTILE)
    for name in names.values():
        path = tmp_path / name
        path.mkdir()
        assert path.resolve().parent == tmp_path.resolve()
        assert not name.startswith((".", "-", " "))
        assert name.isprintable()
        assert name.casefold() not in ("index.html", "scores.csv", "summary.json")


@pytest.mark.parametrize("name", ["ada", "O'Brien ünï (1)", "jane.doe@example.org", "李小龍", "doe_12-3"])
def test_a_harmless_name_is_the_folders_name(name: str) -> None:
    assert results.folders([name, "other"])[name] == name


def test_names_alike_in_another_case_have_folders_of_their_own() -> None:
    names = results.folders(["Ada", "ada", "a/a", "a_a", "José", "Jose\u0301"])
    assert len({name.casefold() for name in names.values()}) == len(names)


def test_a_label_is_fit_to_show_and_tells_names_apart() -> None:
    labels = [results.label(name) for name in HOSTILE]
    assert len(set(labels)) == len(labels)
    assert all(label.isprintable() and len(label) < 120 for label in labels)
    assert results.label("O'Brien ünï") == "O'Brien ünï"


@pytest.mark.parametrize(
    "changed",
    [
        {"course_digest": "x"},
        {"grader_version": "0.2"},
        {"seed_id": "x"},
        {"isolation": "process"},
        {"profile": "x"},
        {"public_only": True},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_report_holds_until_a_condition_changes(changed: dict[str, object]) -> None:
    assert CONDITIONS.hold_for(report(), "d" * 64)
    assert not replace(CONDITIONS, **changed).hold_for(report(), "d" * 64)  # type: ignore[arg-type]


def test_a_report_does_not_hold_for_another_submission_or_where_it_broke() -> None:
    assert not CONDITIONS.hold_for(report(), "e" * 64)
    assert not CONDITIONS.hold_for(report(Verdict.BROKEN), "d" * 64)


def test_a_broken_report_never_overwrites_a_good_one(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "ada")
    shelf.keep(report())
    shelf.keep(report(Verdict.BROKEN))
    assert shelf.kept() == report()
    assert shelf.kept(BROKEN) == report(Verdict.BROKEN)
    shelf.keep(report(digest="e" * 64))
    assert shelf.kept() == report(digest="e" * 64)
    assert shelf.kept(BROKEN) is None


def test_a_good_report_replaces_a_broken_one(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "ada")
    shelf.keep(report(Verdict.BROKEN))
    assert shelf.kept() == report(Verdict.BROKEN)
    shelf.keep(report())
    assert shelf.kept() == report()


def test_a_whole_report_clears_parts_and_what_a_kill_left(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "ada")
    shelf.keep_part(report())
    (shelf.folder / ".report.json.x8f").write_text("half")
    assert shelf.kept(PARTIAL) == report()
    shelf.keep(report())
    assert sorted(p.name for p in shelf.folder.iterdir()) == ["report.html", "report.json", "student.html"]


def test_the_students_page_withholds_what_the_instructors_shows(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "ada")
    shelf.keep(report(Verdict.FAIL))
    assert SECRET in (shelf.folder / "report.html").read_text()
    assert SECRET not in (shelf.folder / "student.html").read_text()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "other"}', to_json(report())[:-40]])
def test_a_report_that_cannot_be_read_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(text)
    assert Shelf(tmp_path).kept() is None


def test_results_are_read_back(tmp_path: Path) -> None:
    book = Gradebook("Course 1", (Row("ada", State.GRADED, "ada", stages={"stage1": 1.5}),), {"stage1": 2})
    results.write(tmp_path, book)
    assert results.load(tmp_path) == book


@pytest.mark.parametrize(
    ("text", "said"), [(None, "is no folder of results"), ('{"schema": "x"}', "another version wrote it")]
)
def test_a_folder_that_holds_no_results_is_a_mistake(text: str | None, said: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "summary.json").write_text(text)
    with pytest.raises(Mistake, match=said):
        results.load(tmp_path)
