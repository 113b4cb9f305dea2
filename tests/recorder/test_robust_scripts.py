"""Scripts that save and read back, copy generators' states, or update parameters by hand run on fake tensors."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from tensortide.graph import Phase
from tensortide.recorder import saved_in_memory
from tensortide.recorder.cuda_mode import CudaFakeMode, pretended_gpu
from tensortide.recorder.hand_updates import UNSEEN
from tensortide.recorder.pretended import Gpu, _answers
from tensortide.recorder.pretended_devices import Event, Stream
from tensortide.recorder.script import ScriptOptions
from tensortide.timing import device
from tests.recorder.script_run import STEP, forked, loop

FAKE = ScriptOptions(fake=True)
SAVING = """
    import io, os, shutil
    from pathlib import Path
    {step}
    torch.save({{"model": model.state_dict(), "step": i}}, "last.pt")
    assert os.path.exists("last.pt") and Path("last.pt").stat().st_size
    shutil.copy2("last.pt", "best.pt")
    os.rename("last.pt", "previous.pt")
    assert not os.path.exists("last.pt")
    import time, numpy as np
    time.sleep(0.01)
    torch.save(1, "later.pt")
    assert max(["later.pt", "best.pt"], key=os.path.getmtime) == "later.pt"
    import glob
    assert sorted(glob.glob("*.pt")) == sorted(os.path.basename(each) for each in glob.glob(os.getcwd() + "/*.pt"))
    assert sorted(each.name for each in Path().glob("*.pt")) == ["best.pt", "later.pt", "previous.pt"]
    assert all(each.stat().st_size > 0 for each in os.scandir() if each.name.endswith(".pt"))
    assert {{"best.pt", "later.pt"}} < set(os.listdir("."))
    assert os.access("best.pt", os.R_OK) and not os.access("other.pt", os.R_OK)
    os.utime("best.pt"), os.chmod("best.pt", 0o600)
    np.save("a.npy", np.arange(3)), np.savez("a.npz", np.ones(1), b=np.zeros(2))
    assert np.load("a.npy").tolist() == [0, 1, 2] and sorted(np.load("a.npz")) == ["arr_0", "b"]
    Path("old").mkdir(), torch.save(1, "old/a.pt"), shutil.rmtree("old")
    assert not Path("old/a.pt").exists()
    state = torch.load("best.pt", map_location="cpu")
    assert state["step"] == i and state["model"]["weight"].shape == (1, 4)
    model.load_state_dict(torch.load("previous.pt")["model"])
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    assert torch.load(file)["bias"].shape == (1,)
    with open("best.pt", "rb") as file:
        assert torch.load(file)["step"] == i
    os.remove("best.pt"), os.unlink("previous.pt")
    assert not Path("best.pt").exists()
"""


def test_a_checkpoint_that_is_not_written_is_read_back_copied_and_renamed(tmp_path: Path) -> None:
    ran = forked(tmp_path, loop(tmp_path, SAVING.format(step=STEP)), options=FAKE)
    assert ran.graph is not None, ran.err + str(ran.outcome)
    assert not [*tmp_path.glob("*.pt")]
    assert ran.outcome["not_done"] == "6 writes"


def test_a_file_that_was_not_written_holds_no_tensor() -> None:
    weight = torch.nn.Parameter(torch.ones(3, 2, dtype=torch.bfloat16).t())
    loaded = saved_in_memory.loading(torch.load, {"/a": saved_in_memory.content({"w": weight, "n": 1})})("/a")
    assert (loaded["n"], loaded["w"].shape, loaded["w"].stride()) == (1, (2, 3), (1, 2))
    assert loaded["w"].dtype is torch.bfloat16
    assert isinstance(loaded["w"], torch.nn.Parameter)


UPDATES = {
    "data": "    for p in model.parameters(): p.data.add_(p.grad, alpha=-0.1)",
    "in place": "    with torch.no_grad(): model.weight -= model.weight.grad",
    "other data": "    for p in model.parameters(): p.data = p.data - p.grad",
    "foreach": "    with torch.no_grad(): torch._foreach_mul_([*model.parameters()], 0.9)",
    "out": "    with torch.no_grad(): [torch.sub(p, p.grad, out=p) for p in model.parameters()]",
}
"""Statements of a loop that update parameters themselves."""


def by_hand(
    tmp_path: Path, passes: str, update: str, *, rounds: int = 5, options: ScriptOptions = FAKE
) -> tuple[list[str], str]:
    """The names of the ops of the second training step of a loop that runs ``passes`` and then an ``update``, and what
    it assumed."""
    text = f"import torch\nmodel = torch.nn.Linear(4, 1)\nfor i in range({rounds}):\n    model.zero_grad()\n"
    text += f"{passes}\n{update}\n    open('count', 'a').write('.')\n"
    (tmp_path / "hand.py").write_text(text)
    ran = forked(tmp_path, "hand.py", options=options)
    assert ran.graph is not None, str(ran.outcome)
    assert {op.phase for op in ran.graph} >= {Phase.FORWARD, Phase.BACKWARD}
    assert (tmp_path / "count").read_text() == "." * (2 if rounds < UNSEEN else UNSEEN + 2)
    return [op.name for op in ran.graph], " ".join(ran.graph.meta.assumptions)


@pytest.mark.parametrize("update", UPDATES)
def test_a_step_without_an_optimizer_ends_with_its_update(update: str, tmp_path: Path) -> None:
    """Gradients of three batches accumulate in it."""
    passes = "    for _ in range(3):\n        model(torch.ones(2, 4)).sum().backward()"
    names, said = by_hand(tmp_path, passes, UPDATES[update])
    assert names.count("aten.addmm.default") == 3
    assert "after a parameter has changed" in said


def test_a_step_without_an_optimizer_is_found_on_a_pretended_gpu(tmp_path: Path) -> None:
    passes = "    for _ in range(3):\n        model.cuda()(torch.ones(2, 4, device='cuda')).sum().backward()"
    names, _ = by_hand(tmp_path, passes, UPDATES["data"], options=ScriptOptions(device="cuda"))
    assert names.count("aten.addmm.default") == 3


def test_a_step_that_asks_for_gradients_ends_with_its_update(tmp_path: Path) -> None:
    passes = "    grads = torch.autograd.grad(model(torch.ones(2, 4)).sum(), [*model.parameters()])"
    update = "    for p, g in zip(model.parameters(), grads): p.data.sub_(g)"
    names, _ = by_hand(tmp_path, passes, update)
    assert names.count("aten.addmm.default") == 1
    assert names.count("aten.sub_.Tensor") == 2


def test_updates_that_are_not_seen_end_a_step_after_many_passes(tmp_path: Path) -> None:
    passes = "    model(torch.ones(2, 4)).sum().backward()"
    names, said = by_hand(tmp_path, passes, "    pass", rounds=2 * UNSEEN)
    assert names.count("aten.addmm.default") == 1
    assert "after a backward pass" in said


def test_updates_that_make_other_parameters_end_a_step(tmp_path: Path) -> None:
    """A function of a module and parameters of the program's own."""
    passes = "    own = own if i else {k: p.detach().requires_grad_() for k, p in model.named_parameters()}\n"
    passes += "    loss = torch.func.functional_call(model, own, torch.ones(2, 4)).sum()"
    update = "    grads = torch.autograd.grad(loss, [*own.values()])\n"
    update += "    own = {k: (p - g).detach().requires_grad_() for (k, p), g in zip(own.items(), grads)}"
    names, _ = by_hand(tmp_path, passes, update)
    assert names.count("aten.addmm.default") == 1


