"""Plots: what is drawn is what was measured, axes have units, SVG can stand in a page under its policy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D

from grader import course as courses
from grader import figures, hardware
from grader.cli import cli
from grader.hardware import HardwareProfile
from grader.render import plots, svg
from grader.render.plots import Plot
from grader.tables import Held, Step, Tables, Total, Work

ROOT = Path(__file__).resolve().parent.parent
PROFILES = {profile.name: profile for profile in hardware.load_all(ROOT / "hardware_profiles")}
MAC, SPARK = PROFILES["mac-m4pro-cpu"], PROFILES["dgx-spark-gb10"]


def step(mode: str, position: int, ms: float, device: str = "cpu", model: str = "gpt2") -> Step:
    return Step(model, device, "float32", mode, position, ms, ms - 0.5, ms + 1.0, 5)  # type: ignore[arg-type]


STEPS = (
    *(step("uncached", n, ms) for n, ms in ((1000, 358.0), (1, 17.0), (500, 161.0))),
    *(step("cached", n, ms) for n, ms in ((1, 8.0), (500, 12.0), (1000, 16.0))),
)
HELD = (
    Held("gpt2", "float32", 1011, 74_539_008, 74_539_008, 80_000_000),
    Held("gpt2", "float32", 1, 73_728, 73_728, 0),
)
WORK = (Work("gpt2", 64, 10, 640, 0.01, 0.04), Work("gpt2", 512, 10, 5120, 0.02, 0.16))
TOTAL = (Total("gpt2", "cached", 1000, 12.0, "no"), Total("gpt2", "uncached", 1000, 170.0, "yes"))
TABLES = Tables(STEPS, HELD, WORK, TOTAL)


def axes(plot: Plot) -> Axes:
    (found,) = plot.figure.axes
    return found


def lines(plot: Plot) -> dict[str, Line2D]:
    return {str(line.get_label()): line for line in axes(plot).lines}


def points(line: Line2D) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in zip(line.get_xdata(), line.get_ydata())]  # type: ignore[arg-type]


# ---- what is drawn


def test_every_table_with_rows_has_its_plot() -> None:
    assert [plot.name for plot in plots.draw(TABLES, MAC)] == list(figures.PLOTS)
    assert [plot.name for plot in plots.draw(Tables(memory=HELD), None)] == ["memory"]
    assert plots.draw(Tables(), MAC) == ()


def test_latencies_are_drawn_in_order_with_their_intervals() -> None:
    plot = plots.latency(STEPS, None)
    assert points(lines(plot)["with cache: gpt2, cpu, float32"]) == [(1, 8), (500, 12), (1000, 16)]
    assert points(lines(plot)["without: gpt2, cpu, float32"]) == [(1, 17), (500, 161), (1000, 358)]
    bands = [band for band in axes(plot).collections if isinstance(band, PolyCollection)]
    corners = {(float(x), float(y)) for band in bands for x, y in band.get_paths()[0].vertices}  # type: ignore[union-attr]
    assert {(500, 11.5), (500, 13), (500, 160.5), (500, 162)} <= corners


def test_the_profiles_curves_are_drawn_for_their_own_model_only() -> None:
    label = "with cache: as profile mac-m4pro-cpu has it"
    assert points(lines(plots.latency(STEPS, MAC))[label]) == [(1, 8), (1000, 16)]
    small = [step("cached", 3, 1.0, model="small")]
    assert label not in lines(plots.latency(small, MAC))


def test_a_model_with_random_weights_is_held_against_its_shape() -> None:
    random = [step("cached", n, 9.0, model="gpt2-random") for n in (1, 7)]
    assert "with cache: as profile mac-m4pro-cpu has it" in lines(plots.latency(random, MAC))


def test_the_roofline_is_drawn_over_the_measured_positions() -> None:
    cuda = [step(s.mode, s.position, s.ms_median, "cuda:0") for s in STEPS]
    drawn = lines(plots.latency(cuda, SPARK))
    cached = points(drawn["roofline with cache: weights outweigh the cache up to 6,751 positions"])
    uncached = points(drawn["roofline without: bends at 219 positions"])
    assert (cached[0][0], cached[-1][0]) == (uncached[0][0], uncached[-1][0]) == (1, 1000)
    assert cached[0][1] == pytest.approx(1.82, abs=0.01)
    assert cached[-1][1] == pytest.approx((497_759_232 + 73_728_000) / 273e6)
    assert uncached[0][1] == pytest.approx(1.82, abs=0.01)
    assert uncached[-1][1] == pytest.approx(1000 * (247_064_064 + 4 * 12 * 768 * 1000) / 29.7e9)
    assert any(points(line)[0][0] == pytest.approx(219.2, abs=0.1) for line in drawn.values())


@pytest.mark.parametrize(
    ("profile", "model", "device"),
    [
        (MAC, "gpt2", "mps"),
        (MAC, "my-own-model", "cpu"),
        (HardwareProfile("p", "s", "generic"), "gpt2", "cpu"),
    ],
)
def test_nothing_is_expected_where_too_little_is_known(
    profile: HardwareProfile, model: str, device: str
) -> None:
    drawn = lines(plots.latency([step("cached", 3, 1.0, device, model)], profile))
    assert list(drawn) == [f"with cache: {model}, {device}, float32"]


def test_memory_is_drawn_with_the_formulas_line() -> None:
    drawn = lines(plots.held(HELD))
    assert points(drawn["formula: gpt2, float32"]) == [(1, 0.073728), (1011, 74.539008)]
    assert points(drawn["cache: gpt2, float32"]) == [(1, 0.073728), (1011, 74.539008)]
    assert points(drawn["more in use, by the allocator: gpt2, float32"]) == [(1, 0), (1011, 80)]


def test_without_figures_of_the_allocator_none_are_drawn() -> None:
    assert len(lines(plots.held([Held("m", "float32", 3, 30, 30)]))) == 2


def test_time_saved_is_drawn_against_arithmetic_saved() -> None:
    plot = plots.work(WORK)
    assert points(lines(plot)["measured: gpt2"]) == [(64, 4), (512, 8)]
    assert points(lines(plot)["if time went as arithmetic does"]) == [(1, 1), (512, 512)]
    assert [text.get_text() for text in axes(plot).texts] == ["64", "512"]


def test_a_step_that_took_no_time_is_left_out() -> None:
    assert points(lines(plots.work([*WORK, Work("gpt2", 7, 1, 7, 0.0, 0.1)]))["measured: gpt2"]) == [
        (64, 4),
        (512, 8),
    ]


def test_totals_are_bars_and_say_what_was_sampled() -> None:
    plot = plots.total(TOTAL)
    assert [bar.get_height() for bar in axes(plot).patches] == [12, 170]  # type: ignore[attr-defined]
    measured, sampled = (text.get_text() for text in axes(plot).texts)
    assert measured == "12 s"
    assert sampled == "170 s\nadded up from\nsampled positions"


# ---- how


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("latency", "positions", "(ms)"),
        ("memory", "positions", "(MB, 10⁶ bytes)"),
        ("work", "(operations without ÷ with, ×)", "(seconds without ÷ with, ×)"),
        ("total", "", "(s)"),
    ],
)
def test_axes_have_units(name: str, x: str, y: str) -> None:
    (plot,) = (plot for plot in plots.draw(TABLES, MAC) if plot.name == name)
    assert x in axes(plot).get_xlabel()
    assert y in axes(plot).get_ylabel()


def test_lines_differ_without_colours() -> None:
    for plot in plots.draw(TABLES, MAC):
        styles = [(str(line.get_linestyle()), str(line.get_marker())) for line in axes(plot).lines]
        assert len(set(styles)) == len(styles), plot.name
    with_cache, without = list(lines(plots.latency(STEPS, None)).values())
    assert with_cache.get_linestyle() != without.get_linestyle()
    assert with_cache.get_marker() != without.get_marker()
    first, second = axes(plots.total(TOTAL)).patches
    assert first.get_hatch() != second.get_hatch()


def test_every_line_is_in_the_legend() -> None:
    for plot in plots.draw(Tables(STEPS, HELD, WORK), MAC):
        (legend,) = plot.figure.legends
        assert {text.get_text() for text in legend.get_texts()} == set(lines(plot))


def test_a_models_name_is_not_taken_for_mathematics() -> None:
    (plot,) = plots.draw(Tables(latency=(step("cached", 3, 1.0, model=r"my$\frac$model"),)), None)
    assert plot.svg()


DRAW = """
import sys
sys.path.insert(0, {tests!r})
from test_plots import TABLES, MAC, plots
for plot in plots.draw(TABLES, MAC):
    sys.stdout.write(plot.svg())
