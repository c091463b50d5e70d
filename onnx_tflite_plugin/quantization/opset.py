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
    """Return the storage plan and the opset; see :func:`plan_storage` and :func:`choose_opset` for arguments and errors.

    From opset ``no_int8_from`` on, ONNX Runtime does not load the operators ``no_int8_moves`` of int8 between DequantizeLinear and
    QuantizeLinear. They then compute on integers.
    """
    storage = plan_storage(model, target, fold=fold)
    opset = choose_opset(model, storage, requested, target)
    refused = target.dequantizes & target.no_int8_moves
    if refused and opset >= target.no_int8_from and "int8" not in target.storage:
        storage = plan_storage(model, replace(target, dequantizes=target.dequantizes - refused), fold=fold)
    return storage, opset


def choose_opset(model: BoundModel, storage: StoragePlan, requested: int | None, target: Target) -> int:
    """Return the requested opset, or the target's default, raised as far as operators and dtypes need.

    Raises UnsupportedOperator with the operators that need a newer one than requested, and OnnxTooOld if the installed package
    onnx does not have the opset.
    """
    low, default, high = target.opsets
    problems, needed = [], low
    for bound in model.operators():
        tensors = [t for t in (*bound.op.outputs, *storage.dequantized_operands(bound)) if t is not None]
        kept = {t: _dtype_opset(storage.storage(t).dtype, affine(t) is not None) for t in tensors}
        least = max([bound.declared.min_opset, *kept.values()])
        needed = max(needed, least)
        if least > (requested or high):
            folds = all(tensor.is_constant for tensor, opset in kept.items() if opset == least)
            hint = f"--opset {least}" + (" or --weights fold" if folds and least in kept.values() else "")
            problems.append(Problem(bound.label, f"needs opset {least}", hint))
    if problems:
        raise UnsupportedOperator(f"operators that are not available in opset {requested or high}:", problems)
    opset = requested or max(default, needed)
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
    """Return the first opset with the dtype: int4 from 21, int2 from 25, int16 in QuantizeLinear from 21."""
    if dtype == "int16":
        return 21 if quantized else 1
    return {"int4": 21, "uint4": 21, "int2": 25}.get(dtype, 1)
