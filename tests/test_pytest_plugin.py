"""The plug-in of pytest in real sessions: what passes, what fails and how that reads, and what it costs unused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.forked_script import forked

MODELS = """
import unittest

import pytest
import torch
from torch import nn


def layers(width, middle=8):
    return nn.Sequential(nn.Linear(width, middle), nn.ReLU(), nn.Linear(middle, 1))


@pytest.fixture
def model():
    return nn.Linear(4, 4)


@pytest.mark.tensortide("no recomputation", peak="2GiB", coverage="100%")
@pytest.mark.parametrize("width", [8, 1 << 30])
def test_step(width):
    made = layers(width)
    return lambda: made(torch.ones(1, width)).sum().backward()


@pytest.mark.tensortide(parameters="== 20", peak=1 << 20)
def test_workload_of_a_fixture(model):
    def workload(batch=2):
        return lambda: model(torch.ones(batch, 4)).sum().backward()
    return workload


@pytest.mark.tensortide("peak <= 24GiB on cpu", "time(h100-sxm) <= 1 s", peak="24GiB on cuda")
def test_other_device():
    made = layers(8)
    return lambda: made(torch.ones(1, 8)).sum().backward()


def test_fixture(tensortide, model):
    graph = tensortide.capture(model, torch.ones(2, 4))
    assert tensortide.check(graph, coverage="100%").holds
    tensortide.check(model, "no recomputation", inputs=torch.ones(2, 4), parameters="== 20")
    assert model(torch.ones(2, 4)).shape == (2, 4)


@pytest.mark.tensortide(parameters="== 20")
class TestClass:
    def test_inherits(self, model):
        return lambda: model(torch.ones(2, 4)).sum().backward()

    @pytest.mark.tensortide(parameters="== 145", peak="1MiB")
    def test_overrides(self):
        made = layers(16)
        return lambda: made(torch.ones(1, 16)).sum().backward()

    def test_goes_with_the_fixture(self, tensortide, model):
        tensortide.check(lambda: model(torch.ones(2, 4)).sum().backward(), "no recomputation")

    def test_fails_by_the_fixture(self, tensortide):
        made = layers(16)
        tensortide.check(lambda: made(torch.ones(1, 16)).sum().backward(), "no recomputation")


@pytest.mark.tensortide(peak="1MiB")
class TestWrong:
    def test_nothing_checked(self, tensortide):
        pass

    def test_nothing_returned(self):
        pass

    @pytest.mark.tensortide(peek="1MiB")
    def test_no_metric(self):
        return lambda: torch.ones(3)

    @pytest.mark.tensortide(flops="baseline")
    def test_no_baseline(self):
        return lambda: torch.ones(3) + 1

    def test_does_not_run(self):
        made = nn.Linear(4, 3)
        return lambda: made(torch.ones(2, 5))

    def test_asserts(self):
        assert 1 == 2

    def test_skips(self):
        pytest.skip("not today")

    async def test_coroutine(self):
        return lambda: torch.ones(3) + 1


class TestUnit(unittest.TestCase):
    @pytest.mark.tensortide(peak="1B")
    def test_unit(self):
        pass


@pytest.mark.tensortide(peak="1MiB")
@pytest.mark.xfail(strict=True)
def test_is_expected_to_fail():
    made = layers(1 << 20)
    return lambda: made(torch.ones(1, 1 << 20)).sum().backward()
"""

STALE = """
import pytest
import torch


@pytest.mark.tensortide(peak="1GiB")
def test_limit():
    return lambda: torch.ones(3) + 1
"""

BASELINES = """
import pytest
import torch
from torch import nn


@pytest.mark.tensortide(parameters="baseline", flops="+1% of baseline")
@pytest.mark.parametrize("width", [8, 16])
def test_step(width):
    made = nn.Sequential(nn.Linear(width, MIDDLE), nn.ReLU(), nn.Linear(MIDDLE, 1))
    return lambda: made(torch.ones(1, width)).sum().backward()


class TestClass:
    def test_several(self, tensortide):
        made = nn.Linear(8, 8)
        for name, batch in (("small", 1), ("large", 8)):
            tensortide.check(lambda: made(torch.ones(batch, 8)), flops="baseline", name=name)
        tensortide.check(lambda: made(torch.ones(1, 8)), flops="baseline", baseline="kept/own.json")


@pytest.mark.tensortide(peak="1GiB")
def test_without_a_baseline():
    return lambda: torch.ones(3) + 1
"""


IN_A_FORK = """
import os, sys
import pytest

