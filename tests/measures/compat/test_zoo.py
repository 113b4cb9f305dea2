"""Scripts written for deeplite-profiler run with their imports changed alone: models and data come from the example."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from tests.run.test_trainer import script

SCRIPT = """
import copy
from deeplite_zoo import get_data_splits_by_name, get_model_by_name
from tensortide.measures.deeplite import ComputeComplexity, ComputeEvalMetric, ComputeExecutionTime
from tensortide.measures.deeplite import Device, TorchProfiler, get_accuracy

loaders = get_data_splits_by_name(data_root="", dataset_name="cifar100", model_name="resnet18", samples=8)
net = get_model_by_name(model_name="resnet18", dataset_name="cifar100", pretrained=True, progress=True)
one = TorchProfiler(net, TorchProfiler.enable_forward_pass_data_splits(loaders), name="Original Model")
evaluation = ComputeEvalMetric(get_accuracy, "accuracy", unit_name="%")
for function in (ComputeComplexity(), ComputeExecutionTime(), evaluation):
    one.register_profiler_function(function)
options = dict(batch_size=1, device=Device.CPU, short_print=False, print_mode="info")
one.compute_network_status(include_weights=True, **options)
other = one.clone(model=copy.deepcopy(net))
other.name = "Clone Model"
other.compare(one, **options)
"""


@pytest.mark.slow
def test_a_script_with_models_and_data_by_name_runs(tmp_path: Path) -> None:
    (tmp_path / "deeplite_zoo.py").write_text((ROOT / "examples" / "deeplite_zoo.py").read_text())
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    rows = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in done.stdout.splitlines() if "|" in line}
    assert [cell.strip() for cell in rows["Memory Footprint (MB)"]] == ["1.00x", "48.4389", "48.4389"]
    assert "Param Name (Original Model)" in rows
    assert [cell.strip() for cell in rows["Param Name"]] == [
        "Enhancement",
        "Value (Clone Model)",
        "Value (Original Model)",
    ]


def test_models_and_data_fit_each_other() -> None:
    zoo = script("deeplite_zoo")
    for name, images in zoo.DATASETS.items():
        data = zoo.get_data_splits_by_name("", name, "resnet18", batch_size=2, samples=3)
        assert {*data} == {"train", "test"}
        x, y = next(iter(data["test"]))
        assert tuple(x.shape) == (2, *images.shape)
        assert int(y.max()) < images.classes
        if images.shape[1] < 64:
            with torch.device("meta"):
                model = zoo.get_model_by_name("resnet18", name, pretrained=True)
                assert tuple(model(x.to("meta")).shape) == (2, images.classes)


def test_unknown_names_are_one_line() -> None:
    zoo = script("deeplite_zoo")
    with pytest.raises(SystemExit, match="there is no data set 'svhn'; there are cifar10, cifar100, mnist, imagenet"):
        zoo.get_data_splits_by_name("", "svhn")
    if zoo.torchvision is None:
        with pytest.raises(SystemExit, match="'vgg16' for 'cifar100' comes from torchvision: pip install torchvision"):
            zoo.get_model_by_name("vgg16", "cifar100")
