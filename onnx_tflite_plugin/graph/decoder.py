"""Inputs and outputs of a language model, recognized by dtype, shape and name.

The inputs are tokens, positions, masks and caches; the outputs are scores and caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.source.model import Array

NEXT = ":next"
"""Suffix of the name of an output that is the next value of an input."""
FORBIDDEN = -1e4
"""Value that a mask adds to the score of an excluded slot, whose exp is then 0."""

Size = int | str | None


class GraphInput(NamedTuple):
    """A graph input; a dynamic dimension is None or a name."""

    name: str
    dtype: str
    shape: tuple[Size, ...]


class Decoder(NamedTuple):
    """Names of the inputs and outputs of a language model.

    ``caches``: {cache input: output with its next value}. ``length``: the number of tokens in a run; None if dynamic.
    ``slots``: the number of tokens in a full cache.
    """

    tokens: str
    positions: str
    masks: tuple[GraphInput, ...]
    caches: Mapping[str, str]
    length: int | None
    slots: int

    def position_inputs(self, start: int, count: int) -> dict[str, Array]:
        """Return input name -> consecutive positions from ``start``, or a causal mask."""
        positions = start + np.arange(count)
        allowed = np.arange(self.slots) <= positions[:, None]
        inputs: dict[str, Array] = {self.positions: positions.astype(np.int32)}
        for mask in self.masks:
            values = allowed if mask.dtype == "bool" else np.where(allowed, 0, FORBIDDEN)
            shape = [*[1] * (len(mask.shape) - 2), count, self.slots]
            inputs[mask.name] = values.astype(mask.dtype).reshape(shape)
        return inputs


def cache_pairs(inputs: Iterable[str], outputs: Iterable[str]) -> dict[str, str]:
    """Return {input: output that holds its next value}, for example for caches."""
    output_names = set(outputs)
    return {name: name + NEXT for name in inputs if name + NEXT in output_names}


def recognize_decoder(
    inputs: Sequence[GraphInput], outputs: Sequence[str], *, heads_first: bool = False
) -> Decoder | None:
    """Return the description of a language model with caches; None for other models.

    ``heads_first``: caches have the axes batch, head, slot, element. Otherwise the largest size is the number of slots.
    """
    caches = cache_pairs((tensor.name for tensor in inputs), outputs)
    other_inputs = [tensor for tensor in inputs if tensor.name not in caches]
    tokens = [tensor for tensor in other_inputs if tensor.dtype in ("int32", "int64") and len(tensor.shape) == 2]
    positions = [tensor for tensor in other_inputs if tensor.dtype in ("int32", "int64") and len(tensor.shape) == 1]
    masks = [tensor for tensor in other_inputs if tensor not in (*tokens, *positions)]
    if not caches or len(tokens) != 1 or len(positions) != 1 or not all(map(_is_mask, masks)):
        return None
    length = tokens[0].shape[1]
    cache_shapes = [tensor.shape for tensor in inputs if tensor.name in caches]
    candidate_sizes = (
        [shape[2] for shape in cache_shapes if len(shape) == 4]
        if heads_first
        else [size for shape in cache_shapes for size in shape]
    )
    slots = (
        masks[0].shape[-1] if masks else max((size for size in candidate_sizes if isinstance(size, int)), default=None)
    )
    if not isinstance(slots, int):
        return None
    return Decoder(
        tokens[0].name, positions[0].name, tuple(masks), caches, length if isinstance(length, int) else None, slots
    )


def _is_mask(tensor: GraphInput) -> bool:
    """True if an input can be a mask: floats or booleans per token and slot."""
    return tensor.dtype in ("float32", "bool") and len(tensor.shape) > 1 and set(tensor.shape[:-2]) <= {1}
