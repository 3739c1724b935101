"""Frames and the value codec: all that ever crosses between the grader and student code.

A frame is a 4-byte little-endian length and that many bytes; the bytes are one value. A value is one of a
closed set: None, bool, int, float, str, list, tuple, dict, tensor, object (a handle of the worker's), error.
Towards the worker also: dtype, device, config, callback, back-reference, tensor view. There is no pickle and
nothing is evaluated, so the worst that a hostile worker can send is a value that is wrong. Sizes, depth,
counts, dtypes and names are checked before anything is allocated; whatever is malformed raises ProtocolError.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from grader.errors import ProtocolError

MAX_FRAME_BYTES = 64 << 20
MAX_DEPTH = 24
MAX_ITEMS = 200_000
MAX_ODD_KEYS = 1000  # keys that are numbers: they can be chosen so that each is compared with all others
MAX_TEXT_BYTES = 1 << 20
MAX_INT_BYTES = 64
MAX_DIMS = 16
MAX_LINE = 10**6  # of a student's file
NO_REF = 0

DTYPES: tuple[torch.dtype, ...] = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)
_DTYPE_INDEX = {dtype: index for index, dtype in enumerate(DTYPES)}
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_F64 = struct.Struct("<d")


@dataclass(frozen=True, slots=True)
class Object:
    """Anything in the worker that is not a value: a handle by number, with its type's name for messages."""

    handle: int
    type_name: str
    callable: bool = False


@dataclass(frozen=True, slots=True)
class Foreign:
    """A Tensor subclass: what it holds can't be believed, so only its name travels, to be refused."""

    type_name: str


@dataclass(frozen=True, slots=True)
class Error:
    """An exception in student code: names and texts only; `line` 0 where no frame is the student's.

    `kind` is "raised"; "missing" or "signature" where the student's function does not exist or can't take the
    call; "unsendable" where its result is too large or too deep to travel.
    """

    type_name: str
    bases: tuple[str, ...]
    text: str
    traceback: str = ""
    line: int = 0
    kind: str = "raised"


@dataclass(frozen=True, slots=True)
class Callback:
    """Something of the grader's that student code may call; a model's stand-in is an `nn.Module`."""

    number: int
    is_model: bool = False
    config: Any = None
    dtype: torch.dtype | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """The worker's own object with this number, sent back to it."""

    number: int


@dataclass(frozen=True, slots=True)
class Config:
    """A `gpt2.Config` by its fields; the worker makes the real one."""

    fields: dict[str, Any]


