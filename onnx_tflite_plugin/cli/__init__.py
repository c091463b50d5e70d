"""The command line, ``python -m onnx_tflite_plugin``. Nothing heavy is imported before a command does its work."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Any, NoReturn

import click

from onnx_tflite_plugin.cli.bench import bench
from onnx_tflite_plugin.cli.conformance import conformance
from onnx_tflite_plugin.cli.convert import convert
from onnx_tflite_plugin.cli.failures import Commands
from onnx_tflite_plugin.cli.handlers import handlers
from onnx_tflite_plugin.cli.inspect import inspect
from onnx_tflite_plugin.cli.new_pack import new_pack
from onnx_tflite_plugin.cli.report import report
from onnx_tflite_plugin.cli.verify import verify
from onnx_tflite_plugin.guard import Terminated

__all__ = ["cli", "main"]


_EPILOG = """\b
Exit status: 0 done, 1 the model was refused, 2 usage or a missing extra,
3 verification failed.

ONNX_TFLITE_PLUGIN_DEBUG=1 shows the traceback of an internal error, or of what an op pack raised; NO_COLOR=1 prints
without colours."""


@click.group(
    cls=Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(package_name="onnx-tflite-plugin", prog_name="onnx-tflite-plugin")
def cli() -> None:
    """TFLite to ONNX: the same numbers, and every operator a plugin."""


for command in (convert, inspect, verify, report, bench, handlers, conformance, new_pack):
    cli.add_command(command)


def main() -> None:
    """The process: console script and ``python -m`` alike."""
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a name still gets the rest
    signal.signal(signal.SIGTERM, _terminated)
    gc.set_threshold(100_000, 50, 100)  # a conversion makes many objects and few cycles: 5 % of its time
    try:
        cli()
    finally:
        gc.freeze()  # the process ends: looking for garbage once more would only take time


def _terminated(number: int, frame: Any) -> NoReturn:
    """Leave as an exception does, so that what is half-written is removed."""
    raise Terminated(128 + number)
