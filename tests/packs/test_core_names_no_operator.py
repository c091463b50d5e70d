"""The core names no operator: renamed operators convert to the same nodes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import onnx_ir as ir
import pytest

import onnx_tflite_plugin
from conformance.case import Case
from conformance.cases import builtin_cases
from onnx_tflite_plugin.api.activations import ACTIVATIONS
from onnx_tflite_plugin.conversion import convert_model
from onnx_tflite_plugin.host import HANDLERS, Host
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Model, Operator

EXAMPLES = Path(__file__).parents[2] / "examples"


def rename_codes(model: Model) -> Model:
    """Rename every operator to a custom name.

    Composites without a handler get the name of their builtin operator.
    """

    def custom(op: Operator) -> Operator:
        code = op.builtin if op.code.startswith("COMPOSITE.") else op.code
        return replace(op, code=f"CUSTOM.{code}", builtin="CUSTOM")

    graphs = tuple(replace(g, operators=tuple(map(custom, g.operators))) for g in model.subgraphs)
    return replace(model, subgraphs=graphs)


SUBGRAPH_READERS = {
    "STABLEHLO_REDUCE_WINDOW",
    "STABLEHLO_SCATTER",
    "WHILE",
}  # handlers that inspect operators of subgraphs


PARTS = 8


def sample(remainder: int, first: int, every: int) -> list[Case]:
    """Return the first cases of each operator, and every n-th of the others."""
    counts: Counter[str] = Counter()
    selected = []
    for k, case in enumerate(builtin_cases()):
        counts[case.op] += 1
        if (
            len(case.op) % PARTS == remainder
            and case.op not in SUBGRAPH_READERS
            and (counts[case.op] <= first or k % every == 0)
        ):
            selected.append(case)
    return selected


def listing(graph: ir.Graph) -> list[object]:
    """Return the nodes of all graphs, without names of TFLite operators."""
    return [
        (
            node.op_type,
            # nodes of an operator without results are named after its code
            [None if value is None else (value.name or "").replace("CUSTOM.", "") for value in node.inputs],
            {
                a.name: listing(a.as_graph()) if a.type == ir.AttributeType.GRAPH else a.value
                for a in node.attributes.values()
            },
            [value.name for value in node.outputs],
        )
        for node in graph
    ]


@pytest.fixture(scope="module")
def hosts() -> tuple[Host, Host]:
    """Return the built-in handlers, and the same handlers for renamed operators."""
    by_code = {entry.name: entry.load() for entry in entry_points(group=HANDLERS)}
    return Host(offers=[], handlers=by_code), Host(
        offers=[], handlers={f"CUSTOM.{code}": handler for code, handler in by_code.items()}
    )


@pytest.mark.parametrize("name", ["digits_float.tflite", "digits_int8.tflite"])
def test_network_with_renamed_operators_gives_equal_nodes(name: str, hosts: tuple[Host, Host]) -> None:
    model = read(EXAMPLES / name)
    original, renamed = convert_model(model, hosts[0]), convert_model(rename_codes(model), hosts[1])
    assert listing(original.model.graph) == listing(renamed.model.graph)


@pytest.mark.parametrize("remainder", range(PARTS))
def test_cases_with_renamed_operators_give_equal_nodes(
    remainder: int, hosts: tuple[Host, Host], thorough: bool
) -> None:
    compared = 0
    cases, min_count = (sample(remainder, 2, 53), 10) if thorough else (sample(remainder, 1, 106), 5)
    for case in cases:
        model = read(case.build())
        if SUBGRAPH_READERS.intersection(op.code for graph in model.subgraphs for op in graph.operators):
            continue
        try:
            original = convert_model(model, hosts[0])
        except onnx_tflite_plugin.ConversionError:
            continue
        assert listing(original.model.graph) == listing(convert_model(rename_codes(model), hosts[1]).model.graph), case
        compared += 1
    assert compared > min_count


ALLOWED = {
    ("schema.py", "STABLEHLO_CASE"),
    ("subgraphs.py", "STABLEHLO_COMPOSITE"),
    ("new_pack.py", "STABLEHLO_COMPOSITE"),
    ("layout_lines.py", "TRANSPOSE"),
}
"""Names that are part of the file format, of an option or of a count in the summary."""


def test_no_source_file_of_the_core_mentions_an_operator() -> None:
    core = Path(onnx_tflite_plugin.__file__).parent
    operators = {entry.name for entry in entry_points(group=HANDLERS) if "_" in entry.name or len(entry.name) > 6}
    names = sorted(operators - ACTIVATIONS)  # some activations share an operator's name
    pattern = re.compile("|".join(rf'"{name}"' for name in names))
    for file in core.rglob("*.py"):
        if "api" in file.parts or "templates" in file.parts:
            continue  # examples in docstrings
        names_in_file = {(file.name, text.strip('"')) for text in pattern.findall(file.read_text())}
        assert names_in_file <= ALLOWED, file


def test_core_defines_code_prefixes_in_one_module() -> None:
    root = Path(onnx_tflite_plugin.__file__).parent
    prefixes_by_file = {}
    for path in root.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings
        ]
        if prefixes := [text for text in texts if re.match(r"(CUSTOM|COMPOSITE)\.\w*$", text)]:
            prefixes_by_file[path.relative_to(root).as_posix()] = prefixes
    assert prefixes_by_file == {"codes.py": ["CUSTOM.", "COMPOSITE."]}
