"""The study: every action is captured, ranked by what it saves for its time, and put together until the step fits."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide import capture
from tensortide.executors import LOCAL, Where
from tensortide.graph import Graph
from tensortide.graph.model import Role
from tensortide.recorder.changes import Accumulated, Autocast, Change, Checkpointed, ChunkedLoss, Fused
from tensortide.reports.blocks import Note
from tensortide.reports.names import op_text
from tensortide.reports.sections.fit import section
from tensortide.studies.fit import Fit, Subject, fit
from tensortide.studies.fit.actions import Action, actions
from tensortide.studies.fit.loop import parts
from tensortide.studies.fit.results import Gain, Outcome
from tensortide.studies.fit.trial import tried
from tensortide.timing.cards import of_bytes
from tensortide.timing.catalogue import device
from tensortide.units import format_bytes

ROW = device("H100-SXM-80GB")
VOCAB = 4000


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.gelu(self.down(F.gelu(self.up(x))))


class Model(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(VOCAB, width), nn.Linear(width, VOCAB)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, ids: Tensor) -> Any:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def language(batch: int = 8, seq: int = 128, width: int = 64, layers: int = 3, train: bool = True) -> Callable[[], Any]:
    net, ids = Model(width, layers), torch.randint(VOCAB, (batch, seq))
    update = torch.optim.AdamW(net.parameters())

    def step() -> None:
        loss = F.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
        if train:
            loss.backward()
            update.step()
            update.zero_grad()

    return step


def fresh(settings: Mapping[str, Any], changes: Sequence[Change], first: bool) -> Graph:
    return capture(language, hyperparameters=settings, changes=changes, first_step=first, machine=ROW.name)


@functools.cache
def _known(settings: tuple[tuple[str, Any], ...], changes: tuple[Change, ...], first: bool) -> Graph:
    return fresh(dict(settings), changes, first)


def again(settings: Mapping[str, Any], changes: Sequence[Change], first: bool) -> Graph:
    """Capture the step so, once: studies and what they are compared with ask for the same."""
    return _known(tuple(sorted(settings.items())), tuple(changes), first)


def subject(limit_bytes: int, **more: Any) -> Subject:
    return Subject("language", again({}, (), False), ROW, of_bytes(limit_bytes), again=again, **more)


@pytest.fixture(scope="module")
def found() -> Fit:
    """A study whose limit needs several actions at once."""
    base = tried(again({}, (), False), ROW)
    return fit(subject(base.reserved_bytes * 4 // 5))


@pytest.mark.slow
def test_each_outcome_is_that_of_a_capture_with_the_action(found: Fit) -> None:
    outcomes = {one.action.key: one for one in found.outcomes}
    blocks = tuple(f"blocks.{i}" for i in range(3))
    changes: dict[str, Sequence[Change]] = {
        "bf16": [Autocast()],
        "checkpoint": [Checkpointed(blocks)],
        "loss": [ChunkedLoss("head.weight")],
    }
    for key, some in changes.items():
        trial = tried(again({}, some, False), ROW)
        gain = outcomes[key].trial
        assert gain is not None
        assert (gain.peak_bytes, gain.reserved_bytes, gain.step_ns) == msgspec.structs.astuple(trial)
        assert gain.saved_bytes == found.base.peak_bytes - trial.peak_bytes
        assert gain.lost_ns == ns(trial.step_ns) - ns(found.base.step_ns)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.8, 0.3])
def test_actions_are_ranked_by_whether_they_make_it_fit_and_then_by_bytes_for_each_nanosecond(share: float) -> None:
    base = tried(again({}, (), False), ROW)
    study = fit(subject(int(base.reserved_bytes * share)))
    chosen = study.worthwhile
    assert len(study.recommended) <= 5
    assert study.recommended == chosen[:5]
    enough = [one for one in chosen if one.trial and one.trial.reserved_bytes <= study.subject.limit_bytes]
    rest = [one for one in chosen if one not in enough]
    assert chosen == (*enough, *rest)
    for some in (enough, rest):
        gains = [one.trial for one in some if one.trial is not None]
        free = [one for one in gains if ns(one.lost_ns) <= 0]
        won = [one.saved_bytes * (1 - ns(one.lost_ns) / ns(study.base.step_ns)) for one in free]
        paid = [one for one in gains if ns(one.lost_ns) > 0]
        assert gains == [*free, *paid]
        assert won == sorted(won, reverse=True)
        assert paid == sorted(paid, key=lambda one: -one.saved_bytes / ns(one.lost_ns))
    assert all(one.line for one in chosen)


def ns(of: int | None) -> int:
    """A time, which is known."""
    assert of is not None
    return of


def half(machine: str) -> Action:
    graph = again({}, (), False)
    found = next(actions(Subject("language", graph, device(machine))))
    assert isinstance(found, Action)
    return found


def test_half_precision_is_one_that_the_gpu_computes_in() -> None:
    for machine, key, change in (
        ("H100-SXM-80GB", "bf16", Autocast()),
        ("V100-SXM-32GB", "fp16", Autocast("float16")),
        ("T4", "fp16", Autocast("float16")),
    ):
        found = half(machine)
        assert (found.key, found.changes) == (key, (change,))
        assert ("GradScaler" in found.line) is (key == "fp16")
        assert f"dtype=torch.{change.dtype}" in found.line
    graph = capture(language, hyperparameters={"seq": 16, "layers": 1}, changes=[Autocast("float16")], machine="T4")
    assert any(tensor.dtype == "float16" for tensor in graph.tensors)
    assert not any(tensor.dtype == "bfloat16" for tensor in graph.tensors)


def test_what_loses_no_time_ranks_first_and_then_bytes_for_each_nanosecond() -> None:
    action = Action("one", "one", "line", "slot")
    figures = [(5, -1), (9, 0), (8, 2), (100, 50), (1, 1)]  # saved, lost
    gains = [Gain(0, 0, 0, "fits", saved, lost, lost / 100) for saved, lost in figures[::-1]]
    assert [gain.saved_per_ms_bytes for gain in gains] == [1_000_000, 2_000_000, 4_000_000, None, None]
    ranked = sorted((Outcome(action, gain) for gain in gains), key=lambda one: one.rank)
    assert [(one.trial.saved_bytes, one.trial.lost_ns) for one in ranked if one.trial] == [
        (9, 0),
        (5, -1),
        (8, 2),
        (100, 50),
        (1, 1),
    ]


@pytest.mark.slow
def test_a_smaller_batch_is_charged_for_the_same_samples(found: Fit) -> None:
    one = next(one for one in found.outcomes if one.action.key == "smaller")
    assert isinstance(one.action, Action)
    assert one.trial is not None
    count = one.action.settings["batch"]
    assert one.trial.step_ns == round(ns(tried(again({"batch": count}, (), False), ROW).step_ns) / (count / 8))


@pytest.mark.slow
def test_gradients_of_many_turns_are_timed_by_two_of_them() -> None:
    base = tried(again({}, (), False), ROW)
    quarter = tried(again({"batch": 2}, [Accumulated(4)], False), ROW)
    study = fit(subject((base.reserved_bytes + quarter.reserved_bytes) // 2 - base.reserved_bytes // 8))
    one = next(one for one in study.outcomes if one.action.key == "accumulate")
    assert isinstance(one.action, Action)
    assert one.trial is not None
    turns = one.action.turns
    whole = tried(again({"batch": 8 // turns}, [Accumulated(turns)], False), ROW)
    assert one.trial.peak_bytes == whole.peak_bytes
    assert one.trial.step_ns == pytest.approx(whole.step_ns, rel=0.02)


@pytest.mark.slow
def test_no_set_of_actions_that_fits_is_clearly_faster(found: Fit) -> None:
    assert found.together is not None
    assert found.together.fits == "fits"
    assert found.together.trial.reserved_bytes <= found.subject.limit_bytes
    single = [one.action for one in found.outcomes if isinstance(one.action, Action) and one.action.devices == 1]
    usable = [one for one in single if one.key not in ("smaller", "accumulate", "fused", "offload")]
    for count in range(1, len(usable) + 1):
        for some in itertools.combinations(usable, count):
            if len({one.slot for one in some}) == count:
                trial = tried(again({}, [change for one in some for change in one.changes], False), ROW)
                if trial.reserved_bytes <= found.subject.limit_bytes:
                    assert ns(trial.step_ns) > 0.9 * ns(found.together.trial.step_ns)


@pytest.mark.slow
def test_the_largest_batch_of_the_step_fits_and_one_more_does_not(found: Fit) -> None:
    assert found.largest is not None
    limit, batch = found.subject.limit_bytes, found.largest.batch
    assert found.largest.next_bytes is not None
    assert 1 <= batch < 8
    assert tried(again({"batch": batch}, (), False), ROW).reserved_bytes == found.largest.reserved_bytes <= limit
    assert tried(again({"batch": batch + 1}, (), False), ROW).reserved_bytes == found.largest.next_bytes > limit


@pytest.mark.slow
def test_the_loop_has_a_first_step_and_an_evaluation(found: Fit) -> None:
    peaks = {part.name: part.peak_bytes for part in found.parts}
    assert peaks == {
        "first step": tried(again({}, (), True), ROW).peak_bytes,
        "evaluation": tried(again({"train": False}, (), False), ROW).peak_bytes,
    }


def test_a_step_that_trains_whatever_it_is_told_has_no_evaluation() -> None:
    graph = again({}, (), False)
    study = Subject("language", graph, ROW, again=lambda settings, changes, first: again({}, changes, first))
    assert [part.name for part in parts(study, lambda settings, first: again({}, (), first), print)] == ["first step"]


@pytest.mark.slow
def test_what_needs_least_is_shown_where_nothing_fits() -> None:
    study = fit(subject(2**20))
    assert study.together is not None
    assert study.together.fits == "too large"
    assert len(study.together.actions) > 3
    assert study.together.trial.peak_bytes < min(one.trial.peak_bytes for one in study.outcomes if one.trial)


@pytest.mark.slow
def test_state_over_devices_that_do_not_divide_it_evenly_is_an_action() -> None:
    def odd(settings: Mapping[str, Any], changes: Sequence[Change], first: bool) -> Graph:
        return again({"width": 63, **settings}, changes, first)

    graph = odd({}, (), False)
    assert sum(int(each.nbytes) for each in graph.storages if each.role is Role.PARAMETER) % 8
    study = fit(Subject("language", graph, ROW, again=odd))
    assert next(one for one in study.outcomes if one.action.key == "sharded").trial is not None


def test_a_search_that_is_stopped_has_what_was_known() -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 2

    study = fit(subject(10**9), stop=stop)
    assert study.stopped
    assert (study.tried, study.planned) == (2, 9)
    text = " ".join(block.text for block in section(study).blocks if isinstance(block, Note))
    assert "Interrupted: 2 of 9 actions were tried" in text
    assert "No action" not in text
    assert len([one for one in study.outcomes if one.trial is not None]) == 2
    assert study.verdict.dominant is not None


def test_an_op_that_needs_more_than_the_memory_is_named_before_anything_is_tried() -> None:
    graph = again({}, (), False)
    sizes = [int(each.nbytes) for each in graph.storages]
    each = [sum(sizes[storage] for storage in {*touched}) for touched in graph.index.touches]
    stopped = fit(subject(max(each) // 2), stop=lambda: True)
    assert stopped.tried == 0
    assert stopped.one_op is not None
    assert stopped.one_op.nbytes >= max(each)
    text = " ".join(block.text for block in section(stopped).blocks if isinstance(block, Note))
    assert f"{op_text(graph, stopped.one_op.op)[1:]} needs {format_bytes(stopped.one_op.nbytes)} by itself" in text
    assert fit(subject(2 * stopped.base.reserved_bytes), stop=lambda: True).one_op is None


def test_of_a_search_that_is_stopped_at_once_no_action_is_said_to_help() -> None:
    text = " ".join(
        block.text for block in section(fit(subject(10**9), stop=lambda: True)).blocks if isinstance(block, Note)
    )
    assert "Interrupted: 0 of 9 actions were tried." in text
    assert "none" not in text
    assert "No action" not in text


@pytest.mark.slow
def test_on_a_card_that_is_a_size_nothing_has_a_time_and_actions_are_ranked_by_bytes() -> None:
    study = fit(Subject("language", again({}, (), False), ROW, of_bytes(10**9), timed=False, again=again))
    assert study.base.step_ns is None
    gains = [one.trial for one in study.outcomes if one.trial is not None]
    assert gains
    assert all((one.step_ns, one.lost_ns, one.step_change, one.saved_per_ms_bytes) == (None,) * 4 for one in gains)
    saved = [one.trial.saved_bytes for one in study.worthwhile if one.trial is not None]
    assert saved == sorted(saved, reverse=True)
    assert study.verdict.asked is not None
    assert study.verdict.asked.step_ns is None
    notes = [block.text for block in section(study).blocks if isinstance(block, Note)]
    assert "No time: no card is named; h100 is one." in notes


def test_a_step_that_cannot_be_captured_again_has_a_verdict_and_reasons() -> None:
    graph = again({}, (), False)
    study = fit(Subject("step.tide", graph, ROW, why_not="a file has no step"))
    assert study.verdict.peak_bytes == tried(graph, ROW).peak_bytes
    assert study.largest is None
    assert not study.recommended
    advice = {one.action.key: one for one in study.outcomes if isinstance(one.action, Action)}
    assert {"bf16", "loss", "eight_bit", "fused", "accumulate", "smaller"} <= {*advice}
    assert {one.reason for one in advice.values()} == {"a file has no step"}
    assert all(one.line and one.trial is None for one in advice.values())
    small = fit(Subject("step.tide", graph, ROW, of_bytes(1), why_not="a file has no step"))
    for found, start in ((study, "Not tried: bf16"), (small, "What may help, not tried (a file has no step):\n- bf16")):
        notes = [block.text for block in section(found).blocks if isinstance(block, Note)]
        assert any(text.startswith(start) for text in notes)
        assert not any("Not applicable: bf16" in text for text in notes)
        assert any("optimizer = ...(..., fused=True)" in text for text in notes) is (found is small)


def test_what_a_step_has_is_no_advice() -> None:
    graph = capture(language, changes=[Autocast(), Fused()], machine=ROW.name)
    keys = {one.key for one in actions(Subject("step.tide", graph, ROW)) if isinstance(one, Action)}
    assert not keys & {"bf16", "fused"}


def test_a_copy_of_the_model_that_a_script_makes_counts_where_it_is_saved(tmp_path: Path) -> None:
    code = tmp_path / "train.py"
    code.write_text(
        "import copy, torch\n"
        "best = copy.deepcopy(model.state_dict())\n"
        "torch.save(optimizer.state_dict(), 'last.pt')\n"
        "copy.deepcopy(settings)\n"
    )
    whole = again({}, (), False)
    of = Subject("train.py", whole, ROW, why_not="a script", code=code)
    copied, written = parts(of, lambda settings, first: whole, lambda text: None)
    model = sum(parameter.numel() * 4 for parameter in Model(64, 3).parameters())
    assert (copied.where, written.where) == ("train.py:2", "train.py:3")
    assert copied.peak_bytes - written.peak_bytes == model
    assert "host" in written.what


@pytest.mark.slow
@pytest.mark.parametrize("where", [Where(2), Where(2, cluster=LOCAL)])
def test_actions_are_captured_alike_side_by_side(found: Fit, where: Where) -> None:
    told: list[str] = []
    beside = fit(replace(found.subject, again=fresh), where=where, say=told.append)
    assert (beside.outcomes, beside.together, beside.largest) == (found.outcomes, found.together, found.largest)
    assert sum(text.startswith("captured the step with") for text in told) > 4
