"""Kernels of ONNX Runtime, from an internal list that may be missing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from packaging.version import Version

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

_MISSING_KERNEL = re.compile(r"Could not find an implementation for (\w+)\(\d+\) node")
_OTHER_RUNTIME_HINT = "--check standard writes the model for a runtime that has this kernel"
_VIEWER_HINT = "--check standard writes the model for a viewer such as Netron; other runtimes may refuse the model too"


def suggest_options(model: ir.Model, reason: str, opsets: tuple[int, int]) -> str:
    """Return options that may help if ONNX Runtime rejects a model for ``reason``.

    ``opsets``: lowest and highest opset to suggest.
    """
    hints = [old_runtime] if (old_runtime := describe_old_runtime(model)) else []
    missing_kernel = _MISSING_KERNEL.search(reason)
    op_type = "" if missing_kernel is None else missing_kernel[1]
    nodes = [node for node in model.graph.all_nodes() if node.op_type == op_type]
    versions = sorted(set.intersection(*(_supported_opsets(node, opsets) for node in nodes))) if nodes else []
    if versions:
        hints.append(f"--opset {versions[-1]} may help")
    elif "opset" in reason:
        hints.append("an older --opset may help")
    if any(node.op_type in ("QuantizeLinear", "DequantizeLinear") or node.domain for node in model.graph.all_nodes()):
        hints.append("--quantization float may help")
    return "; ".join([*hints, _OTHER_RUNTIME_HINT if missing_kernel else _VIEWER_HINT])


def _supported_opsets(node: ir.Node, opsets: tuple[int, int]) -> set[int]:
    """Return the opsets in which a node has a kernel for its operand dtypes."""
    import onnx
    from onnxruntime.capi import onnxruntime_pybind11_state as runtime

    kernels = [
        kernel
        for kernel in (runtime.get_all_opkernel_def() if hasattr(runtime, "get_all_opkernel_def") else ())
        if (kernel.op_name, kernel.domain, kernel.provider) == (node.op_type, node.domain, "CPUExecutionProvider")
    ]
    supported = set()
    for opset in range(opsets[0], opsets[1] + 1):
        try:
            schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
        except onnx.defs.SchemaError:
            continue
        dtypes = _dtypes(node, schema)
        if all(len(operand_dtypes) == 1 for operand_dtypes in dtypes.values()) and any(
            kernel.version_range[0] <= schema.since_version <= kernel.version_range[1]
            and all(
                operand_dtypes <= {*kernel.type_constraints.get(name, operand_dtypes)}
                for name, operand_dtypes in dtypes.items()
            )
            for kernel in kernels
        ):
            supported.add(opset)
    return supported


def _dtypes(node: ir.Node, schema: onnx.defs.OpSchema) -> dict[str, set[str]]:
    """Return the dtypes per type parameter of the operator: ``T: {tensor(int8)}``."""
    sides = ((node.inputs, schema.inputs), (node.outputs, schema.outputs))
    dtypes: dict[str, set[str]] = {}
    for values, parameters in sides:
        for value, parameter in zip(values, parameters, strict=False):
            if value is not None and value.type is not None:
                dtypes.setdefault(parameter.type_str, set()).add(f"tensor({value.type.dtype.name.lower()})")
    return dtypes


OLDEST_RUNTIME = "1.22"
"""Oldest supported ONNX Runtime; setup.cfg has the same version."""
LOADED_FROM = {23: "1.23", 24: "1.24", 25: "1.24", 26: "1.25"}
"""First ONNX Runtime that loads an opset; older opsets load in 1.22. Measured by opening a model in each version."""
INT4_CASTS_FROM = "1.23"
"""First ONNX Runtime that casts int4 and uint4."""
WINDOWS_FROM = "1.24"
"""First ONNX Runtime with GroupQueryAttention limited to a window; 1.22 and 1.23 compute other values."""
SCATTERS_FROM = "1.25"
"""First ONNX Runtime with TensorScatter on the CPU; 1.24 loads opset 24 without it."""


def first_runtime(opset: int, casts: Iterable[str]) -> str:
    """Return the first ONNX Runtime that has an opset and casts; "" if all have them."""
    cast_runtime = INT4_CASTS_FROM if {"int4", "uint4"} & {*casts} else ""
    return _latest(LOADED_FROM.get(opset, ""), cast_runtime)


def first_runtime_of(model: ir.Model) -> str:
    """Return the first ONNX Runtime that loads a model; "" if all versions do."""
    casts = (
        value.type.dtype.name.lower()
        for node in model.graph.all_nodes()
        if node.op_type == "Cast"
        for value in (*node.inputs, *node.outputs)
        if value is not None and value.type is not None
    )
    return _latest(
        first_runtime(model.graph.opset_imports[""], casts),
        WINDOWS_FROM if _has_windows(model) else "",
        SCATTERS_FROM if _has_scatters(model) else "",
    )


def _latest(*versions: str) -> str:
    """Return the latest of the versions that are not empty; "" if all are empty."""
    from packaging.version import Version

    return max(filter(None, versions), key=Version, default="")


def attention_warnings(model: ir.Model) -> list[str]:
    """Return warnings if attention needs a newer ONNX Runtime or opset."""
    warnings = []
    if _has_windows(model):
        warnings.append(
            f"sliding-window attention needs ONNX Runtime {WINDOWS_FROM} or later; older versions compute wrong values"
        )
    if _has_scatters(model):
        opset = model.graph.opset_imports[""]
        warnings.append(
            f"the model has opset {opset}, because attention over a cache needs TensorScatter; ONNX Runtime {SCATTERS_FROM} or later "
            "runs it"
        )
    return warnings


def _has_windows(model: ir.Model) -> bool:
    return any(
        node.op_type == "GroupQueryAttention" and "local_window_size" in node.attributes
        for node in model.graph.all_nodes()
    )


def _has_scatters(model: ir.Model) -> bool:
    return any(node.op_type == "TensorScatter" for node in model.graph.all_nodes())


def describe_old_runtime(model: ir.Model) -> str:
    """Return why the installed ONNX Runtime is too old for a model; "" if it is not."""
    import onnxruntime

    required = first_runtime_of(model)
    is_old = required and Version(onnxruntime.__version__) < Version(required)
    return (
        f"the model needs ONNX Runtime {required} or later, but {onnxruntime.__version__} is installed"
        if is_old
        else ""
    )
