"""The configuration file of the tensor liveness tool."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given

from tensortide.errors import TraceError
from tensortide.importers.door import open
from tensortide.importers.g10.export import write_liveness_files
from tensortide.importers.g10.importer import LivenessConfig, read_config
from tensortide.timing.durations import Times
from tests.importers.inductor.dumps import BACKWARD, FORWARD, WEIGHT
from tests.importers.mutations import damaged
from tests.importers.refusal import refused_in_one_line

CONFIG = """\
# a training step
output_folder           results/Net/pytorch2   # where results go
is_pytorch              1
is_profiling            0

nn_model_input_forward  graphs/forward.py
nn_model_input_backward graphs/backward.py
nn_model_input_weight\tgraphs/weight.py
GPU_memory_size_GB      16
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "graphs").mkdir()
    for name, text in {"forward": FORWARD, "backward": BACKWARD, "weight": WEIGHT}.items():
        (tmp_path / "graphs" / f"{name}.py").write_text(text)
    (tmp_path / "net.config").write_text(CONFIG)
    return tmp_path


def test_what_it_says(project: Path) -> None:
    config = read_config(project / "net.config")
    assert config == LivenessConfig(
        path=project / "net.config",
        output_folder=project / "results/Net/pytorch2",
        forward=project / "graphs/forward.py",
        backward=project / "graphs/backward.py",
        weight=project / "graphs/weight.py",
        profile=False,
        device_memory_bytes=16 << 30,
    )


def test_defaults(project: Path) -> None:
    (project / "net.config").write_text("output_folder out\nnn_model_input_forward graphs/forward.py\n")
    config = read_config(project / "net.config")
    assert (config.backward, config.weight, config.profile, config.device_memory_bytes) == (None, None, True, 40 << 30)


def test_paths_from_the_working_directory(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = project / "configs"
    elsewhere.mkdir()
    (elsewhere / "net.config").write_text(CONFIG)
    with pytest.raises(TraceError, match=r"line 6: there is no file .*configs/graphs/forward"):
        read_config(elsewhere / "net.config")
    monkeypatch.chdir(project)
    config = read_config("configs/net.config")
    assert config.forward == project / "graphs/forward.py"
    assert config.output_folder == elsewhere / "results/Net/pytorch2", "nothing is there yet: the file's folder"


def test_it_is_a_target_and_names_the_folder_of_results(project: Path) -> None:
    step = open(project / "net.config")
    assert len(step.graph) == 19
    (project / "results").mkdir()
    times = Times((1000,) * len(step.graph))
    files = write_liveness_files(step, read_config(project / "net.config").output_folder, times=times)
    folder = project / "results" / "Net"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        "pytorch2/statistics/kernels.config",
        "pytorch2/statistics/liveness_analysis.config",
        "pytorch2/statistics/tensors.config",
        "pytorch2_NNMemConsumptionLog.py",
        "pytorch2_TensorPeriodLog.py",
    ]
    assert set(files) == {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("is_tensorflow 1", "line 10: unknown key is_tensorflow (known: output_folder, nn_model_input_forward, "),
        ("is_pytorch 1", "line 10: is_pytorch is given twice, first in line 3: 'is_pytorch 1'"),
        ("", None),
    ],
)
def test_lines_that_are_refused(project: Path, line: str, said: str | None) -> None:
    (project / "net.config").write_text(CONFIG + line + "\n")
    if said is None:
        read_config(project / "net.config")
        return
    with pytest.raises(TraceError) as caught:
        read_config(project / "net.config")
    assert f"net.config, {said}" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("is_pytorch              1", "is_pytorch 0", "line 3: expected is_pytorch 1: 'is_pytorch 0'"),
        ("is_profiling            0", "is_profiling yes", "line 4: expected is_profiling 0 or 1: 'is_profiling yes'"),
        ("is_profiling            0", "is_profiling", "line 4: expected a value after is_profiling"),
        (
            "GPU_memory_size_GB      16",
            "GPU_memory_size_GB x",
            "line 9: expected GPU_memory_size_GB and a number above 0",
        ),
        ("GPU_memory_size_GB      16", "GPU_memory_size_GB nan", "line 9: expected GPU_memory_size_GB and a number"),
        ("output_folder           results", "#", "net.config: output_folder is missing"),
        ("graphs/backward.py", "graphs/other.py", "line 7: there is no file "),
        ("graphs/backward.py", "a" * 5000, "line 7: no file can have this name (File name too long): 'nn_model"),
        ("results/Net/pytorch2", "a" * 5000, "line 2: no file can have this name (File name too long): 'output"),
        ("results/Net/pytorch2", "a\0b", "line 2: no file can have this name (a zero byte): 'output"),
        ("results/Net/pytorch2", "~no-such-user/a", "line 2: no file can have this name (Could not determine home"),
    ],
)
def test_values_that_are_refused(project: Path, old: str, new: str, said: str) -> None:
    assert old in CONFIG
    (project / "net.config").write_text(CONFIG.replace(old, new))
    with pytest.raises(TraceError) as caught:
        read_config(project / "net.config")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@given(damaged(CONFIG))
def test_a_damaged_configuration_is_refused_with_one_line_or_still_valid(changed: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("forward", "backward", "weight"):
            path = Path(folder) / "graphs" / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.touch()
        path = Path(folder) / "net.config"
        path.write_bytes(changed.encode(errors="replace"))
        with refused_in_one_line(str(path)):
            read_config(path)
