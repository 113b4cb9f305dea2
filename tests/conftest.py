"""What tests share: where the browser and the reference data are, and how hard hypothesis searches."""

from __future__ import annotations

import faulthandler
import gc
import importlib
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import is_hypothesis_test

from tensortide.collector import no_collection
from tensortide.executors.ray_cluster import LOCAL, RayPool
from tests import servers
from tests.cpu_budget import CpuBudget
from tests.reference import reference_folder

ROOT = Path(__file__).resolve().parent.parent

# Tiny tensors are computed by one thread, here and in the processes that tests start: more only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Texts are those of a pipe for which nobody has said how wide it is.
os.environ.pop("COLUMNS", None)

BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

THOROUGH = 100
"""Examples of a property where those are asked for: ``pytest -m property``."""


HANGS_S = 300
"""Seconds after which a test hangs."""
ARMED_AT = pytest.StashKey[float]()
"""When the clock of a test that hangs was set last."""


def in_ci() -> bool:
    """Whether this run is continuous integration, where nothing that is missing may go unnoticed."""
    return os.environ.get("CI", "").lower() in {"1", "true"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of runs that keep to budgets."""
    parser.addoption("--cpu-budget", choices=["fast", "slow"], help="hold CPU seconds against tests/rooms.toml")
    parser.addoption("--cpu-report", metavar="FILE", help="write the CPU seconds of each test")
    parser.addoption("--stop-at", type=float, default=math.inf, metavar="TIME", help="start no test after this time")


def pytest_configure(config: pytest.Config) -> None:
    """Set how hard hypothesis searches. No deadlines: a busy machine is not a bug.

    Signals that whoever started the tests ignores (a shell's background job, nohup) act as usual here and in the
    processes that tests start.
    """
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    examples = THOROUGH if "property" in config.option.markexpr else 30
    hypothesis.settings.register_profile(
        "tests", deadline=None, max_examples=examples, derandomize=in_ci(), print_blob=in_ci()
    )
    hypothesis.settings.load_profile("tests")
    config.pluginmanager.register(CpuBudget(config), CpuBudget.__name__)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while modules of tests are imported: there is hardly any, and it took a fifth of that time."""
    with no_collection():
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that hypothesis runs."""
    for item in items:
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            item.add_marker("property")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Print what all threads do once a test has run for ``HANGS_S``. Setting that clock starts a thread, which takes
    longer than most tests: it is set anew once a minute."""
    now, armed_at = time.monotonic(), item.session.stash.get(ARMED_AT, -math.inf)
    if now > armed_at + 60:
        faulthandler.dump_traceback_later(HANGS_S + 60, file=item.config.stash[fault_handler_stderr_fd_key])
        item.session.stash[ARMED_AT] = now
    return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start no test once the time of this run is used up."""
    if time.time() > item.config.getoption("stop_at"):
        pytest.skip("left to another run: the time of this one is used up")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Hide all that is imported from the garbage collector: every capture runs it, and most of its time went there."""
    if "torch" in sys.modules:
        importlib.import_module("torch._dynamo")  # captures import it
    hide()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Fork what tests fork processes from, while this one has but imported what they need, and no filters of warnings
    that a test has."""
    if session.items and hasattr(os, "fork"):
        servers.start()
    return (yield)


def hide() -> None:
    """Hide all that is resident from the garbage collector."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _hidden() -> None:
    """Hide what tests of other modules imported and cached: after a few modules it is as much again."""
    hide()


def find_chromium() -> Path | None:
    """The first browser on the path that speaks the Chromium protocol."""
    found = (shutil.which(name) for name in BROWSERS)
    return next((Path(path) for path in found if path), None)


@pytest.fixture(scope="session")
def chromium_path() -> Path:
    """A browser to open the report in; without one, a skip, or a failure in continuous integration."""
    path = find_chromium()
    if path is not None:
        return path
    message = f"no browser: none of {', '.join(BROWSERS)} is on the path"
    if in_ci():
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    """A Ray cluster on this machine that the module's tests share, where each would start its own for seconds."""
    pool = RayPool(abs, LOCAL, 2)
    yield
    pool.close()


@pytest.fixture(scope="session")
def reference() -> Path:
    """The published data that answers are checked against."""
    return reference_folder()
