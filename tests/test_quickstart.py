"""An instructor's first quarter of an hour: the page's commands, word for word, in an empty folder."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
VENV = Path(sys.prefix)
BLOCK = re.compile(r"^## From a clone to grades$.*?^```sh$(.*?)^```$", re.MULTILINE | re.DOTALL)
# In place of the installation, which needs the network: the environment that the tests run in.
MAKE = f"""#!/bin/sh
test "$*" = setup && ln -s '{VENV}' .venv
"""


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this copy is no git repository")
@pytest.mark.skipif(
    not (VENV / "bin" / "activate").is_file(), reason="the tests run in no environment of venv's"
)
def test_a_class_is_graded_and_a_gradebook_filled_by_the_pages_commands(tmp_path: Path) -> None:
    (commands,) = BLOCK.findall((ROOT / "docs" / "instructors.md").read_text(encoding="utf-8"))
    for folder in ("bin", "empty"):
        (tmp_path / folder).mkdir()
    (tmp_path / "bin" / "make").write_text(MAKE)
    (tmp_path / "bin" / "make").chmod(0o755)
    environment = os.environ | {"COURSE": str(ROOT), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        [shutil.which("bash") or "bash", "-euo", "pipefail", "-c", commands],
        cwd=tmp_path / "empty",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with (tmp_path / "empty" / "class" / "filled.csv").open(encoding="utf-8", newline="") as file:
        filled = {row["Student"]: row["KV cache (4711)"] for row in csv.DictReader(file)}
    assert filled.pop("    Points Possible") == "66.00"
    assert filled.pop("Katherine Johnson") == ""
    assert len(filled) == 10
    assert filled["Ada Byron"] == "12"
    assert 0 < float(filled["Blaise Pascal"]) < 12
