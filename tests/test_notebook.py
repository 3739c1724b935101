"""Notebooks as submissions: the answer's cell becomes the stage file, whatever was done to the notebook."""

from __future__ import annotations

import io
import json
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from grader import course as courses
from grader import intake, notebook, samples, submission
from grader.cli import cli
from grader.course import Course
from grader.errors import SubmissionError
from grader.roster import Roster

COURSE = courses.load(Path(__file__).resolve().parents[1])
KINDS = ("correct", "wrong", "hostile")
SLOW_S = 2.0
ANSWER = "import math\n\n\ndef one(x):\n    return math.sin(x)\n"


def cell(source: str, grade_id: str = "", kind: str = "code", **more: Any) -> dict[str, Any]:
    about = {"nbgrader": {"grade_id": grade_id, "solution": True}} if grade_id else {}
    return {"cell_type": kind, "metadata": about, "source": source, "outputs": [], **more}


def book(*cells: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **more}).encode()


def zipped(**members: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as packed:
        for name, content in members.items():
            packed.writestr(name.replace("__", "/").replace("_ipynb", ".ipynb"), content)
    return data.getvalue()


def text_of(tiny: Course, *cells: dict[str, Any]) -> str:
    return notebook.extract(book(*cells), tiny).files["stage1_one.py"].decode()


@pytest.mark.parametrize("kind", KINDS)
def test_each_sample_is_the_same_to_the_byte_as_a_notebook(kind: str, tmp_path: Path) -> None:
    stems = {stage.file: stage.name for stage in COURSE.stages}
    for sample in samples.load_all(COURSE, kind):
        texts = {name: data.decode("latin-1") for name, data in sample.handed_in.items()}
        for name, data in sample.handed_in.items():
            if "latin-1" not in texts[name][:200]:
                texts[name] = data.decode()
        path = tmp_path / "any.ipynb"
        path.write_bytes(book(*(cell(text, stems[name]) for name, text in texts.items())))
        assert submission.load(path, COURSE).files == sample.handed_in, sample.name


def test_a_cell_may_be_lines_and_lack_the_last_line_end(tiny: Course) -> None:
    lines = cell("", "stage1_one") | {"source": ANSWER.rstrip("\n").splitlines(keepends=True)}

    assert text_of(tiny, lines) == ANSWER


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([cell("", "stage1_one-check")], "cell `stage1_one` is gone, though `stage1_one-check` is there"),
        (
            [cell("", "stage1_one"), cell("", "stage1_one")],
            "`stage1_one` is there more than once, as cells 1 and 2",
        ),
        ([cell("", "stage1_one", "markdown")], "cell `stage1_one` is of type `markdown`"),
        ([cell("", "stage1_one-check"), cell("", "stage1_one")], "is below `stage1_one-check`"),
        ([cell("%%bash\nls", "stage1_one")], "cell `stage1_one` begins with `%%bash`"),
    ],
    ids=["deleted", "duplicated", "retyped", "reordered", "not Python"],
)
def test_what_was_done_to_the_answers_cell_is_said(
    cells: list[dict[str, Any]], said: str, tiny: Course, tmp_path: Path
) -> None:
    (tmp_path / "a.ipynb").write_bytes(book(*cells))

    with pytest.raises(SubmissionError, match=r"`a\.ipynb`: cell") as caught:
        submission.load(tmp_path / "a.ipynb", tiny)
    assert said in str(caught.value)


def test_a_stage_that_can_not_be_taken_leaves_the_others(tiny: Course) -> None:
    got = notebook.extract(book(cell(ANSWER, "stage1_one"), cell("", "stage2_two", "raw")), tiny)

    assert (list(got.files), len(got.notes)) == (["stage1_one.py"], 1)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("%matplotlib inline\nx = 1", "pass  # %matplotlib inline\nx = 1\n"),
        ("%%time\nx = 1", "pass  # %%time\nx = 1\n"),
        ("def f():\n    !ls (\n    return 1", "def f():\n    pass  # !ls (\n    return 1\n"),
        ("torch.cat?\r\nx = 1", "pass  # torch.cat?\r\nx = 1\n"),
        (
            'x = """\n%not magic\n!nor this\n"""\n%magic',
            'x = """\n%not magic\n!nor this\n"""\npass  # %magic\n',
        ),
        ("x = (7\n  % 4)\n", "x = (7\n  % 4)\n"),
        ("x = 7 \\\n  % 4\n", "x = 7 \\\n  % 4\n"),
        ("# it's (\n%magic\n", "# it's (\npass  # %magic\n"),
    ],
)
def test_lines_of_ipythons_become_comments_and_no_others(source: str, text: str, tiny: Course) -> None:
    assert text_of(tiny, cell(source, "stage1_one")) == text


