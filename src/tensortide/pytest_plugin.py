"""Plug-in of pytest: the marker and the fixture ``tensortide`` check what a step costs, on fake tensors.

    @pytest.mark.tensortide("no recomputation", peak="2GiB", flops="+1% of baseline")
    def test_step_fits():
        model = Model()
        return lambda: model(torch.randn(8, 32)).sum().backward()

    def test_variants(tensortide):
        tensortide.check(step, peak="2GiB")

Importing it imports neither PyTorch nor NumPy: a check does.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import unittest
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.measures.checks.checking import Checked

MARK = "tensortide"
BASELINES = "baselines"
"""Folder beside a test file for the baselines of its tests."""
_PLAIN = (str, int, float, bool)
_ACCEPTED = "tensortide accepted"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--tensortide-accept``."""
    group = parser.getgroup("tensortide", "cost of training steps")
    group.addoption(
        "--tensortide-accept",
        action="store_true",
        help="accept what steps cost now: write the baselines of the tests that run",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "tensortide(*assertions, baseline=FILE, device=..., machine=..., METRIC=LIMIT): check what the step costs that "
        'the test returns, or hands to the fixture tensortide; as tensortide(peak="2GiB", flops="+1% of baseline")',
    )


class Checks:
    """The fixture ``tensortide``: checks of steps in a test. Assertions of the test's marker go with each."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._made: list[str] = []

    def capture(self, target: Any, *args: Any, **options: Any) -> Graph:
        """Capture a step as ``tensortide.capture`` does; a failure of it fails the test."""
        from tensortide import capture

        graph: Graph = _without_frames(functools.partial(capture, target, *args, **options))
        return graph

    def check(self, what: Any, assertions: Sequence[str] | str = (), *, name: str = "", **given: Any) -> Checked:
        """Check a step, a model or a workload as ``tensortide.check`` does; what is no pass fails the test.

        ``name`` tells several checks of a test with baselines apart (default: their number).
        """
        own = [assertions] if isinstance(assertions, str) else [*assertions]
        marked, limits = _marked(self._item)
        return self._check(what, [*marked, *own], {**limits, **given}, name)

    def _check(self, what: Any, assertions: Sequence[str], given: Mapping[str, Any], name: str) -> Checked:
        from tensortide import check

        options = dict(given)
        relative, own = _is_relative(assertions, options), options.get("baseline")
        options["baseline"] = self._baseline(own, name) if relative or own is not None else None
        options["accept"] = relative and self._item.config.getoption("--tensortide-accept")
        found: Checked = _without_frames(functools.partial(check, what, assertions, name=self._title(name), **options))
        self._made.append(name)
        if found.accepted is not None:
            self._item.user_properties.append((_ACCEPTED, _shown_path(found.accepted.path, self._item)))
        if not found.holds:
            pytest.fail(_text(found), pytrace=False)
        return found

    @property
    def used(self) -> bool:
        """True if a check was made."""
        return bool(self._made)

    def _title(self, name: str) -> str:
        return f"{self._item.name}: {name}" if name else self._item.name

    def _baseline(self, given: Any, name: str) -> Path:
        """The file of a baseline: relative to the test file, or named after the test."""
        folder: Path = self._item.path.parent
        if given is not None:
            return Path(folder, given)
        classes = [node.name for node in self._item.listchain() if isinstance(node, pytest.Class)]
        number = str(len(self._made) + 1) if self._made else ""
        test, bracket, parameters = self._item.name.partition("[")
        own = f"{test}-{parameters.removesuffix(']')}" if bracket else test
        parts = [self._item.path.stem, *classes, own, name or number]
        return folder / BASELINES / f"{'.'.join(_as_file(part) for part in parts if part)}.json"


@pytest.fixture(name="tensortide")
def tensortide_fixture(request: pytest.FixtureRequest) -> Checks:
    """Check what a step costs inside a test: ``tensortide.check(step, peak="2GiB")``."""
    return _checks(request.node)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a marked test whose result nobody gets, instead of checking nothing."""
    if item.get_closest_marker(MARK) is None:
        return
    if issubclass(getattr(item, "cls", None) or object, unittest.TestCase):
        pytest.fail("marked tensortide in a unittest.TestCase, which has no result to check: make it a function", False)
    if inspect.iscoroutinefunction(getattr(item, "obj", None)) and MARK not in getattr(item, "fixturenames", ()):
        pytest.fail("marked tensortide and a coroutine: take the fixture tensortide, and call its check", False)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Check the step that a marked test returns. The test itself runs on fake tensors, unless it takes the fixture."""
    if pyfuncitem.get_closest_marker(MARK) is None or inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names if name in pyfuncitem.funcargs}
    checks = _checks(pyfuncitem)
    assertions, given = _marked(pyfuncitem)
    if MARK in pyfuncitem.fixturenames:
        what = pyfuncitem.obj(**arguments)
        if what is not None:
            checks._check(what, assertions, given, "")
        elif not checks.used:
            text = "marked tensortide, and checks nothing: call tensortide.check(step), or return the step"
            pytest.fail(text, pytrace=False)
        return True
    settings = {**_hyperparameters(pyfuncitem, arguments), **given.pop("hyperparameters", {})}
    workload = _workload(pyfuncitem, arguments, settings)
    checks._check(workload, assertions, {**given, "hyperparameters": settings}, "")
    return True


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the baselines that were accepted."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    paths = [path for one in reports for key, path in getattr(one, "user_properties", ()) if key == _ACCEPTED]
    if paths:
        terminalreporter.section("tensortide: accepted baselines")
        for path in sorted(set(paths)):
            terminalreporter.line(path)


def _checks(item: pytest.Item) -> Checks:
    """The checks of a test, one object per test."""
    found: Checks | None = getattr(item, "_tensortide", None)
    if found is None:
        found = Checks(item)
        item._tensortide = found  # type: ignore[attr-defined]  # ours
    return found


def _as_file(part: str) -> str:
    """A part of a file's name; where characters are replaced a digest tells it from others."""
    written = re.sub(r"[^\w-]+", "-", part)
    return written if written == part else f"{written.strip('-')}-{hashlib.sha256(part.encode()).hexdigest()[:8]}"


