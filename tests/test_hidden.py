"""Hidden stays hidden: however a hidden check ends, nothing that a student sees tells more than its title."""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import keyword
import re
import shutil
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from grader import cli, expect, submission
from grader import course as courses
from grader import report as reports
from grader.course import Limits, Stage
from grader.outcome import Check, Outcome, Verdict, Visibility
from grader.render import html, junit, text
from grader.report import Report
from grader.session import Options, Session

COURSE = courses.load(Path(__file__).resolve().parents[1])
STAGE = msgspec.structs.replace(
    COURSE.stage("stage4"), limits=Limits(check_s=1.0, import_s=5.0, memory_mib=256)
)
SHORTEST_TEXT, SHORTEST_NUMBER = 5, 3
SEED = "7"

# A stage file in which every call ends in one way, and tells what it was called with wherever it can.
ENDINGS = {
    Verdict.FAIL: "return -1",
    Verdict.RAISED: "raise ValueError(said)",
    Verdict.TIMEOUT: "while True: pass",
    Verdict.CRASH: "os._exit(7)",
    Verdict.PROTOCOL: "return 10**10_000",
    Verdict.MEMORY: "return bytearray(1 << 40)",
    Verdict.TODO: "raise NotImplementedError(said)",
}
SOURCE = """
import os
import sys


def end(**inputs):
    said = f"called with {{inputs}}"
    print(said)
    print(said, file=sys.stderr)
    {ending}


def cache_bytes(past):
    return end(past=[[(tuple(t.shape), t.dtype) for t in pair] for pair in past])


def kv_bytes_per_token(n_layer, n_kv_head, head_dim, bytes_per_number):
    return end(L=n_layer, K=n_kv_head, D=head_dim, size=bytes_per_number)
"""


# ---- what is hidden


def pieces(path: Path) -> set[str]:
    """Every name, number and text in a Python file; of texts with holes what stands between them."""
    source = path.read_text(encoding="utf-8")
    found = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME or (
            token.type == tokenize.NUMBER and len(token.string) >= SHORTEST_NUMBER
        ):
            found.add(token.string)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.strip())
    return {piece for piece in found if piece}


def told(path: Path) -> set[str]:
    """What of a hidden file a student may see: each check's title, and its hint's category."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            found.add((ast.get_docstring(node) or "").partition("\n")[0])
        if isinstance(node, ast.keyword) and node.arg == "category":
            found.add(str(ast.literal_eval(node.value)))
    return found


def secrets() -> set[str]:
    """All that stands in tests_hidden/ and nowhere in what a student has."""
    folders = ("tests_public", "exercises", "grader", "docs", "hardware_profiles")
    public = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in folders
        for path in (COURSE.root / folder).rglob("*")
        if path.suffix in (".py", ".toml", ".md", ".json", ".j2", ".css") and "small" not in path.parts
    )
    files = sorted((COURSE.root / "tests_hidden").glob("*.py"))
    public += "\n".join(title for path in files for title in told(path))
    known = set(keyword.kwlist) | set(dir(builtins))
    words = {piece for path in files for piece in pieces(path)}
    words |= {word.removeprefix("test_") for word in words}  # as in a check's id
    long = {word for word in words - known if len(word) >= SHORTEST_TEXT or word.isdigit()}
    return {word for word in long if not occurs(word, public)} | {"tests_hidden"}


def occurs(word: str, where: str) -> bool:
    """Whether a text holds a word: as it is, or a name or number by itself."""
    if not word.replace("_", "").isalnum():
        return word in where
    return re.search(rf"(?<![\w.]){re.escape(word)}(?![\w.])", where) is not None


SECRETS = secrets()


def test_there_is_something_to_hide() -> None:
    assert len(SECRETS) > 100
    assert {"layers_and_halves_may_differ", "a cache of no positions", "transposed views"} <= SECRETS


# ---- what is shown


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(COURSE, Options("auto", seed=SEED)) as session:
        yield session


@pytest.fixture(scope="module")
def graded(session: Session) -> dict[Verdict, Report]:
    """A report for every way to end, the grader's own fault among them."""
    found = {}
    for verdict, ending in ENDINGS.items():
        source = SOURCE.format(ending=ending)
        found[verdict] = session.grade(submission.of_files("s", {STAGE.file: source.encode()}), [STAGE])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expect, "bytes_are", fail_with_what_it_knows)
        honest = (COURSE.solutions / STAGE.file).read_bytes()
        found[Verdict.BROKEN] = session.grade(submission.of_files("s", {STAGE.file: honest}), [STAGE])
    found[Verdict.PASS] = session.grade(submission.of_files("s", {STAGE.file: honest}), [STAGE])
    return found


def fail_with_what_it_knows(value: object, want: object, of: str) -> None:
    raise KeyError(f"{value} {want} {of}")


class Replay:
    """A session that gives a report again, outcome by outcome."""

    report: Report

    def __init__(self, course: object, options: object) -> None:
        pass

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def grade(
        self, work: object, stages: list[Stage], *, on_start: Any = None, on_outcome: Any = None
    ) -> Report:
        outcomes = self.report.stages[0].outcomes
        on_start(STAGE, len(outcomes))
        for outcome in outcomes if on_outcome else ():
            on_outcome(STAGE, outcome)
        return self.report


