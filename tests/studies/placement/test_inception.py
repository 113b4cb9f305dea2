"""Inception v3 of the experiments: layers and modules correspond, with the published parameters and products."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tensortide.examples.inception import InceptionV3
from tensortide.placements import read_net
from tensortide.profile.net_benchmark import batch_ms, check_trains
from tests.conftest import ROOT

NET = ROOT / "examples" / "placement" / "nets" / "inception_v3.json"
PARAMETERS = 23_834_568
"""Weights of the published network without auxiliary classifier, batch normalisations included (torchvision)."""


def test_every_layer_is_the_module_of_its_name() -> None:
    net = read_net(NET)
    with torch.device("meta"):
        model = InceptionV3(1000, aux=False, width=32, dropout=0.5).eval()
        images = torch.empty(2, 3, 299, 299)
    shapes: dict[str, tuple[int, ...]] = {}
    modules = dict(model.named_modules())
    for path, module in modules.items():

        def seen(of: nn.Module, inputs: tuple[Tensor, ...], output: Tensor, path: str = path) -> None:
            shapes[path] = tuple(output.movedim(1, -1).shape)

        module.register_forward_hook(seen)
    with FlopCounterMode(display=False) as counted:
        model(images)
    layers = [layer for layer in net.layers(2) if layer.name not in ("data", "softmax")]
    assert {layer.name: tuple(layer.output) for layer in layers} == {layer.name: shapes[layer.name] for layer in layers}
    products, weights = 0, 0
    for layer in layers:
        convolution = modules.get(f"{layer.name}.0")
        if layer.kind == "Convolution":
            assert isinstance(convolution, nn.Conv2d)
            biases = layer.output[-1]
            assert layer.params == convolution.weight.numel() + biases
            products += math.prod(layer.output[1:3]) * convolution.weight.numel()
            weights += convolution.weight.numel() + 2 * biases  # the normalisation, in place of the bias
        elif layer.kind == "InnerProduct":
            products += layer.params - layer.output[-1]
            weights += layer.params
    assert weights == PARAMETERS == sum(one.numel() for one in model.parameters())
    assert counted.get_total_flops() == 2 * 2 * products, "two images, a multiplication and an addition each"
    assert round(products / 1e9, 2) == 5.71


def test_every_layer_can_be_trained() -> None:
    check_trains(read_net(NET))


@pytest.mark.slow
def test_real_batches_are_trained() -> None:
    net = read_net(NET)
    ms = batch_ms(net, dict.fromkeys(net.order, 0), batch=2, batches=1, dropped=0, rate=0.01, names={})
    assert ms is not None
    assert ms > 0
