"""The store of measured rates in the user's cache: a folder with a few files for each device and software.

``calibration.json`` files hold the constants of a calibrated machine, ``csv.gz`` files the times of exact calls. The
store is the folder ``measured`` of the user's cache, or ``TENSORTIDE_MEASURED``.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from pathlib import Path

from tensortide.timing.durations import Platform


def folder() -> Path:
    """The folder of the store."""
    named = os.environ.get("TENSORTIDE_MEASURED")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else cache / "tensortide" / "measured"


def software_of(machine: Platform) -> str:
    """The software that a measurement ran on, to its minor version, and the threads; empty if unknown."""
    version = machine.versions.get("torch", "")
    found = re.match(r"\d+\.\d+", version)
    threads = f" {machine.threads} threads" if machine.device == "cpu" and machine.threads else ""
    return f"torch {found[0]}{threads}" if found else ""


def told(machine: Platform) -> str:
    """The same in words, with the whole version: ``torch 2.13.0 on 2 threads``."""
    version = machine.versions.get("torch", "of an unknown version")
    count = machine.threads if machine.device == "cpu" else None
    return f"torch {version}" + (f" on {count} thread{'s' * (count != 1)}" if count else "")


def installed_software() -> str | None:
    """The software of this process, for an accelerator; None without PyTorch, which is not imported."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
    return software_of(Platform(device="accelerator", name="", versions={"torch": version}))


def path_of(device: str, software: str, suffix: str, store: Path | None = None) -> Path:
    """The file of a device and a software."""
    return (store or folder()) / f"{_plain(device)}--{_plain(software or 'unknown software')}{suffix}"


def paths_of(device: str, suffix: str, store: Path | None = None) -> list[Path]:
    """All files of a device, the newest first."""
    place = store or folder()
    found = place.glob(f"{_plain(device)}--*{suffix}") if place.is_dir() else ()
    return sorted(found, key=lambda file: (-file.stat().st_mtime, file.name))


def lock_of(device: str, store: Path | None = None) -> Path:
    """The file that the process which measures a device holds locked."""
    return (store or folder()) / f"{_plain(device)}.lock"


def _plain(name: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", name).strip("_")