"""


def test_the_same_tables_give_the_same_svg_in_any_process(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9\n", encoding="utf-8")

    def drawn(seed: str, folder: Path) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        code = DRAW.format(tests=str(Path(__file__).parent))
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, check=True
        ).stdout

    first = drawn("1", ROOT)
    assert first == drawn("2", tmp_path)
    assert b"metadata" not in first


# ---- SVG in a page


def test_drawn_svg_is_plain_and_says_what_it_shows() -> None:
    for plot in plots.draw(TABLES, MAC):
        root = ET.fromstring(svg.checked(plot.svg()))
        assert root.find(f"{{{svg.SVG}}}title").text == plot.title  # type: ignore[union-attr]
        assert not [element for element in root.iter() if "style" in element.attrib]
        ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
        assert all(name.startswith(f"{plot.name}-") for name in ids)
        assert {element.attrib[svg.HREF][1:] for element in root.iter() if svg.HREF in element.attrib} <= set(
            ids
        )


def test_a_lines_colour_survives_without_style() -> None:
    (plot,) = plots.draw(Tables(latency=STEPS), None)
    strokes = {element.get("stroke") for element in ET.fromstring(plot.svg()).iter()}
    assert {plots.BLUE.lower(), plots.VERMILION.lower()} <= strokes


HEAD = f'<svg xmlns="{svg.SVG}" xmlns:xlink="{svg.XLINK}">'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + "<script>alert(1)</script></svg>", "<script>"),
        (HEAD + "<foreignObject/></svg>", "<foreignObject>"),
        (HEAD + '<image xlink:href="http://x/y.png"/></svg>', "<image>"),
        (HEAD + '<use xlink:href="http://x/y.svg#z"/></svg>', "`href`"),
        (HEAD + '<use href="#z"/></svg>', "`href`"),
        (HEAD + '<g onload="alert(1)"/></svg>', "`onload`"),
        (HEAD + '<g style="fill: red"/></svg>', "`style`"),
        (HEAD + '<g fill="url(http://x/y)"/></svg>', "`fill`"),
        (HEAD + '<g fill="URL( http://x/y)"/></svg>', "`fill`"),
        (HEAD + '<a xmlns="http://www.w3.org/1999/xhtml" title="x"/></svg>', "<a>"),
        ('<!DOCTYPE svg [<!ENTITY a "b">]>' + HEAD + "</svg>", "declares"),
        ('<?xml-stylesheet href="http://x/y.css"?>' + HEAD + "</svg>", "declares"),
        ("<svg></svg>", "<svg>"),
        (f'<g xmlns="{svg.SVG}"/>', "no SVG"),
        (HEAD + "<g>", "no XML"),
        ("x" * (svg.LARGEST + 1), "too large"),
    ],
)
def test_svg_that_holds_anything_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        svg.checked(text)
    assert words in str(caught.value)


def test_plain_svg_is_taken() -> None:
    text = HEAD + '<defs><path id="a" d="M 0 0"/></defs><use xlink:href="#a" fill="url(#b)"/></svg>'
    assert "url(#b)" in svg.checked(text)


# ---- the command


LATENCY = "model,device,dtype,mode,position,ms_median,ms_low,ms_high,samples\n"
LATENCY += "small,cpu,float32,cached,3,1.5,1.25,2.0,7\nsmall,cpu,float32,uncached,3,2.5,2.25,3.0,7\n"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "latency.csv").write_text(LATENCY, encoding="utf-8")
    return tmp_path


def grade_plot(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["--course", str(ROOT), "plot", *map(str, arguments)])


def test_the_command_writes_svg_and_png_and_says_what_is_not_there(results: Path) -> None:
    result = grade_plot(results)
    assert result.exit_code == 0
    assert sorted(path.name for path in results.iterdir()) == ["latency.csv", "latency.png", "latency.svg"]
    assert result.stdout.splitlines() == [
        f"wrote {results / 'latency.svg'}",
        f"wrote {results / 'latency.png'}",
    ]
    assert f"no rows in `{results / 'memory.csv'}`: not drawn" in result.stderr
    assert "no hardware profile is known" in result.stderr
    assert (results / "latency.png").read_bytes().startswith(b"\x89PNG")


def test_a_profile_can_be_asked_for(results: Path) -> None:
    result = grade_plot(results, "--profile", "mac-m4pro-cpu")
    assert result.exit_code == 0
    assert "no roofline" not in result.stderr
    assert "not in `models.toml`" not in result.stderr
    assert "it is not drawn" not in result.stderr
    assert "no bandwidth: no roofline" in grade_plot(results, "--profile", "generic-cpu").stderr


def test_what_is_not_drawn_of_a_profile_is_said(results: Path) -> None:
    assert "is of a cuda, the steps of a cpu" in grade_plot(results, "--profile", "dgx-spark-gb10").stderr
    (results / "latency.csv").write_text(LATENCY.replace("small", "mine"), encoding="utf-8")
    assert "the sizes of model `mine`" in grade_plot(results, "--profile", "mac-m4pro-cpu").stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: (folder / "latency.csv").unlink(), "nothing to draw in"),
        (
            lambda folder: (folder / "total.csv").write_text("garbled\n"),
            "total.csv`, line 1: there is no column",
        ),
        (lambda folder: (folder / "latency.svg").mkdir(), "latency.svg` can't be written"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(change: object, words: str, results: Path) -> None:
    change(results)  # type: ignore[operator]
    result = grade_plot(results)
    assert result.exit_code == 2
    assert words in result.stderr.splitlines()[-1]


def test_an_unknown_profile_is_named_with_those_there_are(results: Path) -> None:
    result = grade_plot(results, "--profile", "cray")
    assert result.exit_code == 2
    assert "no hardware profile `cray`: there are cpu-2core" in result.stderr


def test_without_matplotlib_the_command_says_what_to_install(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "grader.render.plots")
    monkeypatch.delattr("grader.render.plots")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = grade_plot(results)
    assert result.exit_code == 2
    assert "needs matplotlib" in result.stderr


# ---- the page


@pytest.fixture
def course(tmp_path: Path) -> courses.Course:
    return courses.Course(tmp_path, "T", "1", ())


def fill(course: courses.Course, text: str | None, *, table_first: bool = True) -> Path:
    folder = course.root / figures.RESULTS
    folder.mkdir()
    (folder / "latency.csv").write_text(LATENCY, encoding="utf-8")
    if text is not None:
        (folder / "latency.svg").write_text(text, encoding="utf-8")
        os.utime(folder / "latency.csv", (10, 10) if table_first else (2**31, 2**31))
    return folder


def test_what_was_drawn_goes_on_the_page(course: courses.Course) -> None:
    fill(course, plots.latency(STEPS, MAC).svg())
    (text,), remarks = figures.for_page(course)
    assert "latency-title" in text
    assert remarks == ()


def test_without_results_nothing_goes_on_the_page(course: courses.Course) -> None:
    assert figures.for_page(course) == ((), ())


@pytest.mark.parametrize(
    ("text", "table_first", "words"),
    [
        (None, True, "not drawn, or older than its table: `grade plot` draws it"),
        (HEAD + "</svg>", False, "not drawn, or older than its table"),
        (HEAD + "<script/></svg>", True, "left out of the page: it has a <script>"),
    ],
)
def test_what_is_not_fit_for_the_page_is_remarked_on(
    course: courses.Course, text: str | None, table_first: bool, words: str
) -> None:
    fill(course, text, table_first=table_first)
    texts, (remark,) = figures.for_page(course)
    assert texts == ()
    assert words in remark
