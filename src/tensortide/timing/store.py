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
from tensortide.user_cache import cache_folder


def folder() -> Path:
    """The folder of the store."""
    named = os.environ.get("TENSORTIDE_MEASURED")
    return Path(named) if named else cache_folder() / "measured"


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


def installed_software(threads: int | None = None) -> str | None:
    """The software of this process: for an accelerator, or a CPU with ``threads``; None without PyTorch, which is not
    imported."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
    device = "accelerator" if threads is None else "cpu"
    return software_of(Platform(device=device, name="", versions={"torch": version}, threads=threads))


def path_of(device: str, software: str, suffix: str, store: Path | None = None) -> Path:
    """The file of a device and a software."""
    return (store or folder()) / f"{_plain(device)}--{_plain(software or 'unknown software')}{suffix}"


def paths_of(device: str, suffix: str, store: Path | None = None) -> list[Path]:
    """All files of a device, the newest first."""
    place = store or folder()
    found = place.glob(f"{_plain(device)}--*{suffix}") if place.is_dir() else ()
    return sorted(found, key=lambda file: (-file.stat().st_mtime, file.name))


def same_threads(name: str, software: str) -> bool:
    """Tell whether a file's ``name`` is of as many threads as ``software``; files of an accelerator have none."""
    found = [re.search(r"([0-9]+)_threads", _plain(text)) for text in (name.partition("--")[2], software)]
    return (found[0] and found[0][1]) == (found[1] and found[1][1])


def lock_of(device: str, store: Path | None = None) -> Path:
    """The file that the process which measures a device holds locked."""
    return (store or folder()) / f"{_plain(device)}.lock"


def _plain(name: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", name).strip("_")
