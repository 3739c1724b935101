"""Make a small class to try `grade batch` and `grade export` on: ten zips, a roster, a gradebook of Canvas's.

python tools/sample_class.py ../class
"""

from __future__ import annotations

import csv
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from grader import course as courses
from grader import samples

STAGES = ("stage2", "stage4")  # what they hand in
STUDENTS = (
    *("Ada Byron", "Blaise Pascal", "Çelik, Deniz", "Dorothy Vaughan", "Edsger Dijkstra", "Fei-Fei Müller"),
    *("Grace Hopper", "Hedy O'Brien", "Ibn Sahl", "Joan Clarke", "Katherine Johnson"),
)
FIRST_ID, MISSING = 4001, "Katherine Johnson"  # who hands nothing in


def main(folder: Path) -> None:
    """Write the class into a folder that is not there yet."""
    course = courses.find(Path(__file__).parent)
    (folder / "submissions").mkdir(parents=True)
    rows = [[FIRST_ID + n, name, name.split()[0].strip(",").lower()] for n, name in enumerate(STUDENTS)]
    for number, (_, name, login) in enumerate(rows):
        if name != MISSING:
            with zipfile.ZipFile(folder / "submissions" / f"{login}.zip", "w") as packed:
                for file, content in _work(course, number).items():
                    packed.writestr(f"kv-course/{file}", content)
    _write(
        folder / "roster.csv", [["id", "name", "email"], *([o, n, f"{o}@example.edu"] for _, n, o in rows)]
    )
    header = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "KV cache (4711)"]
    possible = ["    Points Possible", "", "", "", "", "66.00"]
    _write(folder / "gradebook.csv", [header, possible, *([n, i, "", o, "1", ""] for i, n, o in rows)])


def _work(course: courses.Course, number: int) -> dict[str, bytes]:
    """The solutions, of one stage a wrong sample in their place, for the last students right ones."""
    files = {s.file: (course.solutions / s.file).read_bytes() for s in map(course.stage, STAGES)}
    kind = "wrong" if number < 7 else "correct"
    mine = [s for s in samples.load_all(course, kind) if s.stage == STAGES[number % len(STAGES)]]
    return files | mine[number % len(mine)].handed_in if number else files


def _write(path: Path, rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
