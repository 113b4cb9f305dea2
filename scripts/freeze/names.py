"""Names of figures: where a key of the program differs from its stable name, what is left out, and what is exempt."""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "python."
"""The beginning of the names of figures of functions: no verb has them."""
NAMES: dict[str, str] = {}
"""Source key to stable name, where they differ: ``verb/section/key`` of a fact or table, ``verb/section/table/column``
of a column, or the beginning of one, which renames what is below it. Whoever renames a key of the program adds a line,
``"plan/answer/peak": "plan/answer/peak_bytes"``, and figures stay comparable."""

MACHINE_KEYS = frozenset(
    {
        # elapsed time
        "cpu_s",
        "search_s",
        "seconds",
        "time_s",  # a limit of a search
        # versions, dates, paths
        "code",
        "file",
        "framework",
        "function",
        "line",
        "python",
        "source",
        "tensortide",
    }
)
"""Keys of facts and columns that depend on the machine, the clock or the sources, but for the ``ANSWERS``."""
ANSWERS = frozenset({"actions[]/line"})
"""Columns of tables that have such a key and yet are answers: what `fit` advises."""

EXEMPT_VERBS = {
    "run": "trains live: times are measured, and evictions follow them",
    "time steady": "measures wall time",
    "time calibrate": "measures wall time",
    "place links": "measures wall time",
    "experiment": "runs other verbs' questions in processes of their own, many of them live",
    "experiment compare": "compares results that are measured",
}
"""Verbs without a line, with the reason."""

EXEMPT_FUNCTIONS = {
    "aot_backend": "a backend of torch.compile: its step runs live, and its plan is that of plan",
    "compile_step": "its step runs live, and its plan is that of plan",
    "record": "records a live run; the Graph is that of capture",
    "budget": "evicts in a live step, by measured times",
    "live": "reads the memory of a live process",
    **dict.fromkeys(
        ("draw", "experiment", "fit", "metrics", "place", "scale", "simulate", "time"), "answers as its verb does"
    ),
    "fits": "answers as fit does",
}
"""Public names without a line, with the reason."""


def stable(source: str, names: Mapping[str, str]) -> str:
    """The stable name of the key ``source``, by its longest beginning that ``names`` has.

    Examples:
        >>> stable("plan/answer/peak", {"plan/answer": "plan/result", "plan": "within"})
        'plan/result/peak'
    """
    parts = source.split("/")
    for length in range(len(parts), 0, -1):
        name = names.get("/".join(parts[:length]))
        if name is not None:
            return "/".join([name, *parts[length:]])
    return source
