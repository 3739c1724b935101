"""A measurement on the terminal: the lesson's tables, then each prediction beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from grader.records import Cell, Measurements, Row

GUESSES = {
    "speedup": ("times faster, at the last position", ""),
    "ms": ("a step with the cache there", " ms"),
    "bytes": ("the cache grows by, a position", " bytes"),
    "batch": ("times more tokens a second, sixteen texts", ""),
}
NEAR = 1.25  # a prediction within so many times of the figure is a good one
Lines = list[RenderableType]


def render(found: Measurements) -> RenderableType:
    """All tables that there are rows for, remarks, and predictions."""
    s, machine = found.settings, found.machine
    where = (
        f"{s.model} in {s.dtype} on {s.device} · {machine.cpu}, {machine.cores} cores, {s.threads} threads"
    )
    head = f"{where}, load {machine.load_1m:g} · profile {found.profile}"
    lines: Lines = [Text(head, "bold"), *map(Text, found.remarks)]
    for make in (_latency, _totals, _memory, _work, _cat, _batch, _notes, _predictions):
        lines += make(found)
    return Group(*lines)


def _sheet(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Lines:
    """A table under its title; nothing where there are no rows."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return [Text(f"\n{title}", "bold"), table] if rows else []


def _latency(found: Measurements) -> Lines:
    steps: dict[int, dict[str, Row]] = {}
    for row in found.table("latency"):
        steps.setdefault(int(_number(row["position"])), {})[str(row["mode"])] = row
    rows = [
        (f"{position:,}", _spread(modes["uncached"]), _spread(modes["cached"]), _times(modes))
        for position, modes in sorted(steps.items())
    ]
    columns = ("position", "without cache", "with cache", "times faster")
    return _sheet("One step, ms: the median and its 95 % interval", columns, rows)


def _totals(found: Measurements) -> Lines:
    totals = {str(row["mode"]): row for row in found.table("total")}
    how = {"yes": "added up from the steps above", "no": "measured whole"}
    rows = [
        ("with" if mode == "cached" else "without", _figure(row["seconds"]), how[str(row["sampled"])])
        for mode, row in totals.items()
    ]
    s = found.settings
    lines = _sheet(
        f"The whole text: {s.prompt} positions and {s.n_new:,} new", ("cache", "seconds", ""), rows
    )
    if len(totals) == 2:
        gain = _number(totals["uncached"]["seconds"]) / _number(totals["cached"]["seconds"])
        lines.append(Text(f"{gain:.1f} times faster in all"))
    return lines


def _memory(found: Measurements) -> Lines:
    names = ("position", "cache_bytes", "formula_bytes", "allocator_bytes")
    rows = [[f"{row[name]:,}" for name in names] for row in found.table("memory")]
    more = f"more in use ({found.summary.get('allocator')})"
    return _sheet("Memory, bytes", ("positions", "cache", "formula", more), rows)


def _work(found: Measurements) -> Lines:
    rows = []
    for row in found.table("work"):
        record = found.record(f"work {row['context']}")
        formula = record.figures if record else {}
        whole, step = _number(row["flops_uncached"]), _number(row["flops_cached"])
        s_whole, s_step = _number(row["s_uncached"]), _number(row["s_cached"])
        expected = _number(formula.get("formula_uncached")) / max(_number(formula.get("formula_cached")), 1)
        saved = (
            f"{whole / 1e6:,.1f}",
            f"{step / 1e6:,.1f}",
            f"{whole / max(step, 1):.1f}",
            f"{expected:.1f}",
        )
        times = (_figure(s_whole * 1e3), _figure(s_step * 1e3), f"{s_whole / s_step:.2f}")
        rows.append((f"{row['context']:,}", *saved, *times))
    columns = (
        "position",
        "MFLOP without",
        "with",
        "times less",
        "formula",
        "ms without",
        "with",
        "times faster",
    )
    return _sheet("Arithmetic saved against time saved, one step", columns, rows)


def _cat(found: Measurements) -> Lines:
    rows = [
        (f"{r['position']:,}", _figure(r["ms_cat"]), _figure(r["ms_preallocated"]), f"{r['bytes']:,}")
        for r in found.table("cat")
    ]
    columns = ("position", "torch.cat, ms", "preallocated, ms", "bytes copied by cat")
    return _sheet("The caches of all layers made one position longer", columns, rows)


def _batch(found: Measurements) -> Lines:
    record = found.record("batch")
    at = f" of {record.figures['position']} positions" if record else ""
    rows = [
        (f"{row['batch']}", _figure(row["ms_step"]), f"{_number(row['tokens_per_s']):,.0f}")
        for row in found.table("batch")
    ]
    columns = ("texts", "ms a step", "tokens a second")
    return _sheet(f"Several texts{at} at once, with the cache", columns, rows)


def _notes(found: Measurements) -> Lines:
    lines: Lines = [Text()]
    if record := found.record("cached"):
        step, gap = record.figures["first_mismatch"], record.figures["gap"]
        same = f"Tokens: the same {found.settings.n_new:,} with the cache and without."
        differ = (
            f"Tokens: they differ first at new token {step}, where the two best logits of the model without "
            f"a cache are {_number(gap):.2g} apart. Nearly nothing is a near-tie, anything else is a bug."
        )
        lines.append(Text(same if step is None else differ))
    if record := found.record("clocks"):
        theirs, ours = (_figure(record.figures[name]) for name in ("ms_by_stage3", "ms_by_the_grader"))
        lines.append(Text(f"Clock: your timed_steps says {theirs} ms a step, the grader's clock {ours} ms."))
    return lines


def _predictions(found: Measurements) -> Lines:
    rows = []
    for name, (label, unit) in GUESSES.items():
        if name in found.predictions and name in found.summary:
            guess, figure = found.predictions[name], _number(found.summary[name])
            rows.append((label, _figure(guess) + unit, _figure(figure) + unit, _off(guess, figure)))
    return _sheet("Predicted, and measured", ("", "predicted", "measured", ""), rows)


def _off(guess: float, figure: float) -> str:
    """How good a guess was, in words."""
    if guess == figure:
        return "exactly"
    ratio = max(guess, figure) / max(min(guess, figure), 1e-12)
    return "close" if ratio <= NEAR else f"{ratio:.1f} times too {'high' if guess > figure else 'low'}"


def _times(modes: dict[str, Row]) -> str:
    return f"{_number(modes['uncached']['ms_median']) / _number(modes['cached']['ms_median']):.2f}"


def _spread(row: Row) -> str:
    return f"{_figure(row['ms_median'])} ({_figure(row['ms_low'])} … {_figure(row['ms_high'])})"


def _figure(value: Cell) -> str:
    """Three digits that count; whole numbers whole."""
    number = _number(value)
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.3g}"


def _number(value: Cell) -> float:
    return float(value or 0)
