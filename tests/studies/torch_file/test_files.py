"""Written files: a step computes the same with them, bit for bit, in the memory that was said."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from tensortide import plan
from tensortide.errors import PlanError
from tensortide.graph import Graph
from tensortide.graph.module_paths import within
from tensortide.plans import Copy, Fetch, Offload, validate
from tensortide.plans.events import play
from tensortide.plans.instance import instance
from tensortide.plans.remat.schedule import recorded
from tensortide.studies.planning.pins import pinned
from tensortide.studies.torch_file import Asked, Form, TorchFile, make
from tensortide.studies.torch_file.choice import text
from tensortide.studies.torch_file.levels import Levels
from tensortide.timelines import timeline
from tensortide.timing import device, estimate
from tests.marks import some_slow
from tests.studies.torch_file.files import HOST, changed, graph_of, made, run
from tests.studies.torch_file.workloads import WIDTH, Oddities

FIVE: dict[str, tuple[float, dict[str, Any]]] = {
    "gpt2": (0.6, {"batch": 4, "seq": 64, "layers": 4, "hidden": 64, "heads": 4, "vocab": 256, "dropout": 0.1}),
    "resnet": (0.8, {"depth": 18, "batch": 128, "image": 64}),
    "unet": (0.9, {"batch": 4, "height": 96, "width": 96}),
    "lstm": (0.9, {"batch": 64, "seq": 100, "hidden": 64}),
    "bert": (0.7, {"batch": 8, "seq": 64, "layers": 4, "hidden": 96, "heads": 4, "vocab": 1000}),
}
WIDE = ("resnet",)
"""Convolutions for which oneDNN has larger workspaces on CPUs without AVX-512: 18 % of the peak of this step."""
BFLOAT16 = ("mixed_shared",)
"""Products in bfloat16 for which oneDNN has larger workspaces on CPUs with instructions for them: 7 % of the peak."""
ODD = ("oddities", "mixed", "mixed_shared", "two_models")


def assert_runs_as_said(name: str, form: Form, folder: Path, settings: dict[str, Any] | None = None) -> None:
    """In a process of its own, with the file of ``form`` unchanged: the same gradients, parameters, buffers and random
    numbers as without it, in the memory that was said."""
    path = folder / "plan_torch.py"
    path.write_text(text(form.choice, "A file of a test."))
    given = json.dumps(settings or {})
    plain, mine = run(name, given), run(name, given, path)
    assert form.peak_bytes is not None
    narrow = name in WIDE and torch.backends.cpu.get_cpu_capability() != "AVX512"
    own_products = name in BFLOAT16 and "avx512_bf16" in Path("/proc/cpuinfo").read_text()
    if not (narrow or own_products):
        assert mine["peak"] == pytest.approx(form.peak_bytes, rel=0.02)
    assert {key: mine[key] for key in ("gradients", "state", "random")} == {
        key: plain[key] for key in ("gradients", "state", "random")
    }


def repr_of(found: TorchFile) -> str:
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(found)
    return " ".join(out.getvalue().split())


def forms(found: TorchFile) -> dict[str, Form]:
    return {form.name: form for form in found.forms}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["checkpoints", "selective checkpoints", "offload"])
def test_each_form_runs_as_said(form: str, tmp_path: Path) -> None:
    found = forms(made("tower", 0.6, offload=True))[form]
    assert found.fits
    assert_runs_as_said("tower", found, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["checkpoints", "selective checkpoints"])
@pytest.mark.parametrize("name", ODD)
def test_keywords_views_batch_norm_dropout_shared_and_frozen_modules_run_as_said(
    name: str, form: str, tmp_path: Path
) -> None:
    found = forms(made(name, 0.6))[form]
    assert found.fits
    assert_runs_as_said(name, found, tmp_path)


def test_the_best_form_is_the_fastest_that_fits() -> None:
    found = made("tower", 0.6)
    assert found.best is not None
    assert found.best.step_ns == min(form.step_ns or 0 for form in found.forms if form.fits)


def test_a_module_that_runs_several_times_in_a_row_is_checkpointed() -> None:
    found = made("shared", 0.65)
    assert found.best is not None
    assert [*found.best.choice.checkpoints] == ["0"]


def test_autocast_s_casts_of_parameters_are_no_other_computation() -> None:
    found = made("mixed_shared", 0.7, json.dumps({"times": 3}))
    assert found.best is not None
    assert not found.refused


@pytest.mark.slow
def test_a_module_that_runs_several_times_in_a_row_runs_as_said(tmp_path: Path) -> None:
    found = made("shared", 0.65)
    assert found.best is not None
    assert_runs_as_said("shared", found.best, tmp_path)


def test_a_file_of_a_smaller_budget_is_found_for_a_larger_one_though_more_was_predicted() -> None:
    shares = (0.5, 0.6, 0.75)
    found = [made("two_losses", share).best is not None for share in shares]
    assert any(found)
    assert found == sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIVE)
def test_a_file_runs_as_said_on_common_models(name: str, tmp_path: Path) -> None:
    share, settings = FIVE[name]
    found = made(name, share, json.dumps(settings), offload=name in ("lstm", "gpt2"))
    assert found.best is not None, [(form.name, form.peak_bytes, form.reason) for form in found.forms]
    assert_runs_as_said(name, found.best, tmp_path, settings)


@pytest.mark.parametrize("form", ["checkpoints", "selective checkpoints"])
def test_the_plan_of_a_file_is_legal_and_takes_the_time_that_is_said(form: str) -> None:
    graph = graph_of("tower")
    found = forms(made("tower", 0.6))[form]
    assert found.plan is not None
    validate(found.plan, graph)
    problem = instance(graph, "cpu", estimate(graph, device("A100-SXM-80GB")).ns, links=(HOST,))
    played = play(problem, found.plan.lanes[0].steps)
    assert played.makespan_ns == found.step_ns
    assert found.peak_bytes is not None
    assert played.peak_bytes <= found.peak_bytes


def test_no_file_for_a_budget_that_no_form_fits_but_the_least_that_each_takes() -> None:
    found = made("tower", 0.1)
    assert found.best is None
    assert not found.text
    for form in found.forms:
        assert form.peak_bytes is not None
        assert found.budget_bytes < form.peak_bytes < found.recorded_bytes
    assert "No file is written, for none fits" in repr_of(found)
    assert "The least found with checkpoints is" in repr_of(found)
    assert "at least" not in repr_of(found)


def test_a_step_that_fits_needs_no_file() -> None:
    found = made("tower", 1.0)
    assert found.needless
    assert not found.text
    assert "there is nothing to change" in repr_of(found)


@pytest.mark.parametrize(("name", "says"), [("functions", "runs no module"), ("inference", "has no backward pass")])
def test_a_step_that_no_file_can_change_is_refused(name: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        made(name, 0.9)


def test_without_recomputation_a_file_moves_tensors_alone_and_needs_a_link() -> None:
    found = made("tower", 0.8, offload=True, recompute=False)
    assert [form.name for form in found.forms] == ["offload"]
    assert found.best is not None
    assert not found.best.choice.checkpoints
    assert "checkpoint" not in found.text
    with pytest.raises(PlanError, match="needs a link to the host"):
        made("tower", 0.8, recompute=False)


def test_random_ops_that_run_once_are_in_no_checkpoint() -> None:
    found, free = made("tower", 0.6, keep_random=True), made("tower", 0.6)
    assert free.best is not None
    assert any(each.random for form in free.forms for each in form.choice.checkpoints.values())
    assert not any(each.random for form in found.forms for each in form.choice.checkpoints.values())


def test_modules_that_draw_from_a_generator_of_their_own_are_not_checkpointed() -> None:
    found = made("own", 0.7)
    assert [each.path for each in found.refused if "draws from a generator of its own" in each.reason] == [
        "",
        *map(str, range(4)),
    ]
    assert "Not checkpointed: the model: aten.bernoulli_.float draws from a generator" in repr_of(found)


@pytest.mark.parametrize("name", some_slow(["counting", "drawing"], ["counting"]))
def test_modules_that_compute_with_what_python_keeps_are_not_checkpointed(name: str) -> None:
    found = made(name, 0.7, json.dumps({"layers": 2}))
    blocks = {"", *map(str, range(2))}
    assert {each.path for each in found.refused if "another argument when it runs again" in each.reason}
    assert not any(blocks.intersection(form.choice.checkpoints) for form in found.forms)


def test_of_modules_that_fill_a_cache_the_reason_names_the_remedy() -> None:
    found = made("remembering", 0.7)
    assert "aten.cat.default runs in its recomputation alone" in repr_of(found)
    assert "use_cache=False" in repr_of(found)


def test_no_results_are_kept_in_what_torch_compile_has_compiled() -> None:
    found = forms(made("compiled", 0.7))
    assert found["checkpoints"].fits
    assert "torch.compile" in found["selective checkpoints"].reason


@pytest.mark.slow
def test_what_torch_compile_has_compiled_runs_as_said(tmp_path: Path) -> None:
    assert_runs_as_said("compiled", forms(made("compiled", 0.7))["checkpoints"], tmp_path)


@pytest.mark.parametrize("offload", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_is_pinned_is_saved_and_stays(offload: bool) -> None:
    graph, plain = graph_of("tower"), made("tower", 0.6, offload=offload)
    path = min(next(form for form in plain.forms if form.choice.checkpoints).choice.checkpoints)
    stays = frozenset(pinned(graph, [path]))
    found = made("tower", 0.6, offload=offload, pinned=stays)
    assert any(refused.path == path and "pinned" in refused.reason for refused in found.refused)
    assert any(form.plan is not None for form in found.forms)
    for form in found.forms:
        assert not any(within(path, other) for other in form.choice.checkpoints)
        steps = () if form.plan is None else form.plan.lanes[0].steps
        assert not stays.intersection(step.storage for step in steps if isinstance(step, Copy | Offload | Fetch))


def test_the_docstring_names_the_step_its_peak_and_the_budget() -> None:
    found = made("tower", 0.6)
    assert found.best is not None
    said = " ".join((ast.get_docstring(ast.parse(found.text)) or "").split())
    for part in (
        "tower",
        f"{found.best.peak_bytes:,} bytes (",
        "of a budget of",
        "Time of a step",
        "tensortide memory",
    ):
        assert part in said


def test_a_file_that_moves_what_the_plan_moves_is_no_slower_unless_it_says_why() -> None:
    graph = graph_of("tower")
    durations_ns = [100 * ns for ns in estimate(graph, device("A100-SXM-80GB")).ns]
    planned = plan(
        graph,
        int(timeline(graph).peak_bytes * 0.8),
        durations_ns=durations_ns,
        links=(HOST,),
        recompute=False,
        effort=0.005,
    )
    found = make(Asked(recorded(graph, durations_ns), planned, changed("tower"), (HOST,), recompute=False))
    assert found.best is not None
    assert planned.step_ns is not None
    assert (found.best.step_ns or 0) <= planned.base_ns * 1.02
    assert found.best.step_ns == planned.step_ns or "Offload is slower than the plan" in repr_of(found)


def test_a_larger_budget_takes_no_more_time() -> None:
    times = [best.step_ns for share in (0.5, 0.6) if (best := made("tower", share).best) is not None]
    assert len(times) == 2
    assert times == sorted(times, reverse=True)  # type: ignore[type-var]


def test_the_step_as_recorded_has_the_level_of_its_timeline() -> None:
    graph: Graph = graph_of("oddities")
    assert Levels(graph, "cpu", [0] * len(graph)).level([]).max() == timeline(graph).peak_bytes


def test_gradients_are_the_same_with_a_file_and_after_it_is_removed() -> None:
    found = made("oddities", 0.6, json.dumps({"blocks": 2})).best
    assert found is not None
    namespace: dict[str, Any] = {"__name__": "plan_torch"}
    exec(text(found.choice, "A file of a test."), namespace)
    plain, applied, removed = (gradients_of(namespace["apply"], use) for use in ("not at all", "applied", "removed"))
    assert all(torch.equal(one, other) for one, other in zip(plain, applied, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(plain, removed, strict=True))


def gradients_of(apply: Any, use: str) -> list[torch.Tensor]:
    """Gradients and buffers after a step, as a file is used."""
    torch.manual_seed(0)
    model, x = Oddities(2), torch.randn(32, WIDTH)
    if use != "not at all":
        done = apply(model)
        assert any("forward" in vars(module) for module in model.modules())
        if use == "removed":
            done.remove()
            assert not any("forward" in vars(module) for module in model.modules())
    model(x).backward()
    return [*(p.grad for p in model.parameters() if p.grad is not None), *model.buffers()]