def test_what_the_answer_needs_is_taken_along_in_order(tiny: Course) -> None:
    answer = '"""Doc."""\nfrom __future__ import annotations\n\ndef one(x):\n    return helper(x) + LATER\n'
    got = text_of(
        tiny,
        cell("import math, os\nSCALE = 2\nprint('no')\nunused = 1"),
        cell("def helper(x):\n    return math.sin(x) * SCALE"),
        cell(answer, "stage1_one"),
        cell("%time one(1)\nLATER = 3"),
    )

    head, body = answer[: answer.index("\n\n") + 1], answer[answer.index("\n\n") + 1 :]
    middle = "import math, os\nSCALE = 2\ndef helper(x):\n    return math.sin(x) * SCALE\n"
    assert got == head + middle + body + "LATER = 3\n"


def test_local_names_need_nothing(tiny: Course) -> None:
    answer = "def one(model):\n    logits = model(1)\n    return [logits for x in logits]\n"

    assert text_of(tiny, cell("logits = 5\nx = 3\nmodel = 1"), cell(answer, "stage1_one")) == answer


def test_cells_with_an_id_of_their_own_give_nothing(tiny: Course) -> None:
    answer = "def one(x):\n    return helper(x)\n"
    given = cell("def helper(x):\n    return 1", "stage2_two")

    assert text_of(tiny, given, cell(answer, "stage1_one")) == answer


@pytest.mark.parametrize(
    "answer", ["def one(:\n", "x = " + "(" * 300 + "\n", "x = 1" + "+1" * 50_000 + "\n", "\0\n"]
)
def test_an_answer_that_is_no_python_stays_as_it_is(answer: str, tiny: Course) -> None:
    assert text_of(tiny, cell("y = 1"), cell(answer, "stage1_one")) == answer


BIG = {"output_type": "stream", "name": "stdout", "text": "x" * (5 << 20)}
DEEP = b'{"nbformat": 4, "cells": ' + b"[" * 3_000_000


@pytest.mark.parametrize(
    "data",
    [
        book(cell("x = helper\n", "stage1_one", outputs=[BIG]), cell("helper = 1", outputs=[BIG])),
        book(*[cell(f"x{n} = 1\n" * 20) for n in range(500)], cell("x = x499\n", "stage1_one")),
        book(*[cell(f"x{n} = x{n + 1}") for n in range(5000)], cell("x = x0\n", "stage1_one")),
        book(cell("y = x\n" * 20_000), cell("x = y\n", "stage1_one")),
        book(cell("!ls (\n'" * 100_000 + "\n", "stage1_one")),
        book(cell("(" * 500_000 + "\n%x\n", "stage1_one")),
    ],
    ids=[
        "5 MB of outputs",
        "500 cells",
        "a chain of names",
        "20,000 statements",
        "magics without end",
        "brackets without end",
    ],
)
def test_large_notebooks_are_read_quickly(data: bytes, tiny: Course) -> None:
    begun = time.perf_counter()

    assert notebook.extract(data, tiny).files
    assert time.perf_counter() - begun < SLOW_S


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            json.dumps({"worksheets": [], "nbformat": 3, "metadata": {}}).encode(),
            "notebook format `3`, not 4",
        ),
        (book(cell(ANSWER, "stage1_one"))[:-40], "not a whole notebook"),
        (b"print('hello')\n", "not a whole notebook"),
        (b"", "not a whole notebook"),
        (b"\xff\xfe{}", "not a whole notebook"),
        (b'{"nbformat": 4, "cells": [{"cell_type": 5}]}', "not a whole notebook"),
        (DEEP, "not a whole notebook"),
        (b'{"nbformat": 4, "x": ' + DEEP, "not a whole notebook"),
        (b" " * (notebook.MAX_BYTES + 1), "is more than"),
        (book(cell("x" * (submission.MAX_FILE_BYTES + 1), "stage1_one")), "`stage1_one.py` is more than"),
        (book(*[cell("")] * (notebook.MOST_CELLS + 1)), "has `10001` cells"),
        (book(cell("x = 1")), "no notebook with its cell (`stage1_one`)"),
    ],
    ids=[
        "format 3",
        "cut off",
        "text",
        "empty",
        "UTF-16",
        "types",
        "deep",
        "deep outputs",
        "large",
        "long",
        "cells",
        "no id",
    ],
)
def test_what_is_no_notebook_is_refused_in_a_line(
    data: bytes, said: str, tiny: Course, tmp_path: Path
) -> None:
    path = tmp_path / "a.ipynb"
    path.write_bytes(data)
    begun = time.perf_counter()

    with pytest.raises(SubmissionError) as caught:
        submission.load(path, tiny)
    assert said in str(caught.value)
    assert "a.ipynb" in str(caught.value) or "stage1_one.py" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert time.perf_counter() - begun < SLOW_S


def test_a_stage_file_goes_over_a_notebook(tiny: Course, tmp_path: Path) -> None:
    (tmp_path / "stage1_one.py").write_text("x = 1\n")
    (tmp_path / "stage1.ipynb").write_bytes(book(cell("x = 2", "stage1_one"), cell("y = 2", "stage2_two")))

    work = submission.load(tmp_path, tiny)

    assert work.files == {"stage1_one.py": b"x = 1\n", "stage2_two.py": b"y = 2\n"}
    assert work.info.notes == ("`stage1.ipynb` holds `stage1_one` too: not taken, `stage1_one.py` is",)


