"""Command ``new-pack``: a new op pack, which installs and passes its tests."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

import click

from onnx_tflite_plugin.cli.failures import UsageProblem, set_failure_output
from onnx_tflite_plugin.cli.options import single_value
from onnx_tflite_plugin.cli.output import Row, print_json, print_rows
from onnx_tflite_plugin.cli.pack_config import SETUP_CFG, Pack
from onnx_tflite_plugin.cli.paths import FilePath
from onnx_tflite_plugin.cli.scaffold import (
    KINDS,
    check_kind,
    files,
    files_for_pack,
    identifier,
    kind_of,
    readme_section,
)
from onnx_tflite_plugin.cli.summary import BUILTIN
from onnx_tflite_plugin.codes import CUSTOM, NAMED_BY_THE_FILE
from onnx_tflite_plugin.files import write

README = "README.md"
_RESERVED = ("builtin", "inline")
"""Names that the option ``--packs`` reserves; no pack can have them."""


@click.command("new-pack")
@click.argument("folder", metavar="DIR", type=FilePath())
@click.option(
    "--op",
    required=True,
    metavar="CODE",
    multiple=True,
    callback=single_value,
    help="The operator: its name, CUSTOM.<code> or COMPOSITE.<name>; may be percent-encoded. With --like claim: a family "
    "CUSTOM.<prefix>*. With --like fusion: a name in capitals. With --like target or pass: a name in lowercase.",
)
@click.option(
    "--like",
    type=click.Choice(list(KINDS)),
    help="Kind of pack: an elementwise operator, a convolution, a reduction with two outputs, an operator with a C struct as "
    "options, an operator with a new quantization behavior, a fusion, a family of operators (claim), a target, or a target with "
    "a pass over the finished model.",
)
@click.option(
    "--name",
    metavar="DIST",
    help="The name of the distribution, for pip and --block. By default the name of the folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the written files as JSON, and nothing else.")
def new_pack(folder: Path, op: str, like: str | None, name: str | None, as_json: bool) -> None:
    """Write an op pack into DIR, or add an operator to the pack in DIR.

    The pack installs and passes its tests as written: pip install -e DIR, then pytest DIR. For a built-in operator the
    pack wraps the built-in handler; otherwise it contains a placeholder to fill in. An existing pack gets new files for
    the operator, entry points in setup.cfg, and a section at the end of the README.
    """
    set_failure_output(as_json=as_json)
    code = unquote(op)
    kind = like or _default_kind(code)
    if like is not None:
        check_kind(code, like)
    pack = Pack.read(folder)
    if pack is None:
        distribution = _distribution(folder, name)
        package = identifier(distribution, "pack")
        new_files = files(code, kind, distribution, package)
    else:
        if name not in (None, pack.distribution):
            raise UsageProblem(f"--name {name}: the pack in {folder} is named {pack.distribution}; leave --name out")
        distribution, package = pack.distribution, pack.package
        new_files = _add_operator(pack, code, kind)
    for file_name, content in new_files.items():
        path = folder / file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, content.encode())
    if as_json:
        print_json({"folder": str(folder), "files": list(new_files), "distribution": distribution, "package": package})
        return
    print_rows(row for row in _result_rows(folder, list(new_files), code, kind, distribution, package) if row.lines)


def _result_rows(
    folder: Path, new_files: Sequence[str], code: str, kind: str, distribution: str, package: str
) -> list[Row]:
    """Return rows with the written files, and the commands and steps that follow."""
    handler_file, *other_files = (
        file_name for file_name in new_files if re.fullmatch(rf"{package}/(?!__init__).*\.py", file_name)
    )
    quoted_folder, quoted_extra = shlex.quote(str(folder)), shlex.quote(f"{folder}[test]")
    if quoted_folder == str(folder):
        quoted_extra = f'"{folder}[test]"'
    commands = [
        f"pip install -e {quoted_extra} && pytest {quoted_folder}",
        f"python -m onnx_tflite_plugin conformance --pack {distribution}"
        if kind_of(kind).has_cases
        else f"python -m onnx_tflite_plugin convert MODEL.tflite --target {code}",
    ]
    next_step = f"describe the runtime in {folder / handler_file}"
    if kind == "pass":
        next_step = f"write the pass in {folder / other_files[0]}"
    elif other_files:
        next_step = f"write the lowering in {folder / handler_file}, and its cases in {folder / other_files[0]}"
    placeholder = f"until then {code} is converted to a placeholder wherever the pack is installed"
    return [
        Row("wrote", [f"{folder}: {', '.join(new_files)}"], "bold green"),
        Row("try it", commands),
        Row("next", [next_step]),
        Row("warning", [] if kind in ("wrapped", "fusion", "target", "pass") else [placeholder], "yellow"),
    ]


def _add_operator(pack: Pack, code: str, kind: str) -> Mapping[str, str]:
    """Return the files to write for an added operator, with ``setup.cfg`` and README.

    Raises UsageProblem if a new file exists already.
    """
    new_files, entries = files_for_pack(code, kind, pack.distribution, pack.package)
    for name in new_files:
        if (pack.folder / name).exists():
            raise UsageProblem(
                f"{pack.folder / name} exists already and would be overwritten; choose another operator or pack"
            )
    changed_files = {**new_files, SETUP_CFG: pack.with_entry_points(entries)}
    readme = pack.folder / README
    if not readme.is_file():
        return changed_files
    section = readme_section(code, kind, pack.distribution, pack.package)
    return {**changed_files, README: f"{readme.read_text(encoding='utf-8').rstrip()}\n{section}"}


def _default_kind(code: str) -> str:
    """Return the kind of pack for an operator without ``--like``.

    Raises UsageProblem for an unknown operator.
    """
    if code.startswith(NAMED_BY_THE_FILE):
        if not code.partition(".")[2]:
            raise UsageProblem(f"{code!r}: the operator's name after the dot is missing")
        if "*" in code:
            raise UsageProblem(
                f"{code!r} is a family of operators, which a pack claims with the hook `claim`: add --like claim"
            )
        return "elementwise" if code.startswith(CUSTOM) else "reference"
    from importlib.metadata import distribution

    from onnx_tflite_plugin.host.offers import HANDLERS

    entries = distribution(BUILTIN).entry_points
    if any(entry.group == HANDLERS and entry.name == code for entry in entries):
        return "wrapped"
    _check_code(code)
    return "reference"


def _check_code(code: str) -> None:
    """Raise UsageProblem if TFLite has no operator of that name."""
    from difflib import get_close_matches

    from onnx_tflite_plugin.source.options import operator_names

    names = sorted(operator_names().values())
    if code not in names or code in ("CUSTOM", "STABLEHLO_COMPOSITE"):
        similar = get_close_matches(code.upper(), names, 3)
        suggestion = f"; did you mean {', '.join(similar)}?" if similar else ""
        raise UsageProblem(f"TFLite has no operator {code!r}{suggestion}\na custom operator is CUSTOM.{code}")


def _distribution(folder: Path, name: str | None) -> str:
    """Return the distribution name: ``name``, or a name derived from the folder.

    Raises UsageProblem if the name is invalid or taken, or if the folder is not empty.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        problem = "not empty" if folder.is_dir() else "a file"
        raise UsageProblem(f"{folder} is {problem}; name a new folder, or the folder of a pack, which has a setup.cfg")
    if name is None:
        distribution_name = re.sub(r"[^A-Za-z0-9]+", "-", folder.resolve().name).strip("-").lower() or "op-pack"
    elif re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        distribution_name = name
    else:
        raise UsageProblem(
            f"--name {name}: a distribution's name has letters, digits and . _ - only, and begins and ends with a letter or digit"
        )
    if distribution_name.lower() in _RESERVED:
        raise UsageProblem(
            f"a pack cannot have the name {distribution_name!r}, which --packs reserves for the built-in operators; "
            "choose another name with --name"
        )
    try:
        distribution(distribution_name)
    except PackageNotFoundError:
        return distribution_name
    raise UsageProblem(
        f"a distribution {distribution_name!r} is installed already; uninstall it, or choose another name with --name"
    )
