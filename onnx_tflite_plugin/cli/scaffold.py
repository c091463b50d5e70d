"""Files that ``new-pack`` writes, filled from the templates of the pack's kind."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from onnx_tflite_plugin.cli.failures import UsageProblem
from onnx_tflite_plugin.codes import CUSTOM, name_in_file

_MAX_IDENTIFIER_LENGTH = 40
_TEMPLATE_NAMES = frozenset(
    {"cases", "kernel", "read_settings", "check_options", "axes", "axis_of", "check", "claim", "elementwise"}
    | {"handler", "builtin", "original", "lower", "replace", "context", "dequantized", "transparent", "any"}
    | {"annotations", "dataclass", "out"}
)
"""Names that the templates define or import."""


@dataclass(frozen=True)
class Kind:
    """Kind of pack that ``new-pack`` writes.

    ``entry``: its entry points in ``setup.cfg``. ``module_text``, ``case_text`` and ``steps``: README text on the module, on
    the cases, and on the next steps. ``is_placeholder``: the code computes an example, which the author replaces.
    ``expected_code``: the required form of ``--op``. ``has_cases``: the pack has conformance cases. ``readme`` and ``test``:
    the templates of README and test.
    """

    entry: str
    module_text: str
    case_text: str
    steps: tuple[str, ...]
    is_placeholder: bool = True
    expected_code: str = "a custom operator, CUSTOM.<code>"
    has_cases: bool = True
    readme: str = "README.md"
    test: str = "test_conformance.py"

    def accepts(self, code: str) -> bool:
        """True if ``code`` has the form that this kind requires of ``--op``."""
        return code.startswith(CUSTOM) and not code.endswith("*")


_HANDLER = "onnx_tflite_plugin.handlers =\n    $entry = $package.$module:$function"
_HANDLER_STEPS = (
    "Write `kernel` in {handler}: the operator in NumPy.",
    "Declare `layout`, `axes`, `quantization` and `max_version`.",
    "Write the lowering; `ctx.ops` emits ONNX operators, `ctx.options` and `ctx.op.custom_options` hold the options of the file.",
)
_CUSTOM_OPERATOR = Kind(
    _HANDLER,
    "the handler: kernel in NumPy, declaration and lowering",
    "results are compared with the kernel",
    _HANDLER_STEPS,
)


class _FusionKind(Kind):
    def accepts(self, code: str) -> bool:
        return re.fullmatch(r"[A-Z][A-Z0-9_]*", code) is not None


class _TargetKind(Kind):
    def accepts(self, code: str) -> bool:
        return re.fullmatch(r"[a-z][a-z0-9-]*", code) is not None


class _ClaimKind(Kind):
    def accepts(self, code: str) -> bool:
        return code.startswith(CUSTOM) and code.endswith("*") and code.count("*") == 1


KINDS: Mapping[str, Kind] = {
    "elementwise": _CUSTOM_OPERATOR,
    "conv": _CUSTOM_OPERATOR,
    "reduction": _CUSTOM_OPERATOR,
    "custom-struct": _CUSTOM_OPERATOR,
    "behavior": Kind(
        _HANDLER,
        "the quantization behavior, and the handler that declares it",
        "results are compared with the kernel",
        (
            "In {handler}, return from `choose_arithmetic` whether the lowering gets floats or quantized values. Override the traits.",
            *_HANDLER_STEPS,
        ),
    ),
    "fusion": _FusionKind(
        "onnx_tflite_plugin.fusions =\n    $function = $package.$module:$function [ABS]",
        "the fusion: its pattern, when it applies, its lowering",
        "some cases require that the fusion applies",
        (
            "Write the pattern in {handler}, and in `check` the reasons to decline a match.",
            "List in `setup.cfg`, in brackets, an operator that each pattern contains, preferably the rarest.",
            "Declare the new operator like a handler, and write its lowering.",
        ),
        expected_code="a name for the fusion, in capitals: MY_FUSION",
    ),
    "claim": _ClaimKind(
        "onnx_tflite_plugin.hooks =\n    $module = $package.$module",
        "the hook `claim`, and the handlers that it returns",
        "results are compared with the kernels",
        (
            "Return from `claim` in {handler} the handler for each operator of the family, or a `Decline` with the reason.",
        ),
        expected_code="a family of custom operators, CUSTOM.<prefix>*",
    ),
    "target": _TargetKind(
        "onnx_tflite_plugin.targets =\n    $entry = $package.$module:TARGET",
        "the target: differences from a built-in one",
        "",
        (
            "Describe the runtime in {handler}: opsets, dtypes with kernels, missing operators, rewrite rules.",
            "Convert your models and run them in the runtime; for each failure, declare a trait and add a test.",
        ),
        is_placeholder=False,
        expected_code="a name for the target, in lowercase: my-npu",
        has_cases=False,
        readme="target/README.md",
        test="target/test_target.py",
    ),
    "pass": _TargetKind(
        "onnx_tflite_plugin.targets =\n    $entry = $package.$module:TARGET",
        "the target, which names the pass",
        "",
        (
            "Write the pass in `{passes}`. Results must not change.",
            "In {handler}, choose the built-in target to start from.",
        ),
        expected_code="a name for the target that has the pass, in lowercase: my-npu",
        has_cases=False,
        readme="target/README.md",
        test="pass/test_target.py",
    ),
}
"""Kinds that ``--like`` accepts."""
WRAPPED = Kind(
    _HANDLER,
    "the built-in handler with a lowering from this pack",
    "results are compared with LiteRT",
    (
        "{handler} calls the built-in lowering. Write a better one, or change the declaration.",
        "Add cases for what only this pack converts.",
    ),
    is_placeholder=False,
)
REFERENCE = Kind(
    _HANDLER,
    "the handler: declaration and lowering",
    "results are compared with a reference in NumPy",
    ("Add operands and options to the cases, and remove `reference`: LiteRT has the kernel.", *_HANDLER_STEPS[1:]),
)


CASES = "onnx_tflite_plugin.cases"


def files(code: str, like: str, distribution: str, package: str) -> Mapping[str, str]:
    """Return file contents by path. ``like``: one of KINDS, "wrapped" or "reference"."""
    values, kind = _values(code, like, distribution, package, "cases"), kind_of(like)
    sources = {
        "pyproject.toml": "pyproject.toml",
        "setup.cfg": "setup.cfg",
        "README.md": kind.readme,
        f"{package}/__init__.py": "init.py",
        **_modules(kind, like, package, module_of(code), "cases"),
        f"{package}/py.typed": "py.typed",
        f"tests/{values['test']}": kind.test,
    }
    cfg_values = {**values, "title": values["title"].replace("%", "%%")}  # setup.cfg interpolates
    return {
        path: _fill_template(template, cfg_values if path == "setup.cfg" else values)
        for path, template in sources.items()
    }


def files_for_pack(
    code: str, like: str, distribution: str, package: str
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the files and the entry points to add to a pack.

    Files are contents by path. Entry points are one entry per group.
    """
    module = module_of(code)
    cases = f"{module}_cases"
    values, kind = _values(code, like, distribution, package, cases), kind_of(like)
    sources = {**_modules(kind, like, package, module, cases), f"tests/{values['test']}": kind.test}
    group, _, entry = values["entries"].partition(" =\n")
    entries = {group: entry.strip()}
    if kind.has_cases:
        entries[CASES] = f"{module} = {package}.{cases}:cases"
    return {path: _fill_template(template, values) for path, template in sources.items()}, entries


