"""``python -m benchmarks.ablation PATHS``: the time that each rewrite rule saves.

Each network is converted with all rules, and again without each rule that changed it. All conversions are timed in
interleaved rounds, on the same inputs, with one thread. By default the examples of the repository are timed;
``python -m benchmarks.networks`` downloads larger networks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click
import numpy as np

import onnx_tflite_plugin as otp
from benchmarks.__main__ import machine, models_by_name
from benchmarks.measure import interleave_runs
from onnx_tflite_plugin.cli.output import show_progress
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.options import Optimize
from onnx_tflite_plugin.rewrite import RULES
from onnx_tflite_plugin.rewrite.declaration import RuleDeclaration
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime

EXAMPLES = Path(__file__).parents[1] / "examples"
UNUSED_OPERATORS = frozenset({"no such operator"})  # a rule with these operators never runs


class Gains(NamedTuple):
    """Gain of one rule in each network, in percent.

    A gain of 10 means that the network takes 10 % longer without the rule.
    """

    rule: str
    gains: Mapping[str, float]

    @property
    def row(self) -> str:
        """Return the table row of the rule."""
        lines = _module_length(RULES[self.rule])
        if not self.gains:
            return f"| {self.rule} | 0 | | | | {lines} |"
        values = list(self.gains.values())
        figures = " | ".join(f"{value:.1f}" for value in (np.mean(values), max(values), min(values)))
        return f"| {self.rule} | {len(values)} | {figures} | {lines} |"


@contextmanager
def disable_rule(name: str) -> Iterator[None]:
    """Disable a rule within the block."""
    rule = RULES[name]
    RULES[name] = rule._replace(operators=UNUSED_OPERATORS)
    try:
        yield
    finally:
        RULES[name] = rule


def ablate(path: Path, optimize: Optimize, rounds: int, rule_names: Sequence[str] = ()) -> Mapping[str, float]:
    """Return the gain in percent of each rule that changes a network."""
    conversion = otp.convert(path, optimize=optimize)
    rules = [name for name in conversion.report.passes if not rule_names or name in rule_names]
    if not rules:
        return {}
    protos = [conversion.proto]
    for name in rules:
        with disable_rule(name):
            protos.append(otp.convert(path, optimize=optimize).proto)
    sessions = [OnnxRuntime(proto).session for proto in protos]
    feeds = _feeds(sessions[0])
    runs = [lambda session=session: session.run(None, feeds) for session in sessions]
    seconds_with_all_rules, *seconds_without_rule = interleave_runs(runs, rounds)
    return {
        name: 100 * (float(np.median(seconds / seconds_with_all_rules)) - 1)
        for name, seconds in zip(rules, seconds_without_rule, strict=True)
    }


def _feeds(session: Any) -> dict[str, Array]:
    """Return random floats and 8-bit integers as inputs, and zeros for other dtypes.

    Other inputs may be indices, for which only 0 is always valid.
    """
    random, feeds = np.random.default_rng(0), {}
    for info in session.get_inputs():
        shape = [size if isinstance(size, int) else 1 for size in info.shape]
        dtype_name = info.type.removeprefix("tensor(").removesuffix(")")
        dtype = {"float": "float32", "double": "float64"}.get(dtype_name, dtype_name)
        if dtype.startswith("float"):
            feeds[info.name] = random.normal(size=shape).astype(dtype)
        elif dtype in ("int8", "uint8"):
            feeds[info.name] = random.integers(0, 127, shape).astype(dtype)
        else:
            feeds[info.name] = np.zeros(shape, dtype)
    return feeds


def _module_length(rule: RuleDeclaration) -> int:
    spec = find_spec(f"{rule.package}.{rule.module or rule.name}")
    assert spec is not None
    assert spec.origin is not None
    return len(Path(spec.origin).read_text().splitlines())


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", metavar="FOLDER_OR_FILES…", nargs=-1, type=click.Path(path_type=Path))
@click.option("--rounds", type=click.IntRange(min=1), default=15, show_default=True, help="Timing rounds per network.")
@click.option(
    "--optimize",
    type=click.Choice(list(get_args(Optimize))),
    default="speed",
    show_default=True,
    help="As in convert.",
)
@click.option(
    "--rule",
    "rule_names",
    metavar="NAME",
    multiple=True,
    type=click.Choice(list(RULES)),
    help="Rule to time, by default all. Repeatable.",
)
def ablation(paths: Sequence[Path], rounds: int, optimize: Optimize, rule_names: Sequence[str]) -> None:
    """Time networks with and without each rewrite rule that changes them."""
    gains: dict[str, dict[str, float]] = {name: {} for name in rule_names or RULES}
    models = models_by_name(paths or [EXAMPLES])
    for k, (name, path) in enumerate(models.items(), 1):
        try:
            with show_progress(f"{k} of {len(models)}: {name}"):
                for rule, gain in ablate(path, optimize, rounds, rule_names).items():
                    gains[rule][name] = gain
        except ConversionError as error:
            click.echo(f"{name}: {error}", err=True)
    click.echo(f"{machine()}, {rounds} rounds, {len(models)} networks")
    click.echo("| rule | networks | mean % | best % | worst % | lines of its module |\n|---|---|---|---|---|---|")
    for rule, by_network in gains.items():
        click.echo(Gains(rule, by_network).row)


if __name__ == "__main__":
    sys.exit(ablation())
