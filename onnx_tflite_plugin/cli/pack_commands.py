"""Commands of packs; each command is loaded only when it runs.

The commands are entry points of the group ``onnx_tflite_plugin.commands``.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from importlib.metadata import EntryPoint
from typing import Any, NamedTuple

import click

from onnx_tflite_plugin.checked import describe
from onnx_tflite_plugin.cli.failures import UsageProblem
from onnx_tflite_plugin.errors import ConversionError, PackError, Problem
from onnx_tflite_plugin.guard import DEBUG, Failed, Mismatch, attribute_errors
from onnx_tflite_plugin.installed import PROJECT, entry_points, iterate_distributions

BUILTIN_COMMANDS = ("convert", "inspect", "verify", "report", "bench", "handlers", "conformance", "new-pack")
GROUP = f"{PROJECT}.commands"
_EXPECTED_ERRORS = (click.ClickException, click.exceptions.Exit, click.Abort, ConversionError, MemoryError, OSError)
"""Exceptions that a pack's command may raise; they are reported as for a built-in command."""


class PackCommand(NamedTuple):
    """Command of an installed pack, not loaded yet."""

    name: str
    pack: str
    entry: EntryPoint
    requirements: tuple[str, ...] = ()

    def load(self) -> click.Command:
        """Return the command, or one that fails with the reason if loading fails."""
        try:
            return self._with_attribution(self._load())
        except Failed as failed:
            return _unusable_command(self.name, f"the command cannot be used: {failed.reason}")

    def find_problem(self) -> str:
        """Return the reason why the command cannot be used; empty if it can."""
        if self.name in BUILTIN_COMMANDS:
            return (
                f"command {self.name!r} of {self.pack} is unused: the built-in command of this name runs instead; "
                "choose another name for the entry point, and install the pack again (pip install -e)"
            )
        try:
            self._load()
        except Failed as failed:
            return failed.reason
        return ""

    def _load(self) -> click.Command:
        """Return the command as the pack defines it. Raises Failed."""
        with attribute_errors(f"command {self.name!r}", self.pack, self._module):
            self._check_version()
            command = self.entry.load()
            if not isinstance(command, click.Command):
                raise Mismatch(
                    f"{self.entry.value} is {describe(command)}, not a click.Command; decorate a function with @click.command()"
                )
            return command

    def _check_version(self) -> None:
        """Raise Mismatch if the pack is made for another version."""
        from onnx_tflite_plugin.api import VERSION
        from onnx_tflite_plugin.host.offers import unmet_requirement

        if required := unmet_requirement(self.requirements):
            raise Mismatch(f"{self.pack} requires onnx-tflite-plugin {required}, but version {VERSION} is installed")

    def _with_attribution(self, command: click.Command) -> click.Command:
        """Return a copy of a command that raises PackError for unexpected exceptions.

        The error names pack, file and line.
        """

        def invoke(ctx: click.Context) -> Any:
            try:
                with attribute_errors(f"command {self.name!r}", self.pack, self._module, expected=_EXPECTED_ERRORS):
                    try:
                        return command.invoke(ctx)
                    except SystemExit as exit_error:  # raised again below, so that it is not attributed to the pack
                        requested_exit = exit_error
                raise requested_exit
            except Failed as failed:
                hint = f"report it to the authors of {self.pack}; {DEBUG}=1 shows the traceback"
                problem = Problem(self.pack, failed.reason, hint)
                raise PackError("the command of an op pack failed:", [problem]) from failed

        guarded_command = copy(command)
        guarded_command.invoke = invoke  # type: ignore[method-assign]
        return guarded_command

    @property
    def _module(self) -> str:
        return self.entry.value.partition(":")[0]


def _unusable_command(name: str, reason: str) -> click.Command:
    """Return a command that raises PackError, regardless of its arguments."""

    def fail(arguments: tuple[str, ...]) -> None:
        raise PackError(reason)

    any_arguments = click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)
    settings = {"ignore_unknown_options": True}
    return click.Command(name, callback=fail, params=[any_arguments], help=reason, context_settings=settings)


def list_pack_commands() -> list[PackCommand]:
    """Return the commands of all installed packs, sorted by name and pack."""
    commands: dict[tuple[str, str], PackCommand] = {}
    for distribution in iterate_distributions():
        text = distribution.entry_points_text
        if f"[{GROUP}]" not in text:
            continue
        pack, requirements = distribution.name_and_requirements()
        for entry in entry_points(text, (GROUP,)):
            commands.setdefault((entry.name, pack), PackCommand(entry.name, pack, entry, requirements))
    return [commands[key] for key in sorted(commands)]


def find_pack_command(name: str) -> click.Command | None:
    """Return the command of this name that a pack defines; None if no pack does.

    Raises UsageProblem if several packs define a command of this name.
    """
    commands: Sequence[PackCommand] = [command for command in list_pack_commands() if command.name == name]
    if len(commands) > 1:
        packs = " and ".join(command.pack for command in commands)
        raise UsageProblem(f"{packs} each have a command {name!r}; uninstall one of these packs")
    return commands[0].load() if commands else None