def readme_section(code: str, like: str, distribution: str, package: str) -> str:
    """Return the README section about an added operator."""
    cases = f"{module_of(code)}_cases"
    values, kind = _values(code, like, distribution, package, cases), kind_of(like)
    row = f"\n| `{package}/{cases}.py` | small models that must convert; {kind.case_text} |" if kind.has_cases else ""
    row += f"\n{values['pass_row']}".rstrip()
    test_text = "runs the cases" if kind.has_cases else "converts small models and compares them with LiteRT"
    state = f"{values['state']}\n" if values["state"] else ""
    return _fill_template("added.md", {**values, "state": state, "case_row": row, "tested": test_text})


def kind_of(like: str) -> Kind:
    """Return the kind of pack with this name: one of KINDS, "wrapped" or "reference"."""
    return {**KINDS, "wrapped": WRAPPED, "reference": REFERENCE}[like]


def _modules(kind: Kind, like: str, package: str, module: str, cases: str) -> dict[str, str]:
    """Return the templates of the pack's modules by path."""
    folder = like.replace("-", "_")
    modules = {f"{package}/{module}.py": f"{folder}/handler.py"}
    if like == "pass":
        modules[f"{package}/{module}_passes.py"] = "pass/passes.py"
    return {**modules, f"{package}/{cases}.py": f"{folder}/cases.py"} if kind.has_cases else modules


