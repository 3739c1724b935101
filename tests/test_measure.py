"""`grade measure`: what it finds, writes, resumes and refuses, on a model small enough to be quick."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file

from grader import bench, decoding, measure, predictions, records, subject
from grader.bench import Bench
from grader.cli import cli
from grader.decoding import Chain, Effort
from grader.faults import Mistake
from grader.meter import Meter
from grader.records import Measurements
from grader.subject import Shape

ROOT = Path(__file__).resolve().parents[1]
SOLUTIONS = ROOT / "solutions"
SIZES = {"n_layer": 2, "n_head": 3, "n_embd": 21, "block_size": 67, "vocab_size": 256}
CONTEXT, PROMPT, NEW = 67, 12, 55
BYTES = 2 * 2 * 3 * 7 * 4  # k and v, layers, heads, a head's size, float32
BRIEF = Effort(0.0, 2, 2)

Grade = Callable[..., Result]


pytestmark = pytest.mark.usefixtures("modules")


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds of everything."""
    monkeypatch.setattr(measure, "QUICK", BRIEF)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder as save_pretrained writes it, whose greedy text is not one token again and again."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    given = subject._given(ROOT / "exercises" / "gpt2.py")
    torch.manual_seed(7)
    oracle = given.GPT(given.Config(**SIZES))
    state = {key: w * 8 for key, w in oracle.state_dict().items() if key != "lm_head.weight"}
    flipped = {key: w.T.contiguous() if key.endswith(given.CONV1D) else w for key, w in state.items()}
    save_file(flipped, folder / "model.safetensors")
    config = {key: value for key, value in SIZES.items() if key != "block_size"}
    text = json.dumps(
        {"model_type": "gpt2", "activation_function": "gelu_new", "n_positions": CONTEXT, **config}
    )
    (folder / "config.json").write_text(text, encoding="utf-8")
    return str(folder)


@pytest.fixture
def grade(tmp_path: Path, model: str) -> Grade:
    """Run `grade measure` quickly on the small model and the solutions, unless told otherwise."""

    def run(*options: str, source: Path = SOLUTIONS, out: Path = tmp_path / "out") -> Result:
        named = () if "--model" in options else ("--model", model)
        arguments = ["--course", str(ROOT), "measure", "--quick", "--from", str(source), "--out", str(out)]
        return CliRunner().invoke(cli, [*arguments, *named, *options])

    return run


@pytest.fixture
def student(model: str) -> subject.Student:
    from grader import course as courses

    return subject.load(courses.load(ROOT), SOLUTIONS, model, torch.device("cpu"), torch.float64)


@pytest.fixture
def text(student: subject.Student) -> torch.Tensor:
    return bench.sample_text(CONTEXT, student.shape.vocab_size, PROMPT, student.device)


