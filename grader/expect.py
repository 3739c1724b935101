"""What a check may expect of a student's value: it is passed on checked, or what is wrong with it is said.

Nothing here trusts a value: a student may return anything. What is wrong becomes an AssertionError whose
text teaches.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from grader.machine import LAUNCH_S, Machine

# Errors are shares of the largest |expected value|. In float64 right implementations agree to 1e-12, one with
# a float32 softmax to 1e-7 a layer; the subtlest fault that was tried shows at 6e-6 (CONTRACT, "Rulings").
FLOAT64 = 1e-6
# Nothing but a projection lies before attention's own keys and values: they agree to 1e-15 in float64.
PROJECTION = 1e-9
# In float32 right implementations differ by 2e-6; a cache that went through half precision by 4e-4
# (FIELD_NOTES, "Which check catches what").
FLOAT32 = 1e-4
# In bfloat16 (8 bits) right implementations differ by 3e-2 of the largest value (FIELD_NOTES, "Numerics").
BFLOAT16 = 1e-1
TOLERANCE = {torch.float64: FLOAT64, torch.float32: FLOAT32, torch.bfloat16: BFLOAT16}
# A pretend machine's seconds are exact but for the microsecond that a reading of the clock takes.
SECONDS = 0.01

OPTIONAL_PARAMETER = "lm_head.weight"  # the head may be tied, untied, or read from `wte`


def fail(message: str) -> NoReturn:
    """Fail the check with a message for the student."""
    raise AssertionError(message)


def that(condition: bool, message: str) -> None:
    """Fail the check unless `condition` holds."""
    if not condition:
        fail(message)


def shown(value: object) -> str:
    """Describe a value in a few words: its type, and its shape or size where it has one."""
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if value is None or type(value) in (bool, int, float):
        return f"`{value}`"
    if type(value) is str:
        return f"the string `{value[:40]}`"
    if isinstance(value, list | tuple):
        return f"a {'tuple' if isinstance(value, tuple) else 'list'} of {len(value)}"
    return f"a {getattr(value, 'type_name', type(value).__name__)}"


def integer(value: object, what: str) -> int:
    """Return an exact int: not a float, a bool or a 0-d tensor."""
    if type(value) is not int:
        fail(f"{what} must be an int, not {shown(value)}")
    return value


def tensor(value: object, what: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return a plain CPU tensor of exactly this shape and dtype, detached."""
    if not isinstance(value, Tensor):
        fail(f"{what} must be a tensor, not {shown(value)}")
    if value.layout is not torch.strided or value.device.type != "cpu" or value.is_quantized:
        fail(f"{what} must be an ordinary tensor on the CPU, not {value.layout} on `{value.device}`")
    if tuple(value.shape) != tuple(shape):
        fail(f"{what} must have the shape {tuple(shape)}, not {tuple(value.shape)}")
    if value.dtype != dtype:
        fail(f"{what} must be {str(dtype)[6:]}, not {str(value.dtype)[6:]}")
    return value.detach()


def two(value: object, what: str, names: str) -> tuple[Any, Any]:
    """Return the two members of a tuple, list or NamedTuple of two."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        fail(f"{what} must be a pair {names}, not {shown(value)}")
    first, second = value
    return first, second


def pair(value: object, what: str, shape: Sequence[int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return one layer's keys and values, both of the shape (B, H, S, D)."""
    k, v = two(value, what, "(k, v)")
    return tensor(k, f"{what}: k", shape, dtype), tensor(v, f"{what}: v", shape, dtype)


def pairs(
    value: object, what: str, layers: int, shape: Sequence[int], dtype: torch.dtype
) -> list[tuple[Tensor, Tensor]]:
    """Return a cache as L pairs of tensors (B, H, S, D)."""
    if not isinstance(value, list | tuple):
        fail(f"{what} must be a list or tuple of {layers} pairs (k, v), not {shown(value)}")
    that(
        len(value) == layers, f"{what} must hold one pair (k, v) a layer: {layers} of them, not {len(value)}"
    )
    return [pair(each, f"{what}[{i}]", shape, dtype) for i, each in enumerate(value)]


