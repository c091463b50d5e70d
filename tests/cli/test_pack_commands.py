"""Commands that packs add."""

from __future__ import annotations

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


something = "no command"
HERE = __name__


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> list[PackCommand]:
    offered: list[PackCommand] = []
    monkeypatch.setattr(pack_commands, "list_pack_commands", lambda: offered)
    return offered


def offer(name: str, value: str, pack: str = "pack") -> PackCommand:
    return PackCommand(name, pack, EntryPoint(name, value, GROUP))


def test_a_command_of_a_pack_runs_and_is_listed(run: Run, offered: list[PackCommand]) -> None:
    offered.append(offer("greet", f"{HERE}:greet"))
    assert run("greet", "you") == (0, "hello you\n", "")
    assert "greet" in run("--help")[1]


def test_a_built_in_command_keeps_its_name(run: Run, offered: list[PackCommand]) -> None:
    offered.append(offer("inspect", f"{HERE}:greet"))
    assert "hello" not in run("inspect", "--help")[1]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module:x", "no_such_module"),
        (f"{HERE}:absent", "absent"),
        (f"{HERE}:something", "str, not a click.Command"),
    ],
)
def test_a_command_that_cannot_be_used_names_its_pack(
    run: Run, offered: list[PackCommand], value: str, reason: str
) -> None:
    offered.append(offer("broken", value))
    code, _, err = run("broken", "x", "--any")
    assert code == 1
    assert "pack" in err
    assert reason in err
    assert run("--help")[0] == 0


def test_two_packs_with_one_command_are_a_usage_error(run: Run, offered: list[PackCommand]) -> None:
    offered += [offer("greet", f"{HERE}:greet", pack) for pack in ("one", "two")]
    code, _, err = run("greet", "you")
    assert code == 2
    assert "one and two each have a command 'greet'" in err
