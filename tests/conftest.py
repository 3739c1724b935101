"""What tests share; and one thread for each: the tensors are tiny, and a second would only spin."""

import sys
from collections.abc import Iterator

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def modules() -> Iterator[None]:
    """Leave no stage file imported."""
    before = dict(sys.modules)
    yield
    for name in [name for name in sys.modules if name == "gpt2" or name.startswith("stage")]:
        sys.modules.pop(name) if name not in before else sys.modules.update({name: before[name]})
