"""What is said on standard error cannot steer a terminal, wherever its text comes from."""

from __future__ import annotations

import io
import json
import sys
import time
import warnings
from pathlib import Path

import pytest

from tensortide.cli import console, main, messages
from tensortide.examples import find
from tensortide.graph import save
from tensortide.recorder import capture
from tests.cli.command import tensortide

NAMES = {
    "control codes": "a\x1b]0;owned\x07\x1b[2Jb",
    "C1 controls": "a\x9b2J\x85b",
    "marks of direction": "a\u202egpj\u2066b",
    "a byte that is no text": "a\udc9b\udcffb",
    "a line break": "a\nerror: all is well",
    "a carriage return": "a\rerror: all is well",
    "a line separator": "a\u2028error: all is well",
}


def assert_plain(text: str, lines: int | None = None) -> None:
    """Nothing but text and line breaks, of which those of a name are none."""
    assert all(char.isprintable() or char == "\n" for char in text), repr(text)
    assert "\nerror: all is well" not in text
    if lines is not None:
        assert text.count("\n") == lines, text


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("step") / "step.tide"
    save(capture(find("mlp").load()), path)
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[str, str]:
    """What a command that fails prints, and its message."""
    with pytest.raises(SystemExit) as stopped:
        main([str(each) for each in arguments])
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ")
    return out, err


@pytest.mark.parametrize("kind", NAMES)
def test_a_baseline_of_any_name_is_named_in_one_line(
    kind: str, step: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline = tmp_path / f"{NAMES[kind]}.json"
    baseline.write_text("no baseline")
    asked = ("--assert", "peak <= +1% of baseline", "--baseline", baseline)
    err = said(capsys, "check", step, *asked)[1]
    assert_plain(err, 1)
    assert "b.json is not a tensortide baseline" in err or "all is well.json is not a tensortide baseline" in err
    out, err = said(capsys, "check", step, *asked, "--json")
    assert_plain(out + err)
    assert "error: " + json.loads(out)["message"] + "\n" == err


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize(
    "command",
    [
        "count {}.tide",
        "count {}.py:f",
        "report STEP --trace none/{}.json",
        "report STEP --trace={}/{}.json",
        "memory STEP --idle --durations {}.json",
        "time STEP --from {}.json",
        "time STEP --machine {}",
        "count STEP {}",
        "count STEP --{}",
        "count STEP --set {}=1",
        "{} STEP",
    ],
)
def test_a_name_is_escaped_by_every_verb(
    command: str,
    kind: str,
    step: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word.replace("{}", NAMES[kind]).replace("STEP", str(step)) for word in command.split()]
    assert_plain(said(capsys, *words)[1])


def test_names_and_texts_in_a_file_are_escaped(
    step: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    checks = tmp_path / "checks.toml"
    table = f'[check."name \\u001b[2J\\nerror: all is well"]\ntarget = "{step}"\n'
    checks.write_text(f'{table}assert = ["peak <= +1% of baseline"]\nbaseline = "none\\u009b2J.json"\n')
    out, err = said(capsys, "check", "--file", checks)
    assert_plain(out + err)
    assert r"error: name \x1b[2J\nerror: all is well: " in err


def test_warnings_that_python_prints_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    before = warnings.formatwarning
    with messages.clean_warnings():
        sys.stderr.write(warnings.formatwarning("\x1b[2Jseen", UserWarning, "a\x9b.py", 3, "line"))
        messages.say("warning", UserWarning("\x1b[2Jseen"))
    assert_plain(said_so := capsys.readouterr().err)
    assert r"a\x9b.py:3: UserWarning: \x1b[2Jseen" in said_so
    assert r"warning: \x1b[2Jseen" in said_so
    assert warnings.formatwarning is before


def test_a_warning_of_each_capture_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []
    with warnings.catch_warnings():
        monkeypatch.setattr(warnings, "showwarning", lambda message, *_, **__: printed.append(str(message)))
        with console.told():
            for text in ("old", "old", "new", "old"):
                with warnings.catch_warnings(action="always"):
                    warnings.warn(text, stacklevel=1)
    assert printed == ["old", "new"]


@pytest.mark.slow
def test_a_warning_of_the_step_is_one_however_often_fit_captures_it(tmp_path: Path) -> None:
    (tmp_path / "step.py").write_text(
        "import torch, warnings\ndef f(batch=64):\n    model = torch.nn.Linear(64, 64)\n"
        "    optimizer = torch.optim.SGD(model.parameters())\n    def step():\n"
        "        warnings.warn('odd layer')\n        model(torch.randn(batch, 64)).sum().backward()\n"
        "        optimizer.step()\n    return step\n"
    )
    done = tensortide(tmp_path, "fit", "step.py:f", "--memory", "64KiB")
    assert done.returncode == 1
    assert done.stderr.count("UserWarning: odd layer") == 1


def test_progress_is_escaped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "LINE_S", 0.0)
    with console.progress(quiet=False) as say:
        say("".join(NAMES.values()))
    assert_plain(capsys.readouterr().err, 1)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_shows_names_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    with console.progress(quiet=False) as say:
        say("reading a[red]\x1b[7m\nb.json")
        time.sleep(1.3)
    assert r"reading a[red]\x1b[7m\nb.json ..." in screen.getvalue()


def test_names_of_written_files_are_escaped(step: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (*NAMES.values(), "[red]"):
        main_with_success(["count", str(step), "--csv", str(tmp_path / f"{name}.csv")])
        out = capsys.readouterr().out
        assert_plain(out)
        assert out.endswith(f"wrote {messages.one_line(str(tmp_path / name))}.csv\n")


def main_with_success(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code in (0, None)


def test_a_step_whose_name_is_no_text_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "step\udcff.py"
    program.write_text("import torch\n\n\ndef f():\n    return lambda: torch.ones(2) + 1\n")
    _, err = said(capsys, "capture", f"{program}:f", "-o", tmp_path / "step.tide")
    assert_plain(err, 1)
    assert r"step\udcff.py:f: the name is no text in UTF-8. Rename the file." in err
    assert not (tmp_path / "step.tide").exists()
