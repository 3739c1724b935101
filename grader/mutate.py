"""Mutation: break the solutions on purpose, one small change at a time, and see whether the checks notice.

Every operator, constant, comparison, slice, condition and order of arguments in the solution regions is
changed by AST. A mutant that passes all of its stage's checks has survived: either a check is missing, or the
mutant is equivalent and stands with its reason in `tests/equivalents.toml`.
"""

from __future__ import annotations

import ast
import copy
import random
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from grader import pool, stubs, submission
from grader.course import Course, Stage
from grader.errors import CourseError
from grader.outcome import Outcome
from grader.session import Options, Session

EQUIVALENTS = Path("tests") / "equivalents.toml"

_BINARY: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add, ast.Div),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.MatMult: (),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
}
_COMPARE: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A solution with one change: `before → after` is the changed piece of the line `code`."""

    stage: str
    line: int
    code: str
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        return f"{self.stage}:{self.line}: {self.before} → {self.after}   in `{self.code}`"


@dataclass(frozen=True, slots=True)
class Score:
    """What a run found: mutants tried, survivors, and those known to be equivalent."""

    tried: int
    survivors: tuple[Mutant, ...]
    equivalent: tuple[Mutant, ...]

    @property
    def share(self) -> float:
        """Mutants noticed, of those that are not equivalent."""
        real = self.tried - len(self.equivalent)
        return (real - len(self.survivors)) / real if real else 1.0


class Equivalent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mutant that no check could tell apart, and why."""

    stage: str
    code: str
    before: str
    after: str
    why: str


def equivalents(course: Course) -> tuple[Equivalent, ...]:
    """Read the list of equivalent mutants.

    Raises CourseError where it is malformed.
    """
    path = course.root / EQUIVALENTS
    if not path.is_file():
        return ()
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(table.get("equivalent", []), tuple[Equivalent, ...])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise CourseError(f"`{EQUIVALENTS}`: {error}") from error


def mutants(source: str, slug: str) -> list[Mutant]:
    """Make every mutant of a solution's regions, in the order of its text, duplicates left out."""
    regions = stubs.find_regions(source, slug)
    tree = ast.parse(source)
    made: dict[str, Mutant] = {}
    spared = {id(part) for note in _annotations(tree) for part in ast.walk(note)}
    for number, node in enumerate(ast.walk(tree)):
        line = getattr(node, "lineno", 0)
        if id(node) in spared or not any(region.begin < line < region.end for region in regions):
            continue
        code = source.splitlines()[line - 1].strip()
        for change in _changes(node):
            copied = copy.deepcopy(tree)
            target = next(n for k, n in enumerate(ast.walk(copied)) if k == number)
            before = _shown(target)
            change(target)
            text = ast.unparse(ast.fix_missing_locations(copied))
            made.setdefault(text, Mutant(slug, line, code, before, _shown(target), text))
    made.pop(ast.unparse(tree), None)
    return sorted(made.values(), key=lambda m: (m.line, m.before, m.after))


def _annotations(tree: ast.AST) -> Iterator[ast.expr]:
    """What a solution says of types, which nothing runs."""
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            found = getattr(node, field, None)
            if isinstance(found, ast.expr):
                yield found


def _shown(node: ast.AST) -> str:
    """A node as code; of a compound statement only its condition."""
    if isinstance(node, ast.If | ast.While):
        return f"{type(node).__name__.lower()} {ast.unparse(node.test)}"
    return ast.unparse(node)


