"""What tests share; and one thread for each: the tensors are tiny, and a second would only spin."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from grader import course as courses
from grader import scaffold
from grader.course import Course

torch.set_num_threads(1)


@pytest.fixture
def modules() -> Iterator[None]:
    """Leave no stage file imported."""
    before = dict(sys.modules)
    yield
    for name in [name for name in sys.modules if name == "gpt2" or name.startswith("stage")]:
        sys.modules.pop(name) if name not in before else sys.modules.update({name: before[name]})


@pytest.fixture
def tiny(tmp_path: Path) -> Course:
    """A course of two small stages, in a folder of its own: two points public, two hidden, each."""
    root = tmp_path / "tiny"
    (root / "exercises").mkdir(parents=True)
    (root / "exercises" / "stages.toml").write_text('[course]\ntitle = "Tiny"\nversion = "1"\n')
    scaffold.begin(Course(root, "Tiny", "1", ()), "stage1", "one", "The first")
    scaffold.begin(courses.load(root), "stage2", "two", "The second")
    return courses.load(root)
