"""Keys in ``metadata_props`` of a converted model.

Every key and its text is written and read only here.

| stored in | key | text |
|---|---|---|
| model | ``state`` | JSON, an object per state: see :class:`CarriedState`; empty if every run resets the states |
| model | ``weights`` | JSON, ``{dtype: number of 8-bit products whose weights have it}`` |
| model | ``runtime`` | the runtime for which the model was converted, if an If selects its weights |
| model | ``attention`` | ``causal`` if masks were declared causal, so that caches are written in place |
| model | ``signature`` | the key of the converted signature |
| model | ``lengths`` | JSON, ``{key: tokens}`` of all signatures, if the model joins several |
| model | ``activations`` | the number of bytes of all intermediate tensors; none if a size is dynamic |
| model | ``renamed`` | JSON, ``{name: new name}`` of graph inputs and outputs |
| model | ``part`` | JSON, ``{"inputs": [...], "outputs": [...]}``: the tensors between which the subgraph was cut |
| model | ``digest`` | the SHA-256 of the TFLite file, in hexadecimal; of a model in a bundle, of its bytes alone |
| model | ``source`` | JSON, the author's description of the model: see :func:`write_authored` |
| node | ``operators`` | the TFLite operators it was lowered from, calls before their callees, ``subgraph:operator,...`` |
| node | ``handler``, ``pack`` | the handler that lowered it, and its pack |
| node | ``name`` | the name of the TFLite operator's first output, without the fused operations after the first |
| value | ``tensor``, ``form``, ``order``, ``shift``, ``channels`` | see :class:`~onnx_tflite_plugin.graph.tensor_value.TensorValue` |

Every key has the prefix :data:`PREFIX`. Neither onnx nor onnx_ir is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from onnx_tflite_plugin.graph.tensor_value import TensorValue
from onnx_tflite_plugin.source.model import Array

PREFIX = "onnx_tflite_plugin."
_STATE, _WEIGHTS = PREFIX + "state", PREFIX + "weights"
_ATTENTION, _RENAMED = PREFIX + "attention", PREFIX + "renamed"
_SIGNATURE, _PART, _SOURCE = PREFIX + "signature", PREFIX + "part", PREFIX + "source"
_CHANNELS = PREFIX + "channels"
_LENGTHS, _ACTIVATIONS = PREFIX + "lengths", PREFIX + "activations"
_DIGEST = PREFIX + "digest"


class Entry(Protocol):
    """One entry of a protobuf's ``metadata_props``."""

    key: str
    value: str


def props(entries: Iterable[Entry]) -> dict[str, str]:
    """Return a protobuf's ``metadata_props`` as a mapping, as in onnx_ir."""
    return {entry.key: entry.value for entry in entries}


