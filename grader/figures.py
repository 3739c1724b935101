"""Figures as the command line asks for them: the memory calculator's, worked out, shown and written."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from grader import memory
from grader.faults import Mistake
from grader.memory import BYTES, SHORT, Question

DTYPES = (*SHORT, *BYTES)
ALL_MODELS = "list"
NO_WINDOW = "0"
PIPE_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options of `grade memory` say."""

    model: str
    context: str | None = None
    users: int = 1
    dtype: str = "bf16"
    kv_heads: int | None = None
    window: str | None = None
    json: Path | None = None


def remember(asked: Asked) -> str:
    """What weights and cache need, or which models there are, as text; the answer goes to `json` too.

    Raises Mistake for a model, a number of tokens or of heads that can't be.
    """
    from grader.render import footprint as rendered

    width = shutil.get_terminal_size((PIPE_WIDTH, 25)).columns
    if asked.model == ALL_MODELS:
        return rendered.models(memory.shapes().values(), width)
    try:
        question = _question(asked)
        footprint = memory.footprint(question)
    except ValueError as error:
        raise Mistake(str(error)) from error
    if asked.json:
        _write_json(asked.json, footprint)
    return rendered.answer(question, footprint, width)


def _question(asked: Asked) -> Question:
    shape = memory.find(asked.model)
    context = shape.context if asked.context is None else memory.tokens(asked.context)
    window = None if asked.window is None else 0 if asked.window == NO_WINDOW else memory.tokens(asked.window)
    dtype = SHORT.get(asked.dtype, asked.dtype)
    return Question(shape, context, asked.users, dtype, asked.kv_heads, window)


def _write_json(path: Path, footprint: memory.Footprint) -> None:
    import msgspec

    from grader import report as reports

    try:
        reports.write(path, msgspec.json.format(msgspec.json.encode(footprint)).decode() + "\n")
    except OSError as error:
        raise Mistake(f"`{path}` can't be written: {error}") from error
