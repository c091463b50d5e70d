"""Layout plans of random networks: minimum cost, and the local plan's results."""

from __future__ import annotations

import itertools
import random
from math import prod
from typing import Any

import numpy as np
import onnxruntime
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, ModelBuilder, TensorRef
from onnx_tflite_plugin.api import Handler, builtin
from onnx_tflite_plugin.binding.declared import resolve
from onnx_tflite_plugin.errors import ConversionError, HandlerError, InvalidModel
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout import labeling, plan, propagation, solver
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import TARGETS


class Network:
    """A random float network: each operator uses earlier tensors."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.model = ModelBuilder()
        self.g: GraphBuilder = self.model.main
        self.pool: list[TensorRef] = [self.g.input("x", self.random.choice([(1, 5, 7, 3), (2, 5, 1, 3), (1, 1, 1, 6)]))]
        self.used: set[int] = set()

    def build(self, operators: int) -> bytes:
        for _ in range(operators):
            add_operator = self.random.choice(
                [
                    self.conv,
                    self.conv,
                    self.relu,
                    self.add,
                    self.transpose,
                    self.reshape,
                    self.mean,
                    self.pad,
                    self.concat,
                ]
            )
            add_operator(self.choose_tensor())
        for tensor in self.pool[1:]:
            if int(tensor) not in self.used:
                self.g.output(tensor)
        return self.model.build()

    def choose_tensor(self) -> TensorRef:
        return self.random.choice(self.pool[-3:])

    def add_operator(
        self, code: str, inputs: list[int], shape: tuple[int, ...], options: dict[str, object] | None = None
    ) -> None:
        y = self.g.tensor(f"t{len(self.pool)}", shape)
        self.g.operator(code, inputs, [y], options)
        self.used.update(int(i) for i in inputs)
        self.pool.append(y)

    def constant(self, array: np.ndarray) -> TensorRef:
        return self.g.constant("", array)

    def conv(self, x: TensorRef) -> None:
        if len(x.shape) != 4:
            return self.relu(x)
        out = self.random.choice([3, 5])
        w = self.constant(self.rng.standard_normal((out, 1, 1, x.shape[3])).astype(np.float32))
        b = self.constant(self.rng.standard_normal(out).astype(np.float32))
        return self.add_operator(
            "CONV_2D", [x, w, b], (*x.shape[:3], out), {"padding": "VALID", "stride_h": 1, "stride_w": 1}
        )

    def relu(self, x: TensorRef) -> None:
        self.add_operator("RELU", [x], x.shape)

    def add(self, x: TensorRef) -> None:
        candidates = [t for t in self.pool if t.shape == x.shape]
        y: int = self.random.choice(candidates)
        if self.random.random() < 0.4:
            y = self.constant(
                self.rng.standard_normal(x.shape[-self.random.randint(1, len(x.shape)) :]).astype(np.float32)
            )
        self.add_operator("ADD", [x, y], x.shape)

    def transpose(self, x: TensorRef) -> None:
        perm = self.random.sample(range(len(x.shape)), len(x.shape))
        self.add_operator("TRANSPOSE", [x, self.constant(np.asarray(perm, np.int32))], tuple(x.shape[p] for p in perm))

    def reshape(self, x: TensorRef) -> None:
        split = self.random.randint(1, max(len(x.shape) - 1, 1))
        shape = self.random.choice(
            [
                (*x.shape[: split - 1], prod(x.shape[split - 1 :])),
                (prod(x.shape[:split]), *x.shape[split:]),
                (1, *x.shape),
            ]
        )
        if len(shape) <= 4:
            self.add_operator(
                "RESHAPE", [x, self.constant(np.asarray(shape, np.int32))], shape, {"new_shape": list(shape)}
            )

    def mean(self, x: TensorRef) -> None:
        if len(x.shape) < 2:
            return
        axes, keep_dims = (
            self.random.sample(range(len(x.shape)), self.random.randint(1, len(x.shape) - 1)),
            self.random.random() < 0.5,
        )
        shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keep_dims or i not in axes)
        self.add_operator("MEAN", [x, self.constant(np.asarray(axes, np.int32))], shape, {"keep_dims": keep_dims})

    def pad(self, x: TensorRef) -> None:
        pads = self.rng.integers(0, 3, (len(x.shape), 2)).astype(np.int32)
        self.add_operator(
            "PAD", [x, self.constant(pads)], tuple(int(n + p.sum()) for n, p in zip(x.shape, pads, strict=True))
        )

    def concat(self, x: TensorRef) -> None:
        axis = self.random.randrange(len(x.shape))
        shape = tuple(2 * n if i == axis else n for i, n in enumerate(x.shape))
        self.add_operator(
            "CONCATENATION", [x, x], shape, {"axis": axis - (len(shape) if self.random.random() < 0.5 else 0)}
        )


def run(proto: bytes, x: np.ndarray) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(proto).run(None, {"x": x})


@pytest.mark.parametrize("seed", range(60))
def test_minimum_plan_matches_local_results_and_brute_force_cost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[tuple[labeling.LabelingProblem, solver.Solution]] = []
    solve = solver.solve

    def record(problem: labeling.LabelingProblem) -> solver.Solution:
        problems.append((problem, solve(problem)))
        return problems[-1][1]

    monkeypatch.setattr(plan.solver, "solve", record)
    network = Network(seed)
    data = network.build(random.Random(seed).randint(2, 12))
    x = np.random.default_rng(seed).standard_normal(network.pool[0].shape).astype(np.float32)
    local = otp.convert(data, layout_plan="local")
    expected = run(local.proto.SerializeToString(), x)
    for io_layout in ("source", "onnx"):
        conversion = otp.convert(data, io_layout=io_layout)
        assert conversion.report.layout_cost <= local.report.layout_cost
        problem, solution = problems[-1]
        if solution.exact and prod(map(len, problem.prices)) <= 5000:
            labelings = itertools.product(*(range(len(prices)) for prices in problem.prices))
            assert solution.cost == min(labeling.cost(problem, labels) for labels in labelings)
        if io_layout == "source":
            for result, reference in zip(run(conversion.proto.SerializeToString(), x), expected, strict=True):
                np.testing.assert_allclose(result, reference, rtol=1e-4, atol=1e-4)


def test_plan_without_transposes_costs_nothing() -> None:
    network = Network(0)
    network.relu(network.pool[0])
    assert otp.convert(network.build(0)).report.layout_cost == 0


def test_requested_layout_changes_only_that_input() -> None:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (1, 5, 7, 3)), g.tensor("y", (1, 5, 7, 2))
    w = g.constant("w", np.ones((2, 1, 1, 3), np.float32))
    g.operator("CONV_2D", [x, w, None], [y], {"padding": "VALID", "stride_h": 1, "stride_w": 1})
    g.output(y)
    graph = otp.convert(model.build(), layout={"x": "NHWC:NCHW"}).proto.graph
    shapes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in (graph.input[0], graph.output[0])]
    assert shapes == [[1, 3, 5, 7], [1, 5, 7, 2]]
    assert [node.op_type for node in graph.node].count("Transpose") == 1
    with pytest.raises(otp.ConversionError, match="no graph input or output has this name"):
        otp.convert(model.build(), layout={"z": "NHWC:NCHW"})
    with pytest.raises(otp.ConversionError, match="NHWC:NCHW"):
        otp.convert(model.build(), layout={"x": "NHWC:NCW"})


def count_candidates(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return the number of candidate layouts by operator, updated per conversion."""
    counts: dict[str, int] = {}
    original = plan.propagate_layouts

    def count(*arguments: Any) -> Any:
        candidates, interface_candidates = original(*arguments)
        for bound, layouts in candidates.items():
            counts[bound.op.code] = max(len(layouts), counts.get(bound.op.code, 0))
        return candidates, interface_candidates

    monkeypatch.setattr(plan, "propagate_layouts", count)
    return counts