def own_entries(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the entries that the converter wrote."""
    return {key: text for key, text in metadata.items() if key.startswith(PREFIX)}


def remove_own_entries(metadata: MutableMapping[str, str]) -> None:
    """Remove the entries that the converter wrote, because they are no longer valid."""
    for key in own_entries(metadata):
        del metadata[key]


# --- models -----------------------------------------------------------------------------------


class CarriedState(NamedTuple):
    """A graph output that is fed into a graph input of the next run.

    ``shape`` has -1 for dynamic dimensions. ``initial`` is a scalar for all elements or a list in C order; it is used if
    the input has no initializer.
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


def write_weights(metadata: MutableMapping[str, str], products: Mapping[str, int]) -> None:
    """Write ``products``: the number of 8-bit products by the dtype of their weights."""
    metadata[_WEIGHTS] = json.dumps(products)


def read_weights(metadata: Mapping[str, str]) -> Mapping[str, int]:
    """Return the number of 8-bit products by weight dtype.

    The result is empty if the entry is missing or malformed.
    """
    try:
        products = json.loads(metadata.get(_WEIGHTS, "{}"))
    except ValueError:
        return {}
    return products if isinstance(products, dict) else {}


def write_activations(metadata: MutableMapping[str, str], size: int) -> None:
    """Write the number of bytes of all intermediate tensors."""
    metadata[_ACTIVATIONS] = str(size)


def read_activations(metadata: Mapping[str, str]) -> int | None:
    """Return the number of bytes of all intermediate tensors; None if unknown."""
    text = metadata.get(_ACTIVATIONS, "")
    return int(text) if text.isdecimal() else None


def remove_origin(metadata: MutableMapping[str, str]) -> None:
    """Remove the entries that hold only for the whole model.

    These are states, signature, cut, digest and author's description.
    """
    for key in (_STATE, _SIGNATURE, _LENGTHS, _PART, _DIGEST, _SOURCE, _RENAMED, _ACTIVATIONS):
        metadata.pop(key, None)


def write_authored(metadata: MutableMapping[str, str], facts: Mapping[str, Any]) -> None:
    """Write the author's description of a model.

    ``facts``: name, description, version, author and license of the model. Per input and output: name, quantization
    parameters, description, normalization, range, threshold, labels and files, as far as the TFLite file has them.
    """
    present = {key: fact for key, fact in facts.items() if fact}
    if present:
        metadata[_SOURCE] = json.dumps(present)


def read_authored(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the author's description; empty if there is none.

    Raises ValueError if the text is malformed.
    """
    facts = json.loads(metadata.get(_SOURCE, "{}"))
    if not isinstance(facts, dict):
        raise ValueError(f"the model's {_SOURCE} is not a JSON object")
    return facts


class Part(NamedTuple):
    """Tensors between which a model was cut before conversion.

    Each is an index in the subgraph.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def write_origin(metadata: MutableMapping[str, str], signature: str | None, part: Part | None) -> None:
    """Write the converted signature and the cut.

    Nothing is written for a whole model without a signature.
    """
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
    """Return the SHA-256 of the converted TFLite file; empty if unknown, as for models of earlier versions."""
    return metadata.get(_DIGEST, "")


def write_lengths(metadata: MutableMapping[str, str], lengths: Mapping[str, int]) -> None:
    """Write the number of tokens in each signature of a joined model.

    Nothing is written if ``lengths`` is empty.
    """
    if lengths:
        metadata[_LENGTHS] = json.dumps(dict(lengths))


def read_lengths(metadata: Mapping[str, str]) -> dict[str, int]:
    """Return the number of tokens in each signature of a joined model.

    The result is empty for other models or malformed text.
    """
    return {key: int(size) for key, size in _read_object(metadata, _LENGTHS).items()}


def write_renames(metadata: MutableMapping[str, str], renames: Mapping[str, str]) -> None:
    """Write the new names of graph inputs and outputs, by their names in the file.

    Write nothing without renames.
    """
    if renames:
        metadata[_RENAMED] = json.dumps(dict(renames))


def read_renames(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the new names of graph inputs and outputs by their names in the file.

    The result is empty if missing or malformed.
    """
    return {old: str(new) for old, new in _read_object(metadata, _RENAMED).items()}


def _read_object(metadata: Mapping[str, str], key: str) -> dict[str, Any]:
    """Return a JSON object; empty if missing or malformed."""
    try:
        content = json.loads(metadata.get(key, "{}"))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


# --- nodes ------------------------------------------------------------------------------------


_ASSUMED = PREFIX + "assumed"


def node_props(
    operators: Iterable[tuple[int, int]], handler: str, pack: str, name: str, assumed: Iterable[tuple[int, int]] = ()
) -> dict[str, str]:
    """Return the metadata of a node.

    ``operators``: (subgraph, operator) of each TFLite operator that it was lowered from, preceded by the calls that
    contain it. ``handler``, ``pack``: the handler that lowered it, and its pack. ``name``: the operator's name in
    TFLite. ``assumed``: (subgraph, tensor) of each operand whose values the handler makes an assumption about.
    """
    texts = _join_locations(operators)
    props = {PREFIX + "operators": texts, PREFIX + "handler": handler, PREFIX + "pack": pack, PREFIX + "name": name}
    return props | ({_ASSUMED: text} if (text := _join_locations(assumed)) else {})


def _join_locations(locations: Iterable[tuple[int, int]]) -> str:
    return ",".join(f"{subgraph}:{index}" for subgraph, index in locations)


def _split_locations(text: str) -> tuple[tuple[int, int], ...]:
    pairs = (location.partition(":") for location in text.split(",") if location)
    return tuple((int(subgraph), int(index)) for subgraph, _, index in pairs)


def source_operators(metadata: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """Return (subgraph, operator) of each TFLite operator of a node; () if unknown."""
    return _split_locations(metadata.get(PREFIX + "operators", ""))


def assumed_tensors(metadata: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """Return (subgraph, tensor) of each operand with assumed values.

    The handler of the node relies on a property of these values.
    """
    return _split_locations(metadata.get(_ASSUMED, ""))


def converted_operators(metadata: Mapping[str, str]) -> tuple[int, ...]:
    """Return the operators in the converted subgraph that a node was lowered from.

    An operator of a called subgraph is replaced by its call.
    """
    operators = source_operators(metadata)
    return tuple(index for subgraph, index in operators if subgraph == operators[0][0])


def replace_locations(
    metadata: MutableMapping[str, str],
    tensors: Mapping[tuple[int, int], tuple[int, int]],
    operators: Mapping[tuple[int, int], tuple[int, int]],
) -> None:
    """Replace the locations of the tensor and the operators.

    A tensor that is not in the mapping is kept; an operator that is not in the mapping is removed.
    """
    value = read_tensor("", metadata)
    if value is not None and (value.subgraph, value.tensor) in tensors:
        graph, index = tensors[value.subgraph, value.tensor]
        metadata[PREFIX + "tensor"] = f"{graph}:{index}"
    if PREFIX + "operators" in metadata:
        locations = [operators[location] for location in source_operators(metadata) if location in operators]
        metadata[PREFIX + "operators"] = _join_locations(locations)
    if _ASSUMED in metadata:
        metadata[_ASSUMED] = _join_locations(tensors.get(location, location) for location in assumed_tensors(metadata))


def source_handler(metadata: Mapping[str, str]) -> tuple[str, str]:
    """Return the handler and the pack of a node; empty strings if unknown."""
    return metadata.get(PREFIX + "handler", ""), metadata.get(PREFIX + "pack", "")


def source_name(metadata: Mapping[str, str]) -> str:
    """Return the name of a node's TFLite operator; empty if unknown."""
    return metadata.get(PREFIX + "name", "")


# --- values -----------------------------------------------------------------------------------


def write_tensor(
    metadata: MutableMapping[str, str],
    subgraph: int,
    tensor: int,
    *,
    form: str = "stored",
    order: str = "",
    shift: int = 0,
) -> None:
    """Write which tensor a value holds, and remove earlier entries.

    ``order``: as written by ``layout.tensor_layout.format_layout``.
    """
    for key in ("tensor", "form", "order", "shift", "channels"):
        metadata.pop(PREFIX + key, None)
    texts = {"tensor": f"{subgraph}:{tensor}", "form": form, "order": order, "shift": str(shift) if shift else ""}
    metadata.update({PREFIX + key: text for key, text in texts.items() if text})


def write_channels(metadata: MutableMapping[str, str], channels: Sequence[int]) -> None:
    """Write the former channel of each channel of a value; -1 for an added channel."""
    value = read_tensor("", metadata)
    if value is None:
        return
    previous = value.channels or range(max(channels) + 1)
    metadata[_CHANNELS] = ",".join(_ranges([previous[k] if k >= 0 else -1 for k in channels]))


def _ranges(channels: Sequence[int]) -> Iterator[str]:
    """Yield ascending channels as ``first:number``, and added ones as ``:number``."""
    start = 0
    for k in range(1, len(channels) + 1):
        step = 1 if channels[start] >= 0 else 0
        if k == len(channels) or channels[k] != channels[start] + step * (k - start):
            yield f"{channels[start] if step else ''}:{k - start}"
            start = k


def _read_channels(text: str) -> Iterator[int]:
    for text_range in text.split(","):
        first, _, number = text_range.partition(":")
        yield from range(int(first), int(first) + int(number)) if first else [-1] * int(number)


def holds_tensor(metadata: Mapping[str, str]) -> bool:
    return PREFIX + "tensor" in metadata


def read_tensor(name: str, metadata: Mapping[str, str]) -> TensorValue | None:
    """Return the tensor that a value holds, from the value's metadata.

    Return None if it holds none, or splits axes.
    """
    texts = {key.removeprefix(PREFIX): text for key, text in own_entries(metadata).items()}
    try:
        subgraph, tensor = (int(number) for number in texts["tensor"].split(":"))
        order = tuple(int(axis) for axis in texts["order"].split(",")) if texts.get("order") else None
        shift = int(texts.get("shift") or 0)
        channels = tuple(_read_channels(texts["channels"])) if texts.get("channels") else ()
    except (KeyError, ValueError):
        return None
    return TensorValue(name, subgraph, tensor, order, shift, texts.get("form", "stored"), channels)
