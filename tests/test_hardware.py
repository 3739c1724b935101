"""Hardware profiles: the shipped ones are sound, machines find theirs, wrong files say what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader import hardware
from grader.errors import CourseError
from grader.hardware import Here

FOLDER = Path(__file__).resolve().parents[1] / "hardware_profiles"
PROFILES = hardware.load_all(FOLDER)


@pytest.mark.parametrize(
    ("here", "name"),
    [
        (Here("Darwin", "arm64", "Apple M4 Pro", 14), "mac-m4pro-cpu"),
        (Here("Linux", "x86_64", "Intel(R) Xeon(R) Processor", 2), "cpu-2core"),
        (Here("Linux", "x86_64", "AMD EPYC", 64), "generic-cpu"),
        (Here("Darwin", "arm64", "Apple M2", 8), "generic-cpu"),
        (Here("Linux", "aarch64", "unknown", 20), "generic-cpu"),
    ],
)
def test_a_machine_finds_its_profile_and_the_reason(here: Here, name: str) -> None:
    profile, reason = hardware.choose(PROFILES, here)
    assert profile.name == name
    assert reason


def test_a_profile_can_be_asked_for_by_name() -> None:
    profile, reason = hardware.choose(PROFILES, hardware.this_machine(), "dgx-spark-gb10")
    assert (profile.name, profile.status, reason) == ("dgx-spark-gb10", "predicted", "asked for")
    with pytest.raises(CourseError, match="no hardware profile `cray`: there are cpu-2core"):
        hardware.choose(PROFILES, hardware.this_machine(), "cray")


def test_this_machine_can_be_looked_at() -> None:
    here = hardware.this_machine()
    assert here.system
    assert here.cores >= 1


GOOD = 'name = "box"\nsummary = "s"\nstatus = "generic"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "box.toml"),
        ('name = "box"\n', "summary"),
        (GOOD.replace('"box"', '"other"'), "name `other` is not the file's"),
        (GOOD + "colour = 3\n", "colour"),
        (GOOD + '[bandwidth_gb_s]\nvalue = 3\nkind = "spec"\n', "source"),
        (GOOD + '[bandwidth_gb_s]\nvalue = 3\nkind = "spec"\nsource = " "\n', "bandwidth_gb_s has no source"),
        (GOOD + '[bandwidth_gb_s]\nvalue = -3\nkind = "spec"\nsource = "s"\n', "not a positive number"),
        (GOOD + '[bandwidth_gb_s]\nvalue = 3\nkind = "hearsay"\nsource = "s"\n', "hearsay"),
        (GOOD + '[peak_tflops.int3]\nvalue = 3\nkind = "spec"\nsource = "s"\n', "no dtype `int3`"),
        (GOOD + '[match]\ncpu = "("\n', "no regular expression"),
        (
            GOOD + '[[curves]]\nmodel = "m"\ndtype = "float32"\ncached = true\nsource = "s"\n'
            "positions = [5, 1]\nms = [1, 2]\n",
            "rising order",
        ),
    ],
)
def test_a_wrong_profile_says_which_file_and_what(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "box.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CourseError, match=r"box\.toml") as caught:
        hardware.load(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_any_profile_there_is_still_one_for_any_machine(tmp_path: Path) -> None:
    (only,) = hardware.load_all(tmp_path / "nowhere")
    assert (only.name, only.status) == ("generic-cpu", "generic")
