"""Metadata of a converted model: states, signature, cut, names and origin.

:mod:`onnx_tflite_plugin.graph.metadata` lists the keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from onnx_tflite_plugin.graph.metadata import PREFIX
from onnx_tflite_plugin.source.model import Array

_STATE, _WEIGHTS = PREFIX + "state", PREFIX + "weights"
_ATTENTION, _RENAMED = PREFIX + "attention", PREFIX + "renamed"
_SIGNATURE, _PART, _SOURCE = PREFIX + "signature", PREFIX + "part", PREFIX + "source"
_LENGTHS, _ACTIVATIONS = PREFIX + "lengths", PREFIX + "activations"
_DIGEST = PREFIX + "digest"


class CarriedState(NamedTuple):
    """A graph output that is fed into a graph input of the next run.

    ``shape`` has -1 for dynamic dimensions. ``initial`` is a scalar for all elements or a list in C order; it is used
    if the input has no initializer.
    """

    input: str
    output: str
    dtype: str
    shape: tuple[int, ...]
    initial: Any = None

    def initial_value(self) -> Array:
        """Return the state before the first run, for a model without an initializer."""
        value = np.zeros(self.shape, self.dtype)
        if self.initial is not None:
            value[...] = np.asarray(self.initial, self.dtype).reshape(self.shape if np.size(self.initial) > 1 else ())
        return value


def write_states(metadata: MutableMapping[str, str], states: Sequence[CarriedState], *, reset: bool = False) -> None:
    """Write the states of a model; nothing if it has none.

    ``reset``: the model has states, but every run resets them.
    """
    if states or reset:
        metadata[_STATE] = json.dumps(
            [{"input": s.input, "output": s.output, "dtype": s.dtype, "shape": list(s.shape)} for s in states]
        )


def read_states(metadata: Mapping[str, str]) -> tuple[CarriedState, ...]:
    """Return the model's states. Raises ValueError if the text is malformed."""
    try:
        return tuple(
            CarriedState(item["input"], item["output"], item["dtype"], tuple(item["shape"]), item.get("initial"))
            for item in json.loads(metadata.get(_STATE, "[]"))
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the model's {_STATE} cannot be read: {error!r}") from error


def has_reset_states(metadata: Mapping[str, str]) -> bool:
    """True if the model has states that every run resets."""
    return metadata.get(_STATE) == "[]"


def write_runtime(metadata: MutableMapping[str, str], runtime: str) -> None:
    """Write the runtime for which the model was converted."""
    metadata[PREFIX + "runtime"] = runtime


def write_causal(metadata: MutableMapping[str, str]) -> None:
    """Write that masks are causal, positions consecutive, and caches written in place."""
    metadata[_ATTENTION] = "causal"


def is_causal(metadata: Mapping[str, str]) -> bool:
    """True if masks were declared causal, and caches may be written in place."""
    return metadata.get(_ATTENTION) == "causal"


def write_weights(metadata: MutableMapping[str, str], product_counts: Mapping[str, int]) -> None:
    """Write weight dtype -> number of 8-bit matrix products."""
    metadata[_WEIGHTS] = json.dumps(product_counts)


def read_weights(metadata: Mapping[str, str]) -> Mapping[str, int]:
    """Return weight dtype -> number of 8-bit matrix products; empty if unknown."""
    try:
        product_counts = json.loads(metadata.get(_WEIGHTS, "{}"))
    except ValueError:
        return {}
    return product_counts if isinstance(product_counts, dict) else {}


def write_activations(metadata: MutableMapping[str, str], size: int) -> None:
    """Write the number of bytes of all intermediate tensors."""
    metadata[_ACTIVATIONS] = str(size)


def read_activations(metadata: Mapping[str, str]) -> int | None:
    """Return the number of bytes of all intermediate tensors; None if unknown."""
    text = metadata.get(_ACTIVATIONS, "")
    return int(text) if text.isdecimal() else None


def remove_origin(metadata: MutableMapping[str, str]) -> None:
    """Remove entries that hold only for the whole model, such as states and digest."""
    for key in (_STATE, _SIGNATURE, _LENGTHS, _PART, _DIGEST, _SOURCE, _RENAMED, _ACTIVATIONS):
        metadata.pop(key, None)


def write_author_metadata(metadata: MutableMapping[str, str], facts: Mapping[str, Any]) -> None:
    """Write the author's description of a model.

    ``facts``: name, description, version, author and license of the model. Per input and output: name, quantization
    parameters, description, normalization, range, threshold, labels and files, as far as the TFLite file has them.
    """
    present = {key: fact for key, fact in facts.items() if fact}
    if present:
        metadata[_SOURCE] = json.dumps(present)


def read_author_metadata(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the author's description; empty if there is none.

    Raises ValueError if the text is malformed.
    """
    facts = json.loads(metadata.get(_SOURCE, "{}"))
    if not isinstance(facts, dict):
        raise ValueError(f"the model's {_SOURCE} is not a JSON object")
    return facts


class Part(NamedTuple):
    """Indices of the tensors between which a model was cut before conversion."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def write_origin(metadata: MutableMapping[str, str], signature: str | None, part: Part | None) -> None:
    """Write the converted signature and the cut, each if it is not None."""
    if signature is not None:
        metadata[_SIGNATURE] = signature
    if part is not None:
        metadata[_PART] = json.dumps({"inputs": part.inputs, "outputs": part.outputs})


def read_origin(metadata: Mapping[str, str]) -> tuple[str | None, Part | None]:
    """Return the signature and the cut that were converted.

    Raises ValueError if the text is malformed.
    """
    if _PART not in metadata:
        return metadata.get(_SIGNATURE), None
    try:
        part = json.loads(metadata[_PART])
        return metadata.get(_SIGNATURE), Part(*(tuple(int(k) for k in part[side]) for side in ("inputs", "outputs")))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"the model's {_PART} cannot be read: {error!r}") from error


def write_digest(metadata: MutableMapping[str, str], digest: str) -> None:
    """Write the SHA-256 of the TFLite file."""
    metadata[_DIGEST] = digest


def read_digest(metadata: Mapping[str, str]) -> str:
    """Return the SHA-256 of the converted TFLite file; empty if unknown."""
    return metadata.get(_DIGEST, "")


def write_lengths(metadata: MutableMapping[str, str], lengths: Mapping[str, int]) -> None:
    """Write the number of tokens in each signature of a joined model, if any."""
    if lengths:
        metadata[_LENGTHS] = json.dumps(dict(lengths))


def read_lengths(metadata: Mapping[str, str]) -> dict[str, int]:
    """Return the tokens per signature of a joined model; empty for other models."""
    return {key: int(size) for key, size in _read_object(metadata, _LENGTHS).items()}


def write_renames(metadata: MutableMapping[str, str], renames: Mapping[str, str]) -> None:
    """Write the mapping TFLite name -> new name of graph inputs and outputs, if any."""
    if renames:
        metadata[_RENAMED] = json.dumps(dict(renames))


def read_renames(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return TFLite name -> new name of graph inputs and outputs."""
    return {old: str(new) for old, new in _read_object(metadata, _RENAMED).items()}


def _read_object(metadata: Mapping[str, str], key: str) -> dict[str, Any]:
    """Return a JSON object; empty if missing or malformed."""
    try:
        content = json.loads(metadata.get(key, "{}"))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
