"""Differences between versions of JAX (0.5 to 0.10): names of primitives that moved, where called jaxprs stand among
the parameters, and the few places outside of JAX's public interface that this importer asks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensortide.graph.collectives import COLLECTIVES

RENAMED = {
    "pjit": "jit",
    "core_call": "call",
    "xla_call": "call",
    "checkpoint": "remat2",
    "remat": "remat2",
    "custom_vjp_call_jaxpr": "custom_vjp_call",
    "custom_jvp_call_jaxpr": "custom_jvp_call",
    **{
        former: name
        for row in COLLECTIVES.values()
        for name, *others in (variants.split("/") for variants in row.jax.split())
        for former in others
    },
    "ragged_dot": "ragged_dot_general",
    "conv_general": "conv_general_dilated",
    "add_jaxvals": "add_any",
    "expand_dims": "broadcast_in_dim",
}
"""Present names of primitives by former ones, and of variants that cost the same."""

CALLS = {
    "jit": "jaxpr",
    "call": "call_jaxpr",
    "closed_call": "call_jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
    "custom_partitioning": "call",
    "composite": "jaxpr",
    "eval_jaxpr": "jaxpr",
    "shard_map": "jaxpr",
    "compute_on": "jaxpr",
    "cudnn_fusion": "jaxpr",
    "fused_call": "jaxpr",
    "linear_call": "callee",
    "remat_opt": "fwd_jaxpr",
    "xla_metadata_call": "jaxpr",
}
"""Primitives that run another jaxpr once, on the same operands, and the parameter that holds it."""

_FORMER = ("call_jaxpr", "jaxpr", "fun_jaxpr", "call")
_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::\d+)?(?: \((?P<function>.*)\))?")
_LIBRARIES = ("/site-packages/", "/dist-packages/", "<")
_FRAMES = 200
_HERE = str(Path(__file__).parent)


def primitive_of(equation: Any) -> str:
    """Return the present name of an equation's primitive."""
    name = str(equation.primitive.name)
    return RENAMED.get(name, name)


def called(name: str, parameters: Mapping[str, Any]) -> Any | None:
    """Return the jaxpr that the primitive ``name`` calls once, or None if it is no such call."""
    if name not in CALLS:
        return None
    for key in (CALLS[name], *_FORMER):
        jaxpr = parameters.get(key)
        if hasattr(jaxpr, "eqns") or is_closed(jaxpr):
            return jaxpr
    return None


def is_closed(jaxpr: Any) -> bool:
    """Tell a ClosedJaxpr."""
    return hasattr(jaxpr, "consts") and hasattr(getattr(jaxpr, "jaxpr", None), "eqns")


def opened(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """Return an open jaxpr and the constants of its ``constvars``, none of one that is open already."""
    return (jaxpr.jaxpr, tuple(jaxpr.consts)) if is_closed(jaxpr) else (jaxpr, ())


def name_stack(equation: Any) -> str:
    """Return the name stack of an equation, relative to the jaxpr that it is in."""
    return str(equation.source_info.name_stack)


def user_line(equation: Any) -> tuple[str, int, str] | None:
    """Return file, line and function of the innermost frame outside of installed packages, or None."""
    from jax.extend import source_info_util

    text = source_info_util.summarize(equation.source_info, num_frames=_FRAMES)  # the innermost frame comes last
    frames = [frame for frame in _frames(text) if not frame[0].startswith(_HERE)][::-1]
    mine = (frame for frame in frames if not any(part in frame[0] for part in _LIBRARIES))
    return next(mine, frames[0] if frames else None)


def _frames(text: str) -> Iterator[tuple[str, int, str]]:
    for line in text.splitlines():
        if match := _PLACE.fullmatch(line.strip()):
            yield match["file"], int(match["line"]), match["function"] or ""


def function_of(jaxpr: Any) -> tuple[str, str]:
    """Return the name of the function that a jaxpr was traced from, and its file; empty where JAX does not say."""
    debug = getattr(opened(jaxpr)[0], "debug_info", None)
    text = str(getattr(debug, "func_src_info", None) or "")
    name, _, place = text.partition(" at ")
    return name, place.rpartition(":")[0]


def is_library(file: str) -> bool:
    """Tell a file of an installed package, or none at all."""
    return not file or any(part in file for part in _LIBRARIES)


def axis_sizes(mesh: Any) -> dict[Any, int]:
    """Return the number of devices along every axis of a mesh."""
    return {name: int(size) for name, size in dict(mesh.shape).items()}


def devices_of(shardings: Any) -> int:
    """Return the number of devices that one of ``shardings`` spreads an array over; 1 if none says so."""
    counts = (getattr(sharding, "num_devices", None) for sharding in shardings or ())
    return max((count for count in counts if isinstance(count, int)), default=1)


def silent(effects: Any) -> bool:
    """Return whether an equation with ``effects`` can be left out if nobody reads its results."""
    return all(type(effect).__name__ in ("NamedAxisEffect", "ReadEffect") for effect in effects or ())
