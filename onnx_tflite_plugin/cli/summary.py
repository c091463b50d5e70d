"""Summary of a conversion: inputs, outputs and verdict.

-v adds layout, rewrites and counts. -vv adds the ONNX nodes of each operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.cli.interface_lines import brief_interface, interface_lines
from onnx_tflite_plugin.cli.layout_lines import describe_inner, layout_lines
from onnx_tflite_plugin.cli.operator_lines import decomposed_lines
from onnx_tflite_plugin.cli.output import (
    Row,
    format_counts,
    format_seconds,
    limit_lines,
    shorten,
)
from onnx_tflite_plugin.cli.paths import join_command
from onnx_tflite_plugin.cli.size_lines import constant_lines, files_row, has_grown
from onnx_tflite_plugin.rewrite import find_rule
from onnx_tflite_plugin.rewrite.weights import dtypes as weight_dtypes

if TYPE_CHECKING:
    from onnx_tflite_plugin.conversion import Conversion
    from onnx_tflite_plugin.report import Report
    from onnx_tflite_plugin.verify import Verification

BUILTIN = "onnx-tflite-plugin"
DIFFERS = 3
"""Exit code of a verification that finds a difference."""
INCONCLUSIVE = 4
"""Exit code of an inconclusive verification."""
_MAX_WARNINGS = 7
_MAX_HINTS = 4
_MAX_STATES, _MAX_BRIEF_STATES = 8, 2  # maximum numbers of listed states, with -v and without
_SLOW_SECONDS = 10  # duration above which the slowest stage of a verification is printed


def brief_summary(
    conversion: Conversion, files: Sequence[Path], seconds: float, *, given_signature: str | None = None
) -> list[Row]:
    """Return the rows to print by default.

    Each row has one line; inputs or outputs that do not fit into a line have one line per value. ``given_signature``: the
    signature that the user chose; None if the command chose it, which causes a warning about other signatures.
    """
    report = conversion.report
    rows = [
        files_row(files, seconds, conversion.source.size),
        Row("constants", constant_lines(report) if has_grown(files, conversion.source.size) else []),
        Row("signatures", [_joined_signatures(report)] if report.signature_lengths else []),
        Row("inputs", brief_interface(report.inputs)),
        Row("outputs", brief_interface(report.outputs)),
        Row("states", _brief_states(report)),
    ]
    if conversion.verification is not None:
        rows.append(_with_time(verification_row(conversion.verification, brief=True), conversion))
    rows += [warning_row(all_warnings(report, given_signature)), hint_row(report.hints)]
    return [row for row in rows if row.lines]


def all_warnings(report: Report, given_signature: str | None) -> list[str]:
    """Return all warnings to print.

    The command adds warnings about overridden handlers and, if the user chose no signature, about signatures that are not
    converted.
    """
    from onnx_tflite_plugin.report import describe_overrides

    signatures = [] if given_signature is not None else [*_other_signatures(report)]
    return [*signatures, *describe_overrides(report), *report.warnings]


def next_row(
    conversion: Conversion,
    model: Path | None,
    files: Sequence[Path],
    options: Mapping[str, Sequence[str]] | None = None,
    *,
    has_page: bool,
) -> Row:
    """Return the row with the next commands.

    ``model``: the path of the converted file; None for stdin. ``options``: next command ->
    options of this command to repeat.
    """
    run_hint = "convert -v prints the Python lines that run the model"
    if model is None:
        return Row("next", [run_hint])
    commands = {
        name: join_command(["onnx-tflite", name, str(model), str(files[0]), *(options or {}).get(name, ())])
        for name in ("convert", "verify", "report")
    }
    if conversion.report.domains:
        return Row("next", [f"{run_hint} with a library of kernels for {', '.join(conversion.report.domains)}"])
    if conversion.report.other_signatures and _lacks_scores(conversion.report):
        return Row("next", [f"{commands['convert']} --signature all converts all signatures", run_hint])
    if conversion.verification is None:
        return Row("next", [f"{commands['verify']} compares it with LiteRT", run_hint])
    if has_page:
        return Row("next", [run_hint])
    return Row("next", [f"{commands['report']} writes a page about it", run_hint])


def _joined_signatures(report: Report) -> str:
    """Return a sentence that names the signatures in the ONNX model."""
    return f"{', '.join(map(repr, report.signature_lengths))} in one model, which takes any number of tokens"


def _other_signatures(report: Report) -> Iterator[str]:
    """Yield a warning about signatures that are not converted."""
    if report.other_signatures:
        names = ", ".join(limit_lines([repr(shorten(key)) for key in report.other_signatures], 4, "inspect lists all"))
        converted_name = "the main subgraph" if report.signature is None else f"signature {shorten(report.signature)!r}"
        consequence = (
            ": the signature fills the key-value cache and returns no logits, so the model cannot generate text"
            if _lacks_scores(report)
            else ""
        )
        yield f"only {converted_name} was converted{consequence}; --signature all also converts {names}"


def _lacks_scores(report: Report) -> bool:
    """True if the model is a language model that returns its caches but no scores."""
    from onnx_tflite_plugin.presentation.hints import find_decoder, has_scores

    decoder = find_decoder(report.inputs, report.outputs)
    return decoder is not None and not has_scores(decoder, report.outputs)


def summary(conversion: Conversion, files: Sequence[Path], seconds: float) -> list[Row]:
    """Return the rows to print with -v.

    ``files``: empty if the model is written to stdout.
    """
    report = conversion.report
    rows = [
        *([files_row(files, seconds, conversion.source.size)] if files else []),
        Row("inputs", interface_lines(report.inputs)),
        Row("outputs", interface_lines(report.outputs)),
        Row("run it", conversion.snippet(str(files[0]) if files else "MODEL.onnx").splitlines(), code=True),
        Row("signature", list(_signature_lines(report))),
        Row("target", [f"{report.target}, opset {report.opset}", *_runtime_lines(report)]),
        Row("operators", [f"{sum(report.operators.values())}: {format_counts(list(report.operators.items()))}"]),
        Row(
            "nodes",
            [f"{sum(report.nodes.values())}{describe_inner(report)}: {format_counts(list(report.nodes.items()))}"],
        ),
        Row("constants", constant_lines(report)),
        Row("layout", list(layout_lines(report))),
    ]
    rows += [
        Row(
            "storage",
            [f"{plural(count, 'tensor')}: {text}, the same values" for text, count in report.storage.items()],
        )
    ]
    rows += [Row("weights", list(_weight_lines(report))), Row("rounding", list(_rounding_lines(report)))]
    rows += [Row("decomposed", limit_lines([*decomposed_lines(conversion)], 5, "-vv lists all operators"))]
    rows += [Row("fused", list(_fusion_lines(report))), Row("rewritten", list(_rewrite_lines(report)))]
    rows += [Row("states", _state_lines(report))]
    rows += [Row("packs", list(_pack_lines(report)))]
    if conversion.verification is not None:
        row = _with_time(verification_row(conversion.verification), conversion)
        rows.append(row._replace(lines=[*row.lines, *_uncompared_lines(conversion.verification, report)]))
    rows += [warning_row(report.warnings), hint_row(report.hints)]
    return [row for row in rows if row.lines]


def warning_row(warnings: Sequence[str]) -> Row:
    return Row("warning", limit_lines([" ".join(text.split()) for text in warnings], _MAX_WARNINGS), "yellow")


def problem_row(problems: Sequence[str]) -> Row:
    return Row("problem", limit_lines([" ".join(text.split()) for text in problems], _MAX_WARNINGS), "red")


def hint_row(hints: Sequence[str]) -> Row:
    return Row("hint", limit_lines(hints, _MAX_HINTS))


def verification_row(verification: Verification, *, brief: bool = False) -> Row:
    """Return the row of a verification that found no difference.

    ``brief``: omit the lines about outputs.
    """
    lines = verification_lines(verification)
    lines = lines[: 1 + len(verification.end_to_end)] if brief else lines
    if verification.verdict == "inconclusive":
        return Row("inconclusive", [lines[0].removeprefix("inconclusive: "), *lines[1:]], "yellow")
    return Row("verified", lines, "green")


def _with_time(row: Row, conversion: Conversion) -> Row:
    """Add the duration to the first line of a verification.

    The slowest stage is also named if it takes long.
    """
    first, *more = row.lines
    name, seconds = max(conversion.verification_stages.items(), key=lambda stage: stage[1], default=("", 0.0))
    slowest = f", of these {format_seconds(seconds)} for {name}" if seconds > _SLOW_SECONDS else ""
    duration = format_seconds(conversion.verification_seconds)
    is_inconclusive = conversion.verification is not None and conversion.verification.verdict == "inconclusive"
    first = f"{first} (after {duration})" if is_inconclusive else f"{first}, in {duration}{slowest}"
    return row._replace(lines=[first, *more])


def _uncompared_lines(verification: Verification, report: Report) -> list[str]:
    """Return a line about operators without a compared result, if all results agree."""
    count = sum(report.operators.values()) - verification.operators
    if verification.verdict != "agrees" or not verification.operators or count <= 0:
        return []
    operators = "1 other operator has" if count == 1 else f"{count} other operators have"
    return [f"  {operators} no result to compare: constants, access to states, or operators of inner subgraphs"]


def verification_exit_code(verification: Verification | None) -> int:
    """Return the exit code of a verification: 0, 3 or 4.

    3: the models differ. 4: the verdict is inconclusive and ``--partial`` was not requested.
    """
    if verification is None or verification.ok:
        return 0
    return DIFFERS if verification.verdict == "differs" else INCONCLUSIVE


def verification_lines(verification: Verification, limit: int = 5) -> list[str]:
    """Return the verdict, the lines about end-to-end errors, and the first outputs."""
    verdict, *detail_lines = verification.text.splitlines()
    end_to_end = [f"  {line}" for line in verification.end_to_end]
    return [verdict, *end_to_end, *limit_lines([line for line in detail_lines if line not in end_to_end], limit)]


def _signature_lines(report: Report) -> Iterator[str]:
    """Yield lines about the converted signature if the file has several."""
    if report.signature_lengths:
        yield _joined_signatures(report)
    if report.other_signatures:
        converted = "subgraph 0, without a signature" if report.signature is None else repr(report.signature)
        others = ", ".join(limit_lines([repr(key) for key in report.other_signatures], 4))
        yield f"{converted}; not converted: {others}"
        yield "--signature KEY converts another signature, --signature all converts all signatures"


_WEIGHT_TEXTS = {
    weight_dtypes.INT8: "int8, exact on every processor",
    weight_dtypes.CHOSEN: "int8 or uint8, selected for the processor at load time",
    weight_dtypes.UINT8: "uint8",
    weight_dtypes.DEPENDENT: "int8, exact only on processors with 32-bit accumulation (VNNI, ARM)",
}


def _weight_lines(report: Report) -> Iterator[str]:
    yield from (
        f"{plural(report.weights[dtype], 'layer')}: {text}"
        for dtype, text in _WEIGHT_TEXTS.items()
        if dtype in report.weights
    )


def _runtime_lines(report: Report) -> list[str]:
    """Return a line about the intended runtime, if the model is specific to one."""
    note = weight_dtypes.describe_runtime(report.weights, report.nodes)
    return [note] if note else []


_ROUNDING = {
    "rounds_activations": "products in float, with activations rounded to 8 bits as in LiteRT; --optimize speed omits the "
    "rounding, which is faster and closer to the float network",
    "fast_dynamic_quantization": "dynamic quantization with one activation scale per tensor; LiteRT uses one per row or image, "
    "which is the same for a single row or image",
}
"""Trait of the target -> text about the operators of dynamic quantization that require it."""


def _rounding_lines(report: Report) -> Iterator[str]:
    yield from (
        f"{plural(report.traits[trait], 'layer')}: {text}"
        for trait, text in _ROUNDING.items()
        if trait in report.traits
    )


def _fusion_lines(report: Report) -> Iterator[str]:
    described = "`onnx-tflite handlers` describes them"
    counts = {name: count - report.fused_single.get(name, 0) for name, count in report.fused.items()}
    if groups := {name: count for name, count in counts.items() if count > 0}:
        unfused_count = sum(report.packs.values()) - sum(groups.values())
        source = plural(sum(report.operators.values()) - unfused_count, "operator")
        yield f"{format_counts(list(groups.items()))}, from {source}; {described}"
    if report.fused_single:
        yield f"{format_counts(list(report.fused_single.items()))}, each in place of one operator; {described}"


def _rewrite_lines(report: Report) -> Iterator[str]:
    for name, count in report.passes.items():
        yield f"{find_rule(name).summary}: {plural(count, 'place')}"


_CARRIED = "onnx_tflite_plugin.runtime.Session carries them from run to run"


def _brief_states(report: Report) -> list[str]:
    """Return a line with the number of states, and name, dtype and shape of the first."""
    states = _typed_states(report)
    listed_states = states if len(states) <= _MAX_BRIEF_STATES + 1 else states[:_MAX_BRIEF_STATES]
    more = f", … and {len(states) - len(listed_states)} more" if len(states) > len(listed_states) else ""
    text = f"{len(states)}, as extra inputs and outputs: {', '.join(listed_states)}{more}; {_CARRIED}"
    return [text] if states else []


def _state_lines(report: Report) -> list[str]:
    """Return the number of states, and a line with name, dtype and shape of each."""
    states = [f"  {line}" for line in limit_lines(_typed_states(report), _MAX_STATES)]
    return [f"{len(report.states)}, as extra inputs and outputs; {_CARRIED}", *states] if report.states else []


def _typed_states(report: Report) -> list[str]:
    """Return name, dtype and shape of each state."""
    return [f"{shorten(name)} {text}" for name, text in zip(report.states, report.state_types, strict=True)]


def _pack_lines(report: Report) -> Iterator[str]:
    installed_packs = {pack: count for pack, count in report.packs.items() if pack != BUILTIN}
    overridden_codes: dict[str, list[str]] = {}
    for code, pack in report.overrides.items():
        overridden_codes.setdefault(pack, []).append(code)
    for pack, count in installed_packs.items():
        codes = overridden_codes.get(pack, [])
        override_text = f", instead of the built-in {', '.join(limit_lines(codes, 4))}" if codes else ""
        hook_text = ", hook 'finish'" if pack in report.finished_by else ""
        yield f"{pack}: {plural(count, 'operator')}{override_text}{hook_text}"
    yield from (f"{pack}: hook 'finish'" for pack in report.finished_by if pack not in installed_packs)
