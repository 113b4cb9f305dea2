"""Lists of what there is: workloads, kinds of files, devices, searches for placements and files to try them on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_type_hints

from tensortide.reports.blocks import AnyBlock, Document, Fact, Facts, Note, Section, Value
from tensortide.reports.of_records import table
from tensortide.shown import Show
from tensortide.studies.placement.examples import Example
from tensortide.timing.catalogue import Device

if TYPE_CHECKING:
    from tensortide.importers.table import Importer

_HOW = (
    "TFLOP/s by dtype are dense peaks of a device as a process sees it: of its matrix units, in fp32 without "
    "them. In names, letters' case, vendor words, spaces and dashes do not count. --machine 8xh200-sxm: several; "
    "--machine local: the machine you sit at."
)


_GROUPS = {
    "examples": "Workloads",
    "sizes": "Sizes of them",
    "dtr": "The models of DTR's experiments in its sizes, under its names (its U-Net is unet)",
}
"""Titles of the groups of workloads."""


class Kind(NamedTuple):
    """A kind of file, and the names of its options."""

    kind: Annotated[str, Show("Kind, recognized by its content", fold=True)]
    options: Annotated[str, Show("Options", fold=True)]


class Option(NamedTuple):
    """An option of a kind of file."""

    option: Annotated[str, Show("Option")]
    help: Annotated[str, Show(fold=True)]


class Algorithm(NamedTuple):
    """A search for placements, and its options with their defaults."""

    algorithm: Annotated[str, Show("Algorithm", "code")]
    about: Annotated[str, Show("Search", fold=True)]
    options: Annotated[str, Show("Options", "code", fold=True)]


def of_workloads(chosen: Sequence[Any], hyperparameters: Mapping[str, Value] | None = None) -> Document:
    """List Examples in their groups by name, summary and the packages that they need, with the ``hyperparameters`` of a
    lone one."""
    groups = {group: [one for one in chosen if one.group == group] for group in _GROUPS}
    if hyperparameters is not None:
        groups = {"examples": [*chosen]}
    columns = ("name", "summary", "needs")
    blocks: list[AnyBlock] = [
        table(type(chosen[0]), rows, *columns, key=group, title="" if len(groups) == 1 else _GROUPS[group])
        for group, rows in groups.items()
    ]
    if hyperparameters is not None:
        facts = tuple(Fact(name, name, value, "number") for name, value in hyperparameters.items())
        blocks.append(Facts(key="hyperparameters", title="Hyperparameters", rows=facts))
    title = "Built-in workloads"
    whole = Section("examples", title, blocks=tuple(blocks))
    return whole.document(title if hyperparameters is None else chosen[0].name)


def of_kinds(importers: Iterable[Importer]) -> Document:
    """List what ``importers`` read, and the options that they add to every verb."""
    added = {importer.kind: [*_options(importer)] for importer in importers}
    kinds = [Kind(kind, " ".join(one.option for one in options)) for kind, options in added.items()]
    helps = {one.option: one for options in added.values() for one in options}
    options = table(Option, [*helps.values()], key="options", title="Options of these kinds")
    blocks = (table(Kind, kinds, key="kinds"), options)
    return Section("kinds", "Files", blocks=blocks).document("Files that are read")


def _options(importer: Importer) -> Iterator[Option]:
    hints = get_type_hints(importer.options, include_extras=True)
    for field in dataclasses.fields(importer.options):
        if (parts := get_args(hints[field.name])) and isinstance(parts[-1], str):
            yield Option(f"--{field.name}", parts[-1])
    if importer.tables:
        yield Option("--table", f"Of count: another tool's table of costs ({', '.join(importer.tables)}).")


def of_devices(found: Sequence[Device], words: str = "") -> Document:
    """List the devices ``found`` in the catalogue by ``words``."""
    rows = table(Device, found, *Device.__struct_fields__, key="devices", heads=1)
    made = Section("devices", "Devices", blocks=(rows, Note(text=_HOW)))
    title = "Devices of the catalogue" + f": {words}" * bool(words)
    columns = "GB of memory, GB/s of its bandwidth, TFLOP/s by dtype"
    return made.document(title, f"{len(found)} device{'s' * (len(found) != 1)}; {columns}")


def of_algorithms() -> Document:
    """List the searches for placements."""
    from tensortide.placements.search import ALGORITHMS

    fields = {name: ", ".join(map(_option, dataclasses.fields(kind))) for name, kind in ALGORITHMS.items()}
    rows = [Algorithm(name, kind.about, fields[name] or "-") for name, kind in ALGORITHMS.items()]
    made = table(Algorithm, rows, key="algorithms")
    return Section("algorithms", "Algorithms", blocks=(made,)).document("Searches for placements")


def _option(field: dataclasses.Field[object]) -> str:
    """The option with its default; one that only Python can give by its name."""
    shown = f"{field.default:.4g}" if isinstance(field.default, float) else field.default
    return f"{field.name}={shown}" if isinstance(field.default, int | float | str | tuple) else field.name


def of_examples(files: Sequence[Example]) -> Document:
    """List files to try placement on."""
    made = table(Example, files, "file", "holds", "command", key="files")
    return Section("placement_examples", "Files", blocks=(made,)).document("Files to try place on")
