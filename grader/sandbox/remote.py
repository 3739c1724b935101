"""The trusted side of a check: call the student's code as if it were here, believe nothing but values.

`RemoteModule` and `RemoteObject` have the call syntax of the real things, so that one test serves in process
and across the socket. A tensor or container that came from the worker and goes back as the same object
arrives there as the student's own object, so aliasing is what it would be in one process; ours is a snapshot.
"""

from __future__ import annotations

import dataclasses
import re
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from grader.errors import ProtocolError
from grader.outcome import Verdict
from grader.sandbox import wire
from grader.sandbox.host import Host, Output, wait_readable

MEMORY_WORDS = ("can't allocate memory", "not enough memory", "std::bad_alloc", "Cannot allocate memory")
FAULT_BASES = (ValueError, TypeError, IndexError, KeyError, RuntimeError, AttributeError, ZeroDivisionError)
FORWARDED = (ValueError, IndexError, TypeError, RuntimeError, OverflowError)  # odd arguments raise these
MAX_KNOWN_BYTES = 512 << 20
OBJECT_BYTES = 1000  # what a tensor or container takes here besides its content
MAX_CALLBACK_BYTES = 16 << 20
MAX_IDS = 8192  # fed to a model of the grader's in one call; no exercise needs a tenth of it
INNERMOST = re.compile(r"[a-z0-9_]{1,60}\.py:\d{1,7}\b")
WORK = {"operations", "flops", "copied_bytes"}  # what is counted of a call
TOO_MUCH = {
    "memory": "together with the processes that it started it took too much memory",
    "processes": "it started too many processes",
    "disk": "it wrote too much into its folder",
}


class StudentFault(Exception):
    """Student code did not answer a call with a value: `verdict` says in which way."""

    verdict: Verdict = Verdict.RAISED
    traceback: str = ""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # a KeyError's would be quoted once more

    @classmethod
    def of(cls, verdict: Verdict, message: str, traceback: str = "") -> StudentFault:
        fault = cls(message)
        fault.verdict, fault.traceback = verdict, traceback
        return fault


_FAULTS: dict[str, type[StudentFault]] = {
    base.__name__: type(f"Student{base.__name__}", (StudentFault, base), {}) for base in FAULT_BASES
}


def fault_from(error: wire.Error, file: str) -> StudentFault:
    """Turn a described exception into the fault that a test sees, also of its nearest common builtin type."""
    innermost = INNERMOST.match(error.traceback.rpartition("\n")[2])  # it may lie in a file beside
    where = f"`{innermost[0]}`" if innermost else f"`{file}:{error.line}`" if error.line else f"`{file}`"
    if error.kind == "missing":
        return StudentFault.of(
            Verdict.RAISED, f"{where}: {error.text}; the exercise asks for it by this name"
        )
    if error.kind == "signature":
        return StudentFault.of(Verdict.RAISED, f"{where}: can't be called as the exercise says: {error.text}")
    if error.kind == "unsendable":
        return StudentFault.of(Verdict.PROTOCOL, f"{where}: the result can't be read: {error.text}")
    verdict = Verdict.RAISED
    if "NotImplementedError" in error.bases:
        return StudentFault.of(Verdict.TODO, error.text or "not written yet", error.traceback)
    if "MemoryError" in error.bases or any(word in error.text for word in MEMORY_WORDS):
        verdict = Verdict.MEMORY
    kind = next((_FAULTS[base] for base in error.bases if base in _FAULTS), StudentFault)
    return kind.of(verdict, f"{where}: {error.type_name}: {error.text}", error.traceback)


