"""The roster: read however a spreadsheet wrote it, and never guessing between two students."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader import roster
from grader.errors import CourseError
from grader.roster import Roster, Student

ADA = Student("s17", "Lovelace, Ada", "ada@example.org")


@pytest.mark.parametrize(
    "text",
    [
        'id,name,email\ns17,"Lovelace, Ada",ada@example.org\n',
        '\ufeffid,name,email\r\ns17,"Lovelace, Ada",ada@example.org\r\n\r\n',
        'Email,Section,Name,ID\nada@example.org,3,"Lovelace, Ada", s17 \n,,,\n',
        'SID,Full Name,E-mail\ns17,"Lovelace, Ada",ada@example.org',
    ],
    ids=["plain", "bom_and_crlf", "other_order_and_columns", "other_heads"],
)
def test_a_roster_is_read_however_it_was_written(text: str, tmp_path: Path) -> None:
    path = tmp_path / "roster.csv"
    path.write_bytes(text.encode())
    assert roster.load(path) == Roster((ADA,))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"name,email\nAda,a@b\n", "no column `id`"),
        (b"id,name\ns17,Ada\nS17,Bob\n", "line 3: id `S17` is there twice"),
        (b"id,name\n,Ada\n", "line 2 has no id"),
        (b"id,name\n", "nobody is on it"),
        (b"", "no column `id`"),
        (b"id,name\ns1,J\xf6rg\n", "can't be read as UTF-8"),
        (b'id,name\ns1,"Ada\n', "unexpected end of data"),
    ],
    ids=["no_id", "twice", "empty_id", "nobody", "empty", "latin1", "open_quote"],
)
def test_what_is_wrong_with_a_roster_is_said(text: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "roster.csv"
    path.write_bytes(text)
    with pytest.raises(CourseError, match=r"roster\.csv") as caught:
        roster.load(path)
    assert said in str(caught.value)


def test_a_roster_that_is_not_there_is_the_instructors_mistake(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="can't be read"):
        roster.load(tmp_path / "nonesuch.csv")


@pytest.mark.parametrize(
    "names",
    [
        ("s17",),
        ("S17 ",),
        ("lovelaceada_42", "lovelaceada", "42"),
        ("Ada Lovelace_9", "Ada Lovelace", "9"),
        ("ADA@example.org",),
        ("ada",),
        ("x", "lovelace,  ada"),
    ],
    ids=["id", "case", "canvas", "moodle", "email", "mailbox", "name"],
)
def test_a_student_is_found_by_any_of_their_names(names: tuple[str, ...]) -> None:
    assert Roster((Student("s1", "Ada Byron", "byron@example.org"), ADA)).find(names) is ADA


@pytest.mark.parametrize("names", [(), ("",), ("s1",), ("love",), ("ada@example.net",)])
def test_a_stranger_is_nobody(names: tuple[str, ...]) -> None:
    assert Roster((ADA,)).find(names) is None


def test_one_name_of_two_students_is_neither() -> None:
    twins = Roster((Student("s1", "Jane Doe"), Student("s2", "Jane Doe")))
    assert twins.find(["Jane Doe"]) is None
    assert twins.find(["Jane Doe", "s2"]) == twins.students[1]


def test_a_platforms_number_is_an_id_only_where_the_name_agrees() -> None:
    class_ = Roster((Student("17", "Bob Roe"), Student("18", "Jane Doe"), Student("19", "Jane Doe")))
    assert class_.find(["doejane_17", "doejane"], "17") is None
    assert class_.find(["doejane_19", "doejane"], "19") == class_.students[2]
    assert Roster((Student("17"),)).find(["doejane"], "17") == Student("17")


def test_an_id_goes_before_anybodys_name() -> None:
    class_ = Roster((Student("ada", "Bob"), Student("s2", "Ada", "ada@example.org")))
    assert class_.find(["ada"]) == class_.students[0]


def test_decomposed_letters_are_the_same_letters() -> None:
    class_ = Roster((Student("s1", "José Núñez"),))
    assert class_.find(["Jose\u0301 Nu\u0301n\u0303ez"]) == class_.students[0]
