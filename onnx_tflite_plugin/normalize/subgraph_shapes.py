"""Shapes of results that called subgraphs compute: branches and loop bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bound import Declared
from onnx_tflite_plugin.source.model import Dims, Model, Operator, Tensor

SubgraphOutputs = Callable[[int, Sequence[Dims | None]], list[Dims]]
"""Return the shapes of a subgraph's outputs from its index and the shapes of its operands."""


def subgraph_results(
    op: Operator, declared: Declared, dims: Mapping[Tensor, Dims], output_shapes: SubgraphOutputs
) -> dict[Tensor, Dims]:
    """Return the shapes of results that subgraphs compute from resized operands.

    A size that differs between iterations of a loop or between branches is dynamic. Raises Refusal for a rank that
    differs.
    """
    first_slot, loops = (declared.boundary.first_slot, declared.boundary.loops) if declared.boundary else (0, False)
    operand_shapes = [None if tensor is None else dims.get(tensor, tensor.dims) for tensor in op.inputs[first_slot:]]
    while True:
        results = [output_shapes(index, operand_shapes) for index in declared.subgraphs]
        if not loops:
            break
        merged = [merge_shapes(operand, result) for operand, result in zip(operand_shapes, results[-1], strict=True)]
        if merged == operand_shapes:
            break
        operand_shapes = merged
    branches = zip(*results, strict=True)
    shapes = operand_shapes if loops else [reduce(merge_shapes, outputs) for outputs in branches]
    return {t: sizes for t, sizes in zip(op.outputs, shapes, strict=False) if t is not None and sizes is not None}


def forwarded_shape(model: Model, declared: Declared, tensor: Tensor, output: int) -> Dims | None:
    """Return the stored shape of an output, else the shape of the subgraphs' outputs.

    Return None if neither is known.
    """
    loops = declared.boundary is not None and declared.boundary.loops
    indices = declared.subgraphs[-1:] if loops else declared.subgraphs
    if tensor.shape or any(index >= len(model.subgraphs) for index in indices):
        return tensor.dims if tensor.has_rank else None
    subgraph_outputs = [model.subgraphs[index].outputs[output : output + 1] for index in indices]
    results = [result for outputs in subgraph_outputs for result in outputs if result.has_rank]
    if not results or len(results) < len(indices) or len({result.rank for result in results}) > 1:
        return tensor.dims if tensor.has_rank else None
    return tuple(
        branch_sizes[0] if len(set(branch_sizes)) == 1 else None
        for branch_sizes in zip(*(result.dims for result in results), strict=True)
    )


def merge_shapes(dims: Dims | None, branch_dims: Dims | None) -> Dims | None:
    """Return the shape of two branches or iterations; differing sizes are dynamic.

    Raises Refusal if the ranks differ.
    """
    if dims is None or branch_dims is None:
        return None
    if len(dims) != len(branch_dims):
        raise Refusal(f"a tensor has shape {list(dims)} or {list(branch_dims)}, depending on the subgraph")
    return tuple(a if a == b else None for a, b in zip(dims, branch_dims, strict=True))
