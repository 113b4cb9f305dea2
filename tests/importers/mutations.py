"""Damaged texts: a valid one with a few lines changed."""

from __future__ import annotations

from hypothesis import strategies as st

PIECES = (
    *(
        "",
        " ",
        "\t",
        "#",
        "_",
        "(",
        ")",
        "[",
        "]",
        "{",
        '"',
        "'",
        "=",
        ",",
        ":",
        ";",
        ".",
        "-",
        "0",
        "1",
        "9" * 30,
        "-1",
    ),
    *("None", "tensor0", "torch.ops.aten.add.Tensor", "lambda: 0", "f32[2]", "s0", "\\", "\x00", "\r", "é", "1e999"),
    *("9" * 5000, "a" * 5000, "a/" * 5000, "[" * 5000, "~no-such-user/", "/"),
)


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """``text`` after one to three changes: lines left out, doubled, swapped, cut, or with something put into them."""
    lines = text.split("\n")
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        line = lines[at]
        match draw(st.sampled_from(("drop", "double", "swap", "cut", "put", "put"))):
            case "drop" if len(lines) > 1:
                del lines[at]
            case "double":
                lines.insert(at, line)
            case "swap":
                other = draw(st.integers(0, len(lines) - 1))
                lines[at], lines[other] = lines[other], line
            case "cut":
                lines[at] = line[: draw(st.integers(0, len(line)))]
            case _:
                start = draw(st.integers(0, len(line)))
                end = draw(st.integers(start, min(len(line), start + 4)))
                piece = draw(st.sampled_from(PIECES) | st.text(max_size=4))
                lines[at] = line[:start] + piece + line[end:]
    return "\n".join(lines)
