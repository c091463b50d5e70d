"""Command ``inspect``: contents of a model, and the pack for each operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnx_tflite_plugin.checked import format_shape, plural
from onnx_tflite_plugin.cli.failures import describe_refusal, set_failure_output, with_hints
from onnx_tflite_plugin.cli.interface_lines import group_numbered
from onnx_tflite_plugin.cli.jobs import STREAM, read_stdin
from onnx_tflite_plugin.cli.options import GroupedCommand, add_options
from onnx_tflite_plugin.cli.output import (
    Row,
    format_size,
    limit_lines,
    print_json,
    print_rows,
    print_table,
    redirect_stdout_to_stderr,
    shorten,
)
from onnx_tflite_plugin.cli.paths import FilePath, check_readable
from onnx_tflite_plugin.cli.summary import BUILTIN, warning_row
from onnx_tflite_plugin.options import ConvertOptions

if TYPE_CHECKING:
    from onnx_tflite_plugin.source import Member

_MIN_GROUPED_VALUES = 8
"""Minimum number of inputs or outputs for which those with consecutive numbers share a line."""
_MAX_SIGNATURE_NAMES = 8


@click.command(cls=GroupedCommand)
@click.argument("model", metavar="MODEL", type=FilePath())
@click.option(
    "--details",
    is_flag=True,
    help="Also show each operator's layout category and quantization behavior, and the tensor that each name in the signature refers to.",
)
@add_options(ConvertOptions, "prefer", "block", "packs")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, and nothing else.")
def inspect(model: Path, details: bool, as_json: bool, **pack_options: Any) -> None:
    """Show the contents of a model and which pack converts each operator.

    MODEL is a file, a folder, or - for stdin. Shows inputs and outputs, signatures, states, metadata and operators.
    For a bundle (MediaPipe's .task, LiteRT-LM), lists its parts, and shows the model if the bundle has only one. For a
    folder, lists its models with their missing handlers. The exit status is 0 even if handlers are missing or convert
    refuses the model.
    """
    set_failure_output(as_json=as_json)
    if model != STREAM and model.is_dir():
        from onnx_tflite_plugin.cli.inspect_folder import show_folder

        show_folder(model, pack_options, as_json=as_json)
        return
    from onnx_tflite_plugin.source.bundle import is_bundle, members

    content = read_stdin() if model == STREAM else None
    parts: list[Member] = []
    if content is None and check_readable(model) == model and is_bundle(model):
        parts = members(model, model.name)
    only_model = _only_model(model, parts)
    if parts and not as_json:
        _show_bundle(model, parts)
    if parts and only_model is None:
        if as_json:
            print_json(_bundle_json(model, parts))
        return
    from onnx_tflite_plugin.host import Host
    from onnx_tflite_plugin.inspection import find_refusal, inspect_model
    from onnx_tflite_plugin.source import read
    from onnx_tflite_plugin.targets import target_named

    with redirect_stdout_to_stderr():
        source, host = read(model if content is None else content), Host(**pack_options)
        target = target_named(ConvertOptions.target)
        contents = inspect_model(source, host, target)
        refusal = None if as_json or contents["missing"] else find_refusal(source, host, target)
    if as_json:
        print_json(_bundle_json(model, parts, contents) if parts else {"model": str(model), **contents})
        return
    if parts:
        click.echo()
    _show(str(model) if only_model is None else only_model, contents, details)
    if refusal is not None:
        click.echo()
        first, *problems = describe_refusal(refusal)
        print_rows([Row("warning", [f"convert refuses the model: {first}", *problems], "yellow")])


def _show(model: str, contents: Mapping[str, Any], details: bool) -> None:
    from onnx_tflite_plugin.presentation.facts import author_description

    graphs, operators = contents["subgraphs"], contents["operators"]
    total = sum(row["count"] for row in operators)
    description = author_description(contents["description"])
    input_names, output_names = _signature_names(contents)
    parts = [format_size(contents["bytes"]), plural(total, "operator"), plural(len(graphs), "subgraph")]
    print_rows(
        row
        for row in [
            Row("model", [f"{model} ({', '.join(parts)})"], "bold"),
            Row("description", [description] if description else []),
            Row("signature", [_main_signature(contents)] if len(contents["signatures"]) > 1 else []),
            Row("inputs", limit_lines(_format_graph_values(contents["inputs"], input_names), 16)),
            Row("outputs", limit_lines(_format_graph_values(contents["outputs"], output_names), 16)),
            Row("constants", [_format_constants(contents["constants"])] if contents["constants"] else []),
            Row("subgraphs", limit_lines([_format_subgraph(graph) for graph in graphs], 8) if len(graphs) > 1 else []),
            Row(
                "signatures",
                limit_lines(
                    [line for entry in contents["signatures"] for line in _format_signature(entry, details)],
                    32 if details else 6,
                ),
            ),
            Row("states", limit_lines([_format_state(state) for state in contents["states"]], 6)),
            Row("files", _format_files(contents["files"])),
            Row(
                "metadata",
                [", ".join(limit_lines([shorten(entry["name"]) for entry in contents["metadata"]], 6))]
                if contents["metadata"]
                else [],
            ),
            Row(
                "refused",
                with_hints(
                    (row["hint"], [_format_missing(row)]) for row in operators if row["missing"] and row["called"]
                ),
                "red",
            ),
            warning_row(contents["warnings"]),
        ]
        if row.lines
    )
    if operators:
        click.echo()
        headings = ("count", "operator", "version", "pack", *(("layout", "quantization") if details else ()))
        rows = operators if details else _merge_rows(operators)
        print_table(headings, (_format_operator(row, details) for row in rows), numeric=(0,))
        if details:
            _print_legend(operators)


def _only_model(path: Path, parts: Sequence[Member]) -> str | None:
    """Return the argument that selects a bundle's only model.

    Return None if the bundle contains no model, or several.
    """
    from onnx_tflite_plugin.source.bundle import MODEL, format_part

    models = [part for part in parts if part.kind == MODEL]
    return format_part(path, models[0].name) if len(models) == 1 else None


def _bundle_json(path: Path, parts: Sequence[Member], contents: Mapping[str, Any] | None = None) -> dict[str, Any]:
    part_rows = [{"name": part.name, "kind": part.kind, "bytes": part.size} for part in parts]
    return {"bundle": str(path), "parts": part_rows, **({} if contents is None else {"model": contents})}


def _show_bundle(path: Path, parts: Sequence[Member]) -> None:
    from onnx_tflite_plugin.source.bundle import MODEL, format_part
    from onnx_tflite_plugin.source.formats import describe_archive

    print_table(
        ("part", "kind", "size"),
        ([part.name, part.kind, format_size(part.size)] for part in parts),
        numeric=(2,),
    )
    click.echo()
    models = [part.name for part in parts if part.kind == MODEL]
    description = describe_archive([part.name for part in parts])
    advice = "no TFLite model"
    if len(models) == 1:
        advice = "1 model; every command also accepts the bundle itself"
    elif models:
        argument = format_part(path, models[0])
        advice = f"{plural(len(models), 'model')}; pass one model to any command as {argument}; convert also accepts the bundle"
    lines = [f"{path}: {plural(len(parts), 'part')}, {advice}", *([description] if description and not models else [])]
    print_rows([Row("bundle", lines)])


def _merge_rows(operators: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per operator and pack.

    Merges rows that differ only in the columns of ``--details``.
    """
    merged: dict[tuple[object, ...], dict[str, Any]] = {}
    for row in operators:
        key = (row["code"], row["called"], tuple(row["signatures"]), bool(row["missing"]), row["pack"])
        first = merged.setdefault(key, {**row, "count": 0, "versions": []})
        first["count"] += row["count"]
        first["versions"] = sorted({*first["versions"], *row["versions"]})
    return sorted(merged.values(), key=lambda row: (not row["missing"], -row["count"], row["code"]))


def _print_legend(operators: Sequence[Mapping[str, Any]]) -> None:
    """Print the first docstring line of each layout and quantization in the table."""
    from onnx_tflite_plugin import api

    click.echo()
    for column in ("layout", "quantization"):
        names = sorted({row[column] for row in operators if hasattr(api, row[column] or "-")})
        lines = [
            f"{name}: {(getattr(api, name).__doc__ or '').splitlines()[0].rstrip('.').replace('``', '')}"
            for name in names
        ]
        print_rows([Row(column, lines)] if lines else [])


def _format_operator(row: Mapping[str, Any], details: bool) -> list[object]:
    versions = ", ".join(map(str, row["versions"]))
    code = row["code"] if row["called"] else f"{row['code']} ({_format_callers(row['signatures'])})"
    pack = "none" if row["missing"] else "built-in" if row["pack"] == BUILTIN else row["pack"]
    detail_columns = [row["layout"] or "-", row["quantization"] or "-"] if details else []
    return [row["count"], code, versions, pack, *detail_columns]


def _format_missing(row: Mapping[str, Any]) -> str:
    times = f", {row['count']} in all" if row["count"] > 1 else ""
    return f"{row['code']} ({row['first']}{times}): {row['missing']}"


def _signature_names(contents: Mapping[str, Any]) -> tuple[Mapping[int, str], Mapping[int, str]]:
    """Return tensor index -> name, for the inputs and for the outputs.

    The names are those in the first signature of the main subgraph.
    """
    signature = next((entry for entry in contents["signatures"] if entry["subgraph"] == 0), None)
    indices_by_name = ({}, {}) if signature is None else (signature["inputs"], signature["outputs"])
    inputs, outputs = ({index: name for name, index in reversed(side.items())} for side in indices_by_name)
    return inputs, outputs


def _main_signature(contents: Mapping[str, Any]) -> str:
    """Return a sentence that names the signature of the listed inputs and outputs."""
    key = next((repr(entry["key"]) for entry in contents["signatures"] if entry["subgraph"] == 0), "")
    return f"inputs and outputs of {key or 'the main subgraph, which has no signature'}; convert uses it by default"


def _format_graph_values(tensors: Sequence[Mapping[str, Any]], names: Mapping[int, str]) -> list[str]:
    """Return the lines of graph inputs or outputs.

    In a long list, values with equal types and consecutive numbers share a line.
    """
    short_names = [shorten(names.get(tensor["index"], tensor["name"])) for tensor in tensors]
    types = [_format_type(tensor) for tensor in tensors]
    facts = [(type_, repr(tensor["metadata"])) for type_, tensor in zip(types, tensors, strict=True)]
    groups = (
        group_numbered(short_names, facts)
        if len(tensors) >= _MIN_GROUPED_VALUES
        else [[k] for k in range(len(tensors))]
    )
    lines = []
    for first, *following in groups:
        if following:
            lines.append(f"{short_names[first]} … {short_names[following[-1]]}  {1 + len(following)} × {types[first]}")
        else:
            lines += _format_graph_value(tensors[first], names)
    return lines


def _format_graph_value(tensor: Mapping[str, Any], names: Mapping[int, str] = {}) -> list[str]:
    """Return the lines of a graph input or output, with its metadata.

    A different signature name precedes the tensor's name.
    """
    from onnx_tflite_plugin.presentation.author_metadata import metadata_lines
    from onnx_tflite_plugin.presentation.graph_io import GraphValue

    quantized = tensor["quantization"] or {}
    scale, zero_point = (tuple(quantized.get(key, ())) for key in ("scale", "zero_point"))
    graph_value = GraphValue(
        tensor["name"], tensor["dtype"], (), scale=scale, zero_point=zero_point, **tensor["metadata"]
    )
    name = names.get(tensor["index"], tensor["name"])
    prefix = f"{shorten(name)} = " if name != tensor["name"] else ""
    return [f"{prefix}{_format_tensor(tensor)}", *(f"  {text}" for text in metadata_lines(graph_value))]


def _format_tensor(tensor: Mapping[str, Any]) -> str:
    name = shorten(tensor["name"]) or "''"
    return f"{name}  {_format_type(tensor)}"


def _format_type(tensor: Mapping[str, Any]) -> str:
    """Return dtype, shape, and scale and zero point."""
    shape = ", shape not stored" if tensor["shape"] is None else f" {format_shape(tensor['shape'])}"
    return f"{tensor['dtype']}{shape}{_format_quantization(tensor['quantization'])}"


def _format_quantization(quantization: Mapping[str, Any] | None) -> str:
    if quantization is None:
        return ""
    if "scale" not in quantization:
        return f"  blocks of {quantization['block_size']} share a scale"
    if len(quantization["scale"]) > 1:
        return f"  {len(quantization['scale'])} scales along axis {quantization['axis']}"
    return f"  scale {quantization['scale'][0]:.6g}, zero point {quantization['zero_point'][0]}"


def _format_subgraph(graph: Mapping[str, Any]) -> str:
    callers_text = "" if graph["called"] else f", {_format_callers(graph['signatures'])}"
    return f"{graph['index']} {shorten(graph['name'])!r}: {plural(graph['operators'], 'operator')}{callers_text}"


def _format_callers(keys: Sequence[str]) -> str:
    """Return the signatures that reach an operator or subgraph, as text.

    Used only for code that the main subgraph does not call.
    """
    return f"signature {', '.join(limit_lines([repr(key) for key in keys], 3))}" if keys else "never called"


def _format_signature(signature: Mapping[str, Any], details: bool = False) -> list[str]:
    """Return the line of a signature.

    ``details``: add a line per name with its tensor.
    """
    inputs, outputs = (
        ", ".join(limit_lines([shorten(name) for name in signature[side]], _MAX_SIGNATURE_NAMES))
        for side in ("inputs", "outputs")
    )
    subgraph = f" of subgraph {signature['subgraph']}" if signature["subgraph"] else ""
    line = f"{signature['key']!r}{subgraph}: {inputs or 'nothing'} → {outputs or 'nothing'}"
    tensors = signature["tensors"].items() if details else ()
    return [line, *(f"  {shorten(name)} = {shorten(tensor)}" for name, tensor in tensors)]


def _format_constants(rows: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(map(_format_constant_size, rows))


def _format_constant_size(row: Mapping[str, Any]) -> str:
    dtype = f"{'sparse ' if row['sparse'] else ''}{row['dtype']}"
    if not row["bytes"]:
        return plural(row["count"], f"empty {dtype} constant")
    return f"{dtype} {format_size(row['bytes'])} in {plural(row['count'], 'constant')}"


def _format_files(files: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line per associated file of the model, and a hint how to extract files."""
    lines = limit_lines([_format_file(file) for file in files], 6)
    has_content = any(file["bytes"] for file in files)
    return [*lines, *(["a zip program extracts them from the model, such as unzip"] if has_content else [])]


def _format_file(file: Mapping[str, Any]) -> str:
    """Return name, size, kind and description of an associated file."""
    size = format_size(file["bytes"]) if file["bytes"] else "not in the model"
    facts = [text for text in (size, file["kind"], file["description"]) if text]
    return f"{shorten(file['name'])} ({', '.join(facts)})"


def _format_state(state: Mapping[str, Any]) -> str:
    return f"{state['kind']} {_format_tensor(state) if 'dtype' in state else shorten(state['name'])}"