if __name__ == "__main__":
    source, folder = sys.argv[1:3]
    os.environ.update(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", OMP_NUM_THREADS="1", COLUMNS="120")
    os.environ["PYTHONPATH"] = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    os.chdir(folder)
    sys.modules.pop("tensortide.pytest_plugin", None)  # pytest warns of a plug-in that was imported before
    raise SystemExit(int(pytest.main(sys.argv[3:])))
"""


def session(folder: Path, *options: str, plugins: tuple[str, ...] = ("tensortide.pytest_plugin",)) -> tuple[int, str]:
    """Run pytest in a process of its own, which has PyTorch imported; its exit code and output."""
    loaded = [part for name in plugins for part in ("-p", name)]
    arguments = ["--strict-markers", "-W", "error", "-p", "no:cacheprovider", *loaded, *options]
    with tempfile.TemporaryDirectory() as apart:
        script = Path(apart, "session.py")
        script.write_text(IN_A_FORK)
        done = forked(script, str(ROOT / "src"), str(folder), *arguments, timeout_s=300)
    assert "INTERNALERROR" not in done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


def outcomes(output: str) -> dict[str, str]:
    """Outcome of each test by its name, of ``-rA`` or ``-v``."""
    found = re.findall(r"^(?:\[gw\d\] .*?)?(PASSED|FAILED|SKIPPED|XFAIL|ERROR) \S+?::(\S+)", output, re.MULTILINE)
    return {name: outcome for outcome, name in found}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str]:
    folder = tmp_path_factory.mktemp("models")
    (folder / "test_models.py").write_text(MODELS)
    (folder / "test_stale.py").write_text(STALE)
    (folder / "baselines").mkdir()
    (folder / "baselines/test_stale.test_limit.json").write_text("of another time")
    return session(folder, "-rA")


def failure(output: str, name: str) -> str:
    """What a session says of a test that failed."""
    found = re.search(rf"^_+ {re.escape(name)} _+\n(.*?)(?=^[_=]{{5}})", output, re.MULTILINE | re.DOTALL)
    assert found is not None, output
    return found[1]


def test_steps_are_checked_on_fake_tensors(models: tuple[int, str]) -> None:
    code, output = models
    found = outcomes(output)
    assert code == 1
    passed = {
        *("test_step[8]", "test_workload_of_a_fixture", "test_other_device", "test_fixture"),
        *("TestClass::test_inherits", "TestClass::test_overrides", "TestClass::test_goes_with_the_fixture"),
        "test_limit",
    }
    assert {name for name, outcome in found.items() if outcome == "PASSED"} == passed, output
    assert found["test_is_expected_to_fail"] == "XFAIL"
    assert "1 skipped" in output
    assert "warning" not in output.lower()


def test_a_failure_is_the_table_and_no_frames(models: tuple[int, str]) -> None:
    text = failure(models[1], "test_step[1073741824]")  # of weights alone 32 GiB
    assert text.startswith("peak <= 2GiB: 100.0 GiB, 98.00 GiB above the limit\n")
    assert re.search(r"^peak <= 2GiB +cpu +100.0 GiB +<= 2.00 GiB +\S+x the limit +FAILS$", text, re.MULTILINE)
    assert re.search(r"^no recomputation .* holds$", text, re.MULTILINE)
    for part in ("pytest_plugin", "Traceback", "site-packages", "checking.py", "def "):
        assert part not in text
    assert "parameters == 20: 145, 125 above the limit" in failure(models[1], "TestClass.test_fails_by_the_fixture")
    assert "FAILED test_models.py::test_step[1073741824] - Failed: peak <= 2GiB: " in models[1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing_checked", "marked tensortide, and checks nothing: call tensortide.check(step), or return the step"),
        ("nothing_returned", "test_nothing_returned is marked tensortide and returned nothing: return a step"),
        ("no_metric", "column 1 of 'peek': there is no metric 'peek': did you mean peak?"),
        ("no_baseline", "with --accept (of pytest: --tensortide-accept)"),
        ("does_not_run", "::TestWrong::test_does_not_run raised RuntimeError: "),
        ("asserts", "AssertionError: assert 1 == 2"),
    ],
)
def test_what_cannot_be_checked_fails_in_a_line(models: tuple[int, str], name: str, words: str) -> None:
    text = failure(models[1], f"TestWrong.test_{name}")
    assert words in text
    assert len(text.splitlines()) <= 4
    assert "pytest_plugin" not in text


def test_a_marked_test_that_returns_nothing_to_check_is_no_pass(models: tuple[int, str]) -> None:
    assert "take the fixture tensortide" in models[1].split("test_coroutine _")[1].partition("\n__")[0]
    assert "make it a function" in models[1].split("TestUnit.test_unit _")[1].partition("\n__")[0]


def test_a_file_beside_a_test_with_limits_alone_is_not_read(models: tuple[int, str]) -> None:
    assert outcomes(models[1])["test_limit"] == "PASSED"


def written(folder: Path, middle: int) -> None:
    (folder / "test_kept.py").write_text(BASELINES.replace("MIDDLE", str(middle)))


@pytest.mark.slow
def test_baselines_are_accepted_on_purpose_and_failures_name_the_modules_that_grew(tmp_path: Path) -> None:
    written(tmp_path, 8)
    code, output = session(tmp_path, "--tensortide-accept", "-q")
    assert code == 0, output
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json")}
    expected = {"test_kept.test_step-8", "test_kept.test_step-16"}
    expected |= {f"test_kept.TestClass.test_several.{name}" for name in ("small", "large")}
    assert names == {*(f"baselines/{name}.json" for name in expected), "kept/own.json"}
    assert all(name in output for name in names)
    before = {path: path.read_text() for path in tmp_path.rglob("*.json")}
    assert '"width": 16' in before[tmp_path / "baselines/test_kept.test_step-16.json"]
    written(tmp_path, 16)
    code, output = session(tmp_path, "-rA")
    assert code == 1
    failed = {name for name, outcome in outcomes(output).items() if outcome == "FAILED"}
    assert failed == {"test_step[8]", "test_step[16]"}
    text = failure(output, "test_step[8]")
    assert "parameters <= baseline: 161, 80 above the limit" in text
    assert re.search(r"^0 +72 +144 +\+72$", text, re.MULTILINE)
    assert {path: path.read_text() for path in before} == before


ALIKE = """
import pytest
import torch


@pytest.mark.tensortide(bytes="baseline")
@pytest.mark.parametrize("name", ["x/y", "x y", "x-y", "..", "-", "x", "x-"])
def test_alike(name):
    return lambda: torch.ones(3 + len(name)) + 1


class TestAlike:
    @pytest.mark.tensortide(bytes="baseline")
    def test_alike(self):
        return lambda: torch.ones(3) + 1


@pytest.mark.tensortide(bytes="baseline")
def test_alike_():
    return lambda: torch.ones(3) + 1
"""


@pytest.mark.slow
def test_every_test_has_a_baseline_of_its_own_whatever_its_parameters(tmp_path: Path) -> None:
    (tmp_path / "test_alike.py").write_text(ALIKE)
    code, output = session(tmp_path, "--tensortide-accept", "-q")
    assert code == 0, output
    kept = {json.loads(path.read_text())["of"]["workload"]: path.name for path in tmp_path.rglob("*.json")}
    names = [f"test_alike[{name}]" for name in ("x/y", "x y", "x-y", "..", "-", "x", "x-")]
    assert {*kept} == {f"test_alike.py::{name}" for name in (*names, "TestAlike::test_alike", "test_alike_")}
    assert kept["test_alike.py::test_alike[x-y]"] == "test_alike.test_alike-x-y.json"
    assert len({*kept.values()}) == len(kept)
    assert session(tmp_path, "-q")[0] == 0


@pytest.mark.slow
def test_workers_of_xdist_check_and_accept(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    written(tmp_path, 8)
    both = ("tensortide.pytest_plugin", "xdist.plugin")
    code, output = session(tmp_path, "-n", "2", "--tensortide-accept", plugins=both)
    assert code == 0, output
    assert "baselines/test_kept.test_step-16.json" in output
    assert len(list(tmp_path.rglob("*.json"))) == 5
    written(tmp_path, 16)
    code, output = session(tmp_path, "-n", "1", plugins=both)
    assert code == 1
    assert "parameters <= baseline: 161, 80 above the limit" in output


def test_the_marker_is_registered_and_the_option_is_in_the_help(tmp_path: Path) -> None:
    assert "@pytest.mark.tensortide(*assertions, baseline=FILE" in session(tmp_path, "--markers")[1]
    code, output = session(tmp_path, "--help")
    assert code == 0
    assert "--tensortide-accept" in output


UNUSED = """
import sys, time
import pytest
began = time.process_time()
import tensortide.pytest_plugin
spent = time.process_time() - began
heavy = {"torch", "numpy", "msgspec", "rich", "tensortide.graph", "tensortide.measures"} & set(sys.modules)
print(spent, sorted(heavy))
"""


def test_installed_and_unused_it_imports_nothing_heavy_and_takes_little_time(tmp_path: Path) -> None:
    """It costs a session what importing it does: its hooks look for a marker, and at options."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    spent = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", UNUSED], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        seconds, _, heavy = done.stdout.strip().partition(" ")
        assert heavy == "[]"
        spent.append(float(seconds))
    assert min(spent) < 0.2
    (tmp_path / "conftest.py").write_text(
        "import sys\ndef pytest_unconfigure():\n    print('LOADED', {'torch', 'numpy'} & set(sys.modules))\n"
    )
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "tensortide.pytest_plugin", "-p", "no:cacheprovider", "-q", "-s"]
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "LOADED set()" in done.stdout
