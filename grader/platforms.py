"""How course platforms name what was handed in: whose it is, read off a file's or a folder's name.

Canvas names a file `doejane_LATE_12345_678_stage2_generate-1.py` (the student's name without spaces, their
user number, the submission's number, the file, and how often it was uploaded before). Moodle names a folder
or file `Jane Doe_1234_assignsubmission_file_`. Names are parsed from the left, where the platform writes:
what is on the right was chosen by the student.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from grader.submission import ARCHIVES, copies, original

CANVAS = re.compile(r"(?P<name>[^_]+)_(?P<late>LATE_)?(?P<user>\d+)_(?P<attempt>\d+)_(?P<file>.+)", re.DOTALL)
MOODLE = re.compile(r"(?P<name>.+?)_(?P<user>\d+)_assignsubmission_(?P<kind>[a-z]+)_?(?P<file>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Named:
    """What a name says: the student, what else they may be known by, and the file as they named it.

    `account` is the platform's own for them, `canvas:NUMBER:NAME`, where it wrote the name.
    `file` is empty where the name is a whole submission's. Of two uploads the one with the greater `attempt`
    is the later; `late` is the platform's own mark; `number` the student's on the platform, which may be
    the roster's id; `submitted_at` is the platform's time in ISO 8601, empty where it tells none.
    """

    student: str
    aliases: tuple[str, ...] = ()
    file: str = ""
    late: bool = False
    attempt: tuple[int, int] = (0, 0)
    number: str = ""
    submitted_at: str = ""
    account: str = ""


def parse(name: str, stage_files: Sequence[str], *, is_folder: bool = False) -> Named:
    """Read an entry's name. `student` is empty for a bare stage file, which does not say whose it is."""
    if not is_folder and (found := CANVAS.fullmatch(name)):
        attempt = int(found["attempt"][:18]), copies(found["file"])
        return Named(
            f"{found['name']}_{found['user']}",
            (found["name"],),
            original(found["file"]),
            bool(found["late"]),
            attempt,
            number=found["user"],
            account=f"canvas:{found['user']}:{found['name']}",
        )
    if found := MOODLE.fullmatch(name):  # its number is on nobody's roster
        student, account = f"{found['name']}_{found['user']}", f"moodle:{found['user']}:{found['name']}"
        return Named(student, (found["name"],), original(found["file"]), account=account)
    if is_folder:
        return Named(name)
    plain = original(name)
    stage_file = next((f for f in stage_files if plain == f or plain.endswith("_" + f)), "")
    if stage_file:
        return Named(
            plain.removesuffix(stage_file).removesuffix("_"), (), stage_file, False, (0, copies(name))
        )
    return Named(without_suffix(name))


def without_suffix(name: str) -> str:
    """A file's name less `.zip`, `.tar.gz` or whatever it ends in."""
    for suffix in ARCHIVES:
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            return name[: -len(suffix)]
    stem, dot, _ = name.rpartition(".")
    return stem if dot and stem else name
