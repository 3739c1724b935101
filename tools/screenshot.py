"""Draw docs/images/grade-stage1.svg: what `grade stage1` shows a student whose offset is wrong for chunks."""

import io
import re
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from grader import course as courses
from grader import samples
from grader.render import text
from grader.report import student_view
from grader.session import Options, Session
from grader.submission import load

SLUG = "stage1"
SAMPLE = Path("wrong") / "offset_only_for_one_token"
IMAGE = Path("docs") / "images" / "grade-stage1.svg"
COLUMNS = 96

course = courses.find(Path(__file__).parent)
with Session(course, Options(public_only=True)) as session, tempfile.TemporaryDirectory() as folder:
    sample = samples.load(course.root / samples.SAMPLES / SAMPLE, course)
    work = load(samples.write(sample, Path(folder)), course)
    report = session.grade(work, [course.stage(SLUG)])

console = Console(
    record=True,
    width=COLUMNS,
    file=io.StringIO(),
    force_terminal=True,
    highlight=False,
    markup=False,
    _environ={},
)
console.print(f"$ grade {SLUG}", style="bold green")
console.print(text.render(student_view(report)))
# the fonts that rich names would be loaded from elsewhere
frame = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
console.save_svg(str(course.root / IMAGE), title=f"grade {SLUG}", code_format=frame, unique_id="grade")
