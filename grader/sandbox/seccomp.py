"""Seccomp: system calls that student code never needs, refused for good (Linux; man 2 seccomp).

A refused call returns an error, it does not kill: a student's stray `os.kill` is an exception with a line
number. Written out here because the kept bindings need `libseccomp` on the machine, which a student's laptop
does not have. Numbers: the kernel's `syscall_64.tbl` and `asm-generic/unistd.h`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_NO_NEW_PRIVS, _PR_GET_SECCOMP, _PR_SET_SECCOMP, _MODE_FILTER = 38, 21, 22, 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _JUMP_ALWAYS, _JUMP_EQUAL, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMN = {"x86_64": 0, "aarch64": 1}
_X32_BIT = 0x40000000
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_ARGS = 0, 4, 16
_CLONE_THREAD = 0x00010000
_CLONE_NAMESPACES = 0x7E020000  # NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET
_CLONE3 = 435
_FIRST_UNKNOWN = 451  # calls younger than these tables: fchmodat2, setxattrat, file_setattr, whatever comes

# name: (x86_64, aarch64); None where the architecture has no such call
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # network; and a datagram socket of a pair, which can send to any path, /dev/log for one
    "socket": (41, 198), "connect": (42, 203), "accept": (43, 202), "accept4": (288, 242),
    "bind": (49, 200), "listen": (50, 201), "socketpair": (53, 199),
    # other programs
    "execve": (59, 221), "execveat": (322, 281),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "process_madvise": (440, 440), "kill": (62, 129),
    "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "setsid": (112, 157), "setpgid": (109, 154),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "ioprio_set": (251, 30), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "process_mrelease": (448, 448),
    # another user: the limit on processes counts by real user, and does not hold for user 0
    "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143),
    "setresuid": (117, 147), "setresgid": (119, 149), "setfsuid": (122, 151), "setfsgid": (123, 152),
    "setgroups": (116, 159),
    # files' modes, owners, times, attributes; their lengths, which Landlock covers from Linux 6.2 on
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5),
    "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "truncate": (76, 45),
    # who touches which file
    "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    # the machine
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162),
    "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116), "iopl": (172, None),
    "ioperm": (173, None), "quotactl_fd": (443, 443), "vhangup": (153, 58),
    "kexec_file_load": (320, 294), "lookup_dcookie": (212, 18), "sync": (162, 81), "syncfs": (306, 267),
    "io_setup": (206, 0), "modify_ldt": (154, None), "splice": (275, 76), "tee": (276, 77),
    "vmsplice": (278, 75), "personality": (135, 92), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    # memory and queues shared with strangers, and memory that no limit counts
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186),
    "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "semget": (64, 190),
    "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192), "mq_open": (240, 180),
    "mq_unlink": (241, 181), "memfd_create": (319, 279), "memfd_secret": (447, 447),
}  # fmt: skip
# refused unless the argument at this index is 0, which means "myself"
_ONLY_SELF: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "prlimit64": (302, 261, (0,)),
    "sched_setaffinity": (203, 122, (0,)),
    "setpriority": (141, 140, (0, 1)),
}
# allowed only where the argument at this index is one of these: flags and locks, but no owner (who gets a
# signal), lease (whoever opens the file waits) or notice; what `isatty`, blocking and close-on-exec need
_ONLY_THESE: dict[str, tuple[tuple[int, int], int, tuple[int, ...]]] = {
    "fcntl": ((72, 25), 1, (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032, 1034)),
    "ioctl": ((16, 29), 1, (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),
}
# refused where the argument at this index is one of these: outlive the fork server, be dumped, share a core
_NOT_THESE: dict[str, tuple[tuple[int, int], int, tuple[int, ...]]] = {"prctl": ((157, 167), 0, (1, 4, 62))}
_FORKS: dict[str, tuple[int | None, int | None]] = {"fork": (57, None), "vfork": (58, None)}
_CLONE = (56, 220)


def supported() -> bool:
    """Whether this machine's architecture is in the tables and its kernel takes filters."""
    return platform.machine() in _ARCH and _LIBC.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) >= 0


