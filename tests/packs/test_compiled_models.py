"""Files compiled for one processor are refused with the compiler's name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from onnx_tflite_plugin.errors import InvalidModel, UnsupportedOperator
from onnx_tflite_plugin.source import read
from tests.helpers.command import Run


def compiled_model(*codes: str, scratch: bool = True) -> bytes:
    """Return a chain of custom operators, each with a tensor without data."""
    model = ModelBuilder()
    g = model.main
    tensor = g.input("x", (1, 7, 5, 3), "int8", quantization=quant(0.5, 7))
    program = g.constant("program", np.arange(11, dtype=np.uint8))
    for k, code in enumerate(codes):
        memory = [g.tensor(f"scratch{k}", (13,), "uint8")] if scratch else []
        result = g.tensor(f"y{k}", (1, 2), "int8", quantization=quant(0.5, 7))
        g.operator(code, [program, *memory, tensor], [result])
        tensor = result
    g.output(tensor)
    return model.build()


@pytest.mark.parametrize(
    ("name", "compiler"),
    [
        ("ethos-u", "Vela compiled this file for Arm Ethos-U"),
        ("edgetpu-custom-op", "the Edge TPU compiler compiled this file for the Edge TPU"),
        ("XC_conv2d_v2", "compiled this file for XMOS xcore"),
        ("NeutronGraph", "NXP's Neutron converter compiled this file for NXP eIQ Neutron"),
        ("DISPATCH_OP", "a compiler plugin of LiteRT compiled this file for one NPU"),
        ("DISPATCH_OP_2", "a compiler plugin of LiteRT compiled this file for one NPU"),
    ],
)
@pytest.mark.parametrize("scratch", [False, True])
def test_error_on_a_compiled_file_names_the_compiler(name: str, compiler: str, scratch: bool) -> None:
    with pytest.raises(UnsupportedOperator, match=r"convert the original \.tflite file, the one that") as caught:
        otp.convert(compiled_model(f"CUSTOM.{name}", scratch=scratch))
    (problem,) = caught.value.problems
    assert compiler in problem.reason


@pytest.mark.parametrize("name", ["ethos-u2", "ethos", "my-edgetpu-custom-op", "xc_add", "NeutronGraphs"])
def test_similar_name_is_an_unknown_operator(name: str) -> None:
    with pytest.raises(UnsupportedOperator, match="no installed pack has a handler for it"):
        otp.convert(compiled_model(f"CUSTOM.{name}"))


def test_operators_of_one_compiler_share_a_message(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "xcore.tflite"
    path.write_bytes(compiled_model("CUSTOM.XC_pad", "CUSTOM.XC_conv2d_v2", "CUSTOM.XC_lookup", "CUSTOM.XC_pad"))
    code, _, err = run("convert", path)
    assert code == 1
    assert err.count("compiled this file for XMOS xcore") == err.count("hint: ") == 1


def test_inspect_shows_a_compiled_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "vela.tflite"
    path.write_bytes(compiled_model("CUSTOM.ethos-u"))
    code, out, _ = run("inspect", path)
    assert code == 0
    for text in ("int8 [1, 7, 5, 3]", "CUSTOM.ethos-u", "Vela compiled this file for Arm Ethos-U"):
        assert text in out


@pytest.mark.parametrize("keep_unknown", [False, True])
def test_rejects_an_operand_without_a_producer(keep_unknown: bool) -> None:
    """LiteRT rejects such a file, for any operator."""
    model = ModelBuilder()
    g = model.main
    x, empty, y = g.input("x", (2, 3)), g.tensor("empty", (2, 3)), g.tensor("y", (2, 3))
    g.operator("CUSTOM.Odd" if keep_unknown else "ADD", [x, empty], [y])
    g.output(y)
    assert read(model.build()).main.operators[0].inputs[1] is not None
    with pytest.raises(
        InvalidModel, match=r"operators\[0\]\.inputs\[1\]: tensor 1 'empty' holds no data and nothing computes it"
    ):
        otp.convert(model.build(), keep_unknown=keep_unknown)


def test_uncalled_subgraph_may_lack_producers() -> None:
    """LiteRT does not run it."""
    model = ModelBuilder()
    g, other = model.main, model.subgraph("other")
    for graph, operands in ((g, 1), (other, 2)):
        x, y = graph.input("x", (2, 3)), graph.tensor("y", (2, 3))
        graph.operator("NEG" if operands == 1 else "ADD", [x, *([graph.tensor("z", (2, 3))] * (operands - 1))], [y])
        graph.output(y)
    assert [node.op_type for node in otp.convert(model.build(), verify=True).model.graph] == ["Neg"]


def test_finds_a_missing_producer_in_an_inlined_call() -> None:
    model = ModelBuilder()
    g, inner = model.main, model.subgraph("inner")
    for graph in (g, inner):
        x, y = graph.input("x", (2, 3)), graph.tensor("y", (2, 3))
        if graph is g:
            g.operator("STABLEHLO_COMPOSITE", [x], [y], {"name": "odd", "decomposition_subgraph_index": 1})
        else:
            inner.operator("ADD", [x, inner.tensor("z", (2, 3))], [y])
        graph.output(y)
    with pytest.raises(InvalidModel, match=r"subgraphs\[1\]\.operators\[0\]\.inputs\[1\]: tensor 2 'z' holds no data"):
        otp.convert(model.build())