def _marked(item: pytest.Item) -> tuple[list[str], dict[str, Any]]:
    """Assertions and keywords of all markers of a test: those of a class first, those of the test win."""
    assertions: list[str] = []
    given: dict[str, Any] = {}
    for marker in reversed([*item.iter_markers(MARK)]):
        assertions += marker.args
        given |= marker.kwargs
    return assertions, given


def _is_relative(assertions: Sequence[str], given: Mapping[str, Any]) -> bool:
    """Return whether an assertion compares with a baseline. What cannot be read is left to the check to refuse."""
    from tensortide.errors import CheckError
    from tensortide.measures.checks.assertions import bounded, parse
    from tensortide.measures.checks.checking import check, compares
    from tensortide.measures.registry import default_registry

    registry, options = default_registry(), inspect.signature(check).parameters
    limits = {name: text for name, text in given.items() if name not in options}
    try:
        texts = [*assertions, *(bounded(name, text, registry) for name, text in limits.items())]
        found = [parse(text, registry) for text in texts]
    except CheckError:
        return False
    return compares(found)


def _workload(item: pytest.Function, arguments: Mapping[str, Any], settings: Mapping[str, Any]) -> Callable[..., Any]:
    """The test as a workload, with these ``settings`` for hyperparameters."""
    test, name = item.obj, item.name  # a capture visits what the workload refers to: not the item, which leads anywhere

    def workload(**hyperparameters: Any) -> Callable[[], Any]:
        return _step(test(**{**arguments, **hyperparameters}), name)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, keyword, default=value) for name, value in settings.items()]
    workload.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # of functions
    file, colons, inside = item.nodeid.partition("::")
    workload.__qualname__ = f"{file.rpartition('/')[2]}{colons}{inside}"
    return workload


def _hyperparameters(item: pytest.Function, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a parametrized test that are plain values."""
    parameters = getattr(item, "callspec", None)
    names = () if parameters is None else parameters.params
    return {name: value for name, value in arguments.items() if name in names and isinstance(value, _PLAIN)}


def _step(made: Any, name: str) -> Callable[[], Any]:
    """The step that a test returned, built where that is a workload."""
    if not callable(made):
        what = "nothing" if made is None else f"a {type(made).__name__}"
        pytest.fail(
            f"{name} is marked tensortide and returned {what}: return a step (a function that runs it), or a workload, "
            "or take the fixture tensortide and call tensortide.check(step)",
            pytrace=False,
        )
    if inspect.isfunction(made) and inspect.signature(made).parameters:
        made = made()
    return made  # type: ignore[no-any-return]  # a function


def _without_frames(act: Callable[[], Any]) -> Any:
    """Call ``act``; an error of tensortide fails the test with its message alone."""
    from tensortide.errors import TensortideError

    try:
        return act()
    except TensortideError as error:
        message = str(error)
    return pytest.fail(message, pytrace=False)


def _text(found: Checked) -> str:
    """Say why a check fails, then its table."""
    import io

    from rich.console import Console

    from tensortide.reports.sections.checks import told

    text = io.StringIO()
    Console(file=text, width=100, no_color=True, highlight=False).print(found.document())
    return f"{told(found.failures[0])}\n\n{text.getvalue().strip()}"


def _shown_path(path: Path, item: pytest.Item) -> str:
    try:
        return str(path.relative_to(item.config.rootpath))
    except ValueError:
        return str(path)
