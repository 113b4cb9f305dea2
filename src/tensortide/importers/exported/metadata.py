"""Where a node comes from: module and source line, in the texts that PyTorch keeps with it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tensortide.graph.model import Source

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in ([^\n]+)\n?(?:[ \t]+([^\n]*))?')
_LIBRARY = re.compile(r"[/\\](?:torch|site-packages)[/\\]|^<(?!stdin>)")
_EMPTY = "_empty_nn_module_stack_from_metadata_hook"
_ROOT = re.compile(r"^L(?:\['self'\]|__self__)\.?")
_PARTS = re.compile(r"_modules\['([^']+)'\]|\._modules\['([^']+)'\]")


def innermost(stack: str) -> tuple[str, str] | None:
    """The innermost module of a ``nn_module_stack`` as text, ``key,path,type;...``: its path and class name."""
    entries = [entry for entry in stack.split(";") if "," in entry]
    if not entries:
        return None
    rest, _, kind = entries[-1].rpartition(",")
    path = _after_comma(rest)
    return None if path == _EMPTY else module_of(path, kind)


def module_of(path: str, kind: str) -> tuple[str, str]:
    """A module by the path and the class that PyTorch notes: ``L['self'].blocks.0`` is ``blocks.0``."""
    plain = _PARTS.sub(lambda found: f".{found[1] or found[2]}", _ROOT.sub("", path))
    return plain.strip("."), kind.rpartition(".")[2]


def _after_comma(text: str) -> str:
    """Return what follows the first comma that is in no parentheses: paths may have slices in them."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth <= 0:
            return text[at + 1 :]
    return text


def source_of(trace: str) -> Source | None:
    """The line of the user's code in a ``stack_trace``: the innermost that is in no library, else the innermost."""
    frames = _FRAME.findall(trace[-20_000:])
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])] or frames
    if not own:
        return None
    file, line, function, code = own[-1]
    return Source(file, int(line[:9]), function.strip(), code.strip())


def place_of(metadata: Mapping[str, str]) -> tuple[tuple[str, str] | None, Source | None]:
    """Module and source line of a node's metadata."""
    return innermost(metadata.get("nn_module_stack", "")), source_of(metadata.get("stack_trace", ""))