class Channel:
    """One check's conversation with its process: calls out, callbacks in, a deadline over all of it."""

    def __init__(self, host: Host, check_s: float, output_bytes: int) -> None:
        self.host = host
        self.output = Output(output_bytes)
        self.file = host.place.file
        self.check_s = check_s
        self.deadline = time.monotonic() + check_s
        self.number = 0
        self.callbacks: list[Callable[..., Any]] = []
        self.known: dict[int, tuple[Any, int]] = {}
        self.known_bytes = 0
        self.waited_s = 0.0
        self.timed_out = self.opening = False
        try:
            self.connection = host.start_check(self.output)
        except EOFError as error:
            self.output.close()
            raise self._gone() from error
        finally:
            self.output.close_write_end()

    def open(self, path: str, fakes: Mapping[str, Callable[..., Any]]) -> None:
        """Have the stage file imported afresh in this check's process, `fakes` in place before."""
        named = {name: wire.Callback(self._callback_number(fake)) for name, fake in fakes.items()}
        self.opening, self.deadline = True, time.monotonic() + self.host.place.import_s
        self.request({"op": "open", "file": path, "fakes": named})
        self.opening, self.deadline = False, time.monotonic() + self.check_s

    def call(
        self, target: int, attr: str, args: tuple[Any, ...], kwargs: dict[str, Any], how: str = "whole"
    ) -> Any:
        """Call a function, method or object of the student's; returns its decoded result.

        `how` it is answered: with the `whole` result, its `first` item (a cache stays where it is), or the
        work that it took, as a `count`. Raises StudentFault; whatever a callback of ours raises as
        AssertionError passes through.
        """
        message = {"op": "call", "target": target, "attr": attr, "args": list(args), "kwargs": kwargs}
        return self.request(message | {how: True})

    def request(self, message: dict[str, Any]) -> Any:
        """Send a request, answer callbacks until its reply arrives."""
        self.number += 1
        self._send(message | {"n": self.number})
        while True:
            reply = self._receive()
            op, value = reply.get("op"), reply.get("value")
            if op == "callback":
                self._answer(reply)
            elif op == "return":
                return value
            elif op == "raise" and type(value) is wire.Error:
                raise fault_from(value, self.file)
            else:
                raise self._refused(f"a reply of kind {str(op)[:40]!r}")

    def close(self) -> None:
        """Hang up, which ends the check's process."""
        if hasattr(self, "connection"):
            self.connection.close()
        self.output.drain()

    # Callbacks

    def _callback_number(self, function: Callable[..., Any]) -> int:
        self.callbacks.append(function)
        return len(self.callbacks)

    def _answer(self, request: dict[str, Any]) -> None:
        """Run a callback and send what it returns, or the exception that a model may well raise."""
        number, args, kwargs = request.get("id"), request.get("args"), request.get("kwargs")
        if type(number) is not int or not 1 <= number <= len(self.callbacks):
            raise self._refused("a callback that was never handed out")
        if type(args) is not list or type(kwargs) is not dict or not all(type(k) is str for k in kwargs):
            raise self._refused("a callback with malformed arguments")
        function = self.callbacks[number - 1]
        if isinstance(function, torch.nn.Module):
            object.__setattr__(function, "grad_enabled", request.get("grad") is True)
        try:
            _vet_ids(function, args, kwargs)
            answer = {"op": "return", "value": function(*args, **kwargs)}
        except (*FORWARDED, AssertionError) as error:
            if isinstance(error, AssertionError) and not hasattr(error, "for_the_student"):
                raise
            kinds = [c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins"]
            answer = {"op": "raise", "type": kinds[0], "text": str(error)}
        try:
            self._send(answer)
        except ProtocolError as error:  # asked for more than one answer can hold
            raise self._refused(str(error)) from error

    # Bytes

    def _send(self, message: dict[str, Any]) -> None:
        encoder = wire.Encoder(self._convert, to_worker=True)
        encoder.encode(self._with_references(message))
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise self._late()
        try:
            self.connection.settimeout(left)
            wire.send(self.connection, encoder.out)
        except TimeoutError as error:
            raise self._late() from error
        except OSError as error:
            raise self._gone() from error

    def _with_references(self, value: Any) -> Any:
        """Replace what came from the worker by back-references to it."""
        known = self.known.get(id(value))
        if known is not None and known[0] is value:
            return wire.Ref(known[1])
        if type(value) is list:
            return [self._with_references(item) for item in value]
        if type(value) is tuple:
            return tuple(self._with_references(item) for item in value)
        if isinstance(value, dict):
            return {key: self._with_references(item) for key, item in value.items()}
        return value

    def _convert(self, value: Any) -> Any:
        if isinstance(value, RemoteObject):
            return wire.Object(value._handle, "")
        if isinstance(value, torch.nn.Module):
            number = self._callback_number(value)
            dtype = next((p.dtype for p in value.parameters()), None)
            return wire.Callback(number, True, self._convert(value.cfg), dtype)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return wire.Config(dataclasses.asdict(value))
        if callable(value):
            return wire.Callback(self._callback_number(value))
        raise TypeError(f"a test handed over a {type(value).__name__}, which does not travel")

    def _receive(self) -> dict[str, Any]:
        begun = time.monotonic()
        met: list[tuple[Any, int]] = []
        try:
            wait_readable(self.connection, self.deadline, self.output)
            data = wire.receive(self.connection, self.deadline)
            message = wire.Decoder(data, received=lambda *pair: met.append(pair)).decode()
        except TimeoutError as error:
            raise self._late() from error
        except (EOFError, OSError) as error:
            raise self._gone() from error
        except ProtocolError as error:
            raise self._refused(str(error)) from error
        finally:
            self.waited_s += time.monotonic() - begun
        number = message.get("n") if type(message) is dict else None
        if type(number) is not int or number != self.number:
            raise self._refused("a reply to a call that was not made")
        kind: object = message.get("op")
        if type(kind) is not str:
            raise self._refused("a reply of no kind")
        if kind == "return":
            self._remember(met, len(data))
        elif len(data) > MAX_CALLBACK_BYTES:
            raise self._refused(f"a callback with {len(data)} bytes of arguments")
        if type(message.get("value")) is wire.Object:
            message["value"] = RemoteObject(self, message["value"])
        return dict(message)

    def _remember(self, met: list[tuple[Any, int]], size: int) -> None:
        """Keep what a call returned, for as long as the check runs, so that it can be handed back.

        What callbacks are called with is not kept: there may be endlessly many.
        """
        self.known_bytes += size + OBJECT_BYTES * len(met)
        if self.known_bytes > MAX_KNOWN_BYTES:
            raise self._refused(f"more than {MAX_KNOWN_BYTES} bytes returned in one check")
        self.known.update({id(value): (value, number) for value, number in met if number != wire.NO_REF})

    # Faults

    def _late(self) -> StudentFault:
        self.timed_out = True
        self.host.end()
        if self.opening:
            return import_timeout(self.file, self.host.place.import_s)
        said = (
            f"`{self.file}`: no answer within {self.check_s:g} s: an endless loop, or too much work a step?"
        )
        return StudentFault.of(Verdict.TIMEOUT, said)

    def _gone(self) -> StudentFault:
        status = self.host.check_status()
        self.host.end()
        return crash_fault(status, self.file, self.host.why)

    def _refused(self, why: str) -> StudentFault:
        self.host.end()
        return StudentFault.of(Verdict.PROTOCOL, f"`{self.file}`: the reply can't be read: {why}")


def import_timeout(file: str, import_s: float, how: str = "") -> StudentFault:
    """The fault of a stage file whose import does not end."""
    said = f"`{file}`: importing it {how + ' ' if how else ''}took longer than {import_s:g} s"
    return StudentFault.of(Verdict.TIMEOUT, said)


def crash_fault(status: int, file: str, why: str = "") -> StudentFault:
    """Say how a process ended that should have answered, from its wait status (-1 where unknown).

    `why` is what its fork server has ended it for.
    """
    if why:
        verdict = Verdict.MEMORY if why == "memory" else Verdict.CRASH
        return StudentFault.of(verdict, f"`{file}`: its process was ended: {TOO_MUCH.get(why, why)}")
    number = status & 0x7F if status >= 0 else 0
    if number == signal.SIGXCPU:
        return StudentFault.of(Verdict.TIMEOUT, f"`{file}`: used up its processor time: an endless loop?")
    if number:
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        return StudentFault.of(
            Verdict.CRASH, f"`{file}`: the process was ended by signal {name} instead of answering"
        )
    code = f" with exit status {status >> 8}" if status >= 0 else ""
    return StudentFault.of(
        Verdict.CRASH, f"`{file}`: the process ended{code} instead of answering (exit, os._exit?)"
    )


def _vet_ids(function: object, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Raise ValueError where a model of ours is fed more than its memory, and time, were meant for."""
    idx = args[0] if args else kwargs.get("idx")
    if isinstance(function, torch.nn.Module) and isinstance(idx, torch.Tensor) and idx.numel() > MAX_IDS:
        raise ValueError(f"the model was fed {idx.numel()} token ids in one call, {MAX_IDS} at most")


def _is_shape(name: object, shape: object) -> bool:
    return type(name) is str and type(shape) is list and all(type(n) is int for n in shape)


def _is_tally(tally: object) -> bool:
    return type(tally) is dict and set(tally) == WORK and all(type(n) is int for n in tally.values())


class RemoteObject:
    """A thing in the student's process: call it, call its methods; its type's name is `type_name`."""

    is_remote = True

    def __init__(self, channel: Channel, described: wire.Object) -> None:
        self._channel, self._handle, self.type_name = channel, described.handle, described.type_name
        self.callable = described.callable

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._channel.call(self._handle, "", args, kwargs)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self._channel.call(self._handle, name, args, kwargs)

    def first(self, name: str, *args: Any) -> Any:
        """Call a method; of the pair that it returns only the first is sent."""
        return self._channel.call(self._handle, name, args, {}, "first")

    def counted(self, name: str, *args: Any) -> dict[str, int] | None:
        """Call a method; return its work, counted beside student code, or None where it can't be counted.

        Raises StudentFault where the answer is no such count.
        """
        tally = self._channel.call(self._handle, name, args, {}, "count")
        if tally is None or _is_tally(tally):
            return dict(tally) if tally else None
        raise StudentFault.of(Verdict.PROTOCOL, f"`{self._channel.file}`: no readable count of work")

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the module's parameters, as it says.

        Raises StudentFault where the answer is no such table.
        """
        table = self._channel.request({"op": "shapes", "target": self._handle})
        if type(table) is not dict or not all(_is_shape(name, shape) for name, shape in table.items()):
            raise StudentFault.of(Verdict.PROTOCOL, f"`{self._channel.file}`: no readable parameters")
        return {name: tuple(shape) for name, shape in table.items()}

    def __repr__(self) -> str:
        return f"<a {self.type_name} of the student's>"


class RemoteModule:
    """The student's stage file: `student.name(...)` calls `name` there."""

    is_remote = True

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self._channel.call(0, name, args, kwargs)

    def _beside(self, name: str) -> RemoteObject:
        """Another stage file of the student's in the same process, by its module's name.

        Raises StudentFault where it is missing or can't be imported.
        """
        module = self._channel.request({"op": "module", "name": name})
        if not isinstance(module, RemoteObject):
            raise StudentFault.of(Verdict.PROTOCOL, f"`{name}.py`: no module")
        return module
