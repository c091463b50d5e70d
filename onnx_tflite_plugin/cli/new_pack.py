"""``new-pack``: a third-party op pack to start from, which installs and passes its own test as it is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

import click

from onnx_tflite_plugin.cli.adding import FILE, Pack
from onnx_tflite_plugin.cli.failures import UsageProblem, on_failure
from onnx_tflite_plugin.cli.output import Row, print_json, print_rows
from onnx_tflite_plugin.cli.scaffold import KINDS, addition, check, files, identifier
from onnx_tflite_plugin.cli.summary import BUILTIN
from onnx_tflite_plugin.codes import CUSTOM, NAMED_BY_THE_FILE
from onnx_tflite_plugin.files import write


@click.command("new-pack")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--op",
    required=True,
    metavar="CODE",
    help="The operator: its name, CUSTOM.<code> or COMPOSITE.<name>; may be percent-encoded. A family CUSTOM.<prefix>* "
    "with --like claim, a name in capitals with --like fusion.",
)
@click.option(
    "--like",
    type=click.Choice(list(KINDS)),
    help="What the pack begins as: an operator by element, like a convolution, along an axis with two outputs, with "
    "options that are a C struct; several operators as one; a family of operators.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON, and nothing else.")
def new_pack(folder: Path, op: str, like: str | None, as_json: bool) -> None:
    """Write an op pack into DIR, or add an operator to the pack that is there.

    It installs and passes its own test as it is: pip install -e DIR, then pytest DIR. For an operator that is built in
    already it wraps the built-in handler; otherwise it holds a placeholder to fill in. What is added to a pack are files
    of the operator's own, and entry points in setup.cfg.
    """
    on_failure(as_json=as_json)
    code = unquote(op)
    kind = like or _kind(code)
    if like is not None:
        check(code, like)
    pack = Pack.at(folder)
    if pack is None:
        distribution = _distribution(folder)
        package = identifier(distribution, "pack")
        written = files(code, kind, distribution, package)
    else:
        distribution, package = pack.distribution, pack.package
        written = _added(pack, code, kind)
    for name, content in written.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, content.encode())
    if as_json:
        print_json({"folder": str(folder), "files": list(written), "distribution": distribution, "package": package})
        return
    handler, cases = (name for name in written if name.startswith(f"{package}/") and not name.endswith("/__init__.py"))
    quoted = shlex.quote(str(folder))
    commands = [
        f"pip install -e {quoted} && pytest {quoted}",
        f"python -m onnx_tflite_plugin conformance --pack {distribution}",
    ]
    following = f"write the lowering in {folder / handler}, and what it must do in {folder / cases}"
    placeholder = f"until then {code} is converted to a placeholder wherever the pack is installed"
    print_rows(
        row
        for row in [
            Row("wrote", [f"{folder}: {', '.join(written)}"], "bold green"),
            Row("try it", commands),
            Row("next", [following]),
            Row("warning", [] if kind in ("wrapped", "fusion") else [placeholder], "yellow"),
        ]
        if row.lines
    )


def _added(pack: Pack, code: str, kind: str) -> Mapping[str, str]:
    """The files of one more operator, ``setup.cfg`` among them. Raises UsageProblem where one is there already."""
    written, entries = addition(code, kind, pack.distribution, pack.package)
    for name in written:
        if (pack.folder / name).exists():
            raise UsageProblem(f"{pack.folder / name} exists already, and would be written")
    return {**written, FILE: pack.with_entry_points(entries)}


def _kind(code: str) -> str:
    """What a pack for an operator begins as. Raises UsageProblem for a name nobody knows."""
    if code.startswith(NAMED_BY_THE_FILE):
        if not code.partition(".")[2]:
            raise UsageProblem(f"{code!r} lacks the operator's name behind the dot")
        if "*" in code:
            raise UsageProblem(f"{code!r} is a family, which a pack claims by the hook `claim`: --like claim")
        return "elementwise" if code.startswith(CUSTOM) else "reference"
    from importlib.metadata import distribution

    from onnx_tflite_plugin.host.offers import HANDLERS

    entries = distribution(BUILTIN).entry_points
    if any(entry.group == HANDLERS and entry.name == code for entry in entries):
        return "wrapped"
    _must_exist(code)
    return "reference"


def _must_exist(code: str) -> None:
    from difflib import get_close_matches

    from onnx_tflite_plugin.source.options import operator_names

    names = sorted(operator_names().values())
    if code not in names or code in ("CUSTOM", "STABLEHLO_COMPOSITE"):
        near = get_close_matches(code.upper(), names, 3)
        meant = f"; did you mean {', '.join(near)}?" if near else ""
        raise UsageProblem(f"TFLite has no operator {code!r}{meant}\na custom operator is CUSTOM.{code}")


def _distribution(folder: Path) -> str:
    """The distribution's name, from the folder's. Raises UsageProblem where it is taken, or the folder is in use."""
    from importlib.metadata import PackageNotFoundError, distribution

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "not empty" if folder.is_dir() else "a file"
        raise UsageProblem(f"{folder} is {what}; name a new directory, or a pack's, which has a setup.cfg")
    name = re.sub(r"[^A-Za-z0-9]+", "-", folder.resolve().name).strip("-").lower() or "op-pack"
    try:
        distribution(name)
    except PackageNotFoundError:
        return name
    raise UsageProblem(
        f"a distribution {name!r} is installed already; uninstall it, or give the directory another name"
    )
