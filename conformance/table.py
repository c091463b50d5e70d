"""Generate ``docs/reference/operators.md``, the support table.

The sources are the handlers, the cases and ``bounds``. ``python -m conformance.table --write`` writes the page;
``tests/conformance`` fails if it is out of date.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from conformance.bounds import EXACT_DTYPES, EXACT_OPERATORS
from conformance.case import Case
from conformance.cases import builtin_cases
from conformance.coverage import Coverage, coverage, declarations, inexpressible_operators
from conformance.declared import find_operators
from conformance.runner import CaseTrial
from conformance.variants import Variant
from onnx_tflite_plugin.api import Handler, Operator
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.graph.kernels import LOADED_FROM, OLDEST_RUNTIME, SCATTERS_FROM, first_runtime_of
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source import read

ROOT = Path(__file__).parent.parent
FILE, README = ROOT / "docs" / "reference" / "operators.md", ROOT / "README.md"
COVERAGE_MARK = "<!-- coverage -->"  # the next line of the README is generated
QUANTIZED_DTYPES = {"int8", "uint8", "int16", "uint16"}
SUB_BYTE_DTYPES = {"int4", "int2", "uint4"}
FOUR_BIT_OPSET = 21  # first opset with 4-bit dtypes; it needs a newer runtime than the oldest supported
COLUMNS = ("float32", "float16", "int8", "uint8", "int16", "int4")

INTRODUCTION = """\
# Operators

For everyone who needs to know whether an operator converts, in which dtypes and how exactly. `python -m conformance.table --write`
generates this page from the handlers and the conformance cases.

- **Dtypes.** The number below a dtype counts the cases that pass with it. Each case is converted for every target and every layout plan,
  and for at least one target with channels-first graph inputs and outputs. Its results are compared with LiteRT's. A case with weights of
  4 or 2 bits counts for the dtype of the weights, not of the activations. "by block" means one scale per block.
- **Difference.** The largest difference from LiteRT, for results of 8 and 16 bits: "equal", or "1 step" if a few elements differ by one
  quantization step. LiteRT has builtin and XNNPACK kernels; the closer result counts. Floats may differ by 1e-5 of their range, and by
  2e-2 for float activations with integer weights. Other results must be equal unless the case has a tolerance.
- **Processors.** 8-bit multiplications are exact on every processor, because `--weights-dtype auto` selects int8 or uint8 weights at load
  time. On x86 processors without AVX2 (before 2013), the 8-bit addition of ONNX Runtime is off by 1 for two in a million pairs.
- **Select operators** (`CUSTOM.Flex…`) are TensorFlow's own. They are compared with stored results of TensorFlow's kernels.
"""
LAYOUTS = """\
- **Layout.** *Implicit*: channels first in ONNX. *Transparent*: the layout of the neighbors. *Attribute*: the same, with axis numbers,
  pads and masks remapped. *Terminate*: the layout of the file, except for operands and results of subgraphs.
- **Quantization.** *Dequantized*: DequantizeLinear, float, QuantizeLinear, which runtimes fuse. *SameScale*: quantized values pass
  through if all scales are equal. *Raw*: computes on the quantized values. *Integer*: computes on the quantized values and their scales.
  *Lookup*: takes results from a table. *FixedOutputRange*: like *Dequantized*, with the output scale that the kernel requires.
- **Fused activations** are handled as in LiteRT's kernels. Recurrent layers apply `TANH` and `SIGN_BIT`, and so does FULLY_CONNECTED with
  float activations and integer weights. Arithmetic, convolutions and pooling ignore them. Other operators refuse them.
"""


VERSIONS = f"""\
Converted models in the default opset load in ONNX Runtime {OLDEST_RUNTIME} and later, except for those listed below.