def module_of(code: str) -> str:
    """Return the name of the module for an operator's handler."""
    return identifier(name_in_file(code), "op")


def _values(code: str, like: str, distribution: str, package: str, cases: str) -> dict[str, str]:
    """Return the values of the templates' placeholders."""
    from onnx_tflite_plugin.api import VERSION

    kind = kind_of(like)
    function = module_of(code)
    values = {
        "code": literal(code),
        "prefix": literal(code.rstrip("*")),
        "title": code if code.isprintable() and '"' not in code and "\\" not in code else function,
        "distribution": distribution,
        "version": VERSION,
        "distribution_text": f'"{distribution}"',
        "package": package,
        "cases": cases,
        "test": f"test_{package}.py" if cases == "cases" else f"test_{package}_{function}.py",  # distinct between packs
        "case_entries": f"{CASES} =\n    {package} = {package}.{cases}:cases\n" if kind.has_cases else "",
        "module": function,
        "function": function,
        "entry": quote(code, safe="._-").replace("%", "%%"),
        "offered": literal(function if like in ("fusion", "claim") else code),
        "declared": kind.module_text,
        "expected": kind.case_text,
        "pass_row": f"| `{package}/{function}_passes.py` | the pass over the finished model |\n"
        if like == "pass"
        else "",
        "state": f"\n**It holds a placeholder**: until you replace it, {_describe_placeholder(like)}."
        if kind.is_placeholder
        else "",
        "next": "\n".join(
            f"{number}. {step.format(handler=f'`{package}/{function}.py`', passes=f'{package}/{function}_passes.py')}"
            for number, step in enumerate(kind.steps, 1)
        ),
    }
    values["entries"] = fill_text(kind.entry, values)
    return values


def _describe_placeholder(like: str) -> str:
    return {
        "fusion": "the fusion matches x / (|x| + 1)",
        "claim": "each operator of the family is converted to the ONNX operator of the same name",
        "pass": "it replaces Relu",
    }.get(like, "the generated handler is an example and does not compute this operator yet")


def identifier(text: str, prefix: str) -> str:
    """Return a name for a module or function, derived from ``text``.

    ``prefix``: added to names that Python, the templates or an installed module use.
    """
    from importlib.util import find_spec

    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lower()[:_MAX_IDENTIFIER_LENGTH].rstrip("_")
    if not name or name[0].isdigit():
        name = f"{prefix}_{name}".rstrip("_")
    module_spec = find_spec(name)
    if (
        keyword.iskeyword(name)
        or keyword.issoftkeyword(name)
        or name in _TEMPLATE_NAMES
        or (module_spec is not None and module_spec.origin)
    ):
        name = f"{prefix}_{name}"
    return name


def literal(text: str) -> str:
    """Return the text as a string literal, in double quotes if it needs no escape."""
    return f'"{text}"' if text.isprintable() and not {'"', "\\"} & {*text} else repr(text)


def check_kind(code: str, like: str) -> None:
    """Raise UsageProblem if ``code`` is not of the requested kind.

    A target must not have the name of a built-in one.
    """
    kind = KINDS[like]
    if not kind.accepts(code):
        raise UsageProblem(f"--like {like} takes {kind.expected_code}, not {code!r}")
    if like in ("target", "pass"):
        from onnx_tflite_plugin.targets import TARGETS

        if code in TARGETS:
            raise UsageProblem(f"{code!r} is a built-in target, which a pack cannot replace; choose another name")


def _fill_template(template: str, values: Mapping[str, str]) -> str:
    from importlib.resources import files

    folder = files("onnx_tflite_plugin").joinpath("templates", "pack")
    return fill_text(folder.joinpath(f"{template}.txt").read_text(encoding="utf-8"), values)


def fill_text(text: str, values: Mapping[str, str]) -> str:
    from string import Template

    return Template(text).substitute(values)
