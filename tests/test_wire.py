"""The value codec: what goes in comes out, and no bytes whatever harm the side that reads them."""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.errors import ProtocolError
from grader.sandbox import wire

pytestmark = pytest.mark.filterwarnings("ignore:.*not writable.*:UserWarning")


def refuse(value: object) -> object:
    raise TypeError(type(value).__name__)


def encoded(value: object, *, to_worker: bool = False) -> bytes:
    encoder = wire.Encoder(refuse, to_worker=to_worker)
    encoder.encode(value)
    return bytes(encoder.out)


def travel(value: object, *, to_worker: bool = False) -> object:
    return wire.Decoder(memoryview(encoded(value, to_worker=to_worker)), trusting=to_worker).decode()


SCALARS = st.none() | st.booleans() | st.integers(-(2**500), 2**500) | st.floats() | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.booleans(), inner, max_size=4)
    ),
    max_leaves=12,
)


def same(a: object, b: object) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(same, a.values(), b.values()))
    if isinstance(a, str):
        return a.encode("utf-8", "replace") == b.encode("utf-8", "replace")
    return a == b


@given(VALUES)
def test_values_come_out_as_they_went_in(value: object) -> None:
    assert same(value, travel(value))


@given(st.sampled_from(wire.DTYPES), st.lists(st.integers(0, 3), max_size=4), st.booleans())
def test_tensors_come_out_bit_for_bit(dtype: torch.dtype, shape: list[int], to_worker: bool) -> None:
    tensor = torch.randint(0, 2, shape).to(dtype)
    copy = travel(tensor, to_worker=to_worker)
    assert type(copy) is torch.Tensor
    assert (copy.dtype, copy.shape) == (dtype, tensor.shape)
    assert torch.equal(copy, tensor)


@pytest.mark.parametrize("to_worker", [False, True])
def test_tensors_of_one_number_travel_whatever_their_strides(to_worker: bool) -> None:
    buffer = torch.arange(35.0).reshape(1, 5, 7)
    for odd in (buffer[:, 2:3, -1], buffer.mT[:, 3:4, 4:5], torch.zeros(1, 5)[:, -1], buffer[0, 1:2, 3]):
        copy = travel(odd, to_worker=to_worker)
        assert isinstance(copy, torch.Tensor)
        assert copy.shape == odd.shape
        assert torch.equal(copy, odd)


def test_nan_bits_and_gradient_flag_survive() -> None:
    tensor = torch.tensor([math.nan, -math.inf, -0.0, 5e-324], dtype=torch.float64, requires_grad=True)
    copy = travel(tensor)
    assert copy.requires_grad
    assert copy.is_leaf
    assert torch.equal(copy.detach().view(torch.int64), tensor.detach().view(torch.int64))


def test_views_keep_storage_strides_and_sharing_towards_the_worker() -> None:
    buffer = torch.arange(70.0).reshape(2, 5, 7)
    k, v, wide = travel([buffer[:, 1:3], buffer[..., 2:5].mT, buffer[:1, :1].expand(1, 3, 7)], to_worker=True)
    assert torch.equal(k, buffer[:, 1:3])
    assert k.stride() == buffer.stride()
    assert torch.equal(v, buffer[..., 2:5].mT)
    assert wide.stride() == (35, 0, 1)
    assert {t.untyped_storage().data_ptr() for t in (k, v, wide)} == {k.untyped_storage().data_ptr()}
    assert k.untyped_storage().nbytes() == buffer.nbytes


@pytest.mark.parametrize(
    "kind", [torch.device("cuda:1"), torch.float16, wire.Ref(3), wire.Config({"n_layer": 2})]
)
def test_what_only_the_grader_may_send_is_refused_from_a_worker(kind: object) -> None:
    payload = encoded(kind, to_worker=True)
    assert wire.Decoder(memoryview(payload), trusting=True).decode() == kind
    with pytest.raises(ProtocolError, match="unknown tag"):
        wire.Decoder(memoryview(payload)).decode()


@settings(max_examples=400)
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_never_raise_anything_but_protocol_error(data: bytes, trusting: bool) -> None:
    with contextlib.suppress(ProtocolError):
        wire.Decoder(memoryview(data), trusting=trusting).decode()


@settings(max_examples=400)
@given(VALUES, st.data())
def test_damaged_messages_never_raise_anything_but_protocol_error(value: object, data: st.DataObject) -> None:
    payload = bytearray(encoded([value, torch.ones(2, 3), wire.Object(3, "x"), wire.Error("E", ("E",), "t")]))
    for _ in range(data.draw(st.integers(1, 5))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(payload)))
    for message in (payload, payload[:cut]):
        with contextlib.suppress(ProtocolError):
            wire.Decoder(memoryview(bytes(message))).decode()


def header(dims: list[int], *, tag: bytes = b"A", dtype: int = 0) -> bytes:
    return tag + bytes(4) + bytes([dtype, 0, len(dims)]) + b"".join(struct.pack("<q", n) for n in dims)


@pytest.mark.parametrize(
    "payload",
    [
        b"S" + struct.pack("<I", 2**32 - 1) + b"abc",
        b"L" + bytes(4) + struct.pack("<I", 2**31),
        header([2**40, 2**40]),
        header([-1]),
        header([1] * 17),
        header([1], dtype=99),
        b"I\xff" + bytes(3),
        b"L" + bytes(4) + struct.pack("<I", 1),
        b"".join(b"L" + bytes(4) + struct.pack("<I", 1) for _ in range(5000)) + b"N",
        b"NN",
        b"",
        b"S" + struct.pack("<I", 2) + b"\xff\xfe",
        b"M" + bytes(4) + struct.pack("<I", 1) + b"L" + bytes(8) + b"N",
        b"E" + b"N",
    ],
    ids=lambda payload: repr(payload[:8]),
)
def test_giant_deep_cut_and_stray_messages_are_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        wire.Decoder(memoryview(payload)).decode()


def test_tensor_subclasses_are_refused_by_name() -> None:
    payload = encoded([wire.Foreign("Liar")])
    with pytest.raises(ProtocolError, match="Tensor subclass `Liar`"):
        wire.Decoder(memoryview(payload)).decode()


def test_too_deep_or_too_large_values_are_refused_before_they_are_sent() -> None:
    deep: list[object] = []
    deep.append(deep)
    for value in (
        deep,
        1 << 600,
        "x" * (wire.MAX_TEXT_BYTES + 1),
        torch.ones(3).to_sparse(),
        torch.ones(2, device="meta"),
    ):
        with pytest.raises(ProtocolError):
            encoded(value)


def test_a_frame_announced_too_large_is_refused_before_it_is_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack("<I", wire.MAX_FRAME_BYTES + 1))
        with pytest.raises(ProtocolError, match="announced"):
            wire.receive(ours)


def test_a_frame_that_stops_half_way_is_late_or_ended() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack("<I", 10) + b"half")
        with pytest.raises(TimeoutError):
            wire.receive(ours, time.monotonic() + 0.01)
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(struct.pack("<I", 10) + b"half")
        theirs.close()
        with pytest.raises(EOFError):
            wire.receive(ours)
