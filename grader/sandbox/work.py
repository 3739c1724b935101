"""Count a call's work as torch does it: operations, FLOPs, bytes copied.

It runs beside student code and can be tampered with by it; what it says is held against the grader's own
clock. Views are no work: an operation counts where its result is new, or written in place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

# The operations whose result is a copy of what they are given.
_NAMES = "cat stack clone copy_ _to_copy constant_pad_nd repeat index_select gather index_copy slice_scatter"
COPIES = frozenset(getattr(torch.ops.aten, name) for name in _NAMES.split())


class Work(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = self.flops = self.copied_bytes = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to keep torch.compile out of the counting, torch would import it: a second a check

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **kwargs or {})
        returns = func._schema.returns
        if any(r.alias_info is not None and not r.alias_info.is_write for r in returns):
            return out
        self.operations += 1
        packet = func.overloadpacket
        if packet in flop_registry:
            self.flops += int(flop_registry[packet](*args, **kwargs or {}, out_val=out))
        if packet in COPIES:
            self.copied_bytes += sum(t.nbytes for t in _tensors(out))
        return out


@contextmanager
def _in_threads(work: Work) -> Iterator[None]:
    """Count in threads that are started meanwhile, too: a mode of torch's holds for its own thread only."""
    begin = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def begin_counted(thread: threading.Thread) -> None:
        with work:
            begin(thread)

    threading.Thread._bootstrap_inner = begin_counted  # type: ignore[attr-defined]
    try:
        yield
    finally:
        threading.Thread._bootstrap_inner = begin  # type: ignore[attr-defined]


def counted(call: Callable[[], Any]) -> dict[str, int]:
    """Make a call and return its work by name.

    `scaled_dot_product_attention` is done by plain products meanwhile: its fused kernel has no formula.
    """
    math: AbstractContextManager[Any] = sdpa_kernel(SDPBackend.MATH)
    with math, Work() as work, _in_threads(work):
        call()
    return {"operations": work.operations, "flops": work.flops, "copied_bytes": work.copied_bytes}


def _tensors(value: Any) -> Sequence[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return (value,)
    return [t for t in value if isinstance(t, torch.Tensor)] if isinstance(value, list | tuple) else ()