def refuse_dangerous() -> None:
    """Refuse network, other programs, other processes, namespaces and the like, in this process and its
    children.

    Raises OSError where the kernel refuses the filter.
    """
    column = _COLUMN[platform.machine()]
    program = _prologue()
    for numbers in _REFUSED.values():
        program += _refuse_number(numbers[column])
    for entry in _ONLY_SELF.values():
        for argument in entry[2]:
            program += _refuse_unless_zero(entry[column], argument)  # type: ignore[arg-type]
    for table, listed in ((_ONLY_THESE, False), (_NOT_THESE, True)):
        for calls, argument, values in table.values():
            program += _refuse_argument(calls[column], argument, values, listed=listed)
    program += _step(_JUMP_GE, _FIRST_UNKNOWN, 0, 1) + _refusal(errno.ENOSYS)
    program += _refuse_number(_CLONE3, errno.ENOSYS)  # its flags can't be read here; libc falls back to clone
    program += _refuse_clone(_CLONE[column], _CLONE_NAMESPACES, when_set=True)
    _install(program)


def refuse_forks() -> None:
    """Refuse new processes (threads stay possible), in this process and its children."""
    column = _COLUMN[platform.machine()]
    program = _prologue()
    for numbers in _FORKS.values():
        program += _refuse_number(numbers[column])
    program += _refuse_clone(_CLONE[column], _CLONE_THREAD, when_set=False)
    _install(program)


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _refusal(code: int = errno.EPERM) -> bytes:
    return _step(_RETURN, _ERRNO | code)


def _prologue() -> bytes:
    """Refuse a foreign architecture's calls, then load the call's number."""
    program = _step(_LOAD, _OFFSET_ARCH) + _step(_JUMP_EQUAL, _ARCH[platform.machine()], 1, 0) + _refusal()
    program += _step(_LOAD, _OFFSET_NUMBER)
    if platform.machine() == "x86_64":
        program += _step(_JUMP_GE, _X32_BIT, 0, 1) + _refusal()
    return program


def _refuse_number(number: int | None, code: int = errno.EPERM) -> bytes:
    return b"" if number is None else _step(_JUMP_EQUAL, number, 0, 1) + _refusal(code)


def _refuse_unless_zero(number: int, argument: int) -> bytes:
    low, high = _OFFSET_ARGS + 8 * argument, _OFFSET_ARGS + 8 * argument + 4
    body = _step(_LOAD, low) + _step(_JUMP_EQUAL, 0, 0, 2)
    body += _step(_LOAD, high) + _step(_JUMP_EQUAL, 0, 1, 0) + _refusal() + _step(_LOAD, _OFFSET_NUMBER)
    return _step(_JUMP_EQUAL, number, 0, len(body) // 8) + body


def _refuse_argument(number: int, argument: int, values: tuple[int, ...], *, listed: bool) -> bytes:
    """Refuse a call whose argument is (`listed`) or not among `values`; the kernel reads 32 bits of it."""
    compare = b""
    for place, value in enumerate(values):
        rest = len(values) - 1 - place
        compare += _step(_JUMP_EQUAL, value, rest + 1, 0)
    if listed:  # none was equal: step over the refusal
        compare += _step(_JUMP_ALWAYS, 1)
    body = _step(_LOAD, _OFFSET_ARGS + 8 * argument) + compare + _refusal() + _step(_LOAD, _OFFSET_NUMBER)
    return _step(_JUMP_EQUAL, number, 0, len(body) // 8) + body


def _refuse_clone(number: int, flags: int, *, when_set: bool) -> bytes:
    yes, no = (0, 1) if when_set else (1, 0)
    body = (
        _step(_LOAD, _OFFSET_ARGS)
        + _step(_JUMP_SET, flags, yes, no)
        + _refusal()
        + _step(_LOAD, _OFFSET_NUMBER)
    )
    return _step(_JUMP_EQUAL, number, 0, len(body) // 8) + body


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _install(program: bytes) -> None:
    program += _step(_RETURN, _ALLOW)
    value = _Program(len(program) // 8, program)
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or _LIBC.prctl(
        _PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(value), 0, 0
    ):
        code = ctypes.get_errno()
        raise OSError(code, f"seccomp: {os.strerror(code)}")
