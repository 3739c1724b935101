"""Plots of a measurement, as SVG and PNG; the only module that imports matplotlib.

Drawn to be read in print and in black and white: what differs in colour differs in line and marker too. The
colours are Okabe and Ito's (2008, jfly.uni-koeln.de/color), which people with any colour vision tell apart.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import matplotlib
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grader import memory, roofline
from grader.hardware import Curve, HardwareProfile
from grader.render import svg as plain_svg
from grader.roofline import Roofline
from grader.tables import Held, Step, Tables, Total, Work

BLACK, ORANGE, BLUE, GREEN, VERMILION = "#000000", "#E69F00", "#0072B2", "#009E73", "#D55E00"
COLOURS = {"cached": BLUE, "uncached": VERMILION}
MARKERS = {"cached": "o", "uncached": "s"}
LINES = {"cached": "-", "uncached": "--"}
HATCHES = {"cached": "///", "uncached": "xx"}
WORDS = {"cached": "with cache", "uncached": "without"}
SIZE = (6.4, 4.4)  # inches: fits a printed column and the report's page
PNG_DPI = 160
CURVE_POINTS = 200
HASHED = "kvgrade"  # matplotlib derives ids from it, so that the same tables give the same bytes
STYLE: Any = {
    "text.parse_math": False,  # a model's name may hold a dollar sign
    "svg.fonttype": "path",
    "svg.hashsalt": HASHED,
    "font.size": 9,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "figure.constrained_layout.use": True,
}
T = TypeVar("T", Step, Held, Work, Total)


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawn figure: the name of its files, and what it shows."""

    name: str
    title: str
    figure: Figure

    def svg(self) -> str:
        """The figure as SVG, the same bytes for the same tables: `plain` takes the date out."""
        text = io.StringIO()
        with _style():
            self.figure.savefig(text, format="svg")
        return plain_svg.plain(text.getvalue(), self.name, self.title)

    def png(self) -> bytes:
        """The figure as PNG."""
        content = io.BytesIO()
        with _style():
            self.figure.savefig(content, format="png", dpi=PNG_DPI, metadata={"Software": None})
        return content.getvalue()


def draw(tables: Tables, profile: HardwareProfile | None) -> tuple[Plot, ...]:
    """Draw every table that has rows; `profile`'s curves and roofline go over the latencies."""
    with _style():
        plots = [
            latency(tables.latency, profile) if tables.latency else None,
            held(tables.memory) if tables.memory else None,
            work(tables.work) if tables.work else None,
            total(tables.total) if tables.total else None,
        ]
    return tuple(plot for plot in plots if plot)


def latency(steps: Sequence[Step], profile: HardwareProfile | None) -> Plot:
    """A step's milliseconds against the positions in the text: medians, intervals, what was expected."""
    figure, axes = _axes("positions in the text at this step", "time a step (ms)")
    for (model, device, dtype), group in _grouped(steps, lambda s: (s.model, s.device, s.dtype)):
        for mode in WORDS:
            _measured(
                axes, [s for s in group if s.mode == mode], f"{WORDS[mode]}: {model}, {device}, {dtype}"
            )
        if profile and device.partition(":")[0] == profile.match.device:
            _expected(axes, profile, model, dtype, (group[0].position, group[-1].position))
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:,g}")
    return _finished("latency", "Time a step, against the length of the text", figure, axes)


def held(rows: Sequence[Held]) -> Plot:
    """A cache's bytes against its positions, with the formula's line."""
    figure, axes = _axes("positions in the cache", "memory (MB, 10⁶ bytes)")
    for (model, dtype), group in _grouped(rows, lambda row: (row.model, row.dtype)):
        positions = [row.position for row in group]
        formula = [row.formula_bytes / 1e6 for row in group]
        axes.plot(positions, formula, "-", color=BLACK, label=f"formula: {model}, {dtype}")
        cache = [row.cache_bytes / 1e6 for row in group]
        axes.plot(positions, cache, "o", color=BLUE, mfc="none", ms=8, label=f"cache: {model}, {dtype}")
        given = [
            (row.position, row.allocator_bytes / 1e6) for row in group if row.allocator_bytes is not None
        ]
        if given:
            axes.plot(
                *zip(*given), "^:", color=ORANGE, label=f"more in use, by the allocator: {model}, {dtype}"
            )
    axes.set_ylim(bottom=0)
    return _finished("memory", "Memory of the cache, against its positions", figure, axes)


