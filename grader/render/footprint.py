"""What weights and a cache hold in memory, as lines and a table; models to ask about, as a list."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table

from grader.memory import Footprint, Question, Shape

BINARY = ("bytes", "KiB", "MiB", "GiB")
DECIMAL = ("bytes", "kB", "MB", "GB")


def answer(question: Question, footprint: Footprint, width: int) -> str:
    """The whole answer, no wider than `width` columns where that is possible."""
    shape, cache, weights = question.shape, footprint.cache, footprint.weight_bytes
    grid = Table(box=None, show_header=False, pad_edge=False)
    grid.add_column(overflow="fold")
    grid.add_column(justify="right")
    grid.add_column(justify="right")
    for what, number in (
        (f"weights: {shape.parameters:,} numbers", weights),
        ("cache, a token", cache.token_bytes),
        (f"cache, a user: {footprint.context:,} tokens", cache.user_bytes),
        (f"cache, all users: {footprint.users:,}", cache.total_bytes),
        ("weights and cache", weights + cache.total_bytes),
    ):
        grid.add_row(what, f"{number:,} bytes", both(number))
    head = [
        f"{shape.title}: {shape.layers} layers, {shape.heads} heads of {shape.head_dim}, in {question.dtype}",
        f"keys and values: {cache.title}",
        f"source: {shape.source}",
    ]
    return "\n".join([*head, "", _text(grid, width), *_remarks(question), _table(footprint, width)])


def models(shapes: Iterable[Shape], width: int) -> str:
    """The models to ask about, a line each."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in (
        "--model",
        "what it is",
        "layers",
        "heads",
        "k/v heads",
        "head size",
        "bytes a token, bf16",
    ):
        table.add_column(heading, justify="left" if heading in ("--model", "what it is") else "right")
    for shape in shapes:
        bytes_a_token = 2 * shape.layers * (shape.latent or 2 * shape.kv_heads * shape.head_dim)
        heads = "latent" if shape.latent else str(shape.kv_heads)
        sizes = (str(shape.layers), str(shape.heads), heads, str(shape.head_dim), f"{bytes_a_token:,}")
        table.add_row(shape.name, shape.title, *sizes)
    return _text(table, width)


def both(number: int) -> str:
    """`1.07 GB (1 GiB)`: powers of a thousand, and of 1,024."""
    return f"{scaled(number, 1000, DECIMAL)} ({scaled(number, 1024, BINARY)})"


def scaled(number: int, step: int, units: tuple[str, ...]) -> str:
    """In the largest unit that leaves at least 1, to three figures, without idle zeros; nothing beyond G."""
    power = 0
    while power < len(units) - 1 and number >= step ** (power + 1):
        power += 1
    value = number / step**power
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    text = f"{value:,.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {units[power]}"


def _remarks(question: Question) -> list[str]:
    shape, window = question.shape, question.shape.window if question.window is None else question.window
    remarks = []
    if window and window < question.context:
        remarks.append(f"a layer with a window keeps the last {window:,} tokens")
    if question.context > shape.context:
        remarks.append(f"{shape.title} was made for texts of {shape.context:,} tokens at most")
    return [*remarks, ""] if remarks else []


def _table(footprint: Footprint, width: int) -> str:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("  keys and values", overflow="fold")
    for heading in ("a token", "a user", "all users", "", "share"):
        table.add_column(heading, justify="right")
    rows = sorted((footprint.cache, *footprint.others), key=lambda cost: -cost.total_bytes)
    for cost in rows:
        table.add_row(
            f"{'→' if cost.own else ' '} {cost.title}",
            scaled(cost.token_bytes, 1024, BINARY),
            scaled(cost.user_bytes, 1024, BINARY),
            scaled(cost.total_bytes, 1024, BINARY),
            scaled(cost.total_bytes, 1000, DECIMAL),
            f"{cost.total_bytes / rows[0].total_bytes:.1%}",
        )
    note = "→ is what was asked about. int8 is counted without its scales. GB are 10⁹ bytes, GiB 2³⁰.\n"
    return _text(table, width) + note


def _text(table: Table, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    lines = [line.removeprefix(" ").rstrip() for line in console.file.getvalue().splitlines()]
    return "\n".join(lines).strip("\n") + "\n"
