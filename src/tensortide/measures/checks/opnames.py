"""Names of ops in assertions. A name that no op has is refused: every step would be free of it."""

from __future__ import annotations

import difflib
import re
from fnmatch import fnmatchcase
from functools import lru_cache

from tensortide.cost import registry

RECOMPUTATION = "recomputation"
OWN = "aten"
"""The namespace of the framework's ops. Another one is a library's, whose ops nobody needs to have priced."""
_WILD = re.compile(r"[*?[]")


def problem_of(pattern: str) -> str:
    """Say why no op can be called like ``pattern``, which may leave out overload and namespace; else empty."""
    names = registry.names()
    known = _called(names)
    namespace, dot, rest = pattern.partition(".")
    if dot and rest and namespace != OWN and not _WILD.search(namespace):
        if namespace not in known or any(name.startswith(f"{namespace}::") for name in names):
            return ""
        return f"there is no namespace {namespace!r} of ops: did you mean {OWN}.{pattern}?"
    name = ".".join(pattern.split(".")[:2])
    if any(fnmatchcase(one, name) for one in known) if _WILD.search(name) else name in known:
        return ""
    near = difflib.get_close_matches(name, [RECOMPUTATION, *sorted(known)], n=1, cutoff=0.6)
    hint = f": did you mean {near[0]}?" if near else "; an op of a library is written NAMESPACE.OP"
    return f"there is no op {pattern!r}{hint}"


@lru_cache(maxsize=1)
def _called(names: tuple[str, ...]) -> frozenset[str]:
    """All that ops with a cost rule may be called: as such, in place and on lists, with and without namespace."""
    found = set[str]()
    for full in names:
        namespace, _, op = full.partition("::")
        for form in (base := op.partition(".")[0], f"{base}_", f"_foreach_{base}", f"_foreach_{base}_"):
            found |= {form, f"{namespace}.{form}"}
    return frozenset(found)