- **Newer opsets**: {", ".join(f"opset {opset} needs {version}" for opset, version in LOADED_FROM.items())}.
- **Attention over a cache** (`--attention causal`) with target `generic`: needs {SCATTERS_FROM}. The model has opset 24.
- **SPACE_TO_BATCH_ND**, if its block size or paddings are runtime values and a convolution of height 1 follows: needs 1.31."""
KNOWN_DIFFERENCES = """\
Each line names an operator and a test case whose result differs from LiteRT's, then the reason.
"""
CONVERTER_REFUSES = """\
Each line names an operator and the test cases that are refused, then the reason and the remedy. Sizes and tensor names are those of the
test cases.
"""
KERNELS_REFUSE = """\
Each line names an operator and the test cases that LiteRT refuses to run. No results exist to compare with, so the converter may refuse
them too.
"""


def table(host: Host | None = None) -> str:
    """Return the text of the page."""
    host = host or Host(packs="builtin")
    handlers = [(code, handler) for code, _, handler in host.handlers() if isinstance(handler, Handler)]
    cases = builtin_cases()
    headings = ["operator", "versions", "layout", "quantization", *COLUMNS, "others", "difference", "ONNX"]
    lines = [INTRODUCTION + LAYOUTS, _row(headings), _row(["---"] * len(headings))]
    refused = inexpressible_operators(dict(handlers))
    convertible = [(code, handler) for code, handler in handlers if code not in refused]
    lines += [handler_row(code, handler, cases, host) for code, handler in convertible]
    lines += _coverage_lines(coverage(dict(handlers), cases), refused)
    lines += ["", "## Newer versions of ONNX Runtime", VERSIONS, *_versions(dict(convertible), cases, host)]
    for title, rows in _limit_sections(cases, {code for code, _ in convertible}, host):
        lines += ["", f"## {title}", *rows]
    return "\n".join(lines) + "\n"


def _coverage_lines(covered: Coverage, refused: Mapping[str, str]) -> Iterator[str]:
    yield from ("", "## Coverage", covered.text, "")
    partial = "; ".join(f"{code} ({missing})" for code, missing in covered.partial.items())
    yield f"- **Without a case** in these dtypes or versions: {partial or 'none'}."
    yield f"- **Without a handler**: {', '.join(covered.missing) or 'none'}."
    yield from (f"- **{code}**: {reason}." for code, reason in refused.items())


def readme(host: Host | None = None) -> str:
    """Return the text of the README with an updated coverage line."""
    host = host or Host(packs="builtin")
    handlers = {code: handler for code, _, handler in host.handlers() if isinstance(handler, Handler)}
    before, mark, rest = README.read_text(encoding="utf-8").partition(f"{COVERAGE_MARK}\n")
    return before + mark + coverage(handlers, builtin_cases()).text + "\n" + rest.partition("\n")[2]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def handler_row(code: str, handler: Handler, cases: Sequence[Case], host: Host) -> str:
    """Return the row of an operator."""
    passing = [case for case in cases if case.op == code and case.expects_success]
    case_counts = Counter(case.dtype for case in passing)
    others = [f"{dtype} {case_counts[dtype]}" for dtype in sorted(case_counts) if dtype not in COLUMNS]
    cells = [
        code,
        f"1–{handler.max_version}" if handler.max_version > 1 else "1",
        *_declared_kinds(handler, passing, host),
        *(str(case_counts[dtype] or "") for dtype in COLUMNS),
        ", ".join(others),
        _differences(code, passing),
        handler.summary,
    ]
    return _row(cells)


def _differences(code: str, cases: Sequence[Case]) -> str:
    """Return a text with the allowed difference of each quantized dtype.

    Dtypes with the same difference share an entry. The default of floats is omitted.
    """
    if code in EXACT_OPERATORS:
        return "equal"
    differences: dict[str, list[str]] = {}
    for dtype in ("int8", "uint8", "int16"):
        first = next((case for case in cases if case.dtype == dtype and _operators_of(case)), None)
        differences.setdefault(_difference(first) if first else "", []).append(dtype)
    differences.pop("", None)
    if not differences and cases:
        return _difference(next(filter(_operators_of, cases), cases[0]))
    return (
        next(iter(differences))
        if len(differences) == 1
        else "; ".join(f"{', '.join(dtypes)}: {text}" for text, dtypes in differences.items())
    )


def _operators_of(case: Case) -> list[Operator]:
    """Return the operators under test in a case's model.

    The result is empty if a fusion creates the operator under test.
    """
    return list(find_operators(read(case.build()), case.op))


def _difference(case: Case) -> str:
    """Return the allowed difference of one case; empty for floats."""
    results = {tensor.dtype for op in _operators_of(case) for tensor in op.outputs if tensor}
    if case.dtype in EXACT_DTYPES.get(case.op, ()) or not any(
        "float" in dtype or dtype in QUANTIZED_DTYPES for dtype in results
    ):
        return "equal"
    return "1 step" if results & QUANTIZED_DTYPES else ""


def _declared_kinds(handler: Handler, cases: Sequence[Case], host: Host) -> list[str]:
    """Return two cells: the names of a handler's layouts, and of its behaviors.

    Declarations that are functions are called for all cases.
    """
    depends_on_model = callable(handler.layout) or callable(handler.quantization)
    declared = [entry for case in cases for entry in declarations(case, host)] if depends_on_model else []
    layouts = [entry.layout for entry in declared] if callable(handler.layout) else [handler.layout]
    quantizations = (
        [entry.quantization for entry in declared] if callable(handler.quantization) else [handler.quantization]
    )
    return [" / ".join(sorted({type(kind).__name__ for kind in kinds})) for kinds in (layouts, quantizations)]


def _versions(handlers: Mapping[str, Handler], cases: Sequence[Case], host: Host) -> Iterator[str]:
    """Yield a line for each operator with models that need a newer ONNX Runtime.

    The models are converted in the default opset.
    """
    targets_by_version: dict[tuple[str, str, str], set[str]] = {}
    for case in cases:
        may_need_newer = (
            case.expects_success and case.op in handlers and _may_need_newer_runtime(case, handlers[case.op], host)
        )
        for target in case.targets if may_need_newer else ():
            model = CaseTrial(case, host).convert(Variant(target, None, "least")).model
            if version := first_runtime_of(model):
                targets_by_version.setdefault((case.op, case.dtype, version), set()).add(target)
    rows: dict[tuple[str, str, str], list[str]] = {}
    for (op, dtype, version), targets in sorted(targets_by_version.items()):
        rows.setdefault((op, version, " and ".join(sorted(targets))), []).append(dtype)
    for (op, version, targets_text), dtypes in rows.items():
        yield f"- **{op}** with {', '.join(dtypes)}, in some models with target {targets_text}: needs {version}."


def _may_need_newer_runtime(case: Case, handler: Handler, host: Host) -> bool:
    """True if the case's model may need a newer ONNX Runtime than the oldest.

    Such a case has a 4-bit or 2-bit dtype, or needs a newer opset.
    """
    if case.dtype in SUB_BYTE_DTYPES:
        return True
    return callable(handler.min_opset) and any(
        declared.min_opset >= FOUR_BIT_OPSET for declared in declarations(case, host)
    )


def _limit_sections(cases: Sequence[Case], codes: set[str], host: Host) -> Iterator[tuple[str, list[str]]]:
    """Yield (title, lines) of each section on cases that differ or are refused."""
    sorted_cases = sorted((case for case in cases if case.op in codes), key=lambda case: (case.op, case.name))
    yield (
        "Known differences",
        [
            KNOWN_DIFFERENCES,
            *(f"- **{case.op}**, {case.name}: {case.known_failure}." for case in sorted_cases if case.known_failure),
        ],
    )
    refused = [(case, refusal(case, host)) for case in sorted_cases if case.refusal]
    yield "Refused by the converter", [CONVERTER_REFUSES, *_by_operator(refused, "- **{op}**, {names}: {text}.")]
    unsupported = [(case, "") for case in sorted_cases if case.kernel_refusal]
    yield "Refused by LiteRT's kernels", [KERNELS_REFUSE, *_by_operator(unsupported, "- **{op}**: {names}.")]


def _by_operator(cases: Sequence[tuple[Case, str]], line_format: str) -> Iterator[str]:
    """Yield a line for each operator and text, with the names of all such cases.

    ``cases``: pairs (case, text). ``line_format``: format of a line, with the fields op, names and text.
    """
    names: dict[tuple[str, str], list[str]] = {}
    for case, text in cases:
        names.setdefault((case.op, text), []).append(case.name)
    return (line_format.format(op=op, names="; ".join(op_names), text=text) for (op, text), op_names in names.items())


def refusal(case: Case, host: Host) -> str:
    """Return the reason and the remedy of a refused case, without operator and pack."""
    try:
        CaseTrial(case, host).convert(Variant(case.targets[0], case.opsets[0], "least"))
    except ConversionError as error:
        problems = [problem for problem in error.problems if case.refusal in str(problem)]
        if not problems:
            return " ".join(str(error).split()).rstrip(".")
        return "; ".join(filter(None, [problems[0].reason, problems[0].hint])).rstrip(".")
    raise AssertionError(f"{case.id} converts, but was expected to be refused with {case.refusal!r}")


@cache
def read_table() -> str:
    return FILE.read_text(encoding="utf-8") if FILE.exists() else ""


def main(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--write"]:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(table(), encoding="utf-8")
        README.write_text(readme(), encoding="utf-8")
        return 0
    print("python -m conformance.table --write", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