def rows(folder: Path, table: str) -> list[dict[str, str]]:
    with (folder / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def with_stage(tmp_path: Path, file: str, text: str | None) -> Path:
    """The solutions with one file of them replaced, or missing."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for path in SOLUTIONS.glob("stage[1-4]_*.py"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / file).unlink()
    if text is not None:
        (folder / file).write_text(text, encoding="utf-8")
    return folder


def edited(file: str, old: str, new: str) -> str:
    text = (SOLUTIONS / file).read_text(encoding="utf-8")
    assert text.count(old) == 1
    return text.replace(old, new)


def strict(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


# What is written


def test_every_table_has_its_columns_and_json_has_no_infinity(grade: Grade, tmp_path: Path) -> None:
    result = grade()
    assert (result.exit_code, result.exception) == (0, None)
    for table, columns in records.COLUMNS.items():
        found = rows(tmp_path / "out", table)
        assert tuple(found[0]) == columns
        assert all(value != "" for row in found for value in row.values())
    written = json.loads((tmp_path / "out" / "measure.json").read_bytes(), parse_constant=strict)
    assert written["schema"] == "kvgrade/measure/v1"
    assert written["machine"]["cores"] >= 1
    assert written["summary"]["bytes"] == BYTES


def test_steps_are_measured_where_the_model_reaches_and_the_rest_is_named(
    grade: Grade, tmp_path: Path
) -> None:
    result = grade()
    assert [(r["mode"], r["position"]) for r in rows(tmp_path / "out", "latency")] == [
        (mode, position) for position in ("1", "66") for mode in ("cached", "uncached")
    ]
    assert [r["context"] for r in rows(tmp_path / "out", "work")] == ["64"]
    assert (
        "`tiny` reads 67 positions at most: 100, 128, 250, 256, 500, 512, 1,000, 1,024 left out"
        in result.output
    )


def test_the_cache_has_the_bytes_of_the_formula(grade: Grade, tmp_path: Path) -> None:
    grade()
    found = rows(tmp_path / "out", "memory")
    assert [int(row["cache_bytes"]) for row in found] == [BYTES * int(row["position"]) for row in found]
    assert [row["formula_bytes"] for row in found] == [row["cache_bytes"] for row in found]


def test_gpt2_small_keeps_73728_bytes_a_position(student: subject.Student) -> None:
    from dataclasses import replace

    gpt2 = replace(student, shape=Shape(12, 12, 64, 1024, 50257), dtype=torch.float32)
    assert gpt2.bytes_per_position() == 73_728
    assert gpt2.bytes_per_position() * 1011 == 74_539_008


def test_more_new_tokens_than_fit_are_cut_and_said(grade: Grade, tmp_path: Path) -> None:
    result = grade("--n-new", "500")
    assert f"{NEW} new tokens fit after a prompt of 12, not 500" in result.output
    assert {row["n_new"] for row in rows(tmp_path / "out", "total")} == {str(NEW)}


def test_a_long_text_without_cache_is_sampled_and_says_so(
    grade: Grade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "measured whole" in grade().output.partition("without  ")[2].partition("\n")[0]
    monkeypatch.setattr(bench, "WHOLE_QUICK_S", 0.0)
    result = grade("--fresh")
    assert [row["sampled"] for row in rows(tmp_path / "out", "total")] == ["no", "yes"]
    assert "added up from the steps above" in result.output


# What is found


def test_right_stages_write_the_same_text_with_and_without(grade: Grade) -> None:
    assert f"Tokens: the same {NEW} with the cache and without." in grade().output


def test_a_wrong_position_is_seen_in_the_text(grade: Grade, tmp_path: Path) -> None:
    wrong = edited("stage1_attention.py", "torch.arange(P, P + T", "torch.arange(T")
    result = grade(source=with_stage(tmp_path, "stage1_attention.py", wrong))
    assert result.exit_code == 0
    assert "Tokens: they differ first at new token" in result.output
    found = records.load(tmp_path / "out")
    assert found is not None
    assert found.summary["tokens_equal"] is False


def test_the_text_without_cache_is_what_greedy_decoding_writes(
    student: subject.Student, text: torch.Tensor
) -> None:
    tokens, _ = student.write(text[:, :PROMPT], 23, cached=True)
    other, gaps = decoding.text_without_cache(student, tokens, PROMPT)
    assert torch.equal(other, student.write(text[:, :PROMPT], 23, cached=False)[0])
    assert len(gaps) == 23
    assert min(gaps) >= 0


def test_arithmetic_is_what_the_formula_says(student: subject.Student, text: torch.Tensor) -> None:
    flops = decoding.work(student, text, 53)
    assert flops["cached"] == decoding.formula_flops(student.shape, 1, 53)
    assert flops["uncached"] == decoding.formula_flops(student.shape, 53, 53)


def test_a_step_that_reads_all_again_saves_no_arithmetic(
    student: subject.Student, text: torch.Tensor
) -> None:
    class Recomputes:
        device, dtype, shape = student.device, student.dtype, student.shape
        uncached = student.uncached

        def cached(self, idx: torch.Tensor, past: Any) -> tuple[torch.Tensor, Any]:
            whole = idx if past is None else torch.cat([past, idx], dim=1)
            return student.uncached(whole), whole

    flops = decoding.work(Recomputes(), text, 53)  # type: ignore[arg-type]
    assert flops["cached"] == flops["uncached"]


def test_copying_by_cat_moves_the_whole_cache(student: subject.Student) -> None:
    found, copied = decoding.copying(student, 53, BRIEF)
    assert copied == student.bytes_per_position() * 53
    assert set(found) == {"cat", "preallocated"}


class Counting:
    """A subject that notes how many positions it is fed, on how many."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.fed: list[tuple[int, int]] = []

    def cached(self, idx: torch.Tensor, past: Any) -> tuple[torch.Tensor, Any]:
        kept = past or 0
        self.fed.append((kept, idx.shape[1]))
        return torch.zeros(1, idx.shape[1], 2), kept + idx.shape[1]


@pytest.mark.parametrize(
    ("position", "fed"),
    [
        (1, [(0, 1), (0, 1), (0, 1)]),
        (3, [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (0, 1)]),
        (20, [(0, 11), (11, 1), (12, 1)]),
        (40, [(0, 39), (39, 1), (0, 39), (39, 1)]),
    ],
)
def test_cached_steps_go_on_around_their_position(position: int, fed: list[tuple[int, int]]) -> None:
    counting = Counting()
    chain = Chain(counting, torch.zeros(1, 40, dtype=torch.int64), position)  # type: ignore[arg-type]
    while len(counting.fed) < len(fed):
        chain.step()
    assert counting.fed[: len(fed)] == fed


@pytest.mark.parametrize(
    ("points", "total"),
    [([(4, 10.0)], 30.0), ([(1, 1.0), (9, 9.0)], 4 + 5 + 6), ([(5, 5.0), (1, 5.0), (6, 8.0)], 5 + 5 + 8)],
)
def test_steps_are_added_up_along_straight_lines(points: list[tuple[int, float]], total: float) -> None:
    assert decoding.integrated(points, 4, 6) == pytest.approx(total)


def test_beyond_the_last_point_the_line_goes_on() -> None:
    assert decoding.integrated([(1, 1.0), (2, 2.0)], 3, 5) == pytest.approx(3 + 4 + 5)
    with pytest.raises(ValueError, match="no points"):
        decoding.integrated([], 1, 2)


def test_rounds_end_with_the_time_but_not_before_the_least() -> None:
    assert decoding.in_turn({"a": lambda: 1.0}, Effort(0.0, 4, 10))["a"].samples == 4
    assert decoding.in_turn({"a": lambda: 1.0}, Effort(3600.0, 4, 10))["a"].samples == 10


# Going on


def test_a_second_run_measures_nothing_again(grade: Grade, monkeypatch: pytest.MonkeyPatch) -> None:
    grade("--predict", "ms=3")
    monkeypatch.setattr(Bench, "latency", forbidden)
    result = grade()
    assert result.exit_code == 0
    assert re.search(r"going on from `.*measure\.json`: (\d+) of \1 are done", result.output)
    assert "3 ms" in result.output  # as predicted in the first run


@pytest.mark.parametrize("change", ["settings", "code", "fresh"])
def test_other_settings_other_code_or_fresh_start_over(
    change: str, grade: Grade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = with_stage(
        tmp_path, "stage4_memory.py", (SOLUTIONS / "stage4_memory.py").read_text(encoding="utf-8")
    )
    grade(source=source)
    monkeypatch.setattr(Bench, "latency", forbidden)
    if change == "code":
        with (source / "stage4_memory.py").open("a", encoding="utf-8") as file:
            file.write("\n# a change\n")
    options = {"settings": ("--n-new", "7"), "code": (), "fresh": ("--fresh",)}[change]
    assert "measured again" in grade(*options, source=source).output


def forbidden(*arguments: object) -> None:
    raise RuntimeError("measured again")


def interrupt(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_keeps_what_is_done_and_the_next_run_goes_on(
    grade: Grade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Bench, "cached", interrupt)
        result = grade()
    assert result.exit_code == 130
    assert "kept 3 of" in result.output
    assert len(rows(tmp_path / "out", "latency")) == 4
    found = records.load(tmp_path / "out")
    assert found is not None
    assert [record.name for record in found.records] == ["memory", "latency 1", "latency 66"]
    monkeypatch.setattr(Bench, "latency", forbidden)
    assert grade().exit_code == 0


@pytest.mark.parametrize("text", ["", "{", '{"schema": 3}'])
def test_a_garbled_file_is_nothing_to_go_on_from(tmp_path: Path, text: str) -> None:
    (tmp_path / "measure.json").write_text(text, encoding="utf-8")
    assert records.load(tmp_path) is None


def test_tables_of_another_run_do_not_stay_behind(grade: Grade, tmp_path: Path) -> None:
    grade()
    found = records.load(tmp_path / "out")
    assert isinstance(found, Measurements)
    import msgspec

    records.save(msgspec.structs.replace(found, records=found.records[:1]), tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["measure.json", "memory.csv"]


# Predictions


def test_predictions_stand_beside_what_was_measured(grade: Grade) -> None:
    output = grade("--predict", f"bytes={BYTES}", "--predict", "ms=5000", "--predict", "batch=0.001").output
    told = output.partition("Predicted, and measured")[2]
    assert re.search(rf"position +{BYTES} bytes +{BYTES} bytes +exactly", told)
    assert re.search(r"there .* ms .* times too high", told)
    assert re.search(r"sixteen texts .* times too low", told)


@pytest.mark.parametrize("given", ["speed=3", "ms", "ms=fast", "ms=-1", "ms=0", "ms=inf", "ms=nan"])
def test_a_prediction_that_is_none_is_refused(given: str, grade: Grade) -> None:
    result = grade("--predict", given)
    assert result.exit_code == 2
    assert result.output.startswith("grade: ")
    assert result.output.count("\n") == 1


def test_on_a_terminal_predictions_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["14", "73,728", "no idea"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("click.prompt", lambda *args, **kwargs: next(answers))
    assert predictions.collect(["ms=8"]) == {"ms": 8.0, "speedup": 14.0, "bytes": 73728.0}


@pytest.mark.parametrize("shown", [True, False])
def test_progress_is_for_terminals_alone(
    shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: shown)
    with Meter(2.0) as meter:
        meter.starting("a step")
        meter.done(1.0)
        assert ("a step" in capsys.readouterr().err) is shown


# Refusals


FAULTS = {
    "missing": ("stage1_attention.py", None, "stage1"),
    "untouched": ("stage1_attention.py", "STUB", "stage1"),
    "untouched loop": ("stage2_generate.py", "STUB", "stage2"),
    "untouched clock": ("stage3_timing.py", "STUB", "stage3"),
    "untouched bytes": ("stage4_memory.py", "STUB", "stage4"),
    "no Python": ("stage2_generate.py", "def generate_cache(:\n", "stage2"),
    "raises at import": ("stage3_timing.py", "raise SystemExit(3)\n", "stage3"),
    "lacks a name": ("stage1_attention.py", "x = 1\n", "stage1"),
    "raises when called": ("stage4_memory.py", "def cache_bytes(past):\n    return past.no\n", "stage4"),
    "is no pair": (
        "stage1_attention.py",
        "import gpt2\nclass GPT(gpt2.GPT):\n    def forward(self, *a):\n        return a[0]\n",
        "stage1",
    ),
    "is a pair of nothing": (
        "stage1_attention.py",
        "import gpt2\nclass GPT(gpt2.GPT):\n    def forward(self, *a):\n        return None, None\n",
        "stage1",
    ),
    "gives a float": ("stage4_memory.py", "def cache_bytes(past):\n    return 1.0\n", "stage4"),
    "gives no list": (
        "stage3_timing.py",
        "def timed_steps(step_fn, n_new, device):\n    return None\n",
        "stage3",
    ),
    "gives tokens alone": (
        "stage2_generate.py",
        "def generate_cache(m, idx, n_new):\n    return idx\n",
        "stage2",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_stage_that_cannot_be_run_is_named_in_one_line(name: str, grade: Grade, tmp_path: Path) -> None:
    file, text, slug = FAULTS[name]
    stub = (ROOT / "exercises" / file).read_text(encoding="utf-8")
    result = grade(source=with_stage(tmp_path, file, stub if text == "STUB" else text))
    assert result.exit_code == 2
    assert result.output.startswith(f"grade: the submission: measuring needs {slug}")
    assert file in result.output
    assert result.output.count("\n") == 1


def test_what_raises_later_is_still_the_stages(grade: Grade, tmp_path: Path) -> None:
    text = edited(
        "stage1_attention.py",
        "        T = idx.shape[1]\n",
        "        T = idx.shape[1]\n        assert T < 9\n",
    )
    result = grade(source=with_stage(tmp_path, "stage1_attention.py", text))
    assert result.exit_code == 2
    assert re.match(
        r"grade: the submission: measuring needs stage1, and `stage1_attention\.py:\d+` raised", result.output
    )


def test_a_fault_of_ours_is_not_the_students(grade: Grade, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "memory", forbidden)
    assert grade().exit_code == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("hf",), "options of `grade measure hf` go behind `hf`"),
        (("--model", "gpt5"), "no model `gpt5`: name one of small, gpt2"),
        (("--model", str(ROOT / "docs")), "is not a GPT-2 folder"),
        (("--device", "cuda"), "torch finds no `cuda` here"),
        (("--from", "nowhere"), "no folder `nowhere`"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(
    options: tuple[str, ...], words: str, grade: Grade, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = grade(*options)
    assert result.exit_code == 2
    assert words in result.output
    assert result.output.count("\n") == 1


def test_a_device_without_a_dtype_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measure.dtype_of("float64", "cpu") is torch.float64
    with pytest.raises(Mistake, match="mps"):
        measure.dtype_of("float64", "mps")


def test_a_broken_folder_is_not_the_networks_fault(grade: Grade, model: str, tmp_path: Path) -> None:
    (tmp_path / "half").mkdir()
    config = (Path(model) / "config.json").read_text(encoding="utf-8")
    (tmp_path / "half" / "config.json").write_text(config, encoding="utf-8")
    (tmp_path / "half" / "model.safetensors").write_bytes(b"short")
    result = grade("--model", str(tmp_path / "half"))
    assert result.exit_code == 2
    assert "can't be loaded" in result.output
    assert "hub" not in result.output


def test_without_a_network_the_hub_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    given = subject._given(ROOT / "exercises" / "gpt2.py")

    def offline(name: str) -> None:
        raise FileNotFoundError("`gpt2` has no model to load: We couldn't connect\nto anything")

    monkeypatch.setattr(given.GPT, "from_pretrained", offline)
    with pytest.raises(Mistake, match="gpt2-random") as caught:
        subject.weights(given, "gpt2", ROOT)
    assert "\n" not in caught.value.message


def test_a_folder_that_cannot_be_written_is_named(grade: Grade, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    result = grade(out=tmp_path / "file" / "out")
    assert result.exit_code == 2
    assert "name another folder with --out" in result.output


@pytest.mark.parametrize("buffer", ["bias", "untied"])
def test_unusual_but_right_models_get_the_weights(buffer: str, grade: Grade, tmp_path: Path) -> None:
    extra = {
        "bias": "self.lm_head.weight = self.wte.weight; self.register_buffer('bias', torch.ones(2))\n",
        "untied": "self.lm_head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)\n",
    }[buffer]
    source = (SOLUTIONS / "stage1_attention.py").read_text(encoding="utf-8")
    text = re.sub(r"self\.lm_head\.weight = self\.wte\.weight.*\n", extra, source)
    assert text != source
    assert f"the same {NEW}" in grade(source=with_stage(tmp_path, "stage1_attention.py", text)).output
