"""The support table, ``docs/operators.md``: made from the handlers' declarations, the cases and the bounds.

python -m conformance.table --check     fails where the file is out of date
python -m conformance.table --write
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from onnx_tflite_plugin.api import Handler
from onnx_tflite_plugin.api.declarations import resolve
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import target_named

from .bounds import BOUNDS, EQUAL
from .case import Case
from .cases import builtin
from .coverage import instances, layouts

FILE = Path(__file__).parent.parent / "docs" / "operators.md"
COLUMNS = ("float32", "float16", "int8", "uint8", "int16", "int4")

INTRODUCTION = """\
# Operators

Made by `python -m conformance.table --write` from the handlers, the conformance cases and their bounds; do not edit.

Under a dtype stands the number of cases that pass with it: every case is converted for each target with the layout
planned at least cost, planned locally, and with graph inputs and outputs channels first, and its results are compared
with LiteRT's. Real results may differ by 1e-5 of their range, 8 and 16 bit integers by one step, anything else not at
all, unless a bound is given; models with float activations on integer weights by 2e-2 of the range. "equal" is exactly that.
Weights of 4 and 2 bits count under those, whatever the activations; "by block" are those with a scale per block.
"""
LAYOUTS = """\
**Layout**: *Implicit* operators are channels first in ONNX. *Transparent* and *Attribute* ones work in the order of
their neighbours, the latter with axis numbers, pads and masks remapped. *Terminate* ones keep the file's order.
**Quantization**: *Dequantized* is DequantizeLinear, float, QuantizeLinear, which runtimes fuse; *SameScale* passes
integers through where scales agree; *Raw* computes on the stored integers, as the kernel does; *FixedOutputRange* is
*Dequantized* with an output scale the kernel insists on.
"""


def table(host: Host | None = None) -> str:
    """The file's text."""
    host = host or Host(packs="builtin")
    handlers = [(code, found) for code, _, found in host.handlers() if isinstance(found, Handler)]
    cases = builtin()
    headings = ["operator", "versions", "layout", "quantization", *COLUMNS, "others", "bound", "ONNX"]
    lines = [INTRODUCTION, LAYOUTS, _row(headings), _row(["---"] * len(headings))]
    lines += [_row(_cells(code, found, [case for case in cases if case.op == code], host)) for code, found in handlers]
    for title, rows in _notes(cases, {code for code, _ in handlers}):
        if rows:
            lines += ["", f"## {title}", *rows]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _cells(code: str, found: Handler, cases: Sequence[Case], host: Host) -> list[str]:
    passing = [case for case in cases if case.counts]
    counted = Counter(case.dtype for case in passing)
    others = [f"{dtype} {counted[dtype]}" for dtype in sorted(counted) if dtype not in COLUMNS]
    bounds = [f"{row.dtype}: {row.text}" for row in BOUNDS if row.op == code]
    return [
        code,
        f"1–{found.max_version}" if found.max_version > 1 else "1",
        " / ".join(_layouts(found, passing, host)),
        " / ".join(_quantization(found, passing)),
        *(str(counted[dtype] or "") for dtype in COLUMNS),
        ", ".join(others),
        ", ".join(bounds) or ("equal" if code in EQUAL else ""),
        found.summary,
    ]


def _layouts(found: Handler, cases: Sequence[Case], host: Host) -> list[str]:
    if not callable(found.layout):
        return [type(found.layout).__name__]
    return sorted({type(layout).__name__ for case in cases for layout in layouts(case, host)})


def _quantization(found: Handler, cases: Sequence[Case]) -> list[str]:
    if not callable(found.quantization):
        return [type(found.quantization).__name__]
    target = target_named("onnxruntime")
    calls = (op for case in cases for op in instances(read(case.build()), case))
    return sorted({type(resolve(found.quantization, op, target)).__name__ for op in calls})


def _notes(cases: Sequence[Case], codes: set[str]) -> Iterator[tuple[str, list[str]]]:
    mine = sorted((case for case in cases if case.op in codes), key=lambda case: case.op)
    yield "Bounds", [f"- **{row.op}** {row.dtype}, {row.text}: {row.reason}." for row in BOUNDS]
    yield "Known differences", [f"- **{case.op}**, {case.name}: {case.known}." for case in mine if case.known]
    yield (
        "Refused by the converter",
        [f"- **{case.op}**, {case.name}: {case.refused}." for case in mine if case.refused],
    )
    refused = [f"- **{case.op}**, {case.name}: `{case.kernel_refuses}`" for case in mine if case.kernel_refuses]
    yield "Refused by LiteRT's kernels", refused


@cache
def committed() -> str:
    return FILE.read_text(encoding="utf-8") if FILE.exists() else ""


def main(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--write"]:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(table(), encoding="utf-8")
        return 0
    if list(arguments) == ["--check"]:
        if table() == committed():
            return 0
        print(f"{FILE} is out of date: python -m conformance.table --write", file=sys.stderr)
        return 1
    print("python -m conformance.table --check | --write", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
