"""What `grade measure` measures: a model that can be run with and without a cache, here the student's own.

The student's four stage files are imported into this process. It is their code on their machine, and this is
the way to MPS and CUDA. So nothing here is graded, and nothing is confined.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch

from grader.course import Course
from grader.errors import GraderError, SubmissionError
from grader.faults import Mistake
from grader.sandbox.worker import import_student

NEEDED = ("stage1", "stage2", "stage3", "stage4")
SEED = 7  # of random weights: the time that a step takes does not depend on them
PUBLISHED = ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2")
RANDOM = "gpt2-random"
DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64")}


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes that a cache depends on: layers, key/value heads, a head's size; and positions, vocabulary."""

    n_layer: int
    n_kv_head: int
    head_dim: int
    context: int
    vocab_size: int


class Subject(Protocol):
    """A model under measurement."""

    @property
    def device(self) -> torch.device:
        """Where it runs."""

    @property
    def dtype(self) -> torch.dtype:
        """What its weights and its cache are in."""

    @property
    def shape(self) -> Shape:
        """Its sizes."""

    def uncached(self, idx: torch.Tensor) -> torch.Tensor:
        """Logits (B, T, V) of a text (B, T) that is read whole."""

    def cached(self, idx: torch.Tensor, past: Any) -> tuple[torch.Tensor, Any]:
        """Logits of the new positions, and the cache with these; `past` is None at first."""

    def write(self, idx: torch.Tensor, n_new: int, *, cached: bool) -> tuple[torch.Tensor, Any]:
        """Continue a text greedily; the tokens, and the cache if there was one."""

    def cache_bytes(self, past: Any) -> int:
        """The bytes of the keys and values in a cache."""

    def bytes_per_position(self) -> int:
        """What the formula says that one position of one text costs."""

    def positions(self, past: Any) -> int:
        """How many positions a cache holds."""

    def first_mismatch(self, a: torch.Tensor, b: torch.Tensor) -> int | None:
        """The first column in which two texts differ."""


