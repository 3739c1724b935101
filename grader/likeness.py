"""How alike two students' files are: by passages of words that both have and that nobody was given.

A passage is so many words in a row, of which names are all one and the same, so that neither other names nor
other comments, nor another order of the functions, hide one. What the measure is worth was tried on the
samples, `tests/test_likeness.py`: independent right answers have at most two thirds of the shorter one's
passages in common, disguised copies at least three quarters. An answer of a few lines looks like the next
right one by necessity, so what has too few passages is not compared.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from grader.gradebook import harmless

WORDS = 7  # of a passage; fewer are in everybody's code, more break at every word that is changed
FEWEST = 40  # passages in common; the whole of the course's own stage 4 has 35
SHARE = 0.72
AROUND = 1  # lines shown before and after one that is alike

Word = tuple[str, int]  # and the number of its line, from 0


@dataclass(frozen=True, slots=True)
class Text:
    """One student's stage file; of two with the same `source` both handed in the same thing together."""

    student: str
    source: str
    lines: tuple[str, ...]
    words: tuple[Word, ...]
    passages: frozenset[int]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts of a stage, how many passages both have, and their share of those of the shorter one."""

    stage: str
    one: Text
    other: Text
    passages: int
    share: float


@dataclass(frozen=True, slots=True)
class Line:
    """A line to show: its number from 1, and whether a passage in common touches it; 0 for a gap."""

    number: int
    text: str = ""
    is_alike: bool = False


def passages(words: Sequence[Word]) -> list[int]:
    """A number for the passage that begins at each word; equal ones are equal."""
    texts = [text for text, _ in words]
    return [hash(tuple(texts[at : at + WORDS])) for at in range(len(texts) - WORDS + 1)]


def text(
    student: str, source: str, lines: Sequence[str], words: Sequence[Word], given: Collection[int]
) -> Text:
    """A text whose passages are those that nobody was `given`."""
    return Text(student, source, tuple(lines), tuple(words), frozenset(passages(words)).difference(given))


def alike(stage: str, texts: Sequence[Text]) -> Iterator[Pair]:
    """Every two of a stage's texts that are more alike than they must be."""
    for one, other in itertools.combinations([t for t in texts if len(t.passages) >= FEWEST], 2):
        shared = len(one.passages & other.passages)
        share = shared / min(len(one.passages), len(other.passages))
        if shared >= FEWEST and share >= SHARE and one.source != other.source:
            yield Pair(stage, one, other, shared, share)


def by_students(pairs: Sequence[Pair]) -> dict[tuple[str, str], list[Pair]]:
    """The pairs by whose they are; first those who have most in common, over all stages."""
    couples: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        couples.setdefault((pair.one.student, pair.other.student), []).append(pair)
    return dict(sorted(couples.items(), key=lambda item: (-sum(p.passages for p in item[1]), item[0])))


def shown(text: Text, other: Text) -> list[Line]:
    """The lines that are alike in the other text too, a line around them, and gaps for what is left out."""
    shared = text.passages & other.passages
    touched = {
        line
        for at, passage in enumerate(passages(text.words))
        if passage in shared
        for _, line in text.words[at : at + WORDS]
    }
    near = {line + step for line in touched for step in range(-AROUND, AROUND + 1)}
    lines, last = [], -1
    for number in sorted(near & set(range(len(text.lines)))):
        lines += [Line(0)] * (number > last + 1)
        lines.append(Line(number + 1, text.lines[number], number in touched))
        last = number
    return lines + [Line(0)] * (last + 1 < len(text.lines))


def to_csv(couples: Mapping[tuple[str, str], Sequence[Pair]]) -> str:
    """`similarity.csv`: a line for two students and a stage."""
    lines = io.StringIO(newline="")
    table = csv.writer(lines)
    table.writerow(["student", "other student", "stage", "percent alike", "passages in common"])
    for students, pairs in couples.items():
        names = [harmless(student) for student in students]
        table.writerows([*names, p.stage, round(100 * p.share), p.passages] for p in pairs)
    return lines.getvalue()
