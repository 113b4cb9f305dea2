"""Every row of the table of frameworks leads to a complete backend; models find theirs without an import."""

from __future__ import annotations

import importlib
import inspect

import pytest
import torch

from tensortide.errors import MetricError
from tensortide.measures import backend
from tensortide.measures.backend import BACKENDS, Backend, Row, backend_of, backend_of_tensors, leaves, undisturbed


@pytest.mark.parametrize("name", BACKENDS)
def test_rows_are_complete(name: str) -> None:
    row = BACKENDS[name]
    module, _, place = row.place.partition(":")
    made = getattr(importlib.import_module(module), place)
    assert made.name == name
    for member, asked in vars(Backend).items():
        if inspect.isfunction(asked) and not member.startswith("_"):
            has = inspect.signature(getattr(made, member)).parameters
            wanted = dict([*inspect.signature(asked).parameters.items()][1:])
            assert {key: (p.kind, p.default) for key, p in has.items()} == {
                key: (p.kind, p.default) for key, p in wanted.items()
            }


def test_a_framework_that_is_not_loaded_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {**BACKENDS, "other": Row("no_such_framework", "no.such.module:BACKEND")}
    monkeypatch.setattr(backend, "BACKENDS", rows)  # a copy: the order of the rows matters
    assert backend_of(torch.nn.ReLU()).name == "torch"
    with pytest.raises(MetricError, match="no model of torch, keras, tflite, other"):
        backend_of(object())
    del rows["torch"], rows["tflite"]
    with pytest.raises(MetricError, match="none of keras, other is loaded"):
        backend_of_tensors([1.0])


def test_tensors_find_their_backend_in_any_container() -> None:
    value = {"a": [1, (torch.ones(1), "text")]}
    assert backend_of_tensors(value).name == "torch"
    assert len([*leaves(value)]) == 3


def test_random_state_is_restored() -> None:
    before = torch.get_rng_state()
    with undisturbed(None):
        torch.rand(3)
    assert torch.equal(before, torch.get_rng_state())
