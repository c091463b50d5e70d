"""Opset of a converted model, from its operators and storage dtypes."""

from __future__ import annotations

from dataclasses import replace

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.errors import OnnxTooOld, Problem, UnsupportedOperator
from onnx_tflite_plugin.quantization.plan import StoragePlan, plan_storage
from onnx_tflite_plugin.source.affine import affine


def plan_storage_and_opset(
    model: BoundModel, requested: int | None, target: Target, *, fold: bool = False
) -> tuple[StoragePlan, int]:
    """Return the storage plan and the opset.

    See :func:`plan_storage` and :func:`choose_opset` for arguments and errors. From opset ``no_int8_moves_opset`` on,
    ONNX Runtime cannot load an operator in ``no_int8_moves`` between DequantizeLinear and QuantizeLinear of int8. Such
    operators then compute on quantized values.
    """
    storage = plan_storage(model, target, fold=fold)
    opset = choose_opset(model, storage, requested, target)
    refused_moves = target.dequantized_operators & target.no_int8_moves
    if refused_moves and opset >= target.no_int8_moves_opset and "int8" not in target.storage:
        storage = plan_storage(
            model, replace(target, dequantized_operators=target.dequantized_operators - refused_moves), fold=fold
        )
    return storage, opset


def choose_opset(model: BoundModel, storage: StoragePlan, requested: int | None, target: Target) -> int:
    """Return the requested opset, or the lowest sufficient opset from the default up.

    Raises UnsupportedOperator with the operators that need a newer opset, and OnnxTooOld if the installed
    package onnx does not have the opset.
    """
    low, default, high = target.opsets
    problems, required = [], low
    for bound in model.operators():
        tensors = [t for t in (*bound.op.outputs, *storage.dequantized_operands(bound)) if t is not None]
        dtype_opsets = {t: _dtype_opset(storage.storage(t).dtype, affine(t) is not None) for t in tensors}
        min_opset = max([bound.declared.min_opset, *dtype_opsets.values()])
        required = max(required, min_opset)
        if min_opset > (requested or high):
            folding_helps = all(tensor.is_constant for tensor, opset in dtype_opsets.items() if opset == min_opset)
            is_dtype_limit = min_opset in dtype_opsets.values()
            opset_remedy = (
                f"--opset {min_opset}" if min_opset <= high else f"target {target.name} has opsets up to {high}"
            )
            remedy = opset_remedy + (" or --weights fold" if folding_helps and is_dtype_limit else "")
            problems.append(Problem(bound.label, f"needs opset {min_opset}", remedy))
    if problems:
        raise UnsupportedOperator(f"operators that are not available in opset {requested or high}:", problems)
    opset = requested or max(default, required)
    _check_installed(opset)
    return opset


def _check_installed(opset: int) -> None:
    """Raise OnnxTooOld if the installed package onnx does not have the opset."""
    import onnx

    if opset > (newest := onnx.defs.onnx_opset_version()):
        raise OnnxTooOld(
            f"the model needs opset {opset}, but the installed package onnx {onnx.__version__} has opsets up to {newest}: "
            "install a newer onnx, or choose an older --opset"
        )


def _dtype_opset(dtype: str, quantized: bool) -> int:
    """Return the first opset with the dtype: int4 21, int2 25, quantized int16 21."""
    if dtype == "int16":
        return 21 if quantized else 1
    return {"int4": 21, "uint4": 21, "int2": 25}.get(dtype, 1)
