"""Every verb that runs nothing, on one of every kind of file that is read: a result, or one clear message."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tensortide.cli import main
from tests.importers.files import READ, make
from tests.marks import some_slow

VERBS: dict[str, tuple[str, ...]] = {
    "report": ("report", "{}", "--html", "{}.html"),
    "count": ("count", "{}"),
    "count --json": ("count", "{}", "--json"),
    "memory": ("memory", "{}"),
    "metrics": ("metrics", "{}"),
    "time": ("time", "{}"),
    "draw": ("draw", "{}", "-o", "{}.svg"),
    "memory --against": ("memory", "{}", "--against", "{}"),
    "capture": ("capture", "{}", "-o", "{}.again.tide"),
    "fit": ("fit", "{}", "--memory", "16GiB"),
    "plan": ("plan", "{}", "--budget", "90%", "--time-limit", "1"),
    "plan order": ("plan", "order", "{}", "--time-limit", "1"),
    "remat": ("remat", "{}", "--budget", "90%"),
    "compare": ("compare", "{}", "{}"),
    "place": ("place", "{}", "--machine", "2xa100-sxm-80gb", "--time-limit", "1"),
    "scale": ("scale", "{}", "--devices", "2"),
}
"""By what it is called here: its command line, ``{}`` for the file."""
ANSWERS = {"plan", "fit"}
"""Verbs whose exit status 1 may be an answer: it does not fit."""
TIMES = {"trace", "trace, packed", "JSON lines of times", "list with a header", "list"}
"""Kinds that have times and no step."""
KINDS = [kind for kind in READ if "packed" not in kind]
STEPS = [kind for kind in KINDS if kind not in TIMES]


def _pairs() -> set[tuple[str, str]]:
    """Each kind with a verb, and each verb with a kind that has a step."""
    verbs = list(VERBS)
    of_kinds = {(kind, verbs[i % len(verbs)]) for i, kind in enumerate(KINDS)}
    return of_kinds | {(STEPS[(2 * i + 5) % len(STEPS)], verb) for i, verb in enumerate(verbs)}


ALL = list(product(KINDS, VERBS))


@pytest.mark.parametrize(("kind", "verb"), some_slow(ALL, {*ALL} - _pairs()))
def test_a_verb_answers_or_says_why_not(
    kind: str, verb: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make(kind, tmp_path / "x")
    status = 0
    try:
        main([part.format("./x") for part in VERBS[verb]])
    except SystemExit as end:
        status = int(end.code or 0)
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    if status == 0 or (status in (1, 4) and VERBS[verb][0] in ANSWERS and not err):
        assert out
    else:
        assert err.count("error: ") == 1, err
        assert kind in TIMES or len(err) < 2000
