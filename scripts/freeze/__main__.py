"""Record what the program answers, or compare it with what was recorded.

    python -m scripts.freeze              # write tests/frozen.txt
    python -m scripts.freeze --compare    # print what differs from it, and exit with 1 if anything does
    python -m scripts.freeze --verb plan --verb "place compare"   # the figures of these verbs alone, in a minute
    python -m scripts.freeze --out FILE   # write it elsewhere

Figures are lines under stable names; ``names.py`` maps keys of the program that were renamed to them. Times follow
from committed inputs (``fixed_times.py``), searches are limited by work (``settings.py``), and nothing is measured: the
same sources give the same text.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

from scripts.freeze.fixed_times import fixed_times
from scripts.freeze.functions import record_functions
from scripts.freeze.lines import Lines, Recorder, differences, lines_of, text_of
from scripts.freeze.names import NAMES
from scripts.freeze.settings import FROZEN
from scripts.freeze.verbs import record_verbs
from tensortide.write import write_file


def recorded(verbs: Collection[str] = ()) -> Lines:
    """The figures of the program as it is, or of these ``verbs`` alone."""
    into = Recorder(NAMES)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), fixed_times():
        os.environ["TENSORTIDE_MEASURED"] = str(Path(folder, "measured"))  # nothing is measured
        record_verbs(into, verbs)
        if not verbs:
            record_functions(into)
    return _of(verbs, into.lines)


def _of(verbs: Collection[str], lines: Lines) -> Lines:
    heads = {verb.replace(" ", "_") for verb in verbs}
    return {name: value for name, value in lines.items() if not heads or name.partition("/")[0] in heads}


def main() -> int:
    """Write the text, or compare; 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", action="store_true", help="print what differs from the recorded text")
    parser.add_argument("--out", type=Path, default=FROZEN, help="file to write, or to compare with")
    parser.add_argument("--verb", action="append", default=[], help="only what this verb answers")
    options = parser.parse_args()
    out = options.out.resolve()
    before = lines_of(out.read_text("utf-8")) if options.compare or options.verb else {}
    old, new = _of(options.verb, before), recorded(options.verb)
    print(f"{len(new):,} figures in {time.process_time():.0f} CPU seconds", file=sys.stderr)
    if not options.compare:
        kept = {name: value for name, value in before.items() if name not in old}
        write_file(out, text_of(kept | new))
        return 0
    found = differences(old, new)
    print("\n".join([*found, f"{len(found):,} of {len(old):,} figures differ from {out.name}"]))
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
