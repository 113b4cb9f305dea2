"""Files that are no logs, damaged ones, ones that contradict themselves: one error that names file and line."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from tensortide.errors import LogError
from tensortide.importers.dtrlog.read import read_recording
from tests.importers.dtrlog.logs import random_log

A = '{"INSTRUCTION":"CONSTANT","NAME":"a"}\n{"INSTRUCTION":"MEMORY","NAME":"a","MEMORY":"8"}\n'
CALL = '{"INSTRUCTION":"CALL","NAME":"f","ARGS":["a"],"RESULT":["b"],"TIME":"1"}\n'
MEMORY_B = '{"INSTRUCTION":"MEMORY","NAME":"b","MEMORY":"8"}\n'
ALIAS_B = '{"INSTRUCTION":"ALIAS","NAME":"b","ALIAS":"-1"}\n'
B = CALL + MEMORY_B + ALIAS_B
START = '{"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"}\n'

CASES = {
    # no JSON, or not one object of a known kind
    "hello\n": "line 1, column 1: not JSON: invalid character: hello",
    A + '\n{"INSTRUCTION":"CALL","NAM\n': "line 4, column 27: not JSON: the line ends too early: {",
    A + '{"INSTRUCTION":"RELEASE","NAME":"ä"} x\n': 'line 3, column 39: not JSON: trailing characters: {"INSTR',
    A + "[1]\n": "line 3: Expected object, got array: [1]",
    A + "{}\n": "line 3: Object missing required field INSTRUCTION: {}",
    A + '{"INSTRUCTION":"PIN","NAME":"a"}': "line 3: INSTRUCTION: Invalid value 'PIN': {",
    '{"X":' + "[" * 100_000: "line 1: too deeply nested: {",
    # fields
    '{"INSTRUCTION":"RELEASE"}': "line 1: Object missing required field NAME: {",
    '{"INSTRUCTION":"RELEASE","NAME":"a","X":1}': "line 1: Object contains unknown field X: {",
    '{"INSTRUCTION":"RELEASE","NAME":5}': "line 1: NAME: Expected str, got int: {",
    A.replace('"8"', '"8 B"'): "line 2: MEMORY: Expected int, got str: {",
    A.replace('"8"', "8.5"): "line 2: MEMORY: Expected int, got float: {",
    A.replace('"8"', '"-8"'): "line 2: MEMORY: Expected int >= 0: {",
    A.replace('"8"', "null"): "line 2: MEMORY: Expected int, got null: {",
    A + CALL.replace('"1"', "-1"): "line 3: TIME: Expected int >= 0: {",
    A + CALL.replace('["a"]', '"a"'): "line 3: ARGS: Expected array, got str: {",
    A + CALL.replace('["a"]', '["a",1]'): "line 3: ARGS[1]: Expected str, got int: {",
    A + CALL + MEMORY_B + ALIAS_B.replace("-1", "-2"): "line 5: ALIAS: Expected int >= -1: {",
    A.replace("8", "9" * 19): ": 9,999,999,999,999,999,999 bytes in all, more than 64 bits hold",
    A + B.replace('"TIME":"1"', '"TIME":"9223372036854775808"'): " nanoseconds in all, more than 64 bits hold",
    # the lines after CONSTANT and CALL
    A[:38]: "line 1: expected MEMORY of 'a', the log ends",
    A.replace('MEMORY","NAME":"a"', 'MEMORY","NAME":"b"'): "line 2: expected MEMORY of 'a', there is MEMORY of 'b': {",
    A + CALL + ALIAS_B + MEMORY_B: "line 4: expected MEMORY of 'b', there is ALIAS of 'b': {",
    A + CALL + MEMORY_B + A: "line 5: expected ALIAS of 'b', there is CONSTANT: {",
    A + CALL + MEMORY_B + ALIAS_B.replace("-1", "1"): "line 5: 'b' lies in ARGS[1], and there are 1 ARGS: {",
    A + B + MEMORY_B: "line 6: MEMORY belongs after CONSTANT or CALL: {",
    A + B + ALIAS_B: "line 6: ALIAS belongs after CONSTANT or CALL: {",
    # names
    B: "line 1: nothing has made 'a': {",
    A + A: "line 3: 'a' is made twice: {",
    A + B + B: "line 6: 'b' is made twice: {",
    A + CALL.replace('["b"]', '["b","b"]'): "line 3: 'b' is made twice: {",
    A + '{"INSTRUCTION":"COPY","DST":"a","SRC":"a"}': "line 3: 'a' is made twice: {",
    A + '{"INSTRUCTION":"COPY","DST":"b","SRC":"c"}': "line 3: nothing has made 'c': {",
    A + '{"INSTRUCTION":"COPY_FROM","DST":"b","SRC":"a"}': "line 3: nothing has made 'b': {",
    A + '{"INSTRUCTION":"RELEASE","NAME":"a"}\n' * 2: "line 4: 'a' is released more often than it is held: {",
    A + START + CALL: "line 4: nothing has made 'a': {",
    # in-place ops
    A + '{"INSTRUCTION":"MUTATE","NAME":"f_","ARGS":["a"],"MUTATE":[1],"TIME":1}': (
        "line 3: ARGS[1] is to be written, and there are 1 ARGS: {"
    ),
    A + '{"INSTRUCTION":"MUTATE","NAME":"f_","ARGS":["a"],"MUTATE":[0,0],"TIME":1}': (
        "line 3: an index is twice in MUTATE: {"
    ),
    A + '{"INSTRUCTION":"MUTATE","NAME":"f_","ARGS":["a"],"MUTATE":[-1],"TIME":1}': (
        "line 3: MUTATE[0]: Expected int >= 0: {"
    ),
    A + '{"INSTRUCTION":"MUTATE","NAME":"f_","ARGS":["b"],"MUTATE":[0],"TIME":1}': "line 3: nothing has made 'b': {",
    # the whole
    "": ": no op in this log",
    "\n \n": ": no op in this log",
    START: ": no op in this log",
    A + START + B.replace('"a"', "") + START: "line 7: a second START: {",
    "oops\n" + A: "line 1, column 1: not JSON: invalid character: oops",
}


@pytest.mark.parametrize(("text", "said"), CASES.items(), ids=range(len(CASES)))
@pytest.mark.parametrize("copy_on_write", [False, True])
def test_one_error_that_says_where(tmp_path: Path, text: str, said: str, copy_on_write: bool) -> None:
    assert said in refused(tmp_path, text.encode(), copy_on_write)


def refused(folder: Path, data: bytes, copy_on_write: bool = False) -> str:
    """What is said against a file."""
    path = folder / "bad.log"
    path.write_bytes(data)
    with pytest.raises(LogError) as caught:
        read_recording(path, copy_on_write=copy_on_write)
    said = str(caught.value)
    assert said.startswith(f"{path}")
    assert "\n" not in said
    assert len(said) < len(str(path)) + 200
    return said


def test_not_utf8(tmp_path: Path) -> None:
    said = refused(tmp_path, A.encode() + b'{"INSTRUCTION":"RELEASE","NAME":"\xe4"}\n')
    assert r'line 3, column 34: not UTF-8: {"INSTRUCTION":"RELEASE","NAME":"\xe4"}' in said
    assert "line 1, column 1: not UTF-8: " in refused(tmp_path, A.encode("utf-16"))


def test_compressed_and_cut_off_or_altered(tmp_path: Path) -> None:
    whole = gzip.compress(random_log(random.Random(1), 500).encode())
    said = "after this line the compressed file is damaged (gzip): "
    for damaged in (whole[: len(whole) // 2], whole[:-4], whole[:-8] + bytes(8)):
        assert f": {said}" in refused(tmp_path, damaged)
    assert f"line 0: {said}" in refused(tmp_path, b"\x1f\x8bbroken and long enough")


def test_a_line_without_end(tmp_path: Path) -> None:
    assert "line 1: longer than 16,777,216 bytes" in refused(tmp_path, gzip.compress(b" " * (1 << 25), 1))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"cannot read .*none.log: No such file"):
        read_recording(tmp_path / "none.log")
    with pytest.raises(LogError, match=r"cannot read .*: Is a directory"):
        read_recording(tmp_path)
    with pytest.raises(LogError, match=r"cannot read .*: embedded null"):
        read_recording("a\0b.log")


@pytest.mark.parametrize("seed", range(8))
def test_damage_is_an_error_or_another_log(tmp_path: Path, seed: int) -> None:
    """Lines removed, doubled, swapped, bytes altered: read, or refused with a LogError, and nothing else."""
    chance = random.Random(seed)
    path = tmp_path / "damaged.log"
    for _ in range(40):
        lines = random_log(chance, 30).encode().splitlines(keepends=True)
        index, other = chance.randrange(len(lines)), chance.randrange(len(lines))
        match chance.randrange(4):
            case 0:
                del lines[index]
            case 1:
                lines.insert(other, lines[index])
            case 2:
                lines[index], lines[other] = lines[other], lines[index]
            case _:
                line = bytearray(lines[index])
                line[chance.randrange(len(line))] = chance.randrange(256)
                lines[index] = bytes(line)
        path.write_bytes(b"".join(lines))
        try:
            read_recording(path, copy_on_write=chance.random() < 0.5)
        except LogError as error:
            assert str(path) in str(error)  # noqa: PT017
