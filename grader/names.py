"""Which names a piece of Python needs and binds: so that a stage file gets what it uses from other cells.

Only the compiler's own table of symbols is asked; nothing is run. The rule: where the answer uses a name
that neither it nor Python itself defines, every definition, import and assignment of that name at the top
of one of the student's own cells is taken along, and what those need in turn; all in the notebook's order.
"""

from __future__ import annotations

import ast
import builtins
import io
import symtable
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

MAX_PARSED = 1 << 17  # characters that are read for names, of the answer and of all other cells
MOST_PIECES = 5000  # statements at the top of a cell, and in all, that are looked at
BUILT_IN = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__"}
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # of what is no Python, or too deep
Binding = (
    ast.FunctionDef
    | ast.AsyncFunctionDef
    | ast.ClassDef
    | ast.Import
    | ast.ImportFrom
    | ast.Assign
    | ast.AnnAssign
    | ast.AugAssign
)


@dataclass(frozen=True, slots=True)
class Along:
    """A text with what it needs from elsewhere in it, and the names that were found for it."""

    text: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement at the top of a cell: the names that it binds, and those that it needs."""

    text: str
    binds: frozenset[str]
    needs: frozenset[str]


def joined(
    answer: str, others: Iterable[tuple[bool, str]], read: Callable[[str], tuple[Piece, ...]]
) -> Along:
    """Put in what the answer needs of other cells, each above it or not; what is no Python stays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = _symbols(answer) if len(answer) <= MAX_PARSED else None
        if own is None or not own[1]:
            return Along(answer)
        pieces = [(is_above, piece) for is_above, text in others for piece in read(text)][:MOST_PIECES]
        names = _wanted(own, [piece for _, piece in pieces])
        first = [piece.text for is_above, piece in pieces if is_above and piece.binds & names]
        last = [piece.text for is_above, piece in pieces if not is_above and piece.binds & names]
        if not first and not last:
            return Along(answer)
        lines, head = list(io.StringIO(answer, newline="")), _header(answer)
    parts = [*lines[:head], *first, *lines[head:], *last]
    text = "".join(p if p.endswith(("\n", "\r")) else f"{p}\n" for p in parts)
    return Along(text, tuple(sorted(names)))


def bound(source: str) -> frozenset[str]:
    """The names that a text binds at its top; none if it is no Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = _symbols(source) if len(source) <= MAX_PARSED else None
    return found[0] if found else frozenset()


def _wanted(own: tuple[frozenset[str], frozenset[str]], pieces: Sequence[Piece]) -> frozenset[str]:
    """The names that the pieces have to give, those that they need of each other too."""
    giving: dict[str, list[Piece]] = {}
    for piece in pieces:
        for name in piece.binds:
            giving.setdefault(name, []).append(piece)
    bound, open_ = own
    wanted, left = set(), list(open_)
    while left:
        name = left.pop()
        if name in giving and name not in wanted and name not in bound:
            wanted.add(name)
            left += [needed for piece in giving[name] for needed in piece.needs]
    return frozenset(wanted)


def pieces(cell: str) -> tuple[Piece, ...]:
    """The definitions, imports and assignments at the top of a cell; none of what is no Python."""
    try:
        body = ast.parse(cell).body
    except UNREADABLE:
        return ()
    lines = list(io.StringIO(cell, newline=""))
    found, seen = [], 0
    for node in body[:MOST_PIECES]:
        begin = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        end = node.end_lineno or node.lineno
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not isinstance(node, Binding) or is_future or begin <= seen:
            continue
        seen = end
        text = "".join(lines[begin - 1 : end])
        if symbols := _symbols(text):
            found.append(Piece(text, *symbols))
    return tuple(found)


def _symbols(source: str) -> tuple[frozenset[str], frozenset[str]] | None:
    """The names that a text binds at its top, and those that it needs from elsewhere; None if no Python."""
    try:
        top = symtable.symtable(source, "cell", "exec")
    except UNREADABLE:
        return None
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    used = {s.get_name() for s in top.get_symbols() if s.is_referenced()}
    tables = top.get_children()
    while tables:
        table = tables.pop()
        used |= {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
        tables += table.get_children()
    return frozenset(bound), frozenset(used - bound - BUILT_IN)


def _header(answer: str) -> int:
    """How many lines must stay first: the docstring and `from __future__`, up to the last of these."""
    last = 0
    for node in ast.parse(answer).body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not is_text and not is_future:
            break
        last = node.end_lineno or last
    return last
