"""Commands added by packs."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint

import click
import pytest

from onnx_tflite_plugin.cli import pack_commands
from onnx_tflite_plugin.cli.pack_commands import GROUP, PackCommand
from tests.helpers.command import Run


@click.command()
@click.argument("name")
def greet(name: str) -> None:
    """Greet somebody."""
    click.echo(f"hello {name}")


@click.command()
@click.argument("path")
def fail(path: str) -> None:
    """Raise an unexpected exception, or open a missing file."""
    if path:
        open(path)  # noqa: SIM115
    raise ZeroDivisionError("nothing to divide by")


@click.command()
def end() -> None:
    """Exit with a custom code."""
    sys.exit(7)


not_a_command = "text"
MODULE = __name__


@pytest.fixture
def pack_command_list(monkeypatch: pytest.MonkeyPatch) -> list[PackCommand]:
    """Replace the commands of installed packs by an empty list, which tests fill."""
    pack_command_list: list[PackCommand] = []
    monkeypatch.setattr(pack_commands, "list_pack_commands", lambda: pack_command_list)
    return pack_command_list


def make_command(name: str, value: str, pack: str = "pack") -> PackCommand:
    return PackCommand(name, pack, EntryPoint(name, value, GROUP))


def test_pack_command_runs_and_is_listed(run: Run, pack_command_list: list[PackCommand]) -> None:
    pack_command_list.append(make_command("greet", f"{MODULE}:greet"))
    assert run("greet", "you") == (0, "hello you\n", "")
    assert "greet" in run("--help")[1]


def test_pack_command_cannot_replace_a_built_in_one(run: Run, pack_command_list: list[PackCommand]) -> None:
    pack_command_list.append(make_command("inspect", f"{MODULE}:greet"))
    assert "hello" not in run("inspect", "--help")[1]
    problem = pack_command_list[0].find_problem()
    assert "the built-in command of this name runs instead; choose another name" in problem


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module:x", "no_such_module"),
        (f"{MODULE}:absent", "absent"),
        (f"{MODULE}:not_a_command", "not a click.Command; decorate a function with @click.command()"),
    ],
)
def test_error_of_an_unusable_command_names_its_pack(
    run: Run, pack_command_list: list[PackCommand], value: str, reason: str
) -> None:
    pack_command_list.append(make_command("broken", value))
    code, _, err = run("broken", "x", "--any")
    assert code == 1
    assert "pack" in err
    assert reason in err
    assert run("--help")[0] == 0


def test_rejects_a_command_of_an_incompatible_pack(run: Run, pack_command_list: list[PackCommand]) -> None:
    pack_command_list.append(
        make_command("greet", f"{MODULE}:greet")._replace(requirements=("onnx-tflite-plugin~=9.1.0",))
    )
    code, _, err = run("greet", "you")
    assert code == 1
    assert "pack requires onnx-tflite-plugin ~=9.1.0, but version " in err


def test_duplicate_command_is_a_usage_error(run: Run, pack_command_list: list[PackCommand]) -> None:
    pack_command_list += [make_command("greet", f"{MODULE}:greet", pack) for pack in ("one", "two")]
    code, _, err = run("greet", "you")
    assert code == 2
    assert "one and two each have a command 'greet'" in err


def test_attributes_an_exception_to_the_pack_of_a_command(run: Run, pack_command_list: list[PackCommand]) -> None:
    pack_command_list.append(make_command("fail", f"{MODULE}:fail"))
    code, _, err = run("fail", "")
    assert code == 1
    assert "pack: command 'fail' of pack failed: ZeroDivisionError: nothing to divide by" in err
    assert "test_pack_commands.py:" in err
    assert "report it to the authors of pack; ONNX_TFLITE_PLUGIN_DEBUG=1 shows the traceback" in err
    assert "internal error" not in err


def test_missing_file_in_a_pack_command_is_a_usage_error(run: Run, pack_command_list: list[PackCommand]) -> None:
    pack_command_list.append(make_command("fail", f"{MODULE}:fail"))
    code, _, err = run("fail", "no_such_file")
    assert code == 2
    assert "no_such_file: No such file or directory" in err


def test_keeps_the_exit_code_of_a_pack_command(run: Run, pack_command_list: list[PackCommand]) -> None:
    pack_command_list.append(make_command("end", f"{MODULE}:end"))
    assert run("end") == (7, "", "")
