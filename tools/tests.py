"""Run all that `make test` is: the course's check of itself, a sample of mutants, and every test.

Checks of the course keep both cores busy. A run of pytest keeps one, so there are two side by side: the long
one is seen as it goes on, the other one, behind the mutants, goes to a file and is shown at the end.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

LOG = Path("build") / "beside.txt"
GRADE = [str(Path(sys.executable).with_name("grade")), "dev"]
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
APART = ("tests/test_hostile.py", "tests/test_nbgrader_course.py")  # half of the time that all tests take
CHECK = [*GRADE, "check"]
MUTANTS = [*GRADE, "mutate", "--minutes", "2", "--seed", "1", "--require", "0.97"]


def main(words: Sequence[str]) -> int:
    """Run everything, or with the word `beside` its smaller part; the worst exit status."""
    if words == ["beside"]:
        return _each(MUTANTS, [*PYTEST, *APART])
    if status := _each(CHECK):
        return status
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("wb") as log:
        beside = subprocess.Popen([sys.executable, __file__, "beside"], stdout=log, stderr=log)
        status = _each([*PYTEST, *(f"--ignore={path}" for path in APART)])
        status = max(status, beside.wait())
    sys.stdout.write(LOG.read_text(encoding="utf-8", errors="replace"))
    return status


def _each(*commands: Sequence[str]) -> int:
    """Run one command after the other, all of them, and name those that fail; the worst exit status."""
    worst = 0
    for command in commands:
        if status := abs(subprocess.run(command, check=False).returncode):
            print(f"failed with {status}: {' '.join(command)}", file=sys.stderr, flush=True)
        worst = max(worst, status)
    return worst


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # which every process of the terminal's gets
        sys.exit(130)
