"""`grade measure --calibrate`: a profile that loads, fits this machine and says where it has its figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from grader import calibrate, decoding, hardware
from grader import course as courses
from grader.calibrate import Probe, Scale
from grader.cli import cli
from grader.decoding import Effort
from grader.hardware import Curve, Figure, HardwareProfile, Match

ROOT = Path(__file__).resolve().parents[1]
COURSE = courses.load(ROOT)
BRIEF = Scale(matrix_mib=1, product=16, layers=2, positions=(1, 23, 600), effort=Effort(0.0, 2, 2))


pytestmark = pytest.mark.usefixtures("modules")


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "QUICK", BRIEF)


def run(folder: Path, *options: str, course: Path = ROOT) -> Result:
    arguments = ["--course", str(course), "measure", "--calibrate", "--quick", "--out", str(folder)]
    return CliRunner().invoke(cli, [*arguments, *options])


def test_the_profile_loads_and_fits_this_machine(tmp_path: Path) -> None:
    result = run(tmp_path, "--name", "this-box")
    assert (result.exit_code, result.exception) == (0, None)
    profile = hardware.load(tmp_path / "this-box.toml")
    assert (profile.name, profile.status) == ("this-box", "measured")
    assert hardware.choose(hardware.load_all(tmp_path), hardware.this_machine())[0] == profile
    figures = [profile.bandwidth_gb_s, profile.step_overhead_ms, *profile.peak_tflops.values()]
    for figure in figures:
        assert figure is not None
        assert figure.kind == "measured"
        assert figure.source.startswith("`grade measure --calibrate`, torch ")
        assert figure.retrieved
    assert {"float32", "bfloat16"} <= set(profile.peak_tflops)
    assert [(c.model, c.cached, c.positions) for c in profile.curves] == [
        ("small", True, (1, 23)),
        ("small", False, (1, 23)),
    ]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("kept", encoding="utf-8")
    result = run(tmp_path, "--name", "mine")
    assert result.exit_code == 2
    assert "is there already" in result.output
    assert (tmp_path / "mine.toml").read_text(encoding="utf-8") == "kept"


@pytest.mark.parametrize("name", ["My Box", "../up", "box_1", "-box", "box.toml"])
def test_a_name_that_is_no_files_is_refused(name: str, tmp_path: Path) -> None:
    result = run(tmp_path, f"--name={name}")
    assert result.exit_code == 2
    assert "can't be a profile's name" in result.output


def test_the_name_follows_from_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    here = hardware.Here("Linux", "x86_64", "Intel(R) Xeon(R) CPU @ 2.20GHz", 2)
    monkeypatch.setattr(hardware, "this_machine", lambda: here)
    name = calibrate.default_name(torch.device("cpu"))
    assert name == "intel-r-xeon-r-cpu-2-20ghz-2-cpu"
    assert calibrate.NAME.match(name)


def test_a_students_copy_has_nothing_to_calibrate_with(tmp_path: Path) -> None:
    (tmp_path / "exercises").mkdir()
    manifest = (ROOT / "exercises" / "stages.toml").read_text(encoding="utf-8")
    (tmp_path / "exercises" / "stages.toml").write_text(manifest, encoding="utf-8")
    result = run(tmp_path, "--name", "mine", course=tmp_path)
    assert result.exit_code == 2
    assert "which a student's copy has not" in result.output


ODD = 'a "quoted" \\ back\\slash, × and 中'


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    figure = Figure(1.5, "measured", ODD, "2026-11-29")
    profile = HardwareProfile(
        name="box",
        summary=ODD,
        status="measured",
        match=Match(system="Linux", cpu=r"Xeon\(R\)\ @ 2\.2", cores=2, device="cuda"),
        bandwidth_gb_s=figure,
        peak_tflops={"float32": figure},
        curves=(Curve("small", "float32", True, (1, 23), (0.5, 1.25), ODD),),
    )
    path = tmp_path / "box.toml"
    path.write_text(calibrate.to_toml(profile), encoding="utf-8")
    assert hardware.load(path) == profile


def test_bandwidth_and_peak_follow_from_bytes_operations_and_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    def half_a_second(arms: object, effort: object) -> dict[str, decoding.Estimate]:
        return {name: decoding.Estimate(0.5, 0.5, 0.5, 1) for name in arms}  # type: ignore[attr-defined]

    monkeypatch.setattr(decoding, "in_turn", half_a_second)
    probe = Probe(torch.device("cpu"), replace(BRIEF, matrix_mib=4, product=100))
    assert probe.bandwidth() == {
        "matvec": pytest.approx(4 * 2**20 / 0.5 / 1e9),
        "copy": pytest.approx(2 * 4 * 2**20 / 0.5 / 1e9),
    }
    assert probe.tflops({"float32": torch.float32}) == {"float32": pytest.approx(2 * 100**3 / 0.5 / 1e12)}
