"""Which values of an ONNX model stand for a tensor of the file, and in which order a failing part grows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from onnx import TensorProto, helper

from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.graph.metadata import TensorValue
from onnx_tflite_plugin.source.model import Operator, Tensor
from onnx_tflite_plugin.verify import Comparison, Tolerance
from onnx_tflite_plugin.verify.operators import bisect
from onnx_tflite_plugin.verify.operators.apart import NEAR, without_quantization
from onnx_tflite_plugin.verify.operators.diverging import Divergence, Search, preserving
from onnx_tflite_plugin.verify.runtimes.litert import LiteRTError
from tests.helpers.verify_graphs import entry_of, operator, slot, subgraph

OFF = Comparison("t2", "step", 9.0, 1.0, 1.0)


def search_of(*values: TensorValue, operators: tuple[Operator, ...] = ()) -> Search:
    graph = subgraph(*operators, inputs=[slot(0), slot(1, "int8", scale=0.5), slot(2)])
    trial: Any = SimpleNamespace(entry=entry_of(graph))
    session: Any = SimpleNamespace(tensor_values=values)
    return Search(trial, b"", session, fresh=False)


def test_values_of_another_graph_or_of_no_tensor_or_floats_of_integers_are_not_compared() -> None:
    compared = [
        TensorValue("integers", 0, 1, form="stored"),
        TensorValue("floats", 0, 0, form="float"),
        TensorValue("as stored", 0, 0, form="stored"),
        TensorValue("last", 0, 2, form="float"),
    ]
    others = [
        TensorValue("elsewhere", 1, 0, form="stored"),
        TensorValue("beyond", 0, 3, form="stored"),
        TensorValue("none", 0, -1, form="stored"),
        TensorValue("dequantized", 0, 1, form="float"),
    ]
    search = search_of(*others, *compared)
    assert search.values == {1: compared[:1], 0: compared[1:3], 2: compared[3:]}
    assert [search.stored(slot(k)) for k in (0, 1, 2, 3)] == ["as stored", "integers", "", ""]


def test_a_divergence_names_the_onnx_value_where_that_is_called_otherwise() -> None:
    told = [Divergence(slot(2), operator([slot(0)], [slot(2)]), name, OFF).text for name in ("t2", "v")]
    assert "ONNX value" not in told[0]
    assert "(ONNX value 'v')" in told[1]


def test_tensors_are_kept_by_both_kernel_sets_or_by_the_one_that_loads() -> None:
    def session(fails: tuple[str, ...]) -> Any:
        def load(kernels: str, *, preserve: bool) -> str:
            if kernels in fails or not preserve:
                raise LiteRTError(f"no {kernels}")
            return kernels

        return SimpleNamespace(session=load)

    assert preserving(session(())) == ["builtin", "reference"]
    assert preserving(session(("builtin",))) == ["reference"]
    assert preserving(session(("reference",))) == ["builtin"]
    assert preserving(session(()), most=1) == ["builtin"]
    with pytest.raises(LiteRTError, match="no builtin"):
        preserving(session(("builtin", "reference")))


class TestWithoutQuantization:
    @staticmethod
    def of(stands_for: Tensor, kind: int = TensorProto.FLOAT, where: str = "value_info", **value: Any) -> bool:
        info = helper.make_tensor_value_info("v", kind, [2, 3])
        graph = helper.make_graph([], "g", [], [])
        getattr(graph, where).append(info)
        held = TensorValue("v", **{"subgraph": 0, "tensor": 0, "form": "stored", **value})
        return without_quantization(helper.make_model(graph), {"v": held}, entry_of(subgraph(inputs=[stands_for])))

    def test_floats_anywhere_for_what_the_file_stores_as_quantized_integers(self) -> None:
        for where in ("input", "value_info", "output"):
            for dtype in ("int8", "uint8", "int16"):
                assert self.of(slot(0, dtype, scale=0.5), where=where)

    def test_nothing_else_is(self) -> None:
        quantized = slot(0, "int8", scale=0.5)
        assert not self.of(slot(0, "int8"))
        assert not self.of(slot(0, "float32", scale=0.5))
        assert not self.of(quantized, TensorProto.INT8)
        assert not self.of(quantized, form="float")
        assert not self.of(quantized, subgraph=1)
        assert not self.of(quantized, tensor=1)
        assert not self.of(quantized, tensor=-1)

    def test_an_operator_s_result_may_be_off_by_few_steps(self) -> None:
        assert Tolerance(of_range=1e-3, steps=3, int16_steps=200) == NEAR


class TestSmallest:
    """A chain of three, and a branch that joins it."""

    OPS = (
        operator([slot(0)], [slot(1)], index=0),
        operator([slot(0)], [slot(2)], index=1),
        operator([slot(1)], [slot(3)], index=2),
        operator([slot(3), slot(2), None], [slot(4)], index=3),
    )

    def search(self, parts: dict[int, Any]) -> Any:
        made = {t.index: op for op in self.OPS for t in op.outputs if t is not None}
        entry = entry_of(subgraph(*self.OPS, inputs=[slot(0)], outputs=[slot(4)]))

        def part(inputs: Any, output: Any, value: str) -> Any:
            return parts.get(len(inputs), (b"part", None))

        return SimpleNamespace(trial=SimpleNamespace(entry=entry), producers=made, part=part)

    def test_a_part_grows_by_what_computes_its_operands_in_the_file_s_order(self) -> None:
        grown = [[op.index for op in ops] for ops in bisect._growing(self.search({}), self.OPS[3])]
        assert grown == [[3], [1, 2, 3], [0, 1, 2, 3]]

    @pytest.mark.parametrize("missing", ["part", "tensor", "run"])
    def test_a_part_that_cannot_be_taken_or_run_is_followed_by_a_larger_one(
        self, monkeypatch: pytest.MonkeyPatch, missing: str
    ) -> None:
        kept = {k: k for k in range(5) if missing != "tensor" or k != 3}
        original = SimpleNamespace(run=lambda arrays: None, tensors=lambda: kept)
        monkeypatch.setattr(bisect, "preserving", lambda trial, most: [original])
        monkeypatch.setattr(bisect.structure, "read", lambda data: None)
        search = self.search({})
        tried: list[int] = []

        def part(inputs: Any, output: Any, value: str) -> Any:
            tried.append(len(inputs))
            names = tuple(t.name for t in inputs)
            monkeypatch.setattr(bisect.structure, "entry", lambda read: SimpleNamespace(input_names=names))
            return None if missing == "part" and len(tried) == 1 else (b"part", None)

        def agrees(tflite: bytes, onnx: Any, given: Any) -> bool:
            if missing == "run" and "t3" in given:
                raise VerificationError("it does not run by itself")
            return False

        search.part = part
        found = bisect.smallest(search, Divergence(slot(4), self.OPS[3], "v", OFF), [[], []], agrees)
        assert found is not None
        assert [op.index for op in found.operators] == [1, 2, 3]
        assert found.inputs == [{"t0": 0, "t1": 1}]

    def test_every_run_is_tried(self, monkeypatch: pytest.MonkeyPatch) -> None:
        runs = iter(range(10, 13))
        original = SimpleNamespace(run=lambda arrays: None, tensors=lambda: dict.fromkeys(range(5), next(runs)))
        monkeypatch.setattr(bisect, "preserving", lambda trial, most: [original])
        monkeypatch.setattr(bisect.structure, "read", lambda data: None)
        monkeypatch.setattr(bisect.structure, "entry", lambda read: SimpleNamespace(input_names=("t3", "t2")))
        divergence = Divergence(slot(4), self.OPS[3], "v", OFF)
        found = bisect.smallest(self.search({}), divergence, [[]] * 3, lambda t, o, given: given["t3"] != 12)
        assert found is not None
        assert found.inputs == [{"t3": 12, "t2": 12}]
