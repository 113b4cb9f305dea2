"""Contents of a written file: checkpointed modules, results kept in them, saved tensors moved; and its text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from tensortide.graph.module_paths import within
from tensortide.recorder.torch_file import Part, source

Kept: TypeAlias = tuple[str, str, int]
"""An op of a checkpointed module whose results are kept: module path, op, how often the op ran in the module before."""
Saved: TypeAlias = tuple[str, int]
"""A tensor that autograd saves: path of the module that runs, how many it saved there before in this forward pass."""


class Checkpoint(msgspec.Struct, frozen=True):
    """A module whose forward is recomputed in the backward pass, but for ``kept``.

    ``random``: it draws random numbers. ``updated``: names of buffers that its forward updates. ``row``:
    modules that run one after the other, each on the result of the one before, as one.
    """

    random: bool = False
    updated: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()
    row: tuple[str, ...] = ()


class Moved(msgspec.Struct, frozen=True):
    """A storage that is moved to the host: the saved tensors that are views of it, its bytes, and the saved tensor
    whose use in the backward pass begins the transfer back (None: its own first use)."""

    saved: tuple[Saved, ...]
    nbytes: int
    ahead: Saved | None = None


class Choice(msgspec.Struct, frozen=True):
    """Work of the file. ``roots``: prefixes of the paths of each model."""

    checkpoints: dict[str, Checkpoint] = {}
    moved: tuple[Moved, ...] = ()
    roots: tuple[str, ...] = ("",)

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms that the file uses, in words."""
        found = []
        if any(not each.kept for each in self.checkpoints.values()):
            found.append("checkpoints")
        if any(each.kept for each in self.checkpoints.values()):
            found.append("selective checkpoints")
        return (*found, "offload") if self.moved else tuple(found)

    @property
    def used_roots(self) -> tuple[str, ...]:
        """The models that the file changes."""
        paths = [*self.checkpoints, *(path for each in self.moved for path, _ in each.saved)]
        return tuple(root for root in self.roots if not root or any(within(path, root) for path in paths))


OWN = "Written by tensortide plan --torch."
"""A line of every written file."""
_ALIGNED = 64
"""Places of the pool begin at multiples of this."""


def own_suffix(path: Path) -> str:
    """The suffix of ``path`` if the file there is one of these, which a new one may replace; else nothing."""
    is_own = path.is_file() and OWN in path.read_text(encoding="utf-8", errors="replace")[:1000]
    return path.suffix if is_own else ""


def text(choice: Choice, about: str, name: str = "plan_torch", details: Sequence[str] = ()) -> str:
    """The text of the file, whose docstring begins with ``about`` and ends with the lines ``details``; it is imported
    by ``name``."""
    parts: list[Part] = ["applied"]
    parts += ["policy"] if any(each.kept for each in choice.checkpoints.values()) else []
    parts += ["checkpoints"] if choice.checkpoints else []
    parts += ["offload"] if choice.moved else []
    sources = [source(part) for part in parts]
    imports = sorted({line for lines, _ in sources for line in lines}, key=_import_order)
    grouped = [line for line in imports if "torch" not in line], [line for line in imports if "torch" in line]
    head = f'"""{_docstring(choice, about, name, details)}"""\n\nfrom __future__ import annotations\n'
    blocks = [head, "\n".join(grouped[0]) + "\n", "\n".join(grouped[1]) + "\n", _tables(choice)]
    return "\n".join(blocks) + "\n\n" + "\n\n".join([*(code for _, code in sources), _apply(choice)])


def _import_order(line: str) -> tuple[bool, str]:
    return line.startswith("from"), line


def _docstring(choice: Choice, about: str, name: str, details: Sequence[str]) -> str:
    calls = [f"apply({root.rpartition('.')[2]}, {root!r})" if root else "apply(model)" for root in choice.used_roots]
    lines = [about, "", OWN, "It needs PyTorch alone. Before the first step:", "", f"    from {name} import apply", ""]
    lines += [f"    {call}" for call in calls]
    ends = ["", *details] if details else []
    return "\n".join([*lines, "", "apply(...).remove() undoes it.", *ends, ""])


def _tables(choice: Choice) -> str:
    lines: list[str] = []
    if choice.checkpoints:
        lines += [
            "CHECKPOINTS = {",
            "    # module: (draws random numbers, buffers that it updates, modules of a row)",
        ]
        lines += [
            f"    {path!r}: ({each.random!r}, {each.updated!r}, {each.row!r}),"
            for path, each in choice.checkpoints.items()
        ]
        lines.append("}")
    kept = {path: each.kept for path, each in choice.checkpoints.items() if each.kept}
    if kept:
        lines += ["KEPT = {", "    # module: {(module within, op, how often it ran there before)}"]
        for path, ops in kept.items():
            lines += [f"    {path!r}: {{", *(f"        {op!r}," for op in sorted(ops)), "    },"]
        lines.append("}")
    if choice.moved:
        lines += _pool(choice.moved)
    return "\n".join(lines) + "\n"


def pool_bytes(choice: Choice) -> int:
    """Bytes of the pool that a file keeps in host memory: an odd number, by which the pool is found in a capture."""
    return _starts(choice.moved)[-1] + 1 if choice.moved else 0


def _starts(moved: Sequence[Moved]) -> list[int]:
    """Return where each storage begins in the pool, and its end."""
    starts = [0]
    for each in moved:
        starts.append(starts[-1] + -(-each.nbytes // _ALIGNED) * _ALIGNED)
    return starts


def _pool(moved: Sequence[Moved]) -> list[str]:
    starts = _starts(moved)
    ahead: dict[Saved, list[int]] = {}
    for number, each in enumerate(moved):
        if each.ahead is not None:
            ahead.setdefault(each.ahead, []).append(number)
    lines = [f"POOL_BYTES = {starts[-1] + 1}", "PLACES = (", "    # start and bytes in the pool"]
    lines += [f"    ({start}, {each.nbytes})," for start, each in zip(starts, moved, strict=False)]
    lines += [")", "MOVED = {", "    # (module, number of the tensor that it saves): place"]
    lines += [f"    {key!r}: {number}," for number, each in enumerate(moved) for key in each.saved]
    lines += ["}", "AHEAD = {", "    # saved tensor: places whose transfer back begins when it is used"]
    return [*lines, *(f"    {key!r}: {tuple(places)!r}," for key, places in ahead.items()), "}"]


def _apply(choice: Choice) -> str:
    policies = "policies_of(model, prefix, applied)" if "selective checkpoints" in choice.forms else "{}"
    lines = [
        'def apply(model: torch.nn.Module, prefix: str = "") -> Applied:',
        '    """Change ``model``, in whose place the paths of the tables begin with ``prefix``."""',
        '    prefix = f"{prefix}." if prefix else ""',
        "    applied = Applied()",
    ]
    if choice.checkpoints:
        lines.append(f"    checkpoint_modules(model, prefix, applied, {policies})")
    if choice.moved:
        lines.append("    offload_saved(model, prefix, applied)")
    return "\n".join([*lines, "    return applied", ""])
