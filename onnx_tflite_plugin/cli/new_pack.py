"""``new-pack``: a third-party op pack to start from, which installs and passes its own test as it is."""

from __future__ import annotations

import keyword
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote

import click

from onnx_tflite_plugin.cli.failures import UsageProblem, on_failure
from onnx_tflite_plugin.cli.output import Row, print_json, print_rows
from onnx_tflite_plugin.cli.summary import BUILTIN

_FREE = ("CUSTOM.", "COMPOSITE.")  # names that the schema does not list
_TAKEN = frozenset(
    {
        "cases",
        "handler",
        "builtin",
        "original",
        "lower",
        "replace",
        "context",
        "dequantized",
        "transparent",
        "any",
        "annotations",
    }
)
_LONGEST = 40

_REFERENCE = """LiteRT cannot run it alone, so every case brings a ``reference`` in numpy: what the
operator means, this file says."""
_NO_REFERENCE_YET = """The operands of these models are a placeholder, so every case brings a ``reference`` in
numpy. Give the models the operands and options that the kernel wants (``alone`` in
``conformance.models``) and leave ``reference`` out: then LiteRT says what is right."""


@click.command("new-pack")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--op",
    required=True,
    metavar="CODE",
    help="The operator: its name, CUSTOM.<code> or COMPOSITE.<name>; may be percent-encoded.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON, and nothing else.")
def new_pack(folder: Path, op: str, as_json: bool) -> None:
    """Write an op pack for one operator into DIR.

    It installs and passes its own test as it is: pip install -e DIR, then pytest DIR. For an operator that is built in
    already it wraps the built-in handler; otherwise lowering and reference are placeholders to fill in.
    """
    on_failure(as_json=as_json)
    code = unquote(op)
    builtin = _builtin(code)
    distribution = _distribution(folder)
    package = _identifier(distribution, "pack")
    files = _files(code, distribution, package, builtin)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    handler = next(
        name for name in files if name.startswith(f"{package}/") and not name.endswith(("__init__.py", "/cases.py"))
    )
    if as_json:
        print_json({"folder": str(folder), "files": list(files), "distribution": distribution, "package": package})
        return
    quoted = shlex.quote(str(folder))
    print_rows(
        row
        for row in [
            Row("wrote", [f"{folder}: {', '.join(files)}"], "bold green"),
            Row(
                "try it",
                [
                    f"pip install -e {quoted} && pytest {quoted}",
                    f"python -m onnx_tflite_plugin conformance --pack {distribution}",
                ],
            ),
            Row(
                "next",
                [f"write the lowering in {folder / handler}, and what it must do in {folder / package / 'cases.py'}"],
            ),
            Row(
                "warning",
                [] if builtin else [f"until then {code} is converted to a placeholder wherever the pack is installed"],
                "yellow",
            ),
        ]
        if row.lines
    )


def _builtin(code: str) -> bool:
    """Whether there is a built-in handler. Raises UsageProblem for a name nobody knows."""
    if code.startswith(_FREE):
        if not code.partition(".")[2]:
            raise UsageProblem(f"{code!r} lacks the operator's name behind the dot")
        if "*" in code:
            raise UsageProblem(f"{code!r} is a family, which a pack claims by the hook `claim`; name one operator")
        return False
    from importlib.metadata import distribution

    from onnx_tflite_plugin.host.offers import HANDLERS

    entries = distribution(BUILTIN).entry_points
    if any(entry.group == HANDLERS and entry.name == code for entry in entries):
        return True
    _must_exist(code)
    return False


def _must_exist(code: str) -> None:
    from difflib import get_close_matches

    from onnx_tflite_plugin.source.options import operator_names

    known = sorted(operator_names().values())
    if code not in known or code in ("CUSTOM", "STABLEHLO_COMPOSITE"):
        near = get_close_matches(code.upper(), known, 3)
        meant = f"; did you mean {', '.join(near)}?" if near else ""
        raise UsageProblem(f"TFLite has no operator {code!r}{meant}\na custom operator is CUSTOM.{code}")


