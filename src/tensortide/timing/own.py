"""A device of the user's own: a JSON file of figures, named as those of the catalogue."""

from __future__ import annotations

import codecs
import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from tensortide.errors import TensortideError
from tensortide.file_faults import reader
from tensortide.timing.catalogue import Device, catalogue, named

LIKE = "like"
"""Key of the device of the catalogue that has the figures which a file does not give."""
SOURCES = (
    "compute_source",
    "memory_source",
    "driver_source",
    "link_source",
    "wiring_source",
    "yields",
    "aliases",
    "notes",
)
KEYS = (LIKE, *(field for field in Device.__struct_fields__ if field not in SOURCES))
_RATES = tuple(key for key in KEYS if key.endswith(("_tflops", "_tops")))


@reader
def own_device(path: Path) -> Device:
    """The device that the file ``path`` describes.

    ``like`` names a device of the catalogue that has the figures which are not given. A GPU is in order with the
    catalogue's devices of its ``arch``; without one it is in none.

    Raises TensortideError, which says what is wrong: no file, no JSON, an unknown key or architecture, a figure that is
    none, no name, no rate.

    Examples:
        {"name": "H100 NVL", "like": "H100-PCIe-80GB", "memory_gbytes": 94, "memory_gbytes_per_s": 3938}
    """
    given = _read(path)
    try:
        found = described(given)
    except TensortideError as error:
        raise TensortideError(f"{path}: {error}") from None
    if all(getattr(found, rate) is None for rate in _RATES):
        raise TensortideError(f"{path}: no rate is given: it takes one at least of {', '.join(_RATES)}")
    return found


def described(given: Mapping[str, object]) -> Device:
    """The device of these figures, as a file has them. Raises TensortideError for what is wrong with them."""
    if others := [key for key in given if key in SOURCES]:
        raise TensortideError(f"leave out {', '.join(others)}: only devices of the catalogue have that")
    for key in given:
        if key not in KEYS:
            raise TensortideError(f"a device has no {key!r}; it may be {_near(key, KEYS)}")
    base = {} if LIKE not in given else _figures_of(given[LIKE])
    try:
        found = msgspec.convert(base | {key: value for key, value in given.items() if key != LIKE}, Device)
    except msgspec.ValidationError as error:
        raise TensortideError(str(error)) from None
    known = list(dict.fromkeys(each.arch for each in catalogue()))
    if found.arch and found.arch not in known:
        raise TensortideError(f"arch {found.arch!r} is not in the catalogue; it may be {_near(found.arch, known)}")
    return found


def _near(name: str, known: Iterable[str]) -> str:
    """Return those of ``known`` that are spelled like ``name``; without any, all."""
    every = list(filter(None, known))
    return ", ".join(difflib.get_close_matches(name, every, n=3, cutoff=0.5) or every)


def _read(path: Path) -> dict[str, object]:
    try:
        given = msgspec.json.decode(path.read_bytes().removeprefix(codecs.BOM_UTF8))
    except OSError as error:
        raise TensortideError(f"{path} cannot be read: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TensortideError(f"{path} is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise TensortideError(f'{path} is no device: it takes {{"name": ..., "memory_gbytes_per_s": ...}}')
    return given


def _figures_of(name: object) -> dict[str, object]:
    """The figures of the device of the catalogue that is called ``name``; not its name, nor who says so."""
    try:
        found = msgspec.structs.asdict(named(str(name)))
    except TensortideError as error:
        raise TensortideError(f"{LIKE}: {error}") from None
    return {key: value for key, value in found.items() if key in KEYS and key != "name"}
