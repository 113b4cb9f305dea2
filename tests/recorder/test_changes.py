"""Changes under capture: each has the memory of a step that was written with it by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tensortide import budget, capture, timeline
from tensortide.graph import Graph, Role
from tensortide.recorder.changes import (
    Accumulated,
    Autocast,
    Change,
    Checkpointed,
    ChunkedLoss,
    EightBit,
    Fused,
    NotApplicable,
    SavedOnHost,
    Sharded,
    Written,
)
from tests.forked_script import forked
from tests.marks import some_slow

BATCH, SEQ, WIDTH, VOCAB, LAYERS = 4, 32, 64, 1000, 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Any:
        return x + self.down(F.dropout(F.gelu(self.up(self.norm(x))), 0.1))


class Model(nn.Module):
    """A language model without attention; ``around`` calls its blocks."""

    def __init__(
        self, around: Callable[[nn.Module, Tensor], Any] = lambda block, x: block(x), layers: int = LAYERS
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCAB)
        self.around = around

    def hidden(self, ids: Tensor) -> Any:
        x = self.tokens(ids)
        for block in self.blocks:
            x = self.around(block, x)
        return x

    def forward(self, ids: Tensor) -> Any:
        return self.head(self.hidden(ids))


def next_token(model: Model, ids: Tensor) -> Tensor:
    logits = model(ids)
    return F.cross_entropy(logits[:, :-1].reshape(-1, VOCAB), ids[:, 1:].flatten())


def plain(
    model: Callable[[], Model] = Model,
    optimizer: Callable[..., Any] = torch.optim.AdamW,
    loss: Callable[[Model, Tensor], Any] = next_token,
    batch: int = BATCH,
) -> Callable[[], Any]:
    """A step as people write it."""
    net, ids = model(), torch.randint(VOCAB, (batch, SEQ))
    update = optimizer(net.parameters())

    def step() -> None:
        found = loss(net, ids)
        found.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        update.step()
        update.zero_grad()

    return step


def mixed(enabled: bool = True, around: Callable[[nn.Module, Tensor], Any] | None = None) -> Callable[[], Any]:
    net, ids = Model(around) if around else Model(), torch.randint(VOCAB, (BATCH, SEQ))
    update = torch.optim.AdamW(net.parameters())

    def step() -> None:
        with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=enabled):
            loss = next_token(net, ids)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        update.step()
        update.zero_grad()

    return step


def in_turns(turns: int) -> Callable[[], Callable[[], Any]]:
    def workload() -> Callable[[], Any]:
        net, ids = Model(), torch.randint(VOCAB, (BATCH, SEQ))
        update = torch.optim.AdamW(net.parameters())

        def step() -> None:
            for _ in range(turns):
                loss = next_token(net, ids)
                (loss / turns).backward()
                del loss
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            update.step()
            update.zero_grad()

        return step

    return workload


def by_chunks(model: Model, ids: Tensor, chunks: int = 3) -> Tensor:
    def part(rows: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model.head(rows), labels, reduction="sum")

    hidden = model.hidden(ids)
    flat, labels = hidden[:, :-1].reshape(-1, WIDTH), ids[:, 1:].flatten()
    total: Any = 0
    for rows, theirs in zip(flat.chunk(chunks), labels.chunk(chunks), strict=True):
        total = total + checkpoint(part, rows, theirs, use_reentrant=False)
    return total / (labels != -100).sum()  # type: ignore[no-any-return]


def on_host(block: nn.Module, x: Tensor) -> Tensor:
    with torch.autograd.graph.save_on_cpu():
        return block(x)  # type: ignore[no-any-return]


class ByteAdam(torch.optim.Optimizer):
    """Adam with states of one byte: all that counts here is what it keeps, and that its kernels keep nothing."""

    STATES = 2

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        del closure
        for parameter in self.param_groups[0]["params"]:
            state, count = self.state[parameter], parameter.numel()
            if not state and count < 4096:
                state.update(enumerate(torch.zeros(count, device=parameter.device) for _ in range(self.STATES)))
            elif not state:
                sizes = ((count, torch.uint8), (-(-count // 256), torch.float32)) * self.STATES
                state.update(enumerate(torch.zeros(n, dtype=kind, device=parameter.device) for n, kind in sizes))
            parameter.add_(parameter.grad)


class ByteMomentum(ByteAdam):
    """The same with one state."""

    STATES = 1


def momentum(params: Any, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.1, momentum=0.9, **options)


class ThirdAdam:
    """AdamW for the largest of three shares of the parameters, dealt out by size."""

    def __init__(self, params: Any) -> None:
        self.every = [*params]
        shares: list[list[Tensor]] = [[], [], []]
        for parameter in sorted(self.every, key=lambda each: -each.numel()):
            min(shares, key=lambda share: sum(p.numel() for p in share)).append(parameter)
        self.own = torch.optim.AdamW(max(shares, key=lambda share: sum(p.numel() for p in share)))

    def step(self) -> None:
        self.own.step()

    def zero_grad(self) -> None:
        for parameter in self.every:
            parameter.grad = None


BLOCKS = tuple(f"blocks.{i}" for i in range(LAYERS))
CASES: dict[str, tuple[Change, Callable[[], Callable[[], Any]]]] = {
    "autocast": (Autocast(), mixed),
    "checkpointed": (
        Checkpointed(BLOCKS),
        lambda: plain(lambda: Model(lambda block, x: checkpoint(block, x, use_reentrant=False))),
    ),
    "on the host": (SavedOnHost(BLOCKS), lambda: plain(lambda: Model(on_host))),
    "fused": (Fused(), lambda: plain(optimizer=lambda params: torch.optim.AdamW(params, fused=True))),
    "8 bit": (EightBit(), lambda: plain(optimizer=ByteAdam)),
    "fused SGD": (Fused(), lambda: plain(optimizer=partial(momentum, fused=True))),
    "8 bit SGD": (EightBit(), lambda: plain(optimizer=ByteMomentum)),
    "sharded": (Sharded(3), lambda: plain(optimizer=ThirdAdam)),
    "chunked loss": (ChunkedLoss("head.weight", chunks=3), lambda: plain(loss=by_chunks)),
    "two turns": (Accumulated(2), in_turns(2)),
    "five turns": (Accumulated(5), in_turns(5)),
}


@cache
def unchanged(optimizer: Callable[..., Any]) -> Graph:
    """The step as people write it, captured once for all that compare with it."""
    return capture(partial(plain, optimizer=optimizer), device="cuda")


def persistent(graph: Graph) -> int:
    return timeline(graph).persistent_bytes


@pytest.mark.parametrize("name", some_slow(CASES, {"five turns", "fused SGD", "8 bit"}))
def test_a_changed_step_has_the_peak_of_one_that_was_written_so(name: str) -> None:
    change, written = CASES[name]
    optimizer = momentum if "SGD" in name else torch.optim.AdamW
    found = capture(partial(plain, optimizer=optimizer), changes=[change], device="cuda")
    expected = capture(written, device="cuda")
    assert timeline(found).peak_bytes == timeline(expected).peak_bytes
    assert persistent(found) == persistent(expected)
    assert "fused" in name or timeline(found).peak_bytes != timeline(unchanged(optimizer)).peak_bytes


@pytest.mark.parametrize(
    "name", some_slow(["checkpointed", "chunked loss", "two turns"], ["chunked loss", "two turns"])
)
def test_a_step_that_was_written_so_takes_as_much_when_it_really_runs(name: str, tmp_path: Path) -> None:
    change, _ = CASES[name]
    predicted = timeline(capture(plain, changes=[change])).peak_bytes
    script = tmp_path / "measure.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tests.recorder.test_changes import CASES, measured_peak\n"
        f"print(measured_peak(CASES[{name!r}][1]))\n"
    )
    done = forked(script)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) == pytest.approx(predicted, rel=0.005)


def measured_peak(written: Callable[[], Callable[[], Any]]) -> int:
    """The measured peak of steps, in a process of their own: other tests leave tensors behind."""
    with budget("4GiB") as memory:  # which nothing reaches
        step = written()
        for _ in range(3):
            step()
    return memory.usage.peak_bytes


def in_float32(block: nn.Module, x: Tensor) -> Any:
    with torch.autocast(x.device.type, enabled=False):
        return block(x.float())


@pytest.mark.parametrize("around", some_slow([None, in_float32], [None]))
def test_autocast_turns_on_the_switch_of_a_step_and_not_what_its_modules_keep_in_float32(around: Any) -> None:
    off, on = (partial(mixed, enabled, around) for enabled in (False, True))
    found = capture(off, changes=[Autocast()], device="cuda")
    assert [op.name for op in found] == [op.name for op in capture(on, device="cuda")]
    assert [op.name for op in found] != [op.name for op in capture(off, device="cuda")]


@pytest.mark.slow
def test_changes_add_up_to_what_their_author_would_write() -> None:
    layers = 3

    def written() -> Callable[[], Any]:
        net = Model(lambda block, x: checkpoint(block, x, use_reentrant=False), layers)
        ids, update = torch.randint(VOCAB, (BATCH, SEQ)), ByteAdam(net.parameters())

        def step() -> None:
            for _ in range(2):
                with torch.autocast(ids.device.type, dtype=torch.bfloat16):
                    loss = by_chunks(net, ids, chunks=4)
                (loss / 2).backward()
                del loss
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            update.step()
            update.zero_grad()

        return step

    changes: Sequence[Change] = (
        Accumulated(2),
        Autocast(),
        Checkpointed(tuple(f"blocks.{i}" for i in range(layers))),
        ChunkedLoss("head.weight", chunks=4),
        EightBit(),
    )
    found = capture(lambda: plain(lambda: Model(layers=layers)), changes=changes, device="cuda")
    expected = capture(written, device="cuda")
    assert timeline(found).peak_bytes == timeline(expected).peak_bytes


def test_a_capture_with_changes_leaves_the_model_as_it_was() -> None:
    net, ids = Model(layers=1), torch.randint(VOCAB, (BATCH, SEQ))
    update = torch.optim.AdamW(net.parameters())

    def step() -> None:
        next_token(net, ids).backward()
        update.step()
        update.zero_grad()

    before, parts = dict(vars(update)), dict(vars(net.blocks[0]))
    groups = [dict(group) for group in update.param_groups]
    plainly = capture(step, real=True)
    several = Checkpointed(BLOCKS[:1]), Fused(), Accumulated(2), ChunkedLoss("head.weight", chunks=2), Autocast()
    capture(step, changes=several)
    capture(step, changes=(EightBit(),))
    assert vars(net.blocks[0]) == parts
    assert {**vars(update), "state": {}} == {**before, "state": {}}
    assert [dict(group) for group in update.param_groups] == groups
    assert not update.state
    assert capture(step, real=True) == plainly


def moved(model: Model, ids: Tensor) -> Tensor:
    logits = model(ids).transpose(1, 2)
    return F.cross_entropy(logits, ids)


def smoothed(model: Model, ids: Tensor) -> Any:
    return nn.CrossEntropyLoss(label_smoothing=0.1)(model(ids).float().flatten(0, 1), ids.flatten())


@pytest.mark.parametrize("loss", some_slow([next_token, moved, smoothed], [next_token, moved]))
def test_no_logits_of_all_rows_are_left_of_a_loss_by_chunks(loss: Callable[[Model, Tensor], Any]) -> None:
    graph = capture(lambda: plain(lambda: Model(layers=1), loss=loss), changes=[ChunkedLoss("head.weight")])
    assert max(storage.nbytes for storage in graph.storages if storage.role is not Role.OPTIMIZER_STATE) < (
        BATCH * (SEQ - 1) * VOCAB * 4
    )


def read_too(model: Model, ids: Tensor) -> Tensor:
    logits = model(ids)
    return F.cross_entropy((logits / 2).flatten(0, 1), ids.flatten())


@pytest.mark.parametrize(
    ("changes", "how", "reason"),
    [
        (ChunkedLoss("head.weight"), {"loss": read_too}, "__truediv__ reads them"),
        (ChunkedLoss("tail.weight"), {}, "no parameter tail.weight"),
        (Checkpointed(("blocks.9",)), {}, "no module blocks.9"),
        (SavedOnHost(BLOCKS), {}, "runs on the CPU"),
        (Fused(), {"optimizer": torch.optim.RMSprop}, "RMSprop has no fused variant"),
        (EightBit(), {"optimizer": torch.optim.Adadelta}, "Adadelta has no counterpart"),
        (EightBit(), {"optimizer": torch.optim.SGD}, "no state"),
        (Autocast(), {"model": lambda: Model().bfloat16()}, "bfloat16 parameters"),
    ],
)
def test_a_change_that_cannot_be_made_says_why(changes: Change, how: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        capture(lambda: plain(**how), changes=[changes])


def test_a_written_file_is_applied_and_removed() -> None:
    code = (
        "class Applied:\n    removed = 0\n    def remove(self): Applied.removed += 1\n"
        "def apply(model, prefix):\n    model.get_submodule('blocks.0').forward = lambda x: x\n    return Applied()\n"
    )
    whole, less = capture(plain), capture(plain, changes=[Written(code)])
    assert len(less) < len(whole)
    with pytest.raises(NotApplicable, match="has no module other"):
        capture(plain, changes=[Written(code, ("other",))])
    with pytest.raises(NotApplicable, match="has no such module"):
        capture(plain, changes=[Written("def apply(model, prefix): model.get_submodule('nowhere')")])
