"""Table of the models of a folder, with the operators that no pack converts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.cli.jobs import folder_models
from onnx_tflite_plugin.cli.output import (
    Row,
    format_size,
    limit_lines,
    print_json,
    print_rows,
    print_table,
    redirect_stdout_to_stderr,
)
from onnx_tflite_plugin.errors import ConversionError


def show_folder(folder: Path, pack_options: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a row for each model of a folder and its subfolders.

    Raises UsageProblem if there is none.
    """
    models = folder_models(folder)
    from onnx_tflite_plugin.host import Host
    from onnx_tflite_plugin.options import ConvertOptions
    from onnx_tflite_plugin.targets import target_named

    with redirect_stdout_to_stderr():
        host, target = Host(**pack_options), target_named(ConvertOptions.target)
        contents = [_inspect(file, host, target) for file in models]
    names = [str(file.relative_to(folder)) for file in models]
    if as_json:
        entries = [{"model": name, **content} for name, content in zip(names, contents, strict=True)]
        print_json({"source": str(folder), "models": entries})
        return
    headings = ("operators", "signatures", "size", "model", "missing handlers")
    rows = [_row(content, file, name) for content, file, name in zip(contents, models, names, strict=True)]
    print_table(headings, rows, numeric=(0, 1, 2))
    click.echo()
    count = sum("error" not in content and not content["missing"] for content in contents)
    text = f"{folder}: {plural(len(models), 'model')}, {count} of them with a handler for every operator"
    print_rows([Row("folder", [text])])


def _inspect(file: Path, host: Any, target: Any) -> dict[str, Any]:
    """Return the contents of a model, or the reason why it cannot be read."""
    from onnx_tflite_plugin.inspection import inspect_model
    from onnx_tflite_plugin.source import read

    try:
        return inspect_model(read(file), host, target)
    except ConversionError as error:
        return {"error": str(error)}


def _row(content: Mapping[str, Any], file: Path, name: str) -> Sequence[object]:
    size = format_size(file.stat().st_size)
    if "error" in content:
        return ("", "", size, name, content["error"].splitlines()[0])
    operators = sum(row["count"] for row in content["operators"])
    missing = ", ".join(limit_lines(content["missing"], 4, "--json lists all")) or "none"
    return (operators, len(content["signatures"]), size, name, missing)
