"""Networks for tests of passes, and their comparison before and after a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

import onnx_tflite_plugin as otp
from conformance.builder import TensorRef
from conformance.models import Net, Spec, random_array, tensor
from conformance.weights import bias, product, weight
from onnx_tflite_plugin.graph.metadata import PREFIX
from onnx_tflite_plugin.rewrite import RULES
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, load_rule, run_passes
from onnx_tflite_plugin.rewrite.weights.assign_dtypes import AssignWeightDtypes
from onnx_tflite_plugin.source.model import Array
from tests.helpers.changed_models import feeds_of, run_model

BuildNetwork = Callable[["Network"], Any]


class Network(Net):
    """Network with random weights, whose scales use the whole range of each dtype."""

    def conv(
        self,
        x: TensorRef,
        features: int,
        kernel: Sequence[int] = (3, 3),
        stride: int = 1,
        *,
        depthwise: bool = False,
        padding: str = "SAME",
        weights: str | None = None,
        per_axis: bool = True,
        zero_point: int | None = None,
        beyond_int8: Sequence[tuple[int, ...]] | None = None,
        change: Callable[[Array], Array] | None = None,
        name: str = "",
        biased: bool = True,
        **options: Any,
    ) -> TensorRef:
        """Add CONV_2D, or DEPTHWISE_CONV_2D if ``depthwise``.

        ``beyond_int8``: indices of uint8 weights that do not fit int8 after subtraction of the zero point; all others fit.
        ``change``: a function that is applied to the weights.
        """
        x_spec = self.spec(x)
        batch, *size, channels = x_spec.shape
        assert channels is not None
        outputs = [
            -(-(s or 0) // stride) if padding == "SAME" else ((s or 0) - k) // stride + 1
            for s, k in zip(size, kernel, strict=True)
        ]
        shape = (1, *kernel, features) if depthwise else (features, *kernel, channels // options.pop("groups", 1))
        dtype = weights or x_spec.dtype
        w = weight(shape, dtype, (3 if depthwise else 0) if per_axis and dtype == "int8" else None, seed=name or "w")
        w = w if zero_point is None else replace(w, zero_point=zero_point)
        w = w if beyond_int8 is None else _limit_to_int8(w, beyond_int8)
        if change is not None and w.value is not None:
            w = replace(w, value=change(w.value).astype(w.value.dtype))
        depth = int(np.prod(kernel)) * (1 if depthwise else channels)
        y = product(x_spec, w, (batch, *outputs, features), depth)
        b = bias(x_spec, w, features, "float32" if x_spec.scale is None else "int32", depth) if biased else None
        op = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
        if depthwise:
            options["depth_multiplier"] = features // channels
        y_spec = Spec(y.shape, y.dtype, y.scale, y.zero_point, name=name)
        return self.call(op, [x, w, b], y_spec, padding=padding, stride_h=stride, stride_w=stride, **options)

    def like(
        self, op: str, *operands: TensorRef | Spec, shape: Sequence[int] | None = None, **options: Any
    ) -> TensorRef:
        """Add an operator whose result has the dtype and parameters of its first operand."""
        first_spec = operands[0] if isinstance(operands[0], Spec) else self.spec(operands[0])
        return self.call(
            op, list(operands), replace(first_spec.with_shape(*(shape or first_spec.shape)), name=""), **options
        )


def _limit_to_int8(w: Spec, exceptions: Sequence[tuple[int, ...]]) -> Spec:
    """Return weights within 127 of their zero point, except at ``exceptions``."""
    assert w.value is not None
    assert isinstance(w.zero_point, int)
    value = w.value.clip(max(0, w.zero_point - 127), min(255, w.zero_point + 127))
    for index in exceptions:
        value[index] = 255 if w.zero_point < 128 else 0
    return replace(w, value=value)


def build_model(build: BuildNetwork) -> bytes:
    model = Network()
    output = build(model)
    model.output(*(output if isinstance(output, tuple) else (output,)))
    return model.build()


class RewriteTrial:
    """A network before and after rewrite rules, whose weights overflow on no processor."""

    def __init__(self, rules: str, build: BuildNetwork, batch: int | None = None, **options: Any) -> None:
        self.data = build_model(build)
        self.before = otp.convert(self.data, **{"weights_dtype": "int8", "optimize": "none", **options}).proto
        self.batch = batch
        model = ir.from_proto(self.before)
        self.outcomes = [load_rule(RULES[rule]).apply(model) for rule in rules.split(" + ")]
        self.count = sum(outcome.applied for outcome in self.outcomes)
        self.after = ir.to_proto(model)
        onnx.checker.check_model(self.after, full_check=True)

    @property
    def outputs(self) -> Iterator[tuple[Array, Array]]:
        """Yield pairs of outputs, before and after, for three random inputs."""
        sessions = [session(finish_model(proto)) for proto in (self.before, self.after)]
        assert [o.name for o in sessions[0].get_outputs()] == [o.name for o in sessions[1].get_outputs()]
        for seed in "abc":
            feeds = {
                model_input.name: random_array(
                    *(n if isinstance(n, int) else self.batch or 1 for n in model_input.shape),
                    dtype=numpy_dtype_name(model_input.type),
                    seed=seed,
                )
                for model_input in sessions[0].get_inputs()
            }
            yield from zip(*(session.run(None, feeds) for session in sessions), strict=True)

    @property
    def has_equal_outputs(self) -> bool:
        return all(np.array_equal(first, second) and first.min() < first.max() for first, second in self.outputs)

    @property
    def max_difference(self) -> int:
        """Return the maximum difference between integer outputs."""
        return max(int(np.abs(first.astype(int) - second).max()) for first, second in self.outputs)

    def is_within(self, tolerance: float) -> bool:
        """True if the maximum error is within ``tolerance`` of the largest output."""
        return all(np.abs(first - second).max() <= tolerance * np.abs(first).max() for first, second in self.outputs)

    def nodes(self, op_type: str) -> list[onnx.NodeProto]:
        return [node for node in self.after.graph.node if node.op_type == op_type]

    def constant_values(self, node: onnx.NodeProto, slot: int) -> Array:
        """Return a constant operand, or the quantized values from which it is dequantized."""
        constants = {constant.name: constant for constant in self.after.graph.initializer}
        producers = {name: node for node in self.after.graph.node for name in node.output}
        name = node.input[slot]
        while name not in constants:
            name = producers[name].input[0]
        return onnx.numpy_helper.to_array(constants[name])

    def value_metadata(self, name: str) -> dict[str, str]:
        """Return the metadata of a value after the rules, without the key prefix."""
        infos = [*self.after.graph.value_info, *self.after.graph.output]
        return {p.key.removeprefix(PREFIX): p.value for info in infos if info.name == name for p in info.metadata_props}

    @property
    def ort_op_counts(self) -> Counter[str]:
        return op_counts_after_optimization(finish_model(self.after))


def finish_model(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with assigned weight dtypes, as a conversion returns it."""
    model = ir.from_proto(proto)
    run_passes(model, [AssignWeightDtypes("auto")])
    return ir.to_proto(model)


