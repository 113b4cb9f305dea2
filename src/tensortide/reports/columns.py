"""The long tables of a report, as columns: one entry per op or per storage.

What repeats in them (op names, shapes, module paths, source lines) is an index into a table of its own; -1 stands for
none.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Strings: TypeAlias = tuple[str, ...]
Ints: TypeAlias = tuple[int, ...]
MaybeInts: TypeAlias = tuple[int | None, ...]


class SourceRow(msgspec.Struct, frozen=True):
    """A line of the user's code. ``where`` is short enough to show: ``train.py:12``."""

    where: str
    file: str
    line: int
    function: str
    code: str


class OpTable(msgspec.Struct, frozen=True, kw_only=True):
    """One row per op, as columns. ``None`` is unknown: the op has no cost rule.

    ``name``, ``shapes``, ``module``, ``phase``, ``how`` (its cost is known) and ``source`` index ``names``,
    ``signatures``, ``paths``, ``phases``, ``hows`` and the document's ``sources``. ``resident_bytes`` is the eager
    memory while the op runs, with the ``workspace_bytes`` that its kernel takes and gives back. ``untaken`` are the ops
    that are in no total: those of every arm of a conditional but the most expensive one.
    """

    names: Strings
    signatures: Strings
    paths: Strings
    phases: Strings
    hows: Strings
    name: Ints
    shapes: Ints
    module: Ints
    phase: Ints
    source: Ints
    how: Ints
    flops: MaybeInts
    macs: MaybeInts
    accessed_bytes: MaybeInts
    workspace_bytes: Ints
    resident_bytes: Ints
    untaken: Ints


class StorageTable(msgspec.Struct, frozen=True, kw_only=True):
    """One row per storage of the graph, as columns. It is alive at op ``i`` where ``birth <= i < death``.

    A birth of -1 is before the step; a death past the last op outlives it. ``role``, ``label`` (its name, if it has
    one) and ``tensor`` (its widest view) index ``roles``, ``labels`` and ``tensors``; ``module`` indexes the op table's
    ``paths``.
    """

    roles: Strings
    labels: Strings
    tensors: Strings
    nbytes: Ints
    role: Ints
    label: Ints
    tensor: Ints
    module: Ints
    birth: Ints
    death: Ints
    last_use_death: Ints
