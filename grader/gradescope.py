"""Whose folder is whose in a Gradescope export: its `submission_metadata.yml`, read line by line.

Only the few lines that name people and times are looked for, so that no parser of all of YAML is needed. The
layout is from memory of exports: `submission_123:`, below it `- :name: Jane Doe`, `:sid: '42'`,
`:email: j@x.org`, and at its own level `:created_at: 2026-11-30 22:10:05.123456000 Z`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from grader import lateness
from grader.errors import SubmissionError
from grader.platforms import Named
from grader.submission import read

METADATA = "submission_metadata.yml"
MAX_BYTES = 64 << 20
ENTRY = re.compile(r"['\"]?(?P<folder>submission_\d+)['\"]?:\s*\Z")
CREATED = re.compile(r" {1,2}:created_at:\s*(?P<time>.*?)\s*\Z")  # not an earlier one's, which lies deeper
PERSON = re.compile(r"\s*(?P<first>- )?\s*:(?P<key>name|sid|email):\s*(?P<value>.*?)\s*\Z")


def submitters(root: Path) -> dict[str, tuple[Named, ...]]:
    """Who handed in each folder; several where a group did; none where `root` is no Gradescope export."""
    path = root / METADATA
    if not path.is_file():
        return {}
    try:
        return parse(read(path, MAX_BYTES).decode("utf-8", "replace"))
    except SubmissionError:
        return {}


def parse(text: str) -> dict[str, tuple[Named, ...]]:
    """Read the people out of the metadata's text."""
    people: dict[str, list[dict[str, str]]] = {}
    times: dict[str, str] = {}
    folder = ""
    for line in text.splitlines():
        if entry := ENTRY.match(line):
            folder = entry["folder"]
            people[folder] = []
        elif folder and (created := CREATED.match(line)):
            times.setdefault(folder, lateness.known(_unquoted(created["time"])))
        elif folder and (found := PERSON.match(line)):
            if found["first"] or not people[folder]:
                people[folder].append({})
            people[folder][-1][found["key"]] = _unquoted(found["value"])
    return {
        folder: tuple(replace(_named(person), submitted_at=times.get(folder, "")) for person in group)
        for folder, group in people.items()
    }


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value


def _named(person: dict[str, str]) -> Named:
    known = [person[key] for key in ("sid", "email", "name") if person.get(key)]
    return Named(known[0] if known else "", tuple(known[1:]))