def work(rows: Sequence[Work]) -> Plot:
    """How many times less time, against how many times less arithmetic, one step takes with the cache."""
    figure, axes = _axes(
        "arithmetic saved (operations without ÷ with, ×)", "time saved (seconds without ÷ with, ×)"
    )
    reach = [1.0]
    for (model,), group in _grouped(rows, lambda row: (row.model,)):
        points = [
            (r.flops_uncached / r.flops_cached, r.s_uncached / r.s_cached, r.context)
            for r in group
            if r.s_cached
        ]
        reach += [number for point in points for number in point[:2]]
        axes.plot(
            [p[0] for p in points], [p[1] for p in points], "o-", color=BLUE, label=f"measured: {model}"
        )
        for x, y, context in points:
            axes.annotate(f"{context:,}", (x, y), (5, -11), textcoords="offset points")
    axes.plot([1, max(reach)], [1, max(reach)], "--", color=BLACK, label="if time went as arithmetic does")
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,g}")
    return _finished("work", "Time saved, against arithmetic saved; figures are positions", figure, axes)


def total(rows: Sequence[Total]) -> Plot:
    """The seconds of the whole text, as bars; those that were added up from samples say so."""
    figure, axes = _axes("", "total time (s)")
    for number, row in enumerate(rows):
        note = "\nadded up from\nsampled positions" if row.sampled == "yes" else ""
        colour, hatch = COLOURS[row.mode], HATCHES[row.mode]
        bar = axes.bar(number, row.seconds, 0.6, facecolor="white", edgecolor=colour, hatch=hatch)
        axes.bar_label(bar, [f"{row.seconds:,.3g} s{note}"], padding=3)
    axes.set_xticks(range(len(rows)), [f"{r.model}, {r.n_new:,} new tokens\n{WORDS[r.mode]}" for r in rows])
    axes.grid(visible=False, axis="x")
    axes.margins(x=0.2, y=0.25)
    return _finished("total", "Time for the whole text", figure, axes)


def _measured(axes: Axes, steps: Sequence[Step], label: str) -> None:
    if not steps:
        return
    mode, positions = steps[0].mode, [step.position for step in steps]
    colour = COLOURS[mode]
    low, high = [step.ms_low for step in steps], [step.ms_high for step in steps]
    axes.fill_between(positions, low, high, color=colour, alpha=0.2, linewidth=0)
    medians = [step.ms_median for step in steps]
    axes.plot(positions, medians, LINES[mode], marker=MARKERS[mode], color=colour, label=label)


def _expected(axes: Axes, profile: HardwareProfile, model: str, dtype: str, span: tuple[int, int]) -> None:
    """What the profile says of this model: others' measurements, and the roofline over these positions."""
    shape = memory.known(model)
    for curve in profile.curves:
        if (curve.model, curve.dtype) == (shape.name if shape else model, dtype):
            _reference(axes, curve, profile.name)
    line = roofline.under(profile, shape, dtype) if shape else None
    if line is None:
        return
    positions = [round(span[0] + (span[1] - span[0]) * i / CURVE_POINTS) for i in range(CURVE_POINTS + 1)]
    cached = [line.cached_ms(position) for position in positions]
    axes.plot(positions, cached, "-.", color=GREEN, lw=1, label=f"roofline with cache: {outweighed(line)}")
    uncached = [ms for position in positions if (ms := line.uncached_ms(position)) is not None]
    if uncached and line.ridge is not None:
        label = f"roofline without: bends at {line.ridge:,.0f} positions"
        axes.plot(positions, uncached, ":", color=BLACK, lw=1.5, label=label)
        if span[0] <= line.ridge <= span[1]:
            axes.axvline(line.ridge, color="#777777", lw=0.8, ls=(0, (1, 3)))


def outweighed(line: Roofline) -> str:
    """From where on a step reads more cache than weights."""
    position = line.crossover()
    if position == float("inf"):
        return "weights outweigh the cache"
    return f"weights outweigh the cache up to {position:,.0f} positions"


def _reference(axes: Axes, curve: Curve, profile: str) -> None:
    mode = "cached" if curve.cached else "uncached"
    marker = "x" if curve.cached else "+"
    label = f"{WORDS[mode]}: as profile {profile} has it"
    axes.plot(curve.positions, curve.ms, marker=marker, ls=(0, (4, 4)), lw=0.8, color=ORANGE, label=label)


def _axes(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE)
    axes = figure.add_subplot(xlabel=x, ylabel=y)
    axes.set_axisbelow(True)
    return figure, axes


def _finished(name: str, title: str, figure: Figure, axes: Axes) -> Plot:
    axes.set_title(title, loc="left", fontsize=10)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower left", fontsize=8, frameon=False)
    return Plot(name, title, figure)


def _grouped(
    rows: Sequence[T], key: Callable[[T], tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], list[T]]]:
    """Rows that belong to one line, in the order of their positions."""
    for wanted in dict.fromkeys(key(row) for row in rows):
        yield wanted, sorted((row for row in rows if key(row) == wanted), key=_position)


def _position(row: Step | Held | Work | Total) -> int:
    return row.context if isinstance(row, Work) else row.n_new if isinstance(row, Total) else row.position


@contextmanager
def _style() -> Iterator[None]:
    """Our style on matplotlib's own, whatever a user has set."""
    with matplotlib.style.context("default", after_reset=True), matplotlib.rc_context(STYLE):
        yield
