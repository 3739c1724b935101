"""The student's side of a check: import the file, answer calls, ask back through callbacks.

Everything here runs beside student code and can be tampered with by it; nothing here decides anything. What
the grader sees of it is values and texts, checked on the other side of the socket.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from grader.errors import ProtocolError
from grader.sandbox import wire, work

MODULE = 0
TRACEBACK_FRAMES = 8


def import_student(file: Path) -> ModuleType:
    """Import a stage file as a real module: from its file, in `sys.modules` while it loads."""
    name = file.stem
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"`{file.name}` is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def describe(error: BaseException, folder: Path, *, kind: str = "raised") -> wire.Error:
    """Put an exception into words: its type, message and the student's own frames (files below `folder`)."""
    bases = tuple(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(str(folder))]
    line = frames[-1].lineno or 0 if frames else 0
    shown = [f"{Path(f.filename).name}:{f.lineno} in {f.name}: {f.line}" for f in frames[-TRACEBACK_FRAMES:]]
    text = _message(error)
    if isinstance(error, SyntaxError) and str(error.filename or "").startswith(str(folder)):
        line = error.lineno or 0
        shown = [f"{Path(str(error.filename)).name}:{line}: {(error.text or '').strip()}"]
        text = error.msg or "invalid syntax"
    return wire.Error(type(error).__name__, bases, text[:4000], "\n".join(shown)[:20_000], line, kind)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # a hostile or broken __str__
        return "(its message could not be read)"


class Worker:
    """Answer one check's calls over `connection` until the grader hangs up."""

    def __init__(self, connection: socket.socket, folder: Path, module: ModuleType | None) -> None:
        self.connection = connection
        self.folder = folder
        self.module = module
        self.objects: list[Any] = []
        self.sent: list[Any] = [None]
        self.thread = threading.get_ident()
        self.call_number = 0
        self.faked: list[tuple[Any, str, Any]] = []

    def serve(self) -> None:
        """Serve calls until end of file."""
        while True:
            try:
                message = self._receive()
            except EOFError:
                return
            self.call_number = message["n"]
            self._send(self._answer(message))

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        number = message["n"]
        try:
            value: Any = None
            if message["op"] == "open":
                self._open(Path(message["file"]), message["fakes"])
            elif message["op"] == "shapes":
                module = self.objects[message["target"] - 1]
                value = {name: list(p.shape) for name, p in module.named_parameters()}
            elif message["op"] == "module":
                value = self._beside(message["name"])
            elif message.get("count"):
                value = self._counted(message)
            else:
                value = self._call(message)
                value = _first(value) if message.get("first") else value
            return {"op": "return", "n": number, "value": value}
        except _Refused as refusal:
            return {"op": "raise", "n": number, "value": refusal.error}
        except BaseException as error:
            return {"op": "raise", "n": number, "value": describe(error, self.folder)}

    def _open(self, file: Path, fakes: dict[str, wire.Callback]) -> None:
        """Put the fakes in place, then import the file afresh, so that names bound at import see them."""
        for name, callback in fakes.items():
            self.faked.append(install_fake(name, functools.partial(self.ask, callback.number)))
        self.module = import_student(file)

    def _beside(self, name: str) -> ModuleType:
        """Find another stage file of the student's, as this one has imported it or would import it."""
        file = self.folder / f"{name}.py"
        if not file.is_file():
            raise FileNotFoundError(f"`{file.name}` is not there")
        return sys.modules.get(name) or import_student(file)

    def _counted(self, message: dict[str, Any]) -> dict[str, int] | None:
        """Make a call and return its work; None for what can't be counted.

        Some of torch, flex_attention for one, does not run while it is counted, nor ever after.
        """
        try:
            return work.counted(lambda: self._call(message))
        except Exception:
            return None

    def restore(self) -> None:
        """Undo what a check did to a process that serves the next one too (`process` level)."""
        for parent, name, real in reversed(self.faked):
            setattr(parent, name, real)
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(1)

    def _call(self, message: dict[str, Any]) -> Any:
        name = message["attr"]
        target: Any = self.module if message["target"] == MODULE else self.objects[message["target"] - 1]
        args, kwargs = message["args"], message["kwargs"]
        if name:
            if message["target"] == MODULE and not hasattr(target, name):
                raise _Refused(
                    wire.Error("AttributeError", (), f"there is no `{name}` in it", kind="missing")
                )
            target = getattr(target, name)
        try:
            return target(*args, **kwargs)
        except TypeError as error:
            raise self._signature_refusal(target, args, kwargs, error) or error from None

    def _signature_refusal(
        self, target: Any, args: list[Any], kwargs: dict[str, Any], error: TypeError
    ) -> _Refused | None:
        """Tell a function that can't take the contract's call from one that raised a TypeError of its own."""
        function = target.forward if isinstance(target, torch.nn.Module) else target
        try:
            inspect.signature(function).bind(*args, **kwargs)
        except TypeError as mismatch:
            code = getattr(inspect.unwrap(function), "__code__", None)
            line = code.co_firstlineno if code and code.co_filename.startswith(str(self.folder)) else 0
            refused = wire.Error("TypeError", ("TypeError",), str(mismatch), "", line, "signature")
            return _Refused(refused)
        except ValueError:
            pass
        return None

    # Values in and out

    def _receive(self) -> dict[str, Any]:
        message = wire.Decoder(wire.receive(self.connection), trusting=True).decode()
        if message["op"] == "open":  # its callbacks become fakes, each of its own signature
            return dict(message)
        return {key: self._revive(value) for key, value in message.items()}

    def _revive(self, value: Any) -> Any:
        """Replace back-references, handles, callbacks and configs by the real things."""
        if type(value) is list:
            return [self._revive(item) for item in value]
        if type(value) is tuple:
            return tuple(self._revive(item) for item in value)
        if type(value) is dict:
            return {key: self._revive(item) for key, item in value.items()}
        if type(value) is wire.Ref:
            return self.sent[value.number]
        if type(value) is wire.Object:
            return self.objects[value.handle - 1]
        if type(value) is wire.Config:
            return sys.modules["gpt2"].Config(**value.fields)
        if type(value) is wire.Callback:
            return self._stand_in(value)
        return value

    def _stand_in(self, callback: wire.Callback) -> Callable[..., Any]:
        ask = functools.partial(self.ask, callback.number)
        if callback.is_model:
            return ModelStandIn(ask, self._revive(callback.config), callback.dtype)
        return lambda *args, **kwargs: ask(args, kwargs)

    def _send(self, message: dict[str, Any], *, number: Callable[[Any], int] | None = None) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        encoder = wire.Encoder(self._convert, number or self._number)
        try:
            encoder.encode(message)
        except BaseException as error:
            kind = "unsendable" if isinstance(error, ProtocolError) else "raised"
            encoder = wire.Encoder(self._convert)
            failure = describe(error, self.folder, kind=kind)
            encoder.encode({"op": "raise", "n": self.call_number, "value": failure})
        wire.send(self.connection, encoder.out)

    def _number(self, value: Any) -> int:
        """Remember what was sent, so that the grader can hand the very same object back."""
        self.sent.append(value)
        return len(self.sent) - 1

    def _convert(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return wire.Foreign(type(value).__name__)
        self.objects.append(value)
        return wire.Object(len(self.objects), type(value).__name__, callable(value))

    def ask(self, callback: int, args: Any, kwargs: Any) -> Any:
        """Call back to the grader and wait for its answer."""
        if threading.get_ident() != self.thread:
            raise RuntimeError(
                "what the grader hands in may only be called on the thread that it called you on"
            )
        request = {
            "op": "callback",
            "n": self.call_number,
            "id": callback,
            "args": list(args),
            "kwargs": kwargs,
        }
        self._send(request | {"grad": torch.is_grad_enabled()}, number=lambda value: wire.NO_REF)
        reply = self._receive()
        if reply["op"] == "raise":
            kinds: tuple[type[Exception], ...] = (ValueError, IndexError, TypeError, AssertionError)
            known = {kind.__name__: kind for kind in kinds}
            raise known.get(reply["type"], RuntimeError)(reply["text"])
        return reply["value"]


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list | tuple) and value else value