def test_of_two_notebooks_the_one_named_after_the_stage_is_taken(tiny: Course, tmp_path: Path) -> None:
    (tmp_path / "stage1.ipynb").write_bytes(book(cell("x = 1", "stage1_one")))
    (tmp_path / "stage1-Copy1.ipynb").write_bytes(book(cell("x = 2", "stage1_one")))

    assert submission.load(tmp_path, tiny).files == {"stage1_one.py": b"x = 1\n"}


def test_of_two_notebooks_with_other_names_neither_is_taken(tiny: Course, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    for name in ("a.ipynb", "b.ipynb"):
        (tmp_path / "work" / name).write_bytes(book(cell("x = 1", "stage1_one")))

    with pytest.raises(SubmissionError, match=r"cell `stage1_one` is in `a\.ipynb` and `b\.ipynb`"):
        submission.load(tmp_path / "work", tiny)


def test_a_notebook_beside_the_work_hinders_nothing(tiny: Course, tmp_path: Path) -> None:
    (tmp_path / "notes.ipynb").write_bytes(b"{")
    (tmp_path / "exercises").mkdir()
    (tmp_path / "exercises" / "stage1_one.py").write_text("x = 1\n")

    assert submission.load(tmp_path, tiny).files == {"stage1_one.py": b"x = 1\n"}


def test_a_notebook_that_is_a_link_is_not_taken(tiny: Course, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(book(cell("x = 1", "stage1_one")))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "stage1.ipynb").symlink_to(tmp_path / "secret")

    with pytest.raises(SubmissionError, match="it is a link"):
        submission.load(tmp_path / "work", tiny)


@pytest.mark.parametrize("prefix", ["", "work__", "exercises__"])
def test_a_notebook_in_an_archive_is_taken(prefix: str, tiny: Course, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(
        zipped(**{f"{prefix}stage2_ipynb": book(cell("y = 2", "stage2_two")), f"{prefix}notes_ipynb": b"{"})
    )

    assert submission.load(tmp_path / "a.zip", tiny).files == {"stage2_two.py": b"y = 2\n"}


def test_a_class_hands_in_notebooks(tiny: Course, tmp_path: Path) -> None:
    folder = tmp_path / "class"
    (folder / "dan").mkdir(parents=True)
    one = book(cell("x = 1", "stage1_one"))
    for name in ("ada.ipynb", "bob_stage1.ipynb", "dan/stage1.ipynb", "poeeve_103_7003_stage1.ipynb"):
        (folder / name).write_bytes(one)
    (folder / "poeeve_103_7004_stage1_one.py").write_text("x = 3\n")
    (folder / "cyd.zip").write_bytes(zipped(stage1_ipynb=one))

    found = intake.find(folder, tiny, Roster(), on_duplicate="latest", out=tmp_path / "out")

    read = {entry.key: intake.load(entry, tiny, entry.key).files["stage1_one.py"] for entry in found.entries}
    rest = dict.fromkeys(("ada", "bob", "cyd", "dan"), b"x = 1\n")
    assert read == rest | {"poeeve_103": b"x = 3\n"}


def test_nbgraders_tree_holds_notebooks(tiny: Course, tmp_path: Path) -> None:
    place = tmp_path / "submitted" / "ada" / "kv"
    (place / "exercises").mkdir(parents=True)
    (place / "stage1.ipynb").write_bytes(book(cell("x = 1", "stage1_one")))
    (place / "stage2.ipynb").write_bytes(book(cell("y = 2", "stage2_two")))
    (place / "timestamp.txt").write_text("2026-11-30 12:00:00.5 UTC")

    (entry,) = intake.find(
        tmp_path / "submitted", tiny, Roster(), on_duplicate="latest", out=tmp_path / "out"
    ).entries

    assert sorted(intake.load(entry, tiny, "ada").files) == ["stage1_one.py", "stage2_two.py"]
    assert entry.submitted_at.startswith("2026-11-30T12:00:00")


def test_the_command_writes_the_stage_file_and_keeps_what_is_there(tiny: Course, tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    path.write_bytes(book(cell("%magic\nx = 1", "stage1_one")))
    asked = ["--course", str(tiny.root), "notebook", "extract", str(path), "--out", str(tmp_path / "out")]

    first = CliRunner().invoke(cli, asked)
    assert (first.exit_code, "left out, being IPython's (`%`, `!`, `?`): 1" in first.stderr) == (0, True)
    assert (tmp_path / "out" / "stage1_one.py").read_text() == "pass  # %magic\nx = 1\n"
    (tmp_path / "out" / "stage1_one.py").write_text("mine\n")
    assert CliRunner().invoke(cli, asked).exit_code == 2
    assert (tmp_path / "out" / "stage1_one.py").read_text() == "mine\n"
    assert CliRunner().invoke(cli, [*asked, "--force"]).exit_code == 0
