"""A check's process answers with values; however it fails to, the verdict is right and the next runs."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
import torch

from grader import course as courses
from grader import submission
from grader.machine import Machine
from grader.outcome import Verdict
from grader.sandbox.host import ForkServer, Launcher, Spawner
from grader.sandbox.launch import launch
from grader.sandbox.remote import RemoteModule, RemoteObject, StudentFault
from grader.stage_host import StageHost

ROOT = Path(__file__).resolve().parents[1]
LEVELS = ("confined", "confined without namespaces", "process")
Run = Callable[..., RemoteModule]


@pytest.fixture(scope="module")
def launchers() -> Iterator[dict[str, Launcher]]:
    server = ForkServer(launch("main"))
    made: dict[str, Launcher] = {
        "confined": server,
        "confined without namespaces": server,
        "process": Spawner(),
    }
    yield made
    server.close()
    made["process"].close()


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_host(launchers: dict[str, Launcher], level: str) -> Iterator[Callable[..., StageHost]]:
    course, hosts = courses.load(ROOT), []

    def make(source: str, **limits: float) -> StageHost:
        quick = {"check_s": 5.0, "import_s": 10.0} | limits
        stage = msgspec.structs.replace(course.stages[0], limits=courses.Limits(**quick))
        work = submission.of_files("s", {stage.file: textwrap.dedent(source).encode()})
        hosts.append(StageHost(course, work, stage, launchers[level], level == "confined"))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


@pytest.fixture
def run(open_host: Callable[..., StageHost]) -> Run:
    return lambda source, **limits: open_host(source, **limits).student(None)


def test_values_of_every_kind_come_back_exactly(run: Run) -> None:
    student = run("""
        import torch
        from typing import NamedTuple
        class Pair(NamedTuple):
            k: torch.Tensor
            v: torch.Tensor
        def give():
            half = torch.ones(2, dtype=torch.bfloat16)
            return [None, True, 3, 2.5, "é", (1,), {"a": half}, Pair(torch.tensor(1), torch.tensor(True))]
    """)
    got = student.give()
    assert got[:6] == [None, True, 3, 2.5, "é", (1,)]
    assert got[6]["a"].dtype is torch.bfloat16
    assert [type(x) for x in got[:3]] == [type(None), bool, int]
    assert type(got[7]) is tuple
    assert got[7][1].item() is True


def test_what_goes_back_is_the_students_own_object(run: Run) -> None:
    student = run("""
        import torch
        kept = [torch.zeros(2, 3), torch.ones(1)]
        def give(): return kept
        def same(past, first): return past is kept and first is kept[0]
        def write(past): past[0].add_(1)
        def read(past): return past[0].sum().item()
    """)
    past = student.give()
    assert student.same(past, past[0]) is True
    student.write(past)
    assert student.read(past) == 6.0
    assert past[0].sum() == 0, "ours is a snapshot"
    assert student.same(list(past), past[0]) is False


def test_objects_are_called_by_handle_and_keyword(run: Run, oracle: ModuleType) -> None:
    student = run("""
        import torch
        class Model(torch.nn.Module):
            def __init__(self, cfg):
                super().__init__()
                self.w = torch.nn.Parameter(torch.ones(cfg.n_embd))
            def forward(self, x, past=None): return x * self.w, past
    """)
    model = student.Model(oracle.Config(n_embd=3, n_head=1))
    assert isinstance(model, RemoteObject)
    assert model.type_name == "Model"
    assert model.parameter_shapes() == {"w": (3,)}
    assert model.double().eval() is not None
    y, past = model(torch.full((2, 3), 2.0, dtype=torch.float64), past=(1, 2))
    assert y.dtype is torch.float64
    assert y.requires_grad
    assert past == (1, 2)


def test_callbacks_run_here_and_their_errors_there(run: Run) -> None:
    student = run("""
        def twice(f): return f(1) + f(x=2)
        def caught(f):
            try: f(-1)
            except ValueError as error: return str(error)
    """)
    calls = []

    def double(x: int) -> int:
        calls.append(x)
        if x < 0:
            raise ValueError("negative")
        return 2 * x

    assert student.twice(double) == 6
    assert student.caught(double) == "negative"
    assert calls == [1, 2, -1]


def test_a_failed_assertion_in_a_callback_ends_the_check(run: Run) -> None:
    def forbid() -> None:
        raise AssertionError("once too often")

    with pytest.raises(AssertionError, match="once too often"):
        run("def f(step): step()").f(forbid)


def test_fakes_stand_before_the_file_is_imported(open_host: Callable[..., StageHost]) -> None:
    host = open_host("""
        from time import perf_counter
        from torch.cuda import synchronize
        import torch
        def f(): synchronize(); return perf_counter(), torch.cuda.is_available()
    """)
    machine = Machine()
    machine.device = "cuda"
    seconds, available = host.student(machine).f()
    assert seconds == pytest.approx(machine.hooks()["time.perf_counter"](), abs=1e-3)
    assert available is True


ENDINGS = {
    "raises": ("def f(): return {}[1]", Verdict.RAISED, "stage1_attention.py:1.*KeyError"),
    "stub": ("def f(): raise NotImplementedError('stage1: f')", Verdict.TODO, "stage1: f"),
    "missing": ("x = 1", Verdict.RAISED, "no `f`"),
    "signature": ("def f(a): pass", Verdict.RAISED, "stage1_attention.py:1.*can't be called"),
    "type error inside": ("def f(): return 1 + ''", Verdict.RAISED, "TypeError: unsupported operand"),
    "syntax error": ("x = 1\ndef f(:", Verdict.RAISED, "stage1_attention.py:2.*SyntaxError"),
    "raises at import": ("import nonesuch", Verdict.RAISED, "stage1_attention.py:1.*nonesuch"),
    "system exit": ("def f(): raise SystemExit(0)", Verdict.RAISED, "SystemExit"),
    "keyboard interrupt": ("def f(): raise KeyboardInterrupt", Verdict.RAISED, "KeyboardInterrupt"),
    "os._exit": ("import os\ndef f(): os._exit(0)", Verdict.CRASH, "ended"),
    "os._exit at import": ("import os\nos._exit(0)", Verdict.CRASH, "ended"),
    "segfault": ("import ctypes\ndef f(): ctypes.string_at(0)", Verdict.CRASH, "SIGSEGV|ended"),
    "hangs": ("def f():\n  while True: pass", Verdict.TIMEOUT, "no answer within 1 s"),
    "hangs at import": ("while True: pass", Verdict.TIMEOUT, "importing it took longer"),
    "memory": ("def f(): return len([0] * 10**10)", Verdict.MEMORY, "MemoryError"),
    "tensor memory": ("import torch\ndef f(): torch.ones(10**10)", Verdict.MEMORY, "memory"),
    "tensor subclass": (
        "import torch\nclass T(torch.Tensor): pass\ndef f(): return torch.ones(1).as_subclass(T)",
        Verdict.PROTOCOL,
        "Tensor subclass `T`",
    ),
    "endless nesting": ("def f():\n  a = []; a.append(a); return a", Verdict.PROTOCOL, "deeper"),
    "too large": ("import torch\ndef f(): return torch.ones(2**25)", Verdict.PROTOCOL, "bytes"),
}


SLOW_LEVEL_ENDINGS = (
    "raises",
    "raises at import",
    "os._exit",
    "segfault",
    "hangs",
    "hangs at import",
    "memory",
)


@pytest.mark.parametrize(
    ("level", "ending"),
    [(level, e) for level in LEVELS for e in (SLOW_LEVEL_ENDINGS if level == "process" else ENDINGS)],
    indirect=["level"],
)
def test_every_ending_has_its_verdict_and_the_next_check_runs(
    open_host: Callable[..., StageHost], ending: str, level: str
) -> None:
    source, verdict, words = ENDINGS[ending]
    host = open_host(source + "\ndef g(): return 7\n", check_s=1.0, import_s=4.0)
    with pytest.raises(StudentFault, match=words) as caught:
        host.student(None).f()
    assert caught.value.verdict is verdict
    host.finish_check()
    if "import" in ending or ending == "syntax error":
        with pytest.raises(StudentFault):
            host.student(None)
    else:
        assert host.student(None).g() == 7


def test_endless_printing_is_capped_and_costs_nothing(open_host: Callable[..., StageHost]) -> None:
    host = open_host("""
        import sys
        def f():
            for _ in range(200):
                print("x" * 1_000_000)
                print("y" * 1_000, file=sys.stderr)
            return 1
    """, check_s=30.0)  # fmt: skip
    assert host.student(None).f() == 1
    text = host.finish_check()
    assert len(text) < 100_000
    assert "left out" in text


def test_garbage_on_the_socket_is_protocol(run: Run) -> None:
    student = run("""
        import gc, socket
        def f():
            for s in [o for o in gc.get_objects() if isinstance(o, socket.socket)]:
                try: s.sendall(b"\\xff" * 4096)
                except OSError: pass
    """)
    with pytest.raises(StudentFault) as caught:
        student.f()
    assert caught.value.verdict is Verdict.PROTOCOL


def test_nothing_reaches_the_next_check(open_host: Callable[..., StageHost]) -> None:
    host = open_host("""
        import torch
        seen = []
        def f():
            seen.append(1)
            torch.set_grad_enabled(False)
            torch.set_default_dtype(torch.float64)
            return len(seen), torch.is_grad_enabled(), str(torch.get_default_dtype())
        def g(): return len(seen), torch.is_grad_enabled(), str(torch.get_default_dtype())
    """)
    assert host.student(None).f() == (1, False, "torch.float64")
    host.finish_check()
    assert host.student(None).g() == (0, True, "torch.float32")


def test_nothing_written_reaches_the_next_check(open_host: Callable[..., StageHost]) -> None:
    host = open_host("""
        import pathlib, tempfile
        def f():
            for folder in (pathlib.Path(), pathlib.Path(tempfile.gettempdir())):
                (folder / "left").write_text("x")
        def g(): return [p.name for f in (".", tempfile.gettempdir()) for p in pathlib.Path(f).iterdir()]
    """)
    host.student(None).f()
    host.finish_check()
    assert host.student(None).g() == []


def test_a_missing_gpu_is_for_the_student_to_catch(open_host: Callable[..., StageHost]) -> None:
    host = open_host("""
        import torch
        def f():
            try: torch.cuda.synchronize()
            except AssertionError as error: return str(error)
    """)
    machine = Machine()
    machine.gpus = ()
    assert "not compiled with CUDA" in host.student(machine).f()


def test_a_pool_of_threads_started_at_import_does_not_hang_the_checks(
    open_host: Callable[..., StageHost],
) -> None:
    host = open_host("""
        import torch
        torch.set_num_threads(4)
        big = torch.randn(600, 600) @ torch.randn(600, 600)
        def f(): return float((big @ big).isfinite().all())
    """)
    assert host.student(None).f() == 1.0
    host.finish_check()
    assert host.student(None).f() == 1.0