def test_states_of_generators_that_have_no_values_are_taken(tmp_path: Path) -> None:
    body = """
    state = torch.Generator().manual_seed(1).get_state().to("cuda").cpu()
    torch.Generator().set_state(state)
    torch.set_rng_state(state)
    torch.Generator("cuda").set_state(torch.Generator("cuda").get_state())
    """
    text = textwrap.dedent(body) + STEP.replace("2, 4)", "2, 4, device='cuda')")
    (tmp_path / "own.py").write_text(
        f"import torch\n{(tmp_path / loop(tmp_path, text)).read_text()}".replace("Linear(4, 1)", "Linear(4, 1).cuda()")
    )
    ran = forked(tmp_path, "own.py", options=ScriptOptions(device="cuda"))
    assert ran.graph is not None, ran.err + str(ran.outcome)


def accepts(pretended: Any, real: Any) -> bool:
    """True if every call of ``real``, by place or by name, is one of ``pretended``."""
    wanted, given = [*inspect.signature(real).parameters.values()], inspect.signature(pretended)
    placed = [one for one in wanted if one.kind in (one.POSITIONAL_OR_KEYWORD, one.POSITIONAL_ONLY)]
    first = [one for one in placed if one.kind is one.POSITIONAL_ONLY or one.name == "self"]
    named = [
        one.name for one in wanted if one not in first and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    try:
        given.bind(*first, **dict.fromkeys(named))
        given.bind(*placed)
    except TypeError:
        return False
    return True


def test_a_pretended_function_takes_the_arguments_of_the_real_one() -> None:
    gpu, refused = Gpu.of(device("A100-SXM-80GB")), []
    for owner, answers in _answers(gpu, lambda _: None):
        for name, answer in answers.items():
            real = getattr(owner, name, None)
            if inspect.isfunction(real) and inspect.isfunction(answer) and not accepts(answer, real):
                refused.append(f"{owner.__name__}.{name}{inspect.signature(real)}")
    assert not refused


@pytest.mark.parametrize(("pretended", "real"), [(Stream, torch.cuda.Stream), (Event, torch.cuda.Event)])
def test_streams_and_events_have_the_methods_of_the_real_ones(pretended: type, real: type) -> None:
    names = [name for name, value in vars(real).items() if inspect.isfunction(value) and not name.startswith("_")]
    assert [name for name in names if not hasattr(pretended, name)] == []
    assert [name for name in names if not accepts(getattr(pretended, name), getattr(real, name))] == []


def test_libraries_find_the_core_of_the_gpu() -> None:
    gpu = pretended_gpu("cuda", None)
    assert gpu is not None
    with CudaFakeMode(gpu).installed():
        core: Any = torch._C
        assert core._cuda_getCurrentRawStream(0) == 0
        assert core._cuda_getDevice() == 0
    assert not hasattr(torch._C, "_cuda_getCurrentRawStream") or torch.version.cuda