class _Refused(Exception):
    def __init__(self, error: wire.Error) -> None:
        super().__init__(error.text)
        self.error = error


class ModelStandIn(torch.nn.Module):
    """Looks like stage 1's model to the student's loop; every forward pass is computed by the grader."""

    def __init__(self, ask: Callable[[Any, Any], Any], cfg: Any, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.cfg = cfg
        self.wte = torch.nn.Embedding(1, 1, dtype=dtype)
        self._ask = ask

    def forward(self, idx: Any, past: Any = None) -> Any:
        return _off_the_leaf(self._ask((idx, past), {}))


def _off_the_leaf(value: Any) -> Any:
    """Make tensors that require grad results of an operation, as a real model's are."""
    if isinstance(value, torch.Tensor):
        return value.clone() if value.requires_grad else value
    if isinstance(value, list | tuple):
        return type(value)(_off_the_leaf(item) for item in value)
    return value


def install_fake(name: str, ask: Callable[[Any, Any], Any]) -> tuple[Any, str, Any]:
    """Replace a function by its dotted name with one of the same signature that asks the grader.

    Returns where it stood and what stood there.
    """
    *path, last = name.split(".")
    parent: Any = importlib.import_module(path[0])
    for part in path[1:]:
        parent = getattr(parent, part)
    real = getattr(parent, last, None)

    def fake(*args: Any, **kwargs: Any) -> Any:
        if signature is not None:
            signature.bind(*args, **kwargs)
        plain = [str(a) if isinstance(a, torch.device) else a for a in args]
        return ask(plain, {k: str(v) if isinstance(v, torch.device) else v for k, v in kwargs.items()})

    try:
        signature = inspect.signature(real) if real is not None else None
    except ValueError:
        signature = None
    if real is not None:
        functools.update_wrapper(fake, real)
    setattr(parent, last, fake)
    return parent, last, real
