"""Command ``conformance``: run the cases and print the results."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from conformance.coverage import gaps
from conformance.packs import Suite, select_suite
from conformance.reported_causes import ReportedCauses
from conformance.runner import CaseResult, run_case
from onnx_tflite_plugin.checked import did_you_mean, plural
from onnx_tflite_plugin.cli.failures import UsageProblem
from onnx_tflite_plugin.cli.output import print_json, redirect_stdout_to_stderr
from onnx_tflite_plugin.errors import PackError


def run(pack: str | None = None, ops: Sequence[str] = (), *, as_json: bool = False) -> int:
    """Run the cases of a pack, of operators, or all; return the exit code.

    ``ops``: each text is one operator, or several operators separated by commas.

    Raises ConversionError if a pack cannot be loaded and UsageProblem if there are no cases.
    """
    console = Console(stderr=as_json)
    with redirect_stdout_to_stderr():
        codes = _split_codes(ops, pack)
        suite = select_suite(pack, codes)
    known = {case.op for case in suite.cases} | {code for code, _ in suite.handlers}
    for op in (code for code in codes if code not in known and not suite.problems):
        if problem := suite.host.find_wrong_registration(op):
            raise PackError("no cases to run:", [problem])
        raise UsageProblem(f"no handler and no case for {op}{_suggest_operator(op, pack)}")
    if not (suite.handlers or suite.cases or suite.problems):
        raise UsageProblem(
            f"pack {pack} has no handler and no case; targets and hooks have tests instead of cases: run pytest DIR"
            if pack
            else "no handler and no case for anything"
        )
    results = _run_cases(suite, console)
    gap_messages = list(gaps(suite))
    passed = all(result.ok for result in results) and not gap_messages and not suite.problems
    if as_json:
        print_json({"passed": passed, **_report_as_json(suite, results, gap_messages)})
    else:
        _print_report(console, suite, results, gap_messages)
    return 0 if passed else 1


def _split_codes(texts: Sequence[str], pack: str | None) -> tuple[str, ...]:
    """Return the operators in ``texts``, which are separated by commas within a text.

    A text is not split if it is the code of a known operator, because the code of a custom operator may contain a comma.
    """
    known = _known_operators(pack) if any("," in text for text in texts) else set()
    codes = (code.strip() for text in texts for code in ([text] if text in known else text.split(",")))
    return tuple(dict.fromkeys(code for code in codes if code))


def _suggest_operator(op: str, pack: str | None) -> str:
    """Return the end of a message: a similar name, or a command that lists operators."""
    return did_you_mean(op, sorted(_known_operators(pack))) or "; the command `handlers` lists the operators"


def _known_operators(pack: str | None) -> set[str]:
    """Return the operators of the pack that have a handler or a case."""
    full_suite = select_suite(pack)
    return {case.op for case in full_suite.cases} | {code for code, _ in full_suite.handlers}


def _report_as_json(suite: Suite, results: Sequence[CaseResult], gap_messages: Sequence[str]) -> dict[str, object]:
    cases = [
        {
            "case": result.case.id,
            "operator": result.case.op,
            "status": result.status,
            "reasons": result.reasons,
            "conversions": result.variants,
            "seconds": round(result.seconds, 3),
        }
        for result in results
    ]
    return {
        "cases": cases,
        "packs": dict(suite.handlers),
        "missing": list(gap_messages),
        "problems": [str(problem) for problem in suite.problems],
        "notes": list(suite.notes),
    }


def _run_cases(suite: Suite, console: Console) -> list[CaseResult]:
    results = []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("cases", total=len(suite.cases))
        for case in suite.cases:
            progress.update(task, description=case.op, advance=1)
            with redirect_stdout_to_stderr():
                results.append(run_case(case, suite.host))
    return results


def _print_report(console: Console, suite: Suite, results: Sequence[CaseResult], gap_messages: Sequence[str]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("operator", "pack"):
        table.add_column(heading)
    for heading in ("passed", "failed", "skipped", "known"):
        table.add_column(heading, justify="right")
    for op in sorted({result.case.op for result in results} | {op for op, _ in suite.handlers}):
        counts = Counter(result.status for result in results if result.case.op == op)
        cells = [str(counts[status] or "") for status in ("passed", "failed", "skipped", "known")]
        style = "red" if counts["failed"] or not counts else None
        table.add_row(op, suite.packs.get(op, "-"), *cells, style=style)
    console.print(table)
    for line in map(str, suite.problems):
        console.print(line, markup=False, highlight=False, soft_wrap=True, style="red")
    _print_texts(console, "known to fail", [result.text for result in results if result.status == "known"], None)
    _print_texts(console, "failed", list(_failures(results)), "red")
    for line in gap_messages:
        console.print(line, markup=False, highlight=False, soft_wrap=True, style="red")
    for line in suite.notes:
        console.print(line, markup=False, highlight=False, soft_wrap=True, style="yellow")
    counts_by_status = Counter(result.status for result in results)
    seconds = sum(result.seconds for result in results)
    summary = ", ".join(
        f"{count} {status}" for status, count in sorted(counts_by_status.items(), key=lambda item: item[0] != "passed")
    )
    console.print(
        f"\n{len(results)} cases, {sum(result.variants for result in results)} conversions in {seconds:.0f} s: "
        + ", ".join([summary or "none", *([plural(len(suite.problems), "problem")] if suite.problems else [])])
    )


def _print_texts(console: Console, heading: str, texts: Sequence[str], style: str | None) -> None:
    if texts:
        console.print(f"\n{heading}:", style="bold")
    for text in texts:
        console.print(text, markup=False, highlight=False, soft_wrap=True, style=style)


def _failures(results: Sequence[CaseResult]) -> Iterator[str]:
    """Yield the text of each failed case.

    Cases with the causes of an earlier case are listed in one line.
    """
    reported, repeated_cases = ReportedCauses(), defaultdict[str, list[str]](list)
    for result in results:
        if result.status == "failed":
            earlier_case = reported.record(result)
            if earlier_case:
                repeated_cases[earlier_case].append(result.case.id)
            else:
                yield result.text
    for earlier_case, cases in repeated_cases.items():
        yield f"for the same reason as {earlier_case}: {', '.join(cases)}"