@dataclass(slots=True)
class Encoder:
    """Turn one value into bytes; `convert` maps what is not a plain value to one that is."""

    convert: Callable[[Any], Any]
    number: Callable[[Any], int] = lambda value: NO_REF
    to_worker: bool = False
    out: bytearray = field(default_factory=bytearray)
    storages: dict[int, int] = field(default_factory=dict)

    def encode(self, value: Any, depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            raise ProtocolError(f"a value nested deeper than {MAX_DEPTH} levels")
        out = self.out
        kind = type(value)
        if value is None:
            out += b"N"
        elif kind is bool:
            out += b"T" if value else b"F"
        elif kind is int:
            size = value.bit_length() // 8 + 1
            if size > MAX_INT_BYTES:
                raise ProtocolError(f"an int of {size} bytes")
            out += b"I" + bytes([size]) + value.to_bytes(size, "little", signed=True)
        elif kind is float:
            out += b"D" + _F64.pack(value)
        elif kind is str:
            self._text(b"S", value)
        elif kind is torch.dtype and self.to_worker:
            out += b"Y" + bytes([_DTYPE_INDEX[value]])
        elif kind is torch.device and self.to_worker:
            self._text(b"X", str(value))
        elif kind is torch.Tensor or kind is torch.nn.Parameter:
            self._tensor(value)
        else:
            self._compound(value, depth)

    def _compound(self, value: Any, depth: int) -> None:
        out = self.out
        if isinstance(value, list | tuple):
            out += b"L" if isinstance(value, list) else b"U"
            items = list(value)
            out += _U32.pack(self.number(value)) + _U32.pack(len(items))
            for item in items:
                self.encode(item, depth + 1)
        elif isinstance(value, dict):
            pairs = list(value.items())
            out += b"M" + _U32.pack(self.number(value)) + _U32.pack(len(pairs))
            for key, item in pairs:
                self.encode(key, depth + 1)
                self.encode(item, depth + 1)
        elif type(value) is Object:
            out += b"H" + _U32.pack(value.handle) + (b"T" if value.callable else b"F")
            self._text(b"S", value.type_name)
        elif type(value) is Foreign:
            self._text(b"Z", value.type_name)
        elif type(value) is Error:
            out += b"E"
            fields = [value.type_name, list(value.bases), value.text, value.traceback, value.line, value.kind]
            self.encode(fields, depth + 1)
        elif type(value) is Ref:
            out += b"R" + _U32.pack(value.number)
        elif type(value) is Config:
            out += b"G"
            self.encode(value.fields, depth + 1)
        elif type(value) is Callback:
            out += b"C"
            self.encode([value.number, value.is_model, value.config, value.dtype], depth + 1)
        else:
            self.encode(self.convert(value), depth + 1)

    def _text(self, tag: bytes, text: str) -> None:
        raw = text.encode("utf-8", "replace")
        if len(raw) > MAX_TEXT_BYTES:
            raise ProtocolError(f"a text of {len(raw)} bytes; at most {MAX_TEXT_BYTES} travel")
        self.out += tag + _U32.pack(len(raw)) + raw

    def _tensor(self, tensor: torch.Tensor) -> None:
        """Contiguous bytes; towards the worker (`to_worker`) the storage once, then offset and strides."""
        if tensor.dtype not in _DTYPE_INDEX or tensor.layout is not torch.strided or tensor.is_meta:
            raise ProtocolError(
                f"a tensor of dtype {tensor.dtype} and layout {tensor.layout} does not travel"
            )
        number = self.number(tensor)
        plain = tensor.detach().cpu()
        size = plain.untyped_storage().nbytes() if self.to_worker else plain.nbytes
        if size > MAX_FRAME_BYTES:
            raise ProtocolError(f"a tensor of {size} bytes; at most {MAX_FRAME_BYTES} travel in one message")
        if self.to_worker and plain.nbytes:
            self._view(plain, number, tensor.requires_grad)
        else:
            self._tensor_head(b"A", plain, number, tensor.requires_grad)
            self.out += _raw_bytes(plain)

    def _tensor_head(self, tag: bytes, plain: torch.Tensor, number: int, grad: bool) -> None:
        head = bytes([_DTYPE_INDEX[plain.dtype], grad, plain.dim()])
        self.out += tag + _U32.pack(number) + head + b"".join(_I64.pack(n) for n in plain.shape)

    def _view(self, plain: torch.Tensor, number: int, grad: bool) -> None:
        storage = plain.untyped_storage()
        known = self.storages.get(storage.data_ptr())
        self._tensor_head(b"V", plain, number, grad)
        self.out += b"".join(_I64.pack(n) for n in (*plain.stride(), plain.storage_offset()))
        if known is not None:
            self.out += b"F" + _U32.pack(known)
            return
        self.storages[storage.data_ptr()] = len(self.storages)
        raw = bytes(torch.tensor([], dtype=torch.uint8).set_(storage).numpy())
        self.out += b"T" + _U32.pack(len(raw)) + raw


def _raw_bytes(plain: torch.Tensor) -> bytes:
    if not plain.numel():
        return b""
    flat = torch.empty(plain.numel(), dtype=plain.dtype)  # a tensor of one number may keep any stride
    return flat.copy_(plain.reshape(-1)).view(torch.uint8).numpy().tobytes()


@dataclass(slots=True)
class Decoder:
    """Turn bytes into one value. `trusting` also takes the kinds that only the grader may send."""

    data: memoryview
    trusting: bool = False
    received: Callable[[Any, int], None] = lambda value, number: None
    at: int = 0
    items: int = 0
    odd_keys: int = 0
    storages: list[bytearray] = field(default_factory=list)

    def decode(self) -> Any:
        """Decode the whole of `data`.

        Raises ProtocolError for anything malformed.
        """
        try:
            value = self._value(0)
        except (struct.error, ValueError, LookupError, OverflowError, RuntimeError, TypeError) as error:
            raise ProtocolError(f"malformed value: {type(error).__name__}: {error}") from error
        if self.at != len(self.data):
            raise ProtocolError(f"{len(self.data) - self.at} stray bytes after the value")
        return value

    def _take(self, size: int) -> memoryview:
        if size > len(self.data) - self.at:
            raise ProtocolError(f"a length of {size} bytes where {len(self.data) - self.at} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def _u32(self) -> int:
        return int(_U32.unpack(self._take(4))[0])

    def _i64(self) -> int:
        return int(_I64.unpack(self._take(8))[0])

    def _flag(self) -> bool:
        return bytes(self._take(1)) == b"T"

    def _value(self, depth: int) -> Any:
        self.items += 1
        if depth > MAX_DEPTH or self.items > MAX_ITEMS:
            raise ProtocolError(f"a value deeper than {MAX_DEPTH} levels or of more than {MAX_ITEMS} items")
        tag = bytes(self._take(1))
        match tag:
            case b"N":
                return None
            case b"T" | b"F":
                return tag == b"T"
            case b"I":
                return int.from_bytes(self._take(self._take(1)[0]), "little", signed=True)
            case b"D":
                return _F64.unpack(self._take(8))[0]
            case b"S":
                return self._text()
            case b"L" | b"U" | b"M":
                return self._container(tag, depth)
            case b"A":
                return self._tensor()
            case b"H":
                handle, is_callable = self._u32(), self._flag()
                return Object(handle, self._typed(str, depth)[:200], is_callable)
            case b"E":
                return self._error(depth)
            case b"Z":
                raise ProtocolError(f"a Tensor subclass `{self._text()[:100]}`: return plain tensors")
        if self.trusting:
            return self._trusted_value(tag, depth)
        raise ProtocolError(f"unknown tag {tag!r}")

    def _trusted_value(self, tag: bytes, depth: int) -> Any:
        match tag:
            case b"V":
                return self._view()
            case b"R":
                return Ref(self._u32())
            case b"Y":
                return DTYPES[self._take(1)[0]]
            case b"X":
                return torch.device(self._text())
            case b"G":
                return Config(self._value(depth + 1))
            case b"C":
                return Callback(*self._value(depth + 1))
        raise ProtocolError(f"unknown tag {tag!r}")

    def _typed(self, kind: type, depth: int) -> Any:
        value = self._value(depth + 1)
        if type(value) is not kind:
            raise ProtocolError(f"a {type(value).__name__} where a {kind.__name__} belongs")
        return value

    def _text(self) -> str:
        size = self._u32()
        if size > MAX_TEXT_BYTES:
            raise ProtocolError(f"a text of {size} bytes; at most {MAX_TEXT_BYTES} travel")
        return str(self._take(size), "utf-8")

    def _container(self, tag: bytes, depth: int) -> Any:
        number, count = self._u32(), self._u32()
        if count > len(self.data) - self.at:
            raise ProtocolError(f"a container of {count} items in {len(self.data) - self.at} bytes")
        value: Any
        if tag == b"M":
            value = {}
            for _ in range(count):
                key = self._value(depth + 1)
                if type(key) not in (str, int, bool, float, type(None)):
                    raise ProtocolError(f"a dict key of type {type(key).__name__}")
                self.odd_keys += type(key) is not str
                if self.odd_keys > MAX_ODD_KEYS:
                    raise ProtocolError(f"more than {MAX_ODD_KEYS} dict keys that are not text")
                value[key] = self._value(depth + 1)
        else:
            value = [self._value(depth + 1) for _ in range(count)]
            value = tuple(value) if tag == b"U" else value
        self.received(value, number)
        return value

    def _error(self, depth: int) -> Error:
        fields = self._typed(list, depth)
        kinds = (str, list, str, str, int, str)
        if len(fields) != len(kinds) or any(type(f) is not k for f, k in zip(fields, kinds, strict=True)):
            raise ProtocolError("a malformed error")
        type_name, bases, text, traceback, line, kind = fields
        if not all(type(base) is str for base in bases):
            raise ProtocolError("a malformed error")
        return Error(
            type_name[:200], tuple(bases[:32]), text[:4000], traceback[:20_000], line % MAX_LINE, kind
        )

    def _tensor_head(self) -> tuple[int, torch.dtype, bool, list[int]]:
        number = self._u32()
        index, grad, dims = self._take(3)
        if index >= len(DTYPES) or dims > MAX_DIMS:
            raise ProtocolError(f"a tensor of dtype number {index} with {dims} dimensions")
        shape = [self._i64() for _ in range(dims)]
        if any(n < 0 or n > 1 << 40 for n in shape):
            raise ProtocolError(f"a tensor of shape {shape}")
        return number, DTYPES[index], bool(grad), shape

    def _tensor(self) -> torch.Tensor:
        number, dtype, grad, shape = self._tensor_head()
        count = 1
        for n in shape:
            count *= n
        raw = self._take(count * dtype.itemsize)
        if count:
            tensor = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
            if dtype is torch.bool:
                tensor = tensor.ne(0)
            tensor = tensor.view(dtype).reshape(shape)
        else:
            tensor = torch.empty(shape, dtype=dtype)
        return self._keep(tensor, number, grad)

    def _view(self) -> torch.Tensor:
        number, dtype, grad, shape = self._tensor_head()
        stride = [self._i64() for _ in shape]
        offset = self._i64()
        if self._flag():
            self.storages.append(bytearray(self._take(self._u32())))
            index = len(self.storages) - 1
        else:
            index = self._u32()
        whole = torch.frombuffer(self.storages[index], dtype=torch.uint8).view(dtype)
        return self._keep(whole.as_strided(shape, stride, offset), number, grad)

    def _keep(self, tensor: torch.Tensor, number: int, grad: bool) -> torch.Tensor:
        if grad and tensor.dtype.is_floating_point:
            tensor.requires_grad_(True)
        self.received(tensor, number)
        return tensor


def send(connection: socket.socket, payload: bytes | bytearray) -> None:
    """Send one frame.

    Raises ProtocolError where the payload is over MAX_FRAME_BYTES; OSError where the other end is gone.
    """
    if len(payload) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a message of {len(payload)} bytes; at most {MAX_FRAME_BYTES} travel")
    connection.sendall(_U32.pack(len(payload)) + bytes(payload))


def receive(connection: socket.socket, deadline: float | None = None) -> memoryview:
    """Receive one frame, by `deadline` on the monotonic clock where one is given.

    Raises EOFError where the other end closed, TimeoutError past the deadline, ProtocolError for a giant
    length.
    """
    size = int(_U32.unpack(_exactly(connection, 4, deadline))[0])
    if size > MAX_FRAME_BYTES:
        raise ProtocolError(f"a message of {size} bytes announced; at most {MAX_FRAME_BYTES} travel")
    return _exactly(connection, size, deadline)


def _exactly(connection: socket.socket, size: int, deadline: float | None) -> memoryview:
    buffer = bytearray()
    while len(buffer) < size:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            connection.settimeout(left)
        try:
            piece = connection.recv(min(size - len(buffer), 1 << 20))
        except ConnectionError as error:
            raise EOFError from error
        if not piece:
            raise EOFError
        buffer += piece
    return memoryview(buffer)
