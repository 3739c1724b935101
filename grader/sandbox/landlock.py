"""Landlock: which files a process may ever open again (Linux ≥ 5.13; man 7 landlock)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38
_LOG_ABI, _LOG_NOTHING = 7, 1 | 4  # a worker's thousand denied calls are not to fill the machine's audit log

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_TRUNCATE = 1 << 14
_FS_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # number of access bits that each ABI knows
_NET_ABI, _SCOPE_ABI = 4, 6
_FILE_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE

READ = _READ_FILE | _READ_DIR
WRITE = READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _TRUNCATE
DEVICE = _READ_FILE | _WRITE_FILE


def abi() -> int:
    """The kernel's Landlock version; 0 where there is none or it is switched off."""
    return max(0, int(_LIBC.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def covers() -> list[str]:
    """What this kernel's version can restrict, in words."""
    version = abi()
    names = ["files"] if version else []
    if version >= _NET_ABI:
        names.append("tcp")
    if version >= _SCOPE_ABI:
        names += ["signals", "abstract sockets"]
    return names


def restrict(rules: Iterable[tuple[Path, int]]) -> None:
    """Forbid this process and its children every file but those beneath `rules`, for good.

    Raises OSError where the kernel refuses. Paths that do not exist are left out.
    """
    version = abi()
    handled = (1 << _FS_BITS.get(version, 16)) - 1
    attributes = struct.pack("<Q", handled)
    if version >= _NET_ABI:
        attributes += struct.pack("<Q", 3)  # bind and connect
    if version >= _SCOPE_ABI:
        attributes += struct.pack("<Q", 3)  # abstract unix sockets and signals
    ruleset = _call(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path, access in rules:
            _allow(ruleset, path, access & handled)
        if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "no_new_privs")
        _call(_RESTRICT_SELF, ruleset, _LOG_NOTHING if version >= _LOG_ABI else 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, access: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        allowed = access if path.is_dir() else access & _FILE_ONLY
        _call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, struct.pack("<Qi", allowed, handle), 0)
    finally:
        os.close(handle)


def _call(number: int, *args: int | bytes) -> int:
    result = int(_LIBC.syscall(number, *args))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock: {os.strerror(code)}")
    return result
