"""Hidden checks in one encrypted file, fit for a student's repository: opened in memory, never on disk.

    kvgrade/sealed/v1\\n       the form and its version
    0123456789abcdef 12345\\n  which key, and how many bytes follow
    nonce (12 bytes), then AES-256-GCM over the files, with the two lines as associated data

A file that was changed or cut by a byte does not open.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from grader.course import Course
from grader.errors import GraderError
from grader.faults import Mistake, written

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FAMILY, VERSION = b"kvgrade/sealed/v", 1
FILE, KEY_FILE = "hidden.sealed", "seal.key"
KEY_BYTES, NONCE_BYTES = 32, 12
NAME = re.compile(r"tests_hidden/[\w.]+")
HEADER = re.compile(rb"(?P<family>kvgrade/sealed/v)(?P<version>\d+)\n(?P<key>[0-9a-f]{16}) (?P<size>\d+)\n")
NO_LIBRARY = "sealing needs the package `cryptography`: install it with `pip install 'kvgrade[ci]'`"


class SealError(GraderError):
    """A sealed file that can't be opened: no fault of the student's, and nothing hidden is scored."""


def seal(course: Course, out: Path, path: Path) -> tuple[Path, ...]:
    """Write `tests_hidden/` with the seed's secret into `out`; make the key at `path` if it is not there.

    Returns the files written. Raises Mistake where there is nothing to seal or a file can't be written.
    """
    hidden = course.root / "tests_hidden"
    if not any(hidden.glob("test_*.py")):
        raise Mistake(f"`{hidden}` has no checks: seal where the hidden tests are")
    from grader.session import Options, secret_of

    secret_of(course, Options())  # makes it, where no run has yet
    made = () if path.is_file() else (_made_key(path),)
    key = parse_key(path.read_text(encoding="utf-8", errors="replace"))
    files = {f"{hidden.name}/{p.name}": p.read_bytes() for p in sorted(hidden.glob("*.py"))}
    files[f"{hidden.name}/{course.seed_secret.name}"] = course.seed_secret.read_bytes()
    return (written(out, locked(files, key)), *made)


def unsealed(course: Course, path: Path, key_text: str) -> Course:
    """The course with the hidden checks of a sealed file in memory.

    Raises SealError where the key is none or another one's, or the file is not whole, changed, or newer.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SealError(f"`{path}` can't be read: {error.strerror}") from error
    try:
        key = parse_key(key_text)
    except Mistake as error:
        raise SealError(str(error)) from error
    return replace(course, sealed=opened(content, key, str(path)))


def locked(files: Mapping[str, bytes], key: bytes) -> bytes:
    """Encrypt files by name."""
    aead = _aead(key)
    plain = msgspec.msgpack.encode(dict(files))
    header = FAMILY + b"%d\n%s %d\n" % (VERSION, _mark(key), NONCE_BYTES + len(plain) + 16)
    nonce = secrets.token_bytes(NONCE_BYTES)
    return header + nonce + aead.encrypt(nonce, plain, header)


def opened(content: bytes, key: bytes, name: str) -> dict[str, bytes]:
    """Decrypt files by name.

    Raises SealError, a different one for what is no such file, newer, of another key, cut, or changed.
    """
    header = HEADER.match(content)
    if header is None:
        raise SealError(f"`{name}` is not a sealed file: seal it again with `grade seal`")
    if int(header["version"]) > VERSION:
        raise SealError(
            f"`{name}` was sealed by a newer grader (form {int(header['version'])}): update this one"
        )
    if header["key"] != _mark(key):
        raise SealError(
            f"`{name}` was sealed with another key: put its own into the CI's secret, or seal it again"
        )
    body = content[header.end() :]
    if len(body) < int(header["size"]):
        raise SealError(
            f"`{name}` is cut short: {len(body)} of {int(header['size'])} bytes are there; copy it again"
        )
    from cryptography.exceptions import InvalidTag

    try:
        plain = _aead(key).decrypt(body[:NONCE_BYTES], body[NONCE_BYTES:], content[: header.end()])
    except InvalidTag as error:
        raise SealError(f"`{name}` was changed after it was sealed: copy it again") from error
    files = msgspec.msgpack.decode(plain, type=dict[str, bytes])
    if not all(NAME.fullmatch(file) for file in files):
        raise SealError(f"`{name}` holds more than hidden checks: seal it again with `grade seal`")
    return files


def parse_key(text: str) -> bytes:
    """Read a key's text.

    Raises Mistake, which never quotes it.
    """
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise Mistake(f"the key is not one of `grade seal`: {KEY_BYTES} bytes in base64 are expected")
    return key


def _made_key(path: Path) -> Path:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Mistake(f"the key `{path}` can't be written: {error.strerror}") from error
    with os.fdopen(handle, "wb") as file:
        file.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
    return path


def _mark(key: bytes) -> bytes:
    """Tells keys apart and nothing of them."""
    return hashlib.sha256(b"kvgrade key\0" + key).hexdigest()[:16].encode()


def _aead(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise Mistake(NO_LIBRARY) from error
    return AESGCM(key)