def cache(value: object, what: str, cfg: Any, B: int, dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    """Return a cache as L pairs of tensors (B, H, S, D), S being whatever its first tensor says."""
    S, first = 0, value
    for _ in range(2):
        first = first[0] if isinstance(first, list | tuple) and first else None
    if isinstance(first, Tensor) and first.dim() == 4:
        S = first.shape[2]
    return pairs(value, what, cfg.n_layer, (B, cfg.n_head, S, cfg.head_dim), dtype)


def tokens(value: object, what: str, want: Tensor, start: int | None = None) -> Tensor:
    """Return ids (B, N) int64 that equal `want`; of new text, `start` is the first column that is new."""
    got = tensor(value, what, want.shape, torch.int64)
    if torch.equal(got, want):
        return got
    row, column = (int(i) for i in (got != want).T.contiguous().nonzero()[0].flip(0))  # the earliest column
    a, b = int(got[row, column]), int(want[row, column])
    where = f"column {column}, row {row}"
    if start is None:
        fail(f"{what}: {a} at {where}, but {b} is right")
    if column < start:
        fail(f"{what}: the prompt itself is changed at {where}: {a}, not {b}")
    right = (
        "the first new token is wrong" if column == start else f"new tokens right so far: {column - start}"
    )
    fail(f"{what}: {right}; {a} at {where}, but the uncached model says {b}")


def close(
    got: Tensor,
    want: Tensor,
    what: str,
    tolerance: float = FLOAT64,
    chunks: Sequence[int] = (),
    start: int = 0,
) -> None:
    """Fail unless a checked tensor equals `want` within a share of the largest |want|.

    The message counts positions from `start`, along dimension 1 of (B, T, ·) or 2 of (B, H, S, D);
    `chunks` are the pieces in which the positions were fed.
    """
    largest = float(want.abs().max()) if want.numel() else 0.0
    error = (got.double() - want.double()).abs()
    error = error.masked_fill(~torch.isfinite(got), float("inf"))
    bad = error > tolerance * largest
    if not bool(bad.any()):
        return
    axis = {3: 1, 4: 2}[want.dim()]
    others = [d for d in range(want.dim()) if d != axis]
    wrong = [start + int(i) for i in bad.any(dim=others).nonzero().flatten()]
    rows = [int(i) for i in bad.flatten(1).any(dim=1).nonzero().flatten()]
    parts = [f"{what}: {_where(wrong, start, want.shape[axis])}"]
    if len(rows) < want.shape[0]:
        parts.append(f"; only batch row {_numbers(rows)} of {want.shape[0]} is affected")
    if not bool(torch.isfinite(got).all()):
        parts.append(f". There are NaN or infinite values in it, the first at position {wrong[0]}")
    else:
        share = float(error.max()) / largest if largest else float("inf")
        parts.append(f". The error is {share:.1e} of the largest value, {tolerance:.0e} is allowed")
    if len(chunks) > 1:
        parts.append(f". {_chunk_hint(wrong[0], list(chunks), start, axis == 2)}")
    fail("".join(parts))


def _where(wrong: list[int], start: int, count: int) -> str:
    """Say which positions are right and which are wrong."""
    last = start + count - 1
    if len(wrong) == count:
        return f"wrong at every position, {start} to {last}" if count > 1 else f"wrong at position {start}"
    if wrong == list(range(wrong[0], last + 1)):
        return f"right before position {wrong[0]}, wrong from there on ({start} to {last} were compared)"
    return f"wrong at position {_numbers(wrong)} ({start} to {last} were compared)"


def _numbers(values: Sequence[int]) -> str:
    """List some numbers: a run of them by its ends, of others the first few."""
    if len(values) > 2 and list(values) == list(range(values[0], values[-1] + 1)):
        return f"{values[0]} to {values[-1]}"
    head = ", ".join(str(v) for v in values[:6])
    return head if len(values) <= 6 else f"{head}, … ({len(values)} in all)"


def _chunk_hint(wrong: int, chunks: list[int], start: int, kept: bool) -> str:
    """Say where in the pieces the first wrong position lies, and what that leaves to look at.

    What is `kept` was compared after the last call, and may have been right before it.
    """
    begins = [start, *(start + end for end in itertools.accumulate(chunks))]
    index = max(i for i in range(len(chunks)) if begins[i] <= wrong)
    alike = len(chunks) > 2 and len(set(chunks)) == 1
    pieces = f"{len(chunks)} pieces of {chunks[0]}" if alike else f"pieces of {_numbers(chunks)}"
    if kept:
        return f"After {pieces} were fed: position {wrong} came with call {index + 1} of {len(chunks)}"
    fed = f"Fed in {pieces}: position {wrong}"
    if index == 0:
        return f"{fed} is in the first call" + (", where there is no past yet" if start == 0 else "")
    if wrong == begins[index]:
        return (
            f"{fed} is the first of call {index + 1}. What came before is right, so look at what a past"
            " changes: the new positions, the order of old and new keys, which keys a query may see"
        )
    return (
        f"{fed} is inside call {index + 1}, whose first position is right: look at which keys the later"
        " queries of one call may see, and at their positions"
    )


@dataclass(frozen=True, slots=True)
class Checked:
    """A student's Attention, Block or GPT: call it as usual; the form of every reply is checked first.

    Returns (output, present), where `present` is the student's own object, to be handed back as `past`.
    """

    module: Any
    name: str
    cfg: Any
    dtype: torch.dtype
    like: Any = None
    calls: list[tuple[Tensor, Any, Tensor, Any]] = field(default_factory=list)  # fed, past, output, present

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Any]:
        gpt = self.name.endswith("GPT")
        x = (args[0] if args else kwargs["idx" if gpt else "x"]).contiguous()  # not a slice of a longer one
        args, kwargs = ((x, *args[1:]), kwargs) if args else ((), kwargs | {"idx" if gpt else "x": x})
        past = args[1] if len(args) > 1 else kwargs.get("past")
        B, T = x.shape[:2]
        S = T + length(past[0] if gpt and past is not None else past)  # now: the call may change it
        out, present = two(self.module(*args, **kwargs), f"what {self.name} returns", "(output, present)")
        H, D, width = self.cfg.n_head, self.cfg.head_dim, self.cfg.vocab_size if gpt else self.cfg.n_embd
        out = tensor(out, f"{self.name}'s output", (B, T, width), self.dtype)
        if gpt:
            pairs(present, "presents", self.cfg.n_layer, (B, H, S, D), self.dtype)
        else:
            pair(present, f"{self.name}'s present", (B, H, S, D), self.dtype)
        self.calls.append((x, past, out, present))
        return out, present

    def in_chunks(self, idx: Tensor, chunks: Sequence[int], past: Any = None) -> tuple[Tensor, Any]:
        """Feed (B, N) or (B, N, C) in pieces, each on the last one's present; return all outputs."""
        outs = []
        for piece in torch.split(idx, list(chunks), dim=1):
            out, past = self(piece, past) if past is not None else self(piece)
            outs.append(out)
        return torch.cat(outs, dim=1), past


