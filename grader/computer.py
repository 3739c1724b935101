"""The computer that something ran on, as reports and measurements say it."""

from __future__ import annotations

import os
import platform
from importlib import metadata

from grader.hardware import cpu_model
from grader.report import Machine


def machine_info() -> Machine:
    """Describe this machine and its load now."""
    import psutil

    return Machine(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=cpu_model(),
        cores=psutil.cpu_count() or 0,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        python=platform.python_version(),
        torch=_torch_version(),
        load_1m=round(os.getloadavg()[0], 2),
        power=_power(),
    )


def _torch_version() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def _power() -> str:
    import psutil

    found = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return "" if found is None else "mains" if found.power_plugged else "battery"
