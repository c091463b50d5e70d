"""Command line, ``python -m onnx_tflite_plugin``.

No large package is imported before a command does its work.
"""

from __future__ import annotations

import gc
import signal
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from onnx_tflite_plugin.cli import pack_commands
from onnx_tflite_plugin.cli.failures import Commands, format_os_error
from onnx_tflite_plugin.cli.isolation import TERMINATION_SIGNALS, enable_forks
from onnx_tflite_plugin.cli.output import print_error
from onnx_tflite_plugin.cli.streams import open_streams
from onnx_tflite_plugin.guard import Terminated

__all__ = ["cli", "main"]


_EPILOG = """\b
Exit status: 0 done, 1 the model was refused, 2 usage or a missing extra,
3 verification failed, 4 verification was inconclusive.

ONNX_TFLITE_PLUGIN_DEBUG=1 shows the traceback of an internal error, or of an error in an op pack; NO_COLOR=1 prints
without colors."""


_MAX_HELP_LENGTH = 200  # of a command's line in the list of commands


class CommandLine(Commands):
    """Group of the built-in commands and those of packs.

    A built-in command is imported from the module of its name when it is used.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        names = dict.fromkeys(command.name for command in pack_commands.list_pack_commands())
        return [
            *pack_commands.BUILTIN_COMMANDS,
            *(name for name in names if name not in pack_commands.BUILTIN_COMMANDS),
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first sentence of each command's help; click would cut it to one line."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(limit=_MAX_HELP_LENGTH)) for name, command in commands if command]
            )

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in pack_commands.BUILTIN_COMMANDS:
            return pack_commands.find_pack_command(name)
        module = name.replace("-", "_")
        command: click.Command = getattr(import_module(f"{__name__}.{module}"), module)
        return command


@click.group(
    cls=CommandLine,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(package_name="onnx-tflite-plugin", prog_name="onnx-tflite-plugin")
def cli() -> None:
    """Convert TFLite models to ONNX with the same results; every operator is a plugin."""


def main() -> None:
    """Run the command line: entry point of the script and of ``python -m``."""
    open_streams()
    for name in TERMINATION_SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _terminate_once)
    enable_forks()
    # a conversion makes many objects and few cycles; default thresholds take 5 % of its time
    gc.set_threshold(100_000, 50, 100)
    try:
        cli()
    except OSError as error:  # of stdout, before or after the command's own work
        print_error("error", [format_os_error(error)])
        sys.exit(2)
    finally:
        gc.freeze()  # the process ends, so a last collection would only waste time


def _terminate_once(number: int, frame: Any) -> NoReturn:
    """Raise Terminated, so that partially written files are removed."""
    signal.signal(number, signal.SIG_IGN)  # a second signal would interrupt the removal
    raise Terminated(128 + number)