def length(past: Any) -> int:
    """Return P of one layer's checked pair, 0 for None."""
    return 0 if past is None else int(past[0].shape[2])


def refuses(call: Callable[[], object], what: str) -> None:
    """Fail unless the call raises ValueError; whatever else it raises goes on up."""
    try:
        call()
    except ValueError:
        return
    fail(f"{what} must raise ValueError, and nothing was raised")


def build(student: Any, name: str, cfg: Any, like: nn.Module) -> Checked:
    """Build the student's class `name` in eval mode, with weights and dtype of the oracle's module `like`."""
    made = member(student, name)(cfg)
    if not (getattr(made, "is_remote", False) or isinstance(made, nn.Module)):
        fail(f"{name}(cfg) must be an nn.Module, not {shown(made)}")
    _parameters_match(name, parameter_shapes(made), like)
    dtype = next(like.parameters()).dtype
    made.to(dtype)
    made.load_state_dict(dict(like.state_dict()), strict=False)
    made.requires_grad_(False)
    made.eval()
    return Checked(made, name, cfg, dtype, like)


def member(student: Any, name: str) -> Any:
    """Return the student's class or function `name`."""
    found = getattr(student, name, None)
    if not callable(found):
        fail(
            f"`{name}` is not defined in your file"
            if found is None
            else f"`{name}` is not a class or function"
        )
    return found


