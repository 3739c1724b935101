"""Tables of a measurement read back: rows as they were written, and faults by file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader import records, tables
from grader.records import Measurements, Record, Settings
from grader.report import Machine
from grader.tables import Held, Step, Tables, Total, Work

HEADER = "model,mode,n_new,seconds,sampled\n"
GOOD = HEADER + "gpt2,cached,1000,12.5,no\n"
ROWS = {
    "latency": {"model": "m", "device": "cpu", "dtype": "float32", "mode": "cached", "position": 3}
    | {"ms_median": 1.5, "ms_low": 1.25, "ms_high": 2.0, "samples": 7},
    "memory": {"model": "m", "dtype": "float32", "position": 3, "cache_bytes": 30, "formula_bytes": 30},
    "work": {
        "model": "m",
        "context": 64,
        "flops_cached": 2,
        "flops_uncached": 128,
        "s_cached": 0.5,
        "s_uncached": 1.0,
    },
    "total": {"model": "m", "mode": "uncached", "n_new": 11, "seconds": 7.5, "sampled": "yes"},
}
READ = {
    "latency": Step("m", "cpu", "float32", "cached", 3, 1.5, 1.25, 2.0, 7),
    "memory": Held("m", "float32", 3, 30, 30, None),
    "work": Work("m", 64, 2, 128, 0.5, 1.0),
    "total": Total("m", "uncached", 11, 7.5, "yes"),
}


@pytest.mark.parametrize("name", READ)
def test_what_measure_writes_is_read_back(name: str) -> None:
    text = records.to_csv(name, [ROWS[name]])  # type: ignore[list-item]
    assert tables.parse(text, name, type(READ[name])) == (READ[name],)


def test_a_folder_is_read_whole_with_profile_and_machine(tmp_path: Path) -> None:
    settings = Settings("m", "cpu", "float32", 12, 11, True, "exercises", "d1ge57")
    machine = Machine(system="Linux", cpu="Some CPU", cores=5, memory_gib=7.0)
    record = Record("all", {name: (row,) for name, row in ROWS.items()})  # type: ignore[misc]
    records.save(Measurements(machine, "cpu-2core", settings, records=(record,)), tmp_path)
    (tmp_path / "memory.csv").unlink()

    assert tables.load(tmp_path) == Tables(
        (READ["latency"],),  # type: ignore[arg-type]
        (),
        (READ["work"],),  # type: ignore[arg-type]
        (READ["total"],),  # type: ignore[arg-type]
        "cpu-2core",
        "Some CPU, 5 cores",
    )


def test_a_folder_without_tables_is_empty(tmp_path: Path) -> None:
    assert tables.load(tmp_path / "nowhere") == Tables()


def test_further_columns_another_order_a_bom_and_crlf_are_fine(tmp_path: Path) -> None:
    text = "sampled,note,seconds,n_new,mode,model\r\nno,hello,12.5,1000,cached,gpt2\r\n"
    (tmp_path / "total.csv").write_bytes(text.encode("utf-8-sig"))
    assert tables.load(tmp_path).total == tables.parse(GOOD, "total.csv", Total)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "there is no column `model`"),
        (HEADER.replace("sampled", "simpled"), 1, "there is no column `sampled`"),
        (GOOD + "gpt2,cached,x,1,no\n", 3, "`n_new` is `x`"),
        (GOOD + "gpt2,cached,0,1,no\n", 3, "`n_new` is `0`"),
        (GOOD + "gpt2,cached,3.5,1,no\n", 3, "`n_new` is `3.5`"),
        (GOOD + "gpt2,cached,3,-1,no\n", 3, "`seconds` is `-1`"),
        (GOOD + "gpt2,cached,3,nan,no\n", 3, "`seconds` is `nan`"),
        (GOOD + "gpt2,cached,3,inf,no\n", 3, "`seconds` is `inf`"),
        (GOOD + "gpt2,cached,3,1e999,no\n", 3, "`seconds` is `1e999`"),
        (GOOD + "gpt2,both,3,1,no\n", 3, "`mode` is `both`"),
        (GOOD + "gpt2,cached,3,1,maybe\n", 3, "`sampled` is `maybe`"),
        (GOOD + "gpt2,cached,,1,no\n", 3, "n_new"),
        (GOOD + "gpt2,cached,3\n", 3, "more or fewer cells"),
        (GOOD + "\ngpt2,cached,3,1,no,9\n", 4, "more or fewer cells"),
        (HEADER + '"gpt2,cached,3,1,no\n', 2, "unexpected end of data"),
    ],
)
def test_a_garbled_table_says_file_line_and_what(text: str, line: int, words: str, tmp_path: Path) -> None:
    path = tmp_path / "total.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as caught:
        tables.load(tmp_path)
    assert str(caught.value).startswith(f"`{path}`, line {line}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_table_that_is_not_utf_8_says_where(tmp_path: Path) -> None:
    (tmp_path / "total.csv").write_bytes(GOOD.encode() + b"gp\xfft2,cached,3,1,no\n")
    with pytest.raises(ValueError, match=r"total\.csv`, line 3: it is not UTF-8"):
        tables.load(tmp_path)


def test_a_table_that_can_t_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "total.csv").mkdir()
    with pytest.raises(ValueError, match=r"total\.csv` can't be read"):
        tables.load(tmp_path)