def _distribution(folder: Path) -> str:
    """The distribution's name, from the folder's. Raises UsageProblem where it is taken, or the folder is in use."""
    from importlib.metadata import PackageNotFoundError, distribution

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageProblem(f"{folder} is {'not empty' if folder.is_dir() else 'a file'}; name a new directory")
    name = re.sub(r"[^A-Za-z0-9]+", "-", folder.resolve().name).strip("-").lower() or "op-pack"
    try:
        distribution(name)
    except PackageNotFoundError:
        return name
    raise UsageProblem(
        f"a distribution {name!r} is installed already; uninstall it, or give the directory another name"
    )


def _identifier(text: str, prefix: str) -> str:
    """A name for a module or function: nothing Python, the templates or an installed module use already."""
    from importlib.util import find_spec

    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lower()[:_LONGEST].rstrip("_")
    if not name or name[0].isdigit():
        name = f"{prefix}_{name}".rstrip("_")
    found = find_spec(name)
    if keyword.iskeyword(name) or keyword.issoftkeyword(name) or name in _TAKEN or (found is not None and found.origin):
        name = f"{prefix}_{name}"
    return name


def _files(code: str, distribution: str, package: str, builtin: bool) -> Mapping[str, str]:
    """Contents by path."""
    from onnx_tflite_plugin.api import VERSION

    function = _identifier(code.partition(".")[2] or code, "op")
    served_by_litert = not code.startswith(_FREE)
    values = {
        "code": f'"{code}"' if code.isprintable() and not {'"', "\\"} & {*code} else repr(code),
        "title": code if code.isprintable() and '"' not in code and "\\" not in code else function,
        "distribution": distribution,
        "version": VERSION,
        "distribution_text": f'"{distribution}"',
        "package": package,
        "module": function,
        "function": function,
        "entry": quote(code, safe="._-").replace("%", "%%"),
        "why_reference": _NO_REFERENCE_YET if served_by_litert else _REFERENCE,
        "expected": "LiteRT says what must come out" if builtin else "in numpy what must come out",
        "state": ""
        if builtin
        else "\n**Its lowering is a placeholder**: until you replace it, the operator is converted to something else.",
        "next": _next(package, function, wraps=builtin, served=served_by_litert),
    }
    kind = "_wrapped" if builtin else ""
    sources = {
        "pyproject.toml": "pyproject.toml",
        "setup.cfg": "setup.cfg",
        "README.md": "README.md",
        f"{package}/__init__.py": "init.py",
        f"{package}/{function}.py": f"handler{kind}.py",
        f"{package}/cases.py": f"cases{kind}.py",
        "tests/test_conformance.py": "test_conformance.py",
    }
    literal = {**values, "title": values["title"].replace("%", "%%")}  # setup.cfg interpolates
    return {path: _filled(template, literal if path == "setup.cfg" else values) for path, template in sources.items()}


def _next(package: str, module: str, *, wraps: bool, served: bool) -> str:
    handler = f"`{package}/{module}.py`"
    if wraps:
        return (
            f"1. {handler} hands every call on to the built-in lowering. Write a better one, or change what it declares.\n"
            "2. Add cases for what only this pack converts."
        )
    reference = (
        "Fill in operands and options in the cases, and drop `reference`"
        if served
        else "Say in the cases' `reference` what the operator computes"
    )
    return (
        f"1. {reference}.\n"
        f"2. Declare in {handler} what is true of it: `layout`, `axes`, `quantization`, `max_version`.\n"
        "3. Write the lowering; `ctx.ops` emits ONNX operators, `ctx.options` and `ctx.op.custom_options` hold the file's."
    )


def _filled(template: str, values: Mapping[str, str]) -> str:
    from importlib.resources import files
    from string import Template

    text = files("onnx_tflite_plugin").joinpath("templates", "pack", f"{template}.txt").read_text(encoding="utf-8")
    return Template(text).substitute(values)
