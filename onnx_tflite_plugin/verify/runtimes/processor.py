"""Processor of a verification: its name, and its 8-bit integer products."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_tflite_plugin.graph.int8_products import multiply_integers
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.model_metadata import read_weights
from onnx_tflite_plugin.graph.node_subgraphs import node_subgraphs
from onnx_tflite_plugin.rewrite.weights.dtypes import DEPENDENT, EXACT_SUM, probe_operands
from onnx_tflite_plugin.verify.runtimes.packages import import_optional

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto


def describe_processor(graph: GraphProto) -> str:
    """Return the processor's name, and how it adds 8-bit products if a graph has any."""
    return processor() if _has_integer_products(graph) else _name()


def _has_integer_products(graph: GraphProto) -> bool:
    """True if ONNX Runtime may compute 8-bit products in a graph or its subgraphs."""
    return any(
        "Quantize" in node.op_type  # not DequantizeLinear
        or node.op_type.startswith("QLinear")
        or "Integer" in node.op_type
        or any(map(_has_integer_products, node_subgraphs(node)))
        for node in graph.node
    )


@cache
def processor() -> str:
    """Return the processor's name, and how it adds 8-bit products.

    Example: ``AMD EPYC 7B13 (saturates sums of uint8 x int8 products)``.
    """
    kind = "adds uint8 x int8 products exactly" if multiplies_exactly() else "saturates sums of uint8 x int8 products"
    return f"{_name()} ({kind})"


@cache
def multiplies_exactly() -> bool:
    """True if ONNX Runtime adds 8-bit products exactly on this processor.

    x86 processors without VNNI saturate sums of products of the largest uint8 and int8.
    """
    (sums,) = multiply_integers(import_optional("onnxruntime"), *probe_operands())
    return bool((sums == EXACT_SUM).all())


def depends_on_processor(proto: ModelProto) -> bool:
    """True if a converted model records that its results depend on the processor."""
    return DEPENDENT in read_weights(props(proto.metadata_props))


def _name() -> str:
    """Return the processor's name, as the operating system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    model_name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return model_name or platform.processor() or platform.machine()
