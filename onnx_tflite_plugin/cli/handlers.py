"""Command ``handlers``: a list of everything that the installed packs register."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.cli.failures import UsageProblem, set_failure_output
from onnx_tflite_plugin.cli.options import single_value
from onnx_tflite_plugin.cli.output import (
    Row,
    limit_lines,
    print_json,
    print_rows,
    print_table,
    redirect_stdout_to_stderr,
)
from onnx_tflite_plugin.cli.summary import BUILTIN, problem_row, warning_row
from onnx_tflite_plugin.guard import Failed

if TYPE_CHECKING:
    from onnx_tflite_plugin.api import Target
    from onnx_tflite_plugin.host import Host


@click.command()
@click.option("--pack", metavar="PACK", multiple=True, callback=single_value, help="Only the entries of this pack.")
@click.option("--details", is_flag=True, help="Layout category and quantization behavior instead of the summary.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, and nothing else.")
@click.pass_context
def handlers(ctx: click.Context, pack: str | None, details: bool, as_json: bool) -> None:
    """List the installed handlers, fusions, hooks, targets, commands and packs.

    Each handler is listed with the newest version of the operator that it converts, or with the reason why it is
    unusable. Each pack is listed with its version, number of entries, overridden built-in handlers, and problems. With
    --pack, the exit status is 1 if the pack has problems.
    """
    set_failure_output(as_json=as_json)
    with redirect_stdout_to_stderr():
        installed = _list_installed()
    if pack is not None:
        installed = _select_pack(installed, pack)
    if as_json:
        print_json(installed)
    else:
        _print_tables(installed, details=details)
        _print_totals(installed)
    _exit_if_problems(ctx, installed, pack)


def _print_tables(installed: dict[str, Any], *, details: bool) -> None:
    """Print a table of each kind of entry, then the table of packs.

    The column of packs is left out of tables with only built-in entries.
    """
    show_pack = bool(_pack_names(installed) - {BUILTIN})
    pack_heading = ("pack",) if show_pack else ()
    _print_block(
        ("operator", "version", *pack_heading, *(("layout", "quantization") if details else ("summary",))),
        [_handler_cells(row, details, show_pack) for row in installed["handlers"]],
        numeric=(1,),
    )
    _print_fusions(installed["fusions"], show_pack)
    _print_block(("hook", "pack"), [[row["hook"], row["pack"]] for row in installed["hooks"]])
    _print_block(
        ("target", *pack_heading, "opsets", "wrong"),
        [
            [row["name"], *_pack_name_cell(row, show_pack), _format_opsets(row), row["error"] or "-"]
            for row in installed["targets"]
        ],
    )
    _print_block(("command", "pack"), [[row["command"], row["pack"]] for row in installed["commands"]])
    pack_rows = [[_pack_cell(row, name) for name in _PACK_COLUMNS] for row in installed["packs"]]
    _print_block(_PACK_COLUMNS, pack_rows, numeric=_NUMERIC_COLUMNS)


def _print_block(headings: Sequence[str], rows: Sequence[Sequence[object]], *, numeric: Sequence[int] = ()) -> None:
    """Print a table and an empty line, if there are rows."""
    if rows:
        print_table(headings, rows, numeric=numeric)
        click.echo()


def _print_fusions(fusions: Sequence[dict[str, Any]], show_pack: bool) -> None:
    """Print the table of fusions.

    The column ``applies`` is left out if all fusions always apply.
    """
    show_condition = not all(row["exact"] for row in fusions)
    headings = [
        "fusion",
        *(["pack"] if show_pack else []),
        *(["applies"] if show_condition else []),
        "last operator",
        "summary",
    ]
    rows = [
        [
            row["name"],
            *_pack_name_cell(row, show_pack),
            *([_condition(row)] if show_condition else []),
            ", ".join(row["roots"]) or _NO_LAST_OPERATOR,
            row["summary"],
        ]
        for row in fusions
    ]
    _print_block(headings, rows)


def _print_totals(installed: dict[str, Any]) -> None:
    """Print the number of handlers, fusions and packs, then problems and warnings."""
    rows = installed["handlers"]
    unusable_count = sum(bool(row["error"]) for row in rows)
    unusable = f" ({unusable_count} more cannot be used)" if unusable_count else ""
    total = (
        f"{plural(len(rows) - unusable_count, 'handler')}{unusable} and {plural(len(installed['fusions']), 'fusion')} "
        f"of {plural(len(_pack_names(installed)), 'pack')}"
    )
    problems = _unlisted(installed, [text for row in installed["packs"] for text in row["wrong"]])
    warnings = [text for text in _unlisted(installed, installed["warnings"]) if text not in problems]
    print_rows(row for row in (Row("total", [total]), problem_row(problems), warning_row(warnings)) if row.lines)


def _pack_names(installed: dict[str, Any]) -> set[str]:
    """Return the names of the packs that register anything."""
    return {row["pack"] for kind in _KINDS for row in installed[kind]}


def _exit_if_problems(ctx: click.Context, installed: dict[str, Any], pack: str | None) -> None:
    """Exit with 1 if ``--pack`` names a pack with problems.

    Authors of packs use the command as a check.
    """
    if pack is not None and any(row["wrong"] for row in installed["packs"]):
        ctx.exit(1)


def _unlisted(installed: dict[str, Any], texts: Sequence[str]) -> list[str]:
    """Return the texts, except those that repeat an error in the printed tables."""
    listed_errors = [row["error"] for kind in ("handlers", "targets") for row in installed[kind] if row["error"]]
    return [text for text in dict.fromkeys(texts) if not any(error in text for error in listed_errors)]


_KINDS = ("handlers", "fusions", "hooks", "targets", "commands")


def _list_installed() -> dict[str, Any]:
    from onnx_tflite_plugin.api import Handler
    from onnx_tflite_plugin.cli.pack_commands import list_pack_commands
    from onnx_tflite_plugin.host import Host
    from onnx_tflite_plugin.inspection import describe_handler

    host = Host()
    rows, failures = [], []
    for code, pack, handler in host.handlers():
        if isinstance(handler, Handler):
            rows.append(describe_handler(code, pack, handler))
        else:
            rows.append({"code": code, "pack": pack, "error": handler.reason})
            failures.append(rows[-1])
    fusions = [
        {
            "name": fusion.name,
            "pack": pack,
            "exact": fusion.exact,
            "roots": sorted({pattern.code for pattern in fusion.patterns}),
            "handler": fusion.handler.name,
            "summary": fusion.handler.summary,
        }
        for pack, fusion in host.fusions()
    ]
    commands = [{"pack": command.pack, "command": command.name} for command in list_pack_commands()]
    return {
        "handlers": rows,
        "fusions": sorted(fusions, key=lambda row: (row["name"], row["pack"])),
        "hooks": [{"pack": pack, "hook": name} for pack, name in host.hooks.implementations()],
        "targets": [_describe_target(name, pack, target) for name, pack, target in host.targets],
        "commands": commands,
        "packs": list(_pack_rows(host, rows, failures, fusions, commands)),
        "warnings": host.warnings,
    }


def _select_pack(installed: dict[str, Any], pack: str) -> dict[str, Any]:
    """Return the contents of one pack, and the warnings that name it.

    Raises UsageProblem if the pack is not installed.
    """
    from onnx_tflite_plugin.checked import did_you_mean
    from onnx_tflite_plugin.host.offers import canonical_name

    names = {canonical_name(row["pack"]): row["pack"] for row in installed["packs"]}
    name = names.get(canonical_name(pack))
    if name is None:
        suggestion = did_you_mean(canonical_name(pack), names) or ";"
        raise UsageProblem(
            f"pack {pack!r} is not installed{suggestion} installed packs: {', '.join(sorted(names.values()))}"
        )
    contents = {kind: [row for row in installed[kind] if row["pack"] == name] for kind in (*_KINDS, "packs")}
    return {**contents, "warnings": [text for text in installed["warnings"] if _is_about(text, name)]}


def _is_about(text: str, pack: str) -> bool:
    """True if a text names the pack itself, not one with a longer name."""
    return re.search(rf"(?<![\w-]){re.escape(pack)}(?![\w-])", text) is not None


def _describe_target(name: str, pack: str, target: Target | Failed) -> dict[str, Any]:
    """Return the description of a target: name, pack, opsets and error."""
    if isinstance(target, Failed):
        return {"name": name, "pack": pack, "opsets": None, "error": target.reason}
    return {"name": name, "pack": pack, "opsets": list(target.opsets), "error": ""}


def _format_opsets(row: dict[str, Any]) -> str:
    return "-" if row["opsets"] is None else "{0} to {2}, {1} by default".format(*row["opsets"])


_PACK_COLUMNS = ("pack", "version", "handlers", "fusions", "hooks", "commands", "cases", "overrides", "wrong")
_NUMERIC_COLUMNS = (2, 3, 6)
_NO_LAST_OPERATOR = "(searches the graph)"


def _pack_rows(
    host: Host,
    handlers: Sequence[dict[str, Any]],
    failures: Sequence[dict[str, Any]],
    fusions: Sequence[dict[str, Any]],
    commands: Sequence[dict[str, Any]],
) -> Iterator[dict[str, Any]]:
    """Yield the contents of each installed pack.

    Loads the cases of packs. The thousands of built-in cases are not loaded. ``failures``: the handlers that failed to
    load. Handlers that refuse every operator on purpose are not failures.
    """
    from importlib.metadata import version

    from conformance.packs import pack_summaries
    from onnx_tflite_plugin.host.offers import discover

    cases = pack_summaries()
    hooks = host.hooks.implementations()
    builtin_codes = {row["code"] for row in handlers if row["pack"] == BUILTIN}
    offers = discover()
    for pack in sorted({offer.pack for offer in offers} | {*cases} | {row["pack"] for row in commands}):
        pack_handlers = [row for row in handlers if row["pack"] == pack]
        usable_codes = [row["code"] for row in pack_handlers if row not in failures]
        case_count, case_problem = cases.get(pack, (0, ""))
        problems: list[str] = []
        if pack != BUILTIN:
            problems += _loading_problems(pack, failures, [*host.warnings, case_problem])
            problems += _target_problems(host, pack)
            problems += [
                f"{pack}: {offer.version_problem}" for offer in offers if offer.pack == pack and offer.version_problem
            ]
            problems += [*_competing_handlers(pack, handlers), *_unreported_problems(host, pack)]
        yield {
            "pack": pack,
            "version": version(pack),
            "handlers": sum(not row["error"] for row in pack_handlers),
            "fusions": sum(row["pack"] == pack for row in fusions),
            "hooks": [name for owner, name in hooks if owner == pack],
            "commands": [row["command"] for row in commands if row["pack"] == pack],
            "cases": case_count,
            "overrides": [code for code in usable_codes if pack != BUILTIN and code in builtin_codes],
            "wrong": list(dict.fromkeys(problems)),
        }


def _loading_problems(pack: str, failures: Sequence[dict[str, Any]], warnings: Sequence[str]) -> list[str]:
    """Return the errors of a pack's handlers, and other warnings about the pack."""
    pack_failures = [row for row in failures if row["pack"] == pack]
    errors = [row["error"] for row in pack_failures]
    return [
        *(f"{row['code']}: {row['error']}" for row in pack_failures),
        *(text for text in warnings if _is_about(text, pack) and not any(error in text for error in errors)),
    ]