def _changes(node: ast.AST) -> Iterator[Callable[[ast.AST], None]]:
    """The changes that a node can take, each as a function on (a copy of) it."""
    if isinstance(node, ast.BinOp | ast.AugAssign):
        for operator in _BINARY.get(type(node.op), ()):
            yield _set("op", operator())
    elif isinstance(node, ast.Compare):
        for comparison in _COMPARE.get(type(node.ops[0]), ()):
            yield _set("ops", [comparison(), *node.ops[1:]])
    elif isinstance(node, ast.BoolOp):
        yield _set("op", ast.And() if isinstance(node.op, ast.Or) else ast.Or())
    elif isinstance(node, ast.Constant):
        yield from (_set("value", value) for value in _other_constants(node.value))
    elif isinstance(node, ast.UnaryOp):
        yield from _unary_changes(node)
    elif isinstance(node, ast.Slice):
        yield from _slice_changes(node)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield _set("test", ast.Constant(False))
        if not isinstance(node, ast.While):
            yield _set("test", ast.Constant(True))
    elif isinstance(node, ast.List | ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
        yield _set("elts", node.elts[::-1])
    elif isinstance(node, ast.Call) and len(node.args) > 1 and not _is_symmetric(node.func):
        yield _set("args", [node.args[1], node.args[0], *node.args[2:]])
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield _set("value", ast.Constant(None))


def _is_symmetric(function: ast.expr) -> bool:
    """Whether the order of the first two arguments makes no difference."""
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("transpose", "min", "max", "equal", "same", "same_cache")


def _set(field: str, value: object) -> Callable[[ast.AST], None]:
    return lambda node: setattr(node, field, copy.deepcopy(value))


def _other_constants(value: object) -> list[object]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [value * 2 or 1.0]
    return []


def _unary_changes(node: ast.UnaryOp) -> Iterator[Callable[[ast.AST], None]]:
    if isinstance(node.op, ast.Not):
        yield _set("operand", ast.UnaryOp(ast.Not(), node.operand))
    else:
        yield _set("op", ast.UAdd())


def _slice_changes(node: ast.Slice) -> Iterator[Callable[[ast.AST], None]]:
    for field in ("lower", "upper", "step"):
        if getattr(node, field) is not None:
            yield _set(field, None)
    if node.lower is None and node.upper is None and node.step is None:
        yield _set("lower", ast.Constant(1))
        yield _set("upper", ast.UnaryOp(ast.USub(), ast.Constant(1)))


def run(
    course: Course,
    stages: Sequence[Stage],
    *,
    seed: int = 0,
    budget_s: float = 0.0,
    jobs: int = 0,
    progress: Callable[[int, int, str, bool], None] = lambda done, total, name, survived: None,
) -> Score:
    """Try the stages' mutants, all or, with a budget in seconds, as many of a seeded shuffle as it allows."""
    known = {(e.stage, e.code, e.before, e.after) for e in equivalents(course)}
    every = [
        m for s in stages for m in mutants((course.solutions / s.file).read_text(encoding="utf-8"), s.slug)
    ]
    random.Random(seed).shuffle(every)
    ends = time.monotonic() + budget_s if budget_s else float("inf")
    tried, survivors = 0, []
    for mutant, outcome in pool.run(course, Options(), first_failure, every, jobs=jobs):
        tried += 1
        if outcome is None:
            survivors.append(mutant)
        progress(tried, len(every), mutant.name, outcome is None)
        if time.monotonic() > ends:
            break
    equivalent = tuple(m for m in survivors if (m.stage, m.code, m.before, m.after) in known)
    return Score(tried, tuple(m for m in survivors if m not in equivalent), equivalent)


def first_failure(session: Session, mutant: Mutant) -> Outcome | None:
    """The first check that notices a mutant; None where it survives them all."""
    stage = session.course.stage(mutant.stage)
    files = {stage.file: mutant.source.encode()}
    for slug in (*stage.uses, *stage.runs):
        used = session.course.stage(slug)
        files[used.file] = (session.course.solutions / used.file).read_bytes()
    return session.first_failure(submission.of_files("mutant", files), stage)


def summary(score: Score) -> str:
    """The score and the survivors, a line each."""
    lines = [f"survived: {mutant.name}" for mutant in score.survivors]
    lines.append(
        f"{score.tried} mutants, {len(score.equivalent)} equivalent, {len(score.survivors)} survived: "
        f"{score.share:.1%} noticed"
    )
    return "\n".join(lines)