def rendered(report: Report, folder: Path, patch: pytest.MonkeyPatch) -> dict[str, str]:
    """Everything that a student may be shown of a report, by where it is shown."""
    view = reports.student_view(report)
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    console.print(text.render(view))
    shown = {
        "text": console.file.getvalue(),  # type: ignore[attr-defined]
        "html": html.render(view),
        "junit": junit.render(view),
        "json": reports.to_json(view),
    }
    patch.setattr("os.cpu_count", lambda: 1)  # on more cores `grade all` has sessions of its own
    patch.setattr("grader.session.Session", Replay)
    patch.setattr(Replay, "report", report, raising=False)
    files = {name: folder / f"report.{name}" for name in ("json", "html", "junit")}
    for words in (["stage4"], ["stage4", "-q"], ["--debug", "all"], ["next"]):
        options = [] if words == ["next"] else ["--submission", str(COURSE.exercises)]
        options += [f"--{name}={path}" for name, path in files.items()] if words == ["stage4"] else []
        done = CliRunner().invoke(cli.cli, ["--course", str(COURSE.root), *words, *options])
        shown[f"grade {' '.join(words)}"] = done.output + repr(done.exception)
    return shown | {f"--{name}": path.read_text(encoding="utf-8") for name, path in files.items()}


@pytest.fixture
def shown(
    verdict: Verdict, graded: dict[Verdict, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    monkeypatch.setattr("grader.run._keep", lambda *_: None)
    return rendered(graded[verdict], tmp_path, monkeypatch)


EVERY_VERDICT = pytest.mark.parametrize("verdict", [*ENDINGS, Verdict.BROKEN, Verdict.PASS])


@EVERY_VERDICT
def test_hidden_checks_end_in_this_way(verdict: Verdict, graded: dict[Verdict, Report]) -> None:
    hidden = [o for o in graded[verdict].stages[0].outcomes if o.check.visibility is Visibility.HIDDEN]

    assert len(hidden) > 3
    assert {o.verdict for o in hidden} == {verdict}


@EVERY_VERDICT
def test_no_rendering_holds_a_word_of_the_hidden_files(verdict: Verdict, shown: dict[str, str]) -> None:
    found = {where: [w for w in SECRETS if occurs(w, what)] for where, what in shown.items()}

    assert {where: words for where, words in found.items() if words} == {}


@EVERY_VERDICT
def test_no_rendering_holds_what_became_of_a_hidden_check(
    verdict: Verdict, graded: dict[Verdict, Report], shown: dict[str, str]
) -> None:
    outcomes = graded[verdict].stages[0].outcomes
    public = "\n".join(lines(o) for o in outcomes if o.check.visibility is Visibility.PUBLIC)
    hidden = [o for o in outcomes if o.check.visibility is Visibility.HIDDEN]
    secret = {line.strip() for o in hidden for line in lines(o).splitlines() if line.strip() not in public}

    for where, what in shown.items():
        assert [line for line in secret if line in what] == [], where
        assert [o.check.id for o in hidden if o.check.id in what] == [], where


def lines(outcome: Outcome) -> str:
    return "\n".join(
        (outcome.message, outcome.traceback, outcome.output, *map(str, outcome.metrics.values()))
    )


@EVERY_VERDICT
def test_the_instructor_sees_it_all(verdict: Verdict, graded: dict[Verdict, Report]) -> None:
    told = reports.to_json(graded[verdict])

    assert "layers_and_halves_may_differ" in told
    if verdict not in (Verdict.PASS, Verdict.BROKEN):
        assert "called with" in told


def test_a_parameters_name_tells_a_student_nothing() -> None:
    check = Check("stage2.long[one-token]", "A long text (one-token)", Visibility.HIDDEN, category="texts")

    seen = reports.withheld(Outcome(check, Verdict.FAIL, 1.0, "wrong"), 12).check

    assert (seen.id, seen.title) == ("stage2.hidden12", "A long text (12)")


# ---- when the hidden files themselves are at fault


FAULTS = {
    "can't be parsed": "def test_zebra(:\n    pass\n",
    "raise": "raise RuntimeError('zebra in the cellar')\n",
    "import what is not there": "import zebra_crossing\n",
    "warn": (
        '"""Zebra."""\nimport warnings\n\n\ndef test_zebra(student):\n    """A title"""\n'
        '    warnings.warn("zebra in the cellar")  # zebra\n    assert student.cache_bytes([]) == "zebra"\n'
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_hidden_file_shows_nothing_of_it(
    fault: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "course"
    for folder in ("exercises", "tests_public", "hardware_profiles"):
        shutil.copytree(COURSE.root / folder, root / folder)
    (root / "tests_hidden").mkdir()
    (root / "tests_hidden" / f"test_{STAGE.name}.py").write_text(FAULTS[fault])

    with contextlib.suppress(SystemExit):
        cli.cli(["--course", str(root), "stage4", f"--submission={root / 'exercises'}"], prog_name="grade")

    said = "".join(capfd.readouterr()).lower()
    assert said
    assert "zebra" not in said
    assert f"test_{STAGE.name}" not in said