def session(proto: onnx.ModelProto, options: Any = None) -> Any:
    options = options or onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def op_counts_after_optimization(proto: onnx.ModelProto) -> Counter[str]:
    """Return the operator counts after the optimizations of ONNX Runtime."""
    with TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = f"{folder}/optimized.onnx"
        session(proto, options)
        return Counter(node.op_type for node in onnx.load(f"{folder}/optimized.onnx").graph.node)


def numpy_dtype_name(ort_type: str) -> str:
    """Return the NumPy name of a type such as ``tensor(float)``."""
    name = ort_type.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32"}.get(name, name)


def image(*shape: int | None, dtype: str = "int8") -> Spec:
    return tensor(*shape, dtype=dtype)


def parse_model(graph: str, opset: int = 21, **constants: Array) -> ir.Model:
    """Return a model from ONNX's text format, with constants by name.

    The format is ``(inputs) => (outputs) { nodes }``.
    """
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}, "elsewhere" : 1]> parsed {graph}')
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()
    )
    return ir.from_proto(onnx.shape_inference.infer_shapes(model))


def apply(rules: str, model: ir.Model, unroll: int = 0) -> int:
    """Apply rules, ``first + second``, to a model; return the number of changes."""
    options = RewriteOptions(unroll=unroll)
    return sum(load_rule(RULES[rule]).apply(model, options).applied for rule in rules.split(" + "))


def agrees(rules: str, model: ir.Model, tolerance: float = 1e-5) -> bool:
    """True if results after the rules are within ``tolerance`` of the largest value."""
    before = ir.to_proto(model)
    assert apply(rules, model)
    expected, computed = (run_model(proto, feeds_of(before)) for proto in (before, ir.to_proto(model)))
    assert expected is not None
    return computed is not None and all(
        computed[key].shape == array.shape and np.abs(computed[key] - array).max() <= tolerance * np.abs(array).max()
        for key, array in expected.items()
    )


def float_input(net: Network, *shape: int | None) -> TensorRef:
    return net.input(image(*shape, dtype="float32"))