def parameter_shapes(module: Any) -> dict[str, tuple[int, ...]]:
    """Return a module's parameters by name, tied ones under each of their names."""
    if getattr(module, "is_remote", False):
        return dict(module.parameter_shapes())
    return {name: tuple(p.shape) for name, p in module.named_parameters(remove_duplicate=False)}


def _parameters_match(name: str, got: dict[str, tuple[int, ...]], like: nn.Module) -> None:
    """Fail unless the student's parameters are the oracle's, by name and shape."""
    want = parameter_shapes(like)
    missing = [p for p in want if p not in got and p != OPTIONAL_PARAMETER]
    extra = [p for p in got if p not in want]
    if missing or extra:
        lacks = f" It lacks {_names(missing)}." if missing else ""
        has = f" It has {_names(extra)}, which gpt2.py has not." if extra else ""
        fail(
            f"{name} must have gpt2.py's parameters, by name, so that its weights can be loaded.{lacks}{has}"
        )
    for parameter, shape in got.items():
        that(shape == want[parameter], f"{name}: `{parameter}` must be {want[parameter]}, not {shape}")


def _names(names: list[str]) -> str:
    """List the first few of some names."""
    return ", ".join(f"`{n}`" for n in names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def bytes_are(value: object, want: int, of: str) -> None:
    """Fail unless a count of bytes is exactly `want`."""
    got = integer(value, f"the bytes of {of}")
    if got != want:
        ratio = f": {got / want:.4g} × that" if want and abs(got) < 2**53 else ""
        fail(f"{of}: {want:,} bytes, not {got:,}{ratio}")


def times(value: object, n_new: int) -> list[float]:
    """Return a list of n_new numbers."""
    if type(value) is not list:
        fail(f"timed_steps must return a list of seconds, not {shown(value)}")
    that(len(value) == n_new, f"timed_steps must return one time a step: {n_new} of them, not {len(value)}")
    for i, each in enumerate(value):
        plain = type(each) is float or (type(each) is int and abs(each) < 2**53)
        that(plain, f"the time of step {i} must be a float, not {shown(each)}")
    return value


def seconds(value: object, machine: Machine) -> None:
    """Fail unless a list of times is what the machine's steps took; say which mistake it looks like."""
    want = machine.seconds
    value = times(value, len(want))
    wrong = [i for i, (a, b) in enumerate(zip(value, want)) if not abs(a - b) <= SECONDS * b]
    if wrong:
        i = wrong[0]
        looks = _looks_like(value, machine)
        fail(f"step {i} took {want[i]:.4g} s, timed_steps says {value[i]:.4g} s{looks and ': ' + looks}")


def _looks_like(got: list[float], machine: Machine) -> str:
    """Name the mistake that explains every time of `got`, or nothing."""
    want, gpu = machine.seconds, machine.device != "cpu"

    def near(other: Sequence[float], share: float = 2 * SECONDS) -> bool:
        return all(abs(a - b) <= share * abs(b) for a, b in zip(got, other))

    mean = sum(want) / len(want)
    if len(want) > 1 and near([mean] * len(want)):
        return "that is the mean of all steps; each step's own time is asked for"
    if len(want) > 1 and near(list(itertools.accumulate(want))):
        return "these are times since the start; each step's own time is asked for"
    for factor, unit in ((1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds")):
        if near([w * factor for w in want]):
            return f"that is in {unit}, seconds are asked for"
    if machine.leftover_s and near([want[0] + machine.leftover_s, *want[1:]], 3 * SECONDS):
        return (
            "the first was charged for work queued before it; wait for the device before you start the clock"
        )
    if gpu and all(abs(a) <= 2 * LAUNCH_S for a in got):
        return "only handing the work over was timed; wait for the device before you read the clock again"
    if any(a < 0 for a in got):
        return "time ran backwards; that clock can be set, a monotonic one can't"
    return ""
