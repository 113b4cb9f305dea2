"""The file of process groups beside the Chakra traces of a run: the ranks of each by number, in JSON."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from tensortide.errors import TimesError
from tensortide.importers.chakra.messages import Node

Groups: TypeAlias = Mapping[int, tuple[int, ...]]
"""The ranks of each group by its number; 0 is the group of all ranks."""

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


def groups_path(trace: str | os.PathLike[str]) -> Path:
    """The file beside a trace, one for all ranks: ``x.groups.json`` of ``x.0.et``.

    Examples:
        >>> groups_path("run/x.12.et").name
        'x.groups.json'
    """
    path = Path(trace)
    return path.with_name(re.sub(r"(\.[0-9]+)?(\.et)?(\.gz)?$", "", path.name) + ".groups.json")


def read_groups(path: Path) -> Groups:
    """Read the groups; none where there is no file. Raises TimesError, which names the file, if it is damaged."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[Natural, tuple[Natural, ...]])
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TimesError(f'{path} is no file of process groups, {{"1": [0, 1]}}: {error}') from error
    except OSError as error:
        raise TimesError(f"cannot read {path}: {error.strerror or error}") from error
    for number, ranks in found.items():
        if not ranks or len(set(ranks)) < len(ranks):
            raise TimesError(f"{path}: group {number} has {'a rank twice' if ranks else 'no ranks'}")
    return found


def encoded(groups: Groups) -> bytes:
    """The content of the file."""
    return json.dumps({str(number): list(ranks) for number, ranks in groups.items()}).encode()


def strangers(nodes: Sequence[Node], groups: Groups) -> Iterator[Node]:
    """Nodes of a group that ``groups`` does not have; without a name or by 0 they are of all ranks."""
    for node in nodes:
        name = node.attribute("pg_name")
        if isinstance(name, str) and name not in ("", "0") and not (name.isdecimal() and int(name) in groups):
            yield node
