"""Scripts run as their interpreter would run them, up to the recorded step and not further."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import tensortide
from tensortide.errors import NotHere
from tensortide.graph import Phase
from tensortide.recorder import script_run
from tensortide.recorder.script import ScriptOptions, announced, capture_script
from tensortide.recorder.script_command import Script, find_script, script_text
from tests.recorder.script_run import HELPER, LOOP, STEP, TRAIN, forked, loop


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(TRAIN)
    (tmp_path / "code" / "helper.py").write_text(HELPER)
    return tmp_path


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_second_step_is_recorded_and_nothing_after_it_runs(folder: Path, workers: str) -> None:
    ran = forked(folder, "code/train.py", "--width", "16", "--workers", workers)
    assert (ran.status, ran.outcome) == (0, {}), ran.err
    assert ran.graph is not None
    assert {op.phase for op in ran.graph} == {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER}
    assert [m.path for m in ran.graph.modules] == ["", "0", "1", "2"]
    assert {s.name for s in ran.graph.storages if s.role.value == "input"} == {"x", "y"}
    assert all(Path(source.file) == folder / "code" / "train.py" for source in ran.graph.sources)
    assert (folder / "log.txt").read_text() == "step\n"
    assert ran.err == f"argv ['--width', '16', '--workers', '{workers}']\n"


def test_it_tells_how_far_it_is(folder: Path) -> None:
    ran = forked(folder, loop(folder, f"import time; time.sleep(0.7)\n{STEP}"), options=ScriptOptions(step=4))
    assert ran.graph is not None
    step, ops = map(int, (folder / "run/progress").read_text().split())
    assert 2 <= step <= 4
    assert ops <= len(ran.graph)


@pytest.mark.slow
def test_a_sign_of_life_is_given_while_it_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_run, "LIFE_S", 0.3)
    monkeypatch.chdir(folder)
    script = find_script(f"-- {sys.executable} {loop(folder, f'import time; time.sleep(0.9){chr(10)}{STEP}')}")
    assert script is not None
    said: list[str] = []
    capture_script(script, ScriptOptions(step=3), progress=said.append)
    assert all(re.fullmatch(r"loop.py: \d+ s, (in step \d; step 3 is recorded.*|its step is .*)", one) for one in said)
    assert any("in step 2" in one or "in step 3" in one for one in said), said


def test_it_may_run_to_its_end(folder: Path) -> None:
    ran = forked(folder, "code/train.py", options=ScriptOptions(step=3, keep_running=True))
    assert ran.graph is not None
    assert (folder / "log.txt").read_text() == "step\n" * 12 + "finished\n"


def test_a_step_on_fake_tensors_is_the_real_one(folder: Path) -> None:
    script = folder / "code" / "train.py"
    script.write_text(script.read_text().replace("num_workers=", "timeout=9 * config.workers, num_workers="))
    real = forked(folder, "code/train.py", "--workers", "2").graph
    (folder / "run/step.tide").unlink()
    fake = forked(folder, "code/train.py", "--workers", "2", options=ScriptOptions(fake=True)).graph
    assert real is not None
    assert fake is not None
    assert (real.meta.captured_on, fake.meta.captured_on) == ("real", "fake")
    assert [op.name for op in fake] == [op.name for op in real]
    assert fake.storages == real.storages


def test_a_script_takes_a_gpu_that_is_pretended(folder: Path) -> None:
    device = "device = 'cuda' if torch.cuda.is_available() else 'cpu'; model.to(device)\n"
    script = loop(folder, device + STEP.replace("4)", "4, device=device)"))
    graph = forked(folder, script, options=ScriptOptions(device="cuda")).graph
    assert graph is not None
    assert {storage.device for storage in graph.storages} == {"cuda:0"}
    (folder / "run/step.tide").unlink()
    ran = forked(folder, loop(folder), options=ScriptOptions(machine="H100-SXM-80GB"))
    assert ran.outcome == {"nothing_on_gpu": True}
    for own, advice in (("'--use-cuda'", "by its own option --use-cuda"), ("1", 'as in model.to("cuda")')):
        named = loop(folder, f"{own}; model.to('cpu')\n" + STEP.replace("4)", "4, device='cpu')"))
        error = forked(folder, named, options=ScriptOptions(device="cuda"), moved=True).outcome["error"]
        assert "puts its model on the CPU by name: let it use cuda" in error
        assert advice in error
    assert (
        forked(folder, loop(folder), options=ScriptOptions(device="tpu")).outcome["error"].startswith("a step is capt")
    )


def test_a_script_of_many_processes_runs_as_rank_0(folder: Path) -> None:
    joined = """
    if i == 0:
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    """
    ran = forked(folder, loop(folder, textwrap.dedent(joined) + STEP), options=ScriptOptions(ranks=4))
    assert ran.graph is not None, ran.err
    assert [op.name for op in ran.graph if op.name.startswith("c10d.allreduce")]
    assert ran.graph.meta.assumptions == ("rank 0 of 4: collectives move no data",)


def test_a_package_runs_as_its_main_module(folder: Path) -> None:
    (folder / "code" / "helper.py").rename(folder / "helper.py")
    (folder / "code" / "train.py").rename(folder / "code" / "__main__.py")
    package = (folder / "code").rename(folder / "squares")
    (package / "__init__.py").touch()
    ran = forked(folder, "squares", "--width", "16", kind="module")
    assert ran.graph is not None, ran.err
    assert forked(folder, "missing", kind="module").status == 1


def test_code_that_catches_everything_is_ended(folder: Path) -> None:
    body = f"for j in range(50):\n    try:\n        {STEP}\n    except BaseException:\n        pass"
    script = loop(folder, f"{body}\nopen('ended', 'w').close()")
    assert forked(folder, script).graph is not None
    assert not (folder / "ended").exists()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("model(torch.ones(2, 4))", "no training step was seen: 5 forward passes, no backward passes, and no step"),
        (STEP + "\nif i == 0: break", "step 2 was not reached: 1 training step ended (1 optimizer step): --step 1"),
    ],
)
def test_a_script_without_the_step_says_what_was_seen(folder: Path, body: str, said: str) -> None:
    ran = forked(folder, loop(folder, body))
    assert ran.graph is None
    assert said in ran.outcome["missed"]


@pytest.mark.parametrize("fake", [False, True])
def test_the_exit_status_of_the_script_is_kept(fake: bool, folder: Path) -> None:
    ran = forked(folder, loop(folder, "raise SystemExit(3)"), options=ScriptOptions(fake=fake))
    assert (ran.status, set(ran.outcome)) == (3, {"missed"})


def test_a_step_in_another_thread_ends_the_script_too(folder: Path) -> None:
    body = f"import threading\ndef train():\n    for i in range(5):\n        {STEP}\n"
    run = "worker = threading.Thread(target=train); worker.start(); worker.join()\nprint('joined')"
    ran = forked(folder, loop(folder, body + run))
    assert ran.graph is not None
    assert ran.status == 0


def test_a_compiled_model_runs_eagerly_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    ran = forked(folder, loop(folder, "if i == 0: model = torch.compile(model)\n" + STEP))
    assert ran.graph is not None, ran.err
    assert "aten.addmm.default" in {op.name for op in ran.graph}
    assert ran.graph.meta.compiled


@pytest.mark.slow
def test_graphs_of_a_compiled_model(folder: Path) -> None:
    script = loop(folder, "if i == 0: model = torch.compile(model)\n" + STEP)
    found = find_script(f"-- {sys.executable} {folder / script}")
    assert found is not None
    graph = capture_script(found, ScriptOptions(compiled=True), quiet=True)
    assert (graph.meta.graphs, graph.meta.compiled) == (2, False)
    eager = forked(folder, loop(folder)).graph
    assert eager is not None
    kept = [[s.nbytes for s in each.storages if s.birth is None and s.death is None] for each in (graph, eager)]
    assert sorted(kept[0]) == sorted(kept[1])


def test_an_error_of_the_script_is_shown_as_its_own(folder: Path) -> None:
    ran = forked(folder, loop(folder, "model(torch.ones(2, 5))"))
    assert ran.status == 1
    lines = ran.err.splitlines()
    assert lines[:2] == ["Traceback (most recent call last):", f'  File "{folder}/loop.py", line 6, in <module>']
    assert lines[-1].startswith("RuntimeError: ")
    assert "tensortide" not in ran.err
    assert ran.outcome["failed"].startswith("RuntimeError: ")


def test_a_script_that_cannot_be_run_says_why(folder: Path) -> None:
    (folder / "wrong.py").write_text("x = 1\ndef f(:\n")
    ran = forked(folder, "wrong.py")
    assert ran.outcome["error"] == "wrong.py cannot be run: SyntaxError: invalid syntax (wrong.py, line 2)"
    assert "def f(:" in ran.err
    assert "Traceback" not in ran.err
    ran = forked(folder, "no_such_module", kind="module")
    assert "there is no module no_such_module" in ran.outcome["error"]
    assert "Traceback" not in ran.err


def test_a_command_is_taken_as_python_takes_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    python, script = sys.executable, "code/train.py"

    def read(*words: str) -> Script | None:
        return find_script(script_text(words))

    assert read(python, script, "-m", "a b") == Script(python, (), "file", script, ("-m", "a b"))
    assert read(script) == Script(python, (), "file", script, ())
    assert read(python, "-u", "-W", "error", "-Xdev", script) == Script(
        python, ("-u", "-W", "error", "-Xdev"), "file", script, ()
    )
    assert read(python, "-um", "code", "-x") == Script(python, ("-u",), "module", "code", ("-x",))
    assert read(python, "-mcode") == Script(python, (), "module", "code", ())
    assert find_script("gpt2") is None


def test_an_interpreter_without_tensortide_is_named(tmp_path: Path) -> None:
    """``-I`` keeps the folder of these sources from the path; ``-S`` keeps installed packages from it."""
    (tmp_path / "train.py").touch()
    script = Script(sys.executable, ("-I", "-S"), "file", str(tmp_path / "train.py"), ())
    with pytest.raises(
        NotHere, match=r"cannot run the script under tensortide: No module named '[a-z]+'\n.*or name an"
    ):
        capture_script(script)


@pytest.mark.slow
def test_a_script_is_a_target_like_any_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    found = tensortide.open(f"-- {sys.executable} -u code/train.py --width 16", step=3)
    assert found.graph.meta.workload == "train.py"
    assert (folder / "exit.txt").read_text() == "code/train.py"
    assert (folder / "log.txt").read_text() == "step\n" * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "decides"),
    [
        ("print(loss.item())", ""),
        ("if loss.item() > 0.5: model(torch.ones(7, 4))", "loss.item() taken as 1.0"),
        ("for _ in range(int(loss)): model(torch.ones(7, 4))", "int(loss) taken as 1.0"),
    ],
)
def test_a_script_that_is_compared_says_whether_its_step_depends_on_values(
    tmp_path: Path, line: str, decides: str
) -> None:
    script = tmp_path / "train.py"
    body = f"loss = model(torch.ones(2, 4)).sum(); loss.backward(); optimizer.step()\n    {line}"
    script.write_text(LOOP.format(body=body))
    target = find_script(script_text([sys.executable, str(script)]))
    assert target is not None
    meta = capture_script(target, ScriptOptions(fake=True, compare=True), quiet=True).meta
    assert not meta.untested
    assert [said.startswith(decides) and "the ops of the step depend on it" in said for said in meta.decisive] == [
        True
    ] * bool(decides)


def test_a_script_for_a_size_is_not_said_to_run_on_a_card() -> None:
    script = Script(sys.executable, (), "file", "train.py", ())
    options = ScriptOptions(machine="A100-SXM-80GB")
    assert "of a pretended A100-SXM-80GB" in announced(script, options)
    assert "of a pretended 24GB GPU" in announced(script, options, "24GB")


@pytest.mark.slow
def test_a_script_that_is_not_compared_says_so(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    body = "loss = model(torch.ones(2, 4)).sum(); loss.backward(); optimizer.step()\n    "
    body += "x = loss.item()\n    print(loss.item())"
    script.write_text(LOOP.format(body=body))
    target = find_script(script_text([sys.executable, str(script)]))
    assert target is not None
    plain = capture_script(target, ScriptOptions(fake=True), quiet=True).meta
    assert plain.untested == plain.assumptions[:1]
    assert "was not checked" in plain.untested[0]
    assert plain.assumptions[1].endswith("; it is only printed")
    assert not capture_script(target, quiet=True).meta.assumptions


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("model(torch.ones(2, 4)).sum().backward()", "A loop that updates parameters itself is recorded by function"),
        ("model(torch.ones(2, 4))", "A loop without training is recorded by function"),
        ("torch.multiprocessing.spawn(print, nprocs=3)", "--ranks 3"),
        ("import os; os.environ['RANK']", "KeyError: 'RANK'"),
    ],
)
def test_a_script_without_steps_of_its_own_is_told_what_to_do(folder: Path, body: str, told: str) -> None:
    assert told in str(forked(folder, loop(folder, body)).outcome)


def test_a_stream_of_data_is_loaded_in_the_script_s_own_process_on_fake_tensors(folder: Path) -> None:
    (folder / "stream.py").write_text(STREAM)
    graph = forked(folder, "stream.py", options=ScriptOptions(fake=True)).graph
    assert graph is not None
    assert next(op for op in graph if op.name == "aten.addmm.default").outputs[0].shape == (4, 2)


@pytest.mark.slow
def test_a_stream_of_data_is_loaded_by_workers(folder: Path) -> None:
    (folder / "stream.py").write_text(STREAM)
    target = find_script(script_text([sys.executable, str(folder / "stream.py")]))
    assert target is not None
    graph = capture_script(target, quiet=True)
    assert next(op for op in graph if op.name == "aten.addmm.default").outputs[0].shape == (4, 2)


STREAM = """
import torch
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(torch.randn(100, 8))
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(Stream(), batch_size=4, num_workers=2):
    model(x).sum().backward()
    optimizer.step()
"""
SLOW_END = "import atexit, time; atexit.register(lambda: (time.sleep({seconds}), open('ended', 'w').close()))\n"


@pytest.mark.slow
def test_a_script_that_takes_long_to_end_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    body = "model(torch.ones(2, 4)).sum().backward(); optimizer.step()"
    (tmp_path / "train.py").write_text(SLOW_END.format(seconds=3) + LOOP.format(body=body))
    target = find_script(script_text([sys.executable, "train.py"]))
    assert target is not None
    for patience, ends in ((0.5, False), (60, True)):
        said: list[str] = []
        capture_script(target, ScriptOptions(patience=patience), quiet=True, say=said.append)
        assert (tmp_path / "ended").exists() == ends
        assert any("within 0.5 s after the recorded step, and was killed: --patience" in text for text in said) != ends


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_script_too(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, time\nopen('part', 'w').write(str(os.getpid()))\nos.rename('part', 'pid')\ntime.sleep(100)\n"
    )
    command = [sys.executable, "-m", "tensortide", "capture", "-o", "x.tide", "--", sys.executable, "train.py"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 300
    while not (tmp_path / "pid").exists() and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(number)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    assert f"interrupted by {number.name}" in said
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert not (tmp_path / "x.tide").exists()
