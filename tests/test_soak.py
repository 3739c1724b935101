"""A short soak: mixed submissions through one session leave nothing behind; see `benchmarks/soak.py`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from grader import course as courses
from grader.session import missing_layers

pytestmark = pytest.mark.skipif(bool(missing_layers()), reason=f"confined can't be had: {missing_layers()}")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def soaking() -> ModuleType:
    spec = importlib.util.spec_from_file_location("soaking", ROOT / "benchmarks" / "soak.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["soaking"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def test_mixed_submissions_leave_nothing_behind(soaking: ModuleType) -> None:
    found = soaking.soak(courses.load(ROOT), 30, 10, alone=False)

    assert found.count == 30
    assert found.problems == []