@dataclass(frozen=True)
class Student:
    """The student's stages 1 to 4 beside the given model, with the same weights."""

    device: torch.device
    dtype: torch.dtype
    shape: Shape
    given: ModuleType
    oracle: Any
    model: Any
    stages: Mapping[str, ModuleType]

    def uncached(self, idx: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.oracle(idx)
        return logits

    def cached(self, idx: torch.Tensor, past: Any) -> tuple[torch.Tensor, Any]:
        logits, present = self.model(idx, past)
        return logits, present

    def write(self, idx: torch.Tensor, n_new: int, *, cached: bool) -> tuple[torch.Tensor, Any]:
        if not cached:
            return self.given.generate_nocache(self.oracle, idx, n_new), None
        tokens, past = self.stages["stage2"].generate_cache(self.model, idx, n_new)
        return tokens, past

    def cache_bytes(self, past: Any) -> int:
        return int(self.stages["stage4"].cache_bytes(past))

    def bytes_per_position(self) -> int:
        s = self.shape
        formula = self.stages["stage4"].kv_bytes_per_token
        return int(formula(s.n_layer, s.n_kv_head, s.head_dim, self.dtype.itemsize))

    def positions(self, past: Any) -> int:
        return int(past[0][0].shape[2])

    def first_mismatch(self, a: torch.Tensor, b: torch.Tensor) -> int | None:
        column: int | None = self.stages["stage2"].first_mismatch(a, b)
        return column


def digest(course: Course, source: Path) -> str:
    """SHA-256 of the code that is measured: the given model and the four stage files."""
    sha = hashlib.sha256()
    for path in (course.given, *_files(course, source).values()):
        sha.update(path.read_bytes() if path.is_file() else b"")
        sha.update(b"\0")
    return sha.hexdigest()


def load(course: Course, source: Path, model: str, device: torch.device, dtype: torch.dtype) -> Student:
    """Import the stages of a folder and give both models the same weights.

    Raises SubmissionError with the stage that is missing, unwritten or wrong; Mistake for a model that is
    not there.
    """
    files = _files(course, source)
    given = _given(course.given)
    stages = {slug: imported(path, slug) for slug, path in files.items()}
    oracle = weights(given, model, course.exercises / "small")
    with blamed(files):
        mine = with_weights_of(oracle, stages["stage1"])
        oracle, mine = (m.to(device=device, dtype=dtype).eval().requires_grad_(False) for m in (oracle, mine))
        cfg = oracle.cfg
        shape = Shape(cfg.n_layer, cfg.n_head, cfg.head_dim, cfg.block_size, cfg.vocab_size)
        student = Student(device, dtype, shape, given, oracle, mine, stages)
        _try(student)
    return student


@contextmanager
def blamed(files: Mapping[str, Path]) -> Iterator[None]:
    """Turn what a stage file raises into one line that names it; what is raised elsewhere is left alone."""
    try:
        yield
    except (GraderError, KeyboardInterrupt):
        raise
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        for frame in reversed(frames):
            for slug, path in files.items():
                if frame.filename == str(path):
                    raise _fault(slug, path, error, frame.lineno) from error
        raise


def weights(given: ModuleType, model: str, small: Path) -> Any:
    """The given model with the weights that `model` names.

    Raises Mistake where there are none.
    """
    if model == RANDOM:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return given.GPT(given.Config())
    where = small if model == "small" else Path(model).expanduser()
    if not where.is_dir() and model not in PUBLISHED:
        names = ", ".join(("small", *PUBLISHED, RANDOM))
        raise Mistake(f"no model `{model}`: name one of {names}, or a folder that save_pretrained wrote")
    try:
        return given.GPT.from_pretrained(str(where) if where.is_dir() else model)
    except ValueError as error:
        raise Mistake(str(error)) from error
    except ImportError as error:
        raise Mistake(
            f"`{model}` needs transformers: `pip install -e '.[hf]'`, or `--model {RANDOM}`"
        ) from error
    except Exception as error:  # the hub's client has many ways to say that there is no network
        reason = str(error).partition("\n")[0][:160]
        if where.is_dir():
            raise Mistake(f"`{model}` can't be loaded: {reason}") from error
        raise Mistake(
            f"`{model}` can't be had from the hub ({reason}): go online once, name a folder, or take "
            f"`--model {RANDOM}`, which has its shape and so its speed"
        ) from error


def _files(course: Course, source: Path) -> dict[str, Path]:
    return {slug: (source / course.stage(slug).file).resolve() for slug in NEEDED}


def _given(path: Path) -> ModuleType:
    """The given model under the name by which stage files import it."""
    loaded = sys.modules.get(path.stem)
    return loaded if loaded is not None and loaded.__file__ == str(path) else import_student(path)


def imported(path: Path, slug: str) -> ModuleType:
    """Import a stage file; whatever goes wrong is its own."""
    if not path.is_file():
        raise SubmissionError(f"measuring needs {slug}: `{path}` is not there")
    try:
        return import_student(path)
    except (Exception, SystemExit) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        raise _fault(slug, path, error, line) from error


def _fault(slug: str, path: Path, error: BaseException, line: int | None) -> SubmissionError:
    place = f"`{path.name}:{line}`" if line else f"`{path.name}`"
    if isinstance(error, NotImplementedError):
        return SubmissionError(f"measuring needs {slug}, and {place} is not written yet; `grade hint {slug}`")
    said = f"{type(error).__name__}: {error}".partition("\n")[0]
    return SubmissionError(f"measuring needs {slug}, and {place} raised {said}; `grade {slug}` says more")


def with_weights_of(oracle: Any, stage1: ModuleType) -> Any:
    """The student's model with the oracle's weights; tied or untied, with buffers of its own or without."""
    mine = _named(stage1, "stage1", "GPT")(oracle.cfg)
    missing = mine.load_state_dict(oracle.state_dict(), strict=False).missing_keys
    if lacking := sorted(set(missing) & {name for name, _ in mine.named_parameters()}):
        raise _wrong(stage1, "stage1", f"has a parameter `{lacking[0]}` that gpt2.py has not")
    return mine


def _named(module: ModuleType, slug: str, name: str) -> Any:
    if not hasattr(module, name):
        raise _wrong(module, slug, f"has no `{name}`")
    return getattr(module, name)


def _wrong(module: ModuleType, slug: str, what: str) -> SubmissionError:
    file = Path(str(module.__file__)).name
    return SubmissionError(f"measuring needs {slug}, and `{file}` {what}; `grade {slug}` says more")


@torch.no_grad()
def _try(student: Student) -> None:
    """Call each stage once, on three tokens, so that nothing ill-formed is measured for minutes.

    Raises SubmissionError for an answer of the wrong form; whether it is the right one, the checks say.
    """
    idx = torch.zeros(1, 3, dtype=torch.int64, device=student.device)
    past: Any = []

    def model() -> bool:
        _, three = student.cached(idx, None)
        logits, four = student.cached(idx[:, :1], three)
        past.extend(four)
        return logits.shape == (1, 1, student.shape.vocab_size) and student.positions(four) == 4

    def loop() -> bool:
        tokens, after = student.write(idx, 2, cached=True)
        same: object = student.first_mismatch(tokens, tokens)
        return tokens.shape == (1, 5) and after is not None and same is None

    def clock() -> bool:
        seconds = _named(student.stages["stage3"], "stage3", "timed_steps")(lambda: None, 2, student.device)
        return (
            isinstance(seconds, list)
            and len(seconds) == 2
            and all(isinstance(s, float | int) for s in seconds)
        )

    def counts() -> bool:
        names = ("cache_bytes", "kv_bytes_per_token")
        of_past, of_token = (_named(student.stages["stage4"], "stage4", name) for name in names)
        return type(of_past(past)) is int and type(of_token(2, 3, 5, 4)) is int

    for name in ("generate_cache", "first_mismatch"):
        _named(student.stages["stage2"], "stage2", name)
    for slug, attempt in {"stage1": model, "stage2": loop, "stage3": clock, "stage4": counts}.items():
        if not _holds(attempt, student.stages[slug]):
            raise _wrong(student.stages[slug], slug, "answers in another form than its docstrings say")


def _holds(attempt: Callable[[], bool], module: ModuleType) -> bool:
    """Whether an answer has its form; one that can't even be taken apart has not."""
    try:
        return attempt()
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        if any(frame.filename == module.__file__ for frame in frames):
            raise
        return False
