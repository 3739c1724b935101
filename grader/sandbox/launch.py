"""Start the untrusted side's Python; imports no torch, so that both sides can load it at the same time."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

WORKER_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
    "PATH": "/usr/bin:/bin",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True, slots=True)
class Started:
    """A Python that is importing torch, and our end of the socket on which it will say when it is ready."""

    process: subprocess.Popen[bytes]
    control: socket.socket


def launch(function: str) -> Started:
    """Start Python afresh on a function of the zygote's, with an empty environment and one socket."""
    root = str(Path(__file__).resolve().parents[2])
    ours, theirs = socket.socketpair()
    code = (
        f"import sys; sys.path.insert(0, {root!r}); from grader.sandbox import zygote; "
        f"sys.path.remove({root!r}); zygote.{function}({theirs.fileno()})"
    )
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-I", "-B", "-X", "utf8", "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            env=WORKER_ENVIRONMENT,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return Started(process, ours)
