"""The wheel: it has every file of the package, and works in a fresh environment, far from a clone."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import tensortide
from tests.conftest import ROOT, in_ci

PACKAGE = ROOT / "src/tensortide"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SMALL = ["--set", "batch=2", "--set", "inputs=8", "--set", "hidden=8", "--set", "layers=2"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by what is installed, else by what pip fetches for it."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(folder), str(ROOT)]
    installed = importlib.util.find_spec("hatchling") is not None
    command += ["--no-build-isolation"] if installed else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode and not installed and not in_ci():
        pytest.skip(f"hatchling is not installed, and cannot be fetched: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


class Environment:
    """An environment with the wheel, which borrows the packages that it needs from the one of the tests."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, with_pip=False)
        self.folder, self.bin = folder, folder / ("Scripts" if os.name == "nt" else "bin")
        python = str(self.bin / "python")
        install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", str(wheel)]
        subprocess.run(install, capture_output=True, timeout=300, check=True)
        site = subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        )
        self.site = Path(site.strip())
        borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (self.site / "borrowed.pth").write_text("\n".join(sorted(borrowed)))  # a path alone: no editable install in it

    def run(self, *command: str, cwd: Path) -> str:
        """Run a program of the environment, and return what it prints."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        program = str(self.bin / command[0])
        done = subprocess.run(
            [program, *command[1:]], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        said = [line for line in done.stderr.splitlines() if not re.match(r"\d+ s: ", line)]  # how far a slow run is
        assert said == []
        return done.stdout


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment") / "venv", wheel)


def test_it_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sorted(names) == sorted(path.relative_to(PACKAGE.parent).as_posix() for path in files)
    for needed in ("py.typed", "run/core/core.cpp", "run/core/note.h", "timing/devices.csv", "reports/page/page.css"):
        assert f"tensortide/{needed}" in names


def test_it_says_what_it_is(environment: Environment) -> None:
    (found,) = importlib.metadata.distributions(name="tensortide", path=[str(environment.site)])
    metadata = found.metadata
    assert metadata["Version"] == tensortide.__version__ == PROJECT["version"]
    assert set(metadata.get_all("Provides-Extra") or ()) == set(PROJECT["optional-dependencies"])
    assert str(metadata.json["description"]).startswith("# tensortide")
    assert "Apache License" in (found.read_text("licenses/LICENSE") or "")


def test_it_works_in_another_folder(environment: Environment, tmp_path: Path) -> None:
    where = environment.run("python", "-c", "import tensortide; print(tensortide.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(environment.site)
    assert environment.run("tensortide", "--version", cwd=tmp_path).strip() == tensortide.__version__
    shown = environment.run("tensortide", "report", "mlp", *SMALL, "--html", "page.html", cwd=tmp_path)
    assert "Peak memory" in shown
    assert (tmp_path / "page.html").stat().st_size > 10_000
    kinds = environment.run("tensortide", "capture", "--kinds", cwd=tmp_path)
    assert "a saved graph (.tide)" in kinds
    assert "a TensorFlow graph" in kinds
    estimated = environment.run("tensortide", "time", "mlp", *SMALL, "--machine", "H100-SXM-80GB", cwd=tmp_path)
    assert "NVIDIA H100" in estimated


def test_pytest_finds_its_plug_in(environment: Environment, tmp_path: Path) -> None:
    assert "@pytest.mark.tensortide(" in environment.run("python", "-m", "pytest", "--markers", cwd=tmp_path)


def test_its_core_can_be_built(environment: Environment, tmp_path: Path) -> None:
    code = "from tensortide.run.core import build; print(build.__file__)"
    folder = Path(environment.run("python", "-c", code, cwd=tmp_path).strip()).parent
    assert folder.is_relative_to(environment.site)
    sources = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".cpp", ".h")}
    ours = PACKAGE / "run/core"
    assert sources == {path.name: path.read_bytes() for path in ours.iterdir() if path.suffix in (".cpp", ".h")} != {}


WITH_CUDA = {"tf-gpu", "all-gpu"}
"""Extras that replace those of the same name by larger packages."""


def test_all_is_every_extra_for_users() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    named = set(everything.removeprefix("tensortide[").removesuffix("]").split(","))
    assert named == set(extras) - {"all", "dev", "tf", *WITH_CUDA}
    assert (extras["tf"], extras["all-gpu"]) == (["tensortide[tensorflow]"], ["tensortide[all,tf-gpu]"])
    assert {line.partition(">=")[0] for line in extras["tf-gpu"]} == {"tensorflow[and-cuda]", "keras"}
