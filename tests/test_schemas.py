"""docs/schemas describes what is printed as JSON."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scripts.freeze.names import MACHINE_KEYS
from scripts.keys import FACTS, general, keys, page
from scripts.schemas import FOLDER, KEYS, records, schemas
from tensortide.reports.render.json_objects import Document
from tensortide.studies.fit.trial import Trial
from tests.cli.command import called
from tests.graphs import path_of

jsonschema = pytest.importorskip("jsonschema")

PAGE = FOLDER.with_suffix(".md")
MLP = str(path_of("mlp"))
LEFT_OUT = set(MACHINE_KEYS)
"""Keys that depend on the machine, which are not frozen."""
VERBS = (
    ("time", MLP, "--machine", "t4"),
    pytest.param(("report", MLP), marks=pytest.mark.slow),
    pytest.param(("memory", MLP, "--idle"), marks=pytest.mark.slow),
    ("fit", MLP, "--machine", "l4", "--memory", "1MiB"),
    ("count", MLP, "--explain", "0"),
    ("metrics", MLP),
    ("compare", MLP, MLP),
    ("check", MLP, "--assert", "peak <= 1MiB"),
    pytest.param(("plan", MLP, "--budget", "80%"), marks=pytest.mark.slow),
    pytest.param(("remat", "simulate", MLP, "--budget", "80%"), marks=pytest.mark.slow),
    ("draw", MLP, "-o", "step.svg"),
    ("report", "none"),
    ("report", MLP, "--no-such-option"),
)


@functools.cache
def checker() -> Any:
    schema = json.loads(schemas()["document.schema.json"])
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_files_are_those_of_the_sources() -> None:
    files = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.json")}
    assert files == schemas(), "records or documents have changed: python -m scripts.schemas writes the schemas"
    assert KEYS.read_text("utf-8") == page(), "sections have changed: python -m scripts.schemas writes their keys"


@pytest.mark.parametrize("typed", VERBS, ids=lambda typed: " ".join(Path(word).name for word in typed))
def test_what_a_verb_prints_is_valid(typed: tuple[str, ...], tmp_path: Path) -> None:
    printed_object = json.loads(called(tmp_path, *typed, "--json", "--quiet").stdout)
    checker().validate(printed_object)
    assert not checker().is_valid(printed_object | {"schema_version": 2})
    assert not checker().is_valid(printed_object | {"format": "tensortide.table"})
    for key, section in printed_object.get("sections", {}).items():
        for table, columns in {FACTS: section.get("facts", {}), **section.get("tables", {})}.items():
            listed = keys().get(general(key), {}).get(general(table), set()) | LEFT_OUT
            assert set(map(general, columns)) <= listed, f"keys of {key}.{table}"


def test_a_key_is_found_from_its_section_and_table() -> None:
    section = KEYS.read_text("utf-8").partition("\n## fit\n")[2].partition("\n## ")[0]
    assert section.startswith("\nOf `fit`.")
    (actions,) = [line for line in section.splitlines() if line.startswith("| `actions` |")]
    assert "`saved_bytes`" in actions


@pytest.mark.parametrize(
    ("part", "value", "place"),
    [
        ((), {"title": 1}, "$.title: 1 is not of type 'string'"),
        (("sections", "time"), {"facts": {"x": [1]}}, "$.sections.time.facts.x: [1] is not of type 'integer'"),
        (("sections", "time"), {"tables": {"ops": {"op": "a"}}}, "$.sections.time.tables.ops.op: 'a' is not of type"),
        (("sections", "time"), {"notes": [{"kind": "remark"}]}, "$.sections.time.notes[0]: 'text' is a required"),
        ((), {"schema_version": 2}, "$.schema_version: 2 is not one of [1]"),
        ((), {"format": "other"}, "$.format: 'other' is not one of ['tensortide.document', 'tensortide.error'"),
    ],
)
def test_a_fault_is_named_with_its_place(part: tuple[str, ...], value: dict[str, Any], place: str) -> None:
    (faulty,) = map(json.loads, re.findall(r"```json\n(.+?)```", PAGE.read_text("utf-8"), re.DOTALL))
    inner = faulty
    for name in part:
        inner = inner[name]
    inner.update(value)
    found = jsonschema.exceptions.best_match(checker().iter_errors(faulty))
    assert f"{found.json_path}: {found.message}".startswith(place)
    assert len(found.message) < 200


def test_readers_pass_over_what_they_do_not_know() -> None:
    (text,) = re.findall(r"```json\n(.+?)```", PAGE.read_text("utf-8"), re.DOTALL)
    newer = json.loads(text) | {"more": 1}
    newer["sections"]["time"] |= {"more": {}, "notes": [{"kind": "hint", "text": "...", "more": 2}]}
    checker().validate(newer)
    read = msgspec.convert(newer, Document)
    assert read.sections["time"].notes[0].kind == "hint"


def test_the_examples_of_the_page_are_valid_and_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAGE.read_text("utf-8")
    (document,) = re.findall(r"```json\n(.+?)```", text, re.DOTALL)
    checker().validate(json.loads(document))
    (tmp_path / "time.json").write_text(called(tmp_path, "time", MLP, "--machine", "t4", "--json").stdout, "utf-8")
    for copied, path in {
        "a.tide": MLP,
        "b.tide": MLP,
        "document.schema.json": str(FOLDER / "document.schema.json"),
    }.items():
        (tmp_path / copied).write_bytes(Path(path).read_bytes())
    monkeypatch.chdir(tmp_path)
    for example in re.findall(r"```python\n(.+?)```", text, re.DOTALL):
        exec(example, {})
        assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.+  # (.+)", example)


def test_a_record_has_its_fields_with_types_units_and_titles() -> None:
    found = json.loads(schemas()["records.schema.json"])
    jsonschema.Draft202012Validator.check_schema(found)
    assert Trial in records()
    trial = found["$defs"]["tensortide.studies.fit.trial.Trial"]
    assert trial["properties"]["peak_bytes"] == {"type": "integer", "title": "Peak", "unit": "bytes"}
    gain = found["$defs"]["tensortide.studies.fit.results.Gain"]["properties"]
    assert gain["fits"] == {"enum": ["fits", "unsure", "too large"], "unit": "text"}
    assert gain["saved_per_ms_bytes"]["type"] == ["integer", "null"]
    assert [*trial["properties"]] == [*gain][: len(trial["properties"])]