def test_candidates_per_operator_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = count_candidates(monkeypatch)
    data = [Network(seed).build(12) for seed in range(4)]
    for limit in (propagation.MAX_CANDIDATES, 2):
        monkeypatch.setattr(propagation, "MAX_CANDIDATES", limit)
        counts.clear()
        for network in data:
            otp.convert(network)
        assert max(counts.values()) > 2 if limit > 2 else max(counts.values()) == 2


@pytest.mark.parametrize(("shared", "layouts"), [("nothing", 1), ("a constant", 1), ("an input", 2)])
def test_shared_constant_does_not_propagate_layouts(shared: str, layouts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layout of ADD's convolution does not reach MUL through a shared constant."""
    counts, network = count_candidates(monkeypatch), Network(0)
    network.conv(network.pool[0])
    convolved = network.pool[-1]
    constants = [network.constant(np.full(convolved.shape, k, np.float32)) for k in (1, 2)]
    addend, factor = constants if shared == "nothing" else [constants[0]] * 2
    if shared == "an input":
        addend = factor = network.g.input("shared", convolved.shape)
    for code, x, operand in (("ADD", convolved, addend), ("MUL", network.g.input("separate", convolved.shape), factor)):
        network.add_operator(code, [x, operand], convolved.shape)
        network.g.output(network.pool[-1])
    otp.convert(network.model.build())
    assert counts == {"ADD": 2, "MUL": layouts}


@pytest.mark.parametrize(
    ("handlers", "error", "text"),
    [
        ({}, InvalidModel, "the file stores no shape for 'y', the result of operands of rank 2"),
        ({"ADD": builtin("ADD")}, HandlerError, "the declaration of .* in inline"),
    ],
    ids=["built-in", "of a pack"],
)
def test_rank_mismatch_is_attributed_to_file_or_pack(
    handlers: dict[str, Handler], error: type[ConversionError], text: str
) -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 3))
    g.operator("ADD", [x, x], [y := g.tensor("y", ())])
    g.output(y)
    target = TARGETS["onnxruntime"]
    bound = resolve(Host(packs="builtin", handlers=handlers).bind(read(model.build()), target, 18), target, 18)
    with pytest.raises(error, match=text) as caught:
        plan.plan_layout(bound, bytes_of=lambda *_: 0, prices={}, interface=propagation.InterfaceLayouts({}))  # type: ignore[arg-type]
    assert "op 0 ADD" in str(caught.value)