def _target_problems(host: Host, pack: str) -> list[str]:
    """Return the problems of a pack's unusable targets that no warning reports."""
    failures = [
        (name, target.reason) for name, owner, target in host.targets if owner == pack and isinstance(target, Failed)
    ]
    return [
        f"target {name}: {reason}" for name, reason in failures if not any(reason in text for text in host.warnings)
    ]


def _competing_handlers(pack: str, handlers: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a problem for each operator of a pack that another pack converts too."""
    for row in handlers:
        competitors = {
            entry["pack"] for entry in handlers if entry["code"] == row["code"] and entry["pack"] not in (pack, BUILTIN)
        }
        if row["pack"] == pack and competitors:
            names = sorted({pack, *competitors})
            remedies = " or ".join(f"--prefer {name}" for name in names)
            yield (
                f"{row['code']}: {' and '.join(names)} each have a handler for it, so a model with the operator is refused; "
                f"uninstall a pack, or convert with {remedies}"
            )


def _unreported_problems(host: Host, pack: str) -> list[str]:
    """Return misspelled groups of a pack, and commands and passes that do not load.

    A conversion does not report these problems.
    """
    from onnx_tflite_plugin.api import Target
    from onnx_tflite_plugin.cli.pack_commands import list_pack_commands
    from onnx_tflite_plugin.host.registration import find_misspelled_groups
    from onnx_tflite_plugin.rewrite.declaration import PACK_PASS
    from onnx_tflite_plugin.rewrite.pack_pass import find_pass_problem

    targets = [target for _, owner, target in host.targets if owner == pack and isinstance(target, Target)]
    passes = [name for target in targets for name in target.passes if PACK_PASS in name]
    problems = [command.find_problem() for command in list_pack_commands() if command.pack == pack]
    problems += [find_pass_problem(pack, name) for name in passes]
    problems += map(str, find_misspelled_groups(pack))
    return [problem for problem in problems if problem]


def _pack_cell(row: dict[str, Any], name: str) -> object:
    """Return a cell of the table of packs."""
    value = row[name]
    if name == "wrong":
        return plural(len(value), "problem") if value else "-"
    return (", ".join(limit_lines(value, 4)) or "-") if isinstance(value, list) else value or "-"


def _handler_cells(row: dict[str, Any], details: bool, show_pack: bool) -> list[object]:
    """Return the cells of a handler; for an unusable one, the last is the reason."""
    pack = _pack_name_cell(row, show_pack)
    if row["error"]:
        return [row["code"], "-", *pack, *(("-",) if details else ()), f"unusable: {row['error']}"]
    return [
        row["code"],
        row["max_version"],
        *pack,
        *((row["layout"], row["quantization"]) if details else (row["summary"],)),
    ]


def _pack_name_cell(row: dict[str, Any], show_pack: bool) -> list[object]:
    """Return the cell of the column ``pack``; no cell if the table lacks the column."""
    label = "built-in" if row["pack"] == BUILTIN else row["pack"]
    return [label] if show_pack else []


def _condition(row: dict[str, Any]) -> str:
    """Return the condition under which the fusion is applied."""
    return "always" if row["exact"] else "with --optimize speed"
