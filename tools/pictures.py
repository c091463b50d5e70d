"""Generator of pictures for the docs: ``python -m tools.pictures [--write]``.

The pictures belong to ``docs/explanation/layout.md``. Without ``--write``, pictures that differ from the checked-in
files are listed; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

FOLDER = Path(__file__).parents[1] / "docs" / "explanation" / "pictures"
IMPLICIT, TRANSPARENT, ATTRIBUTE, TRANSPOSE, INPUT = "#f2b8a0", "#bfd7f5", "#c9e7c4", "#c2410c", "#e5e7eb"
BOX_DISTANCE, BOX_HEIGHT, TOP = 104, 34, 30  # pixels; TOP: space above the first row
ROW_DISTANCE = 92
MARGIN, BOXES_LEFT = 8, 116  # pixels: left edge of the titles, and of the boxes
BASELINE = 21  # pixels from the top of a box to the baseline of its text


@dataclass(frozen=True)
class Box:
    """A box for an operator.

    ``layout``: label of the arrow after the box. ``note``: text below the box.
    """

    text: str
    color: str
    layout: str = ""
    note: str = ""


Row = tuple[str, Sequence[Box]]


def _transpose(layout: str, note: str = "") -> Box:
    return Box("Transpose", TRANSPOSE, layout, note)


PICTURES: dict[str, tuple[str, Sequence[Row]]] = {
    "planned": (
        "The same network with a Transpose around every convolution, and as planned: one Transpose at the input",
        (
            (
                "around each",
                (
                    Box("image", INPUT, "NHWC"),
                    _transpose("NCHW"),
                    Box("Conv", IMPLICIT, "NCHW"),
                    _transpose("NHWC"),
                    Box("Add", TRANSPARENT, "NHWC"),
                    _transpose("NCHW"),
                    Box("Conv", IMPLICIT, "NCHW"),
                    _transpose("NHWC"),
                    Box("Mean", ATTRIBUTE),
                ),
            ),
            (
                "planned",
                (
                    Box("image", INPUT, "NHWC"),
                    _transpose("NCHW"),
                    Box("Conv", IMPLICIT, "NCHW"),
                    Box("Add", TRANSPARENT, "NCHW"),
                    Box("Conv", IMPLICIT, "NCHW"),
                    Box("Mean", ATTRIBUTE, "", "axes 1, 2 → 2, 3"),
                ),
            ),
        ),
    ),
    "memory": (
        "Where the elements of a tensor of 2 x 2 pixels and 3 channels lie in memory, channels last and channels first",
        (),
    ),
    "reshape": (
        "A Reshape whose result needs the file's order of elements forces a Transpose; a flatten before a dense layer does not, "
        "because the columns of the weight are permuted instead",
        (
            (
                "detector head",
                (
                    Box("Conv", IMPLICIT, "NCHW"),
                    _transpose("NHWC", "forced by the Reshape"),
                    Box("Reshape", ATTRIBUTE, "boxes", "[1, H·W·6, 4]"),
                    Box("Concat", ATTRIBUTE),
                ),
            ),
            (
                "classifier",
                (
                    Box("Conv", IMPLICIT, "NCHW"),
                    Box("Reshape", ATTRIBUTE, "C·H·W"),
                    Box("Gemm", TRANSPARENT, "", "columns of the weight: H·W·C → C·H·W"),
                ),
            ),
        ),
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    stale = [name for name, text in drawings().items() if not _has_content(FOLDER / name, text)]
    for name in stale:
        if write:
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / name).write_text(drawings()[name], encoding="utf-8")
        print(f"{'wrote' if write else 'differs:'} {name}")
    return int(bool(stale) and not write)


def _has_content(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def drawings() -> dict[str, str]:
    """Return the text of each picture by file name."""
    return {
        f"{name}.svg": _memory(title) if not rows else _chains(title, rows) for name, (title, rows) in PICTURES.items()
    }


# --- chains of operators ----------------------------------------------------------------------


def _chains(title: str, rows: Sequence[Row]) -> str:
    longest = max(len(boxes) for _, boxes in rows)
    parts = [part for k, row in enumerate(rows) for part in _row(*row, TOP + k * ROW_DISTANCE)]
    return _svg(title, BOXES_LEFT + longest * BOX_DISTANCE + MARGIN, TOP + len(rows) * ROW_DISTANCE - 20, parts)


def _row(name: str, boxes: Sequence[Box], top: float) -> Iterator[str]:
    yield _text(MARGIN, top + BASELINE, name, anchor="start", bold=True)
    width = BOX_DISTANCE - 32
    for k, box in enumerate(boxes):
        left = BOXES_LEFT + k * BOX_DISTANCE
        has_dark_text = box.color != TRANSPOSE
        yield f'<rect x="{left}" y="{top}" width="{width}" height="{BOX_HEIGHT}" rx="5" fill="{box.color}" stroke="#8a94a6"/>'
        yield _text(left + width / 2, top + BASELINE, box.text, color="#1c2330" if has_dark_text else "#fff")
        if box.note:
            yield _text(left + width / 2, top + BOX_HEIGHT + 16, box.note, size=10, color="#5a6475")
        if k + 1 < len(boxes):
            right = left + width
            yield f'<path d="M{right} {top + 17}h{BOX_DISTANCE - width - 6}" stroke="#5a6475" fill="none" marker-end="url(#to)"/>'
            yield _text(right + (BOX_DISTANCE - width) / 2 - 2, top - 4, box.layout, size=10, color="#5a6475")


# --- elements in memory -----------------------------------------------------------------------


def _memory(title: str) -> str:
    pixels = [(y, x) for y in range(2) for x in range(2)]
    layouts = {
        "NHWC": [(y, x, c) for y, x in pixels for c in range(3)],
        "NCHW": [(y, x, c) for c in range(3) for y, x in pixels],
    }
    parts = []
    for k, (name, cells) in enumerate(layouts.items()):
        top = TOP + k * ROW_DISTANCE
        parts.append(_text(MARGIN, top + BASELINE, name, anchor="start", bold=True))
        for position, (y, x, c) in enumerate(cells):
            left = BOXES_LEFT + position * 56
            color = (IMPLICIT, ATTRIBUTE, TRANSPARENT)[c]
            parts.append(
                f'<rect x="{left}" y="{top}" width="52" height="{BOX_HEIGHT}" rx="3" fill="{color}" stroke="#8a94a6"/>'
            )
            parts.append(_text(left + 26, top + BASELINE, f"{y},{x}  {'RGB'[c]}"))
    parts.append(
        _text(
            BOXES_LEFT, TOP + ROW_DISTANCE - 14, "perm 0, 3, 1, 2 ↓     ↑ 0, 2, 3, 1", anchor="start", color="#5a6475"
        )
    )
    return _svg(title, BOXES_LEFT + 12 * 56 + MARGIN, TOP + 2 * ROW_DISTANCE - 40, parts)


# --- SVG --------------------------------------------------------------------------------------


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "middle",
    size: int = 12,
    color: str = "#1c2330",
    bold: bool = False,
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{color}"{weight}>{escape(text)}</text>'


def _svg(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        'font-family="system-ui, sans-serif">'
    )
    arrow = (
        '<marker id="to" markerWidth="8" markerHeight="8" refX="6" refY="4" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#5a6475"/></marker>'
    )
    background = f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>'
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", f"<defs>{arrow}</defs>", background, *parts, "</svg>", ""]
    )


if __name__ == "__main__":
    sys.exit(main())
