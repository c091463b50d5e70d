"""Command ``conformance``: run the conformance cases of installed packs."""

from __future__ import annotations

import click

from onnx_tflite_plugin.cli.failures import set_failure_output
from onnx_tflite_plugin.cli.options import single_value


@click.command()
@click.option("--pack", metavar="PACK", multiple=True, callback=single_value, help="Only this op pack.")
@click.option(
    "--op",
    "ops",
    metavar="CODE",
    multiple=True,
    help="Only this operator: its name, CUSTOM.<code> or COMPOSITE.<name>. Separate several with commas. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print every case's result as JSON, and nothing else.")
@click.pass_context
def conformance(ctx: click.Context, /, pack: str | None, ops: tuple[str, ...], as_json: bool) -> None:
    """Run the cases that handlers must pass.

    Each case is a small model, converted and compared with LiteRT or the case's own reference. Exits with 0 if all pass.
    Requires the extra verify.
    """
    set_failure_output(as_json=as_json)
    from conformance.command import run

    ctx.exit(run(pack, ops, as_json=as_json))
