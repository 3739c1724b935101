"""A course for nbgrader with the same asserts as one of our stages, and its `autograde` run on submissions.

Each check is a test cell: its own source, then its call with the notebook's namespace for `student`.
"""

from __future__ import annotations

import ast
import json
import sqlite3
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from class_of import Files

from grader.course import Course, Stage

ASSIGNMENT = "ps1"
PREAMBLE = """import sys, types
student = types.SimpleNamespace(**{k: v for k, v in globals().items() if not k.startswith("_")})
"""
CALL = "\n\nimport torch\n{name}(student, torch.Generator().manual_seed({seed}))\n"
Cell = dict[str, Any]


def installed(venv: Path) -> Path:
    """The `nbgrader` of a virtual environment, made where there is none; it sees our torch and grader."""
    tool = venv / "bin" / "nbgrader"
    if not tool.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([venv / "bin" / "pip", "install", "-q", "nbgrader"], check=True)
    theirs = subprocess.run(
        [venv / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    ours = [sysconfig.get_path("purelib"), str(Path(__file__).resolve().parents[1])]
    (Path(theirs) / "ours.pth").write_text("\n".join(ours) + "\n")
    return tool


def lay(tool: Path, root: Path, course: Course, stage: Stage, works: Sequence[Files]) -> None:
    """Make the course: source, released and submitted notebooks."""
    source = root / "source" / ASSIGNMENT
    source.mkdir(parents=True)
    (root / "nbgrader_config.py").write_text("c = get_config()\nc.ExecutePreprocessor.timeout = 120\n")
    (source / f"{ASSIGNMENT}.ipynb").write_text(json.dumps(notebook(course, stage, "# yours")))
    _run(tool, root, "generate_assignment", ASSIGNMENT)
    for number, files in enumerate(works):
        folder = root / "submitted" / f"s{number:04}" / ASSIGNMENT
        folder.mkdir(parents=True)
        text = files[stage.file].decode("utf-8-sig")
        (folder / f"{ASSIGNMENT}.ipynb").write_text(json.dumps(notebook(course, stage, text)))


def autograded(tool: Path, root: Path) -> list[int]:
    """Run `nbgrader autograde`; how many checks each student passed."""
    _run(tool, root, "autograde", ASSIGNMENT)
    with sqlite3.connect(root / "gradebook.db") as book:
        query = """select student_id, sum(auto_score > 0) from grade
            join submitted_notebook on grade.notebook_id = submitted_notebook.id
            join submitted_assignment on submitted_notebook.assignment_id = submitted_assignment.id
            group by student_id order by student_id"""
        return [int(passed or 0) for _, passed in book.execute(query)]


def notebook(course: Course, stage: Stage, answer: str) -> Cell:
    """The stage as a notebook: the student's cell, what the checks share, a cell a check."""
    cells = [_cell("answer", answer, solution=True), _cell("student", PREAMBLE, locked=True)]
    for path in course.tests(stage):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        tests = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
        shared = [ast.get_source_segment(text, node) or "" for node in tree.body if node not in tests]
        cells.append(_cell(f"shared_{path.parent.name}", "\n\n".join(shared), locked=True))
        for seed, test in enumerate(tests):
            source = ast.get_source_segment(text, test) + CALL.format(name=test.name, seed=seed)
            cells.append(_cell(f"{path.parent.name}_{test.name}", source, locked=True, grade=True))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}


def _cell(
    name: str, source: str, *, solution: bool = False, locked: bool = False, grade: bool = False
) -> Cell:
    about = {"grade": grade, "grade_id": name, "locked": locked, "schema_version": 3, "solution": solution}
    about |= {"task": False} | ({"points": 1} if grade else {})
    about |= {"cell_type": "code"}
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {"nbgrader": about},
        "outputs": [],
        "source": source,
    }


def _run(tool: Path, root: Path, *words: str) -> None:
    environment = {"PATH": f"{tool.parent}:/usr/bin:/bin", "HOME": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [tool, *words, f"--CourseDirectory.root={root}"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode and "autograde" not in words:  # which fails where any notebook did
        raise RuntimeError(done.stderr)
