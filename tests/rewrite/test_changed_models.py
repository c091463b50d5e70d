"""Rules keep the results of models with a change near the nodes that they rewrite.

Changes are, for example, an unknown shape, another user of a tensor, an input in place of a constant, another number or
attribute, and an operator of another domain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.rewrite import RULES
from onnx_tflite_plugin.rewrite.channels import pad_channels
from onnx_tflite_plugin.source.model import Array
from tests.helpers.changed_models import UNKNOWN_DOMAIN, changed_models, feeds_of, graph, rewritten_values, run_model
from tests.helpers.passes_networks import BuildNetwork, apply, build_model
from tests.rewrite import (
    test_elementwise_to_conv,
    test_fold_width,
    test_image_rules,
    test_layout_rules,
    test_node_rules,
    test_pad_channels,
    test_recurrent_rules,
    test_reorder_channels,
    test_symmetric_weights,
    test_token_rules,
    test_widen_constants,
)

NETWORKS: dict[str, BuildNetwork] = {
    "activations_before_split": test_node_rules.gates(),
    "add_to_gemm": test_node_rules.unroll,
    "average_pool_to_conv": test_image_rules.average((1, 12, 18, 4), (2, 2), (2, 2)),
    "batch_norm_to_conv": lambda net: test_image_rules.normalize(net, channels=16),
    "clip_to_conv": lambda net: test_elementwise_to_conv.clip(net),
    "columns_before_rows": test_node_rules.grid(((7, 2, 3),) * 4),
    "conv_transpose_to_conv": lambda net: test_image_rules.enlarge(net, (3, 3), (2, 2), "SAME"),
    "dequantize_int16": test_recurrent_rules.dense(3, summed=True),
    "drop_unit_axes": test_node_rules.drop_axes((1, 7), (7,), (5, 7), "int8"),
    "fold_depthwise": test_image_rules.depthwise(per_axis=False),
    "fold_width": test_fold_width.first_conv((1, 13, 32, 3), 8, (3, 3), 2, "SAME"),
    "gemm_to_matmul": test_token_rules.project(),
    "image_channels_to_width": test_layout_rules.first_conv(1, 11, 13, 3),
    "lookup_channels_last": test_layout_rules.look_up,
    "merge_gate_convs": test_recurrent_rules.layer(3),
    "merge_reshapes": test_node_rules.heads,
    "merge_step_gemms": test_recurrent_rules.steps((2, 0, 3, 1), "int8", biased=(0, 2)),
    "pad_channels": test_pad_channels.separable,
    "pad_to_conv": test_layout_rules.residual,
    "reorder_channels": test_reorder_channels.chain(),
    "reshape_after_concat": test_node_rules.pack_products(0),
    "scale_offset_to_conv": test_elementwise_to_conv.normalize,
    "slices_to_split": lambda net: test_token_rules.slices(net, (0, 4), (4, 7)),
    "split_single_feature_conv": test_layout_rules.feature(1, 41, 37, 16),
    "squeeze_excite_blocks": test_layout_rules.squeeze_excite,
    "symmetric_weights": lambda net: test_symmetric_weights.chain(net, (7, 0, 0, 5), (31, 0, 0, 22)),
    "tanh_to_sigmoid": test_recurrent_rules.tanh(0.1, 0),
    "widen_constants": test_widen_constants.scale(),
    "widen_quantized_constants": test_widen_constants.scale(factor=(1, 1, 1, 3), dtype="uint8"),
    "zero_subnormals": test_token_rules.conv,
}
MAX_CHANGES = 60
LOOP_OPERATORS = {"merge_gate_convs": "Loop"}
"""Operators with a body that a rule rewrites, by rule."""


class Bounds(NamedTuple):
    """Allowed error: in steps for integers, relative to the largest value for floats."""

    steps: int = 1
    relative: float = 1e-5


@pytest.mark.parametrize("name", NETWORKS)
def test_pass_keeps_results_of_changed_models(name: str, monkeypatch: pytest.MonkeyPatch, thorough: bool) -> None:
    """Try every third change, which includes each kind; ``--thorough`` tries all."""
    monkeypatch.setattr(pad_channels, "MIN_MULTIPLICATIONS", 0)
    bounds, body_of = Bounds() if RULES[name].exact else Bounds(2, 0.02), LOOP_OPERATORS.get(name, "")
    proto = otp.convert(build_model(NETWORKS[name]), weights_dtype="int8", optimize="none").proto
    rewritten = _rewrite(name, proto)
    assert rewritten is not None
    changes = list(changed_models(proto, rewritten_values(graph(proto, body_of), graph(rewritten, body_of)), body_of))
    faults = []
    for description, model in changes[:: 1 if thorough or len(changes) <= MAX_CHANGES else 3]:
        fault = _describe_fault(name, model, bounds)
        if fault:
            faults.append(f"{description}: {fault}")
    assert not faults


def _rewrite(name: str, proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return the rewritten model, or ``None`` if a pass finds nothing to rewrite."""
    model = ir.from_proto(proto)
    return ir.to_proto(model) if apply(name, model) else None


def _describe_fault(name: str, before: onnx.ModelProto, bounds: Bounds) -> str:
    """Return the fault of the rewritten model.

    It is "" if there is no fault, or if the original model cannot run.
    """
    try:
        after = _rewrite(name, before)
    except Exception as error:
        return repr(error) if run_model(before, feeds_of(before)) is not None else ""
    if after is None:
        return ""
    if [*after.graph.node] == [*before.graph.node]:
        return "it reports a change, but the nodes are the same"
    if _unused_constants(after) - _unused_constants(before):
        return "it leaves unused constants"
    foreign_nodes = [[node for node in proto.graph.node if node.domain == UNKNOWN_DOMAIN] for proto in (before, after)]
    if foreign_nodes[0]:
        signatures = [[(node.op_type, node.attribute, len(node.input)) for node in nodes] for nodes in foreign_nodes]
        if signatures[0] != signatures[1]:
            return "it treats an operator of another domain as a standard operator"
        return ""
    feeds = feeds_of(before)
    expected, computed = run_model(before, feeds), run_model(after, feeds)
    if expected is None:
        return ""
    if computed is None or [*computed] != [*expected]:
        return "it cannot run, or has other outputs"
    return ", ".join(key for key, array in expected.items() if not _is_close(computed[key], array, bounds))


def _unused_constants(proto: onnx.ModelProto) -> set[str]:
    graphs = [proto.graph]
    for scope in graphs:
        graphs += [a.g for node in scope.node for a in node.attribute if a.HasField("g")]
    read_names = {name for scope in graphs for node in scope.node for name in node.input}
    interface = {info.name for info in (*proto.graph.input, *proto.graph.output)}
    return {tensor.name for tensor in proto.graph.initializer} - read_names - interface


def _is_close(computed: Array, expected: Array, bounds: Bounds) -> bool:
    if computed.shape != expected.shape or computed.dtype != expected.dtype:
        return False
    error = np.abs(computed.astype(np.float64) - expected).max(initial=0)
    return bool(
        error <= (bounds.relative * np.abs(expected).max(initial=0) if expected.dtype.kind == "f" else bounds.steps)
    )
