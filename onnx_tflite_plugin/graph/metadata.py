"""What a converted model tells of itself in ``metadata_props``: every key and its text is written and read here alone.

| of | key | text |
|---|---|---|
| model | ``state`` | JSON, an object per state: see :class:`CarriedState`; none where every run begins anew |
| model | ``weights`` | JSON, ``{dtype: number of 8-bit products whose weights have it}`` |
| model | ``signature`` | the key of the signature that was converted |
| model | ``part`` | JSON, ``{"inputs": [...], "outputs": [...]}``: the tensors of the subgraph between which it was cut |
| model | ``source`` | JSON, what the author says of the model: see :func:`write_authored` |
| node | ``operators`` | the TFLite operators it was lowered from, calls before what they call, ``subgraph:operator,...`` |
| node | ``handler``, ``pack`` | who lowered them |
| node | ``name`` | the TFLite operator's name: that of its first output |
| value | ``tensor``, ``form``, ``order``, ``shift`` | see :class:`TensorValue` |

Every key stands behind :data:`PREFIX`. Neither onnx nor onnx_ir is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from onnx_tflite_plugin.source.model import Array

PREFIX = "onnx_tflite_plugin."
_STATE, _WEIGHTS = PREFIX + "state", PREFIX + "weights"
_SIGNATURE, _PART, _SOURCE = PREFIX + "signature", PREFIX + "part", PREFIX + "source"


class Entry(Protocol):
    """One entry of a protobuf's ``metadata_props``."""

    key: str
    value: str


def props(entries: Iterable[Entry]) -> dict[str, str]:
    """A protobuf's ``metadata_props`` by key, as onnx_ir has them."""
    return {entry.key: entry.value for entry in entries}


def own(given: Mapping[str, str]) -> dict[str, str]:
    """Those of the keys that the converter wrote."""
    return {key: text for key, text in given.items() if key.startswith(PREFIX)}


def remove_own(given: MutableMapping[str, str]) -> None:
    """Take out what the converter wrote: it no longer holds."""
    for key in own(given):
        del given[key]


# --- models -----------------------------------------------------------------------------------


class CarriedState(NamedTuple):
    """A graph output that is fed back into a graph input at the next run.

    ``shape`` has -1 for an unknown size. ``initial``: a number for all elements or a list in C order, where the input has no
    initializer.
    """

    input: str
    output: str
    dtype: str
    shape: tuple[int, ...]
    initial: Any = None

    def first(self) -> Array:
        """The state before the first run, where the model holds no initializer for it."""
        value = np.zeros(self.shape, self.dtype)
        if self.initial is not None:
            value[...] = np.asarray(self.initial, self.dtype).reshape(self.shape if np.size(self.initial) > 1 else ())
        return value


def write_states(given: MutableMapping[str, str], states: Sequence[CarriedState], *, reset: bool = False) -> None:
    """Nothing is written of a model without states. ``reset``: it has some, and begins anew in every run."""
    if states or reset:
        given[_STATE] = json.dumps(
            [{"input": s.input, "output": s.output, "dtype": s.dtype, "shape": list(s.shape)} for s in states]
        )


def read_states(given: Mapping[str, str]) -> tuple[CarriedState, ...]:
    """The model's states. Raises ValueError where the text is not what is written."""
    try:
        return tuple(
            CarriedState(item["input"], item["output"], item["dtype"], tuple(item["shape"]), item.get("initial"))
            for item in json.loads(given.get(_STATE, "[]"))
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the model's {_STATE} cannot be read: {error!r}") from error


def forgets(given: Mapping[str, str]) -> bool:
    """Whether the model has states that begin anew in every run."""
    return given.get(_STATE) == "[]"


def write_weights(given: MutableMapping[str, str], products: Mapping[str, int]) -> None:
    """``products``: how many 8-bit products have weights of each dtype."""
    given[_WEIGHTS] = json.dumps(products)


def read_weights(given: Mapping[str, str]) -> Mapping[str, int]:
    """Empty where the model does not say, or says it in another way."""
    try:
        products = json.loads(given.get(_WEIGHTS, "{}"))
    except ValueError:
        return {}
    return products if isinstance(products, dict) else {}


def remove_origin(given: MutableMapping[str, str]) -> None:
    """Take out what holds for a whole model alone: its states, its signature, where it was cut, what its author says."""
    for key in (_STATE, _SIGNATURE, _PART, _SOURCE):
        given.pop(key, None)


def write_authored(given: MutableMapping[str, str], facts: Mapping[str, Any]) -> None:
    """``facts``: name, description, version, author and license of the model; of each input and output its name, what its
    integers mean, description, normalization, range, threshold, labels and files, as far as the TFLite file says.
    """
    kept = {key: fact for key, fact in facts.items() if fact}
    if kept:
        given[_SOURCE] = json.dumps(kept)


def read_authored(given: Mapping[str, str]) -> dict[str, Any]:
    """Empty where the model does not say. Raises ValueError where the text is not what is written."""
    facts = json.loads(given.get(_SOURCE, "{}"))
    if not isinstance(facts, dict):
        raise ValueError(f"the model's {_SOURCE} is no object")
    return facts


class Part(NamedTuple):
    """Where a model was cut before it was converted: tensors of its subgraph, by index."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def write_origin(given: MutableMapping[str, str], signature: str | None, part: Part | None) -> None:
    """What of the file was converted; nothing is written of what is all of it, and has no name."""
    if signature is not None:
        given[_SIGNATURE] = signature
    if part is not None:
        given[_PART] = json.dumps({"inputs": part.inputs, "outputs": part.outputs})


def read_origin(given: Mapping[str, str]) -> tuple[str | None, Part | None]:
    """The signature and the part that was converted. Raises ValueError where the text is not what is written."""
    if _PART not in given:
        return given.get(_SIGNATURE), None
    try:
        part = json.loads(given[_PART])
        return given.get(_SIGNATURE), Part(*(tuple(int(k) for k in part[side]) for side in ("inputs", "outputs")))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"the model's {_PART} cannot be read: {error!r}") from error


# --- nodes ------------------------------------------------------------------------------------


def node_props(operators: Iterable[tuple[int, int]], handler: str, pack: str, name: str) -> dict[str, str]:
    """Of a node: (subgraph, operator) of each TFLite operator that it was lowered from, behind the calls that it stands within,
    who did it, and what TFLite calls it.
    """
    texts = ",".join(f"{subgraph}:{index}" for subgraph, index in operators)
    return {PREFIX + "operators": texts, PREFIX + "handler": handler, PREFIX + "pack": pack, PREFIX + "name": name}


def lowered_from(given: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """(subgraph, operator) of each TFLite operator that a node was lowered from; empty where it does not say."""
    pairs = (text.partition(":") for text in given.get(PREFIX + "operators", "").split(",") if text)
    return tuple((int(subgraph), int(index)) for subgraph, _, index in pairs)


def belongs_to(given: Mapping[str, str]) -> tuple[int, ...]:
    """The operators of the subgraph that was converted among those: of what stands within a call, the call. No subgraph calls
    itself.
    """
    places = lowered_from(given)
    return tuple(index for subgraph, index in places if subgraph == places[0][0])


def lowered_by(given: Mapping[str, str]) -> tuple[str, str]:
    """Handler and pack of a node; empty where it does not say."""
    return given.get(PREFIX + "handler", ""), given.get(PREFIX + "pack", "")


# --- values -----------------------------------------------------------------------------------

_STORED_ELSEWHERE = {"int8": np.uint8, "uint8": np.int8}


class TensorValue(NamedTuple):
    """A value of the ONNX model that holds a TFLite tensor, and how it does.

    ``order``: the value is ``numpy.transpose(tensor, order)``, without axes of size 1 that it leaves out and with one
    where it says -1. ``shift``: what was added to the stored integers. ``form``: "stored" or "float".
    """

    name: str
    subgraph: int
    tensor: int
    order: tuple[int, ...] | None = None
    shift: int = 0
    form: str = "stored"

    def apply(self, array: Array) -> Array:
        """The tensor's array as the ONNX value holds it."""
        if self.order is not None:
            shown = [axis for axis in self.order if axis >= 0]
            left_out = [axis for axis in range(array.ndim) if axis not in shown]
            shape = [1 if axis < 0 else array.shape[axis] for axis in self.order]
            array = np.ascontiguousarray(np.transpose(array, [*shown, *left_out]).reshape(shape))
        if self.shift:
            shifted = array.astype(np.int32) + self.shift
            array = shifted.astype(_STORED_ELSEWHERE.get(array.dtype.name, array.dtype))
        return array

    def restore(self, array: Array, dtype: np.dtype[Any]) -> Array | None:
        """The tensor's array from the ONNX value; None where its rank does not fit the order."""
        if self.shift:
            array = (array.astype(np.int32) - self.shift).astype(dtype)
        if self.order is not None:
            if len(self.order) != array.ndim:
                return None
            kept = sorted(axis for axis in self.order if axis >= 0)
            array = np.transpose(array, np.argsort(self.order, kind="stable"))
            array = array.reshape(array.shape[array.ndim - len(kept) :])
            array = np.expand_dims(array, tuple({*range(max(kept, default=0))} - {*kept}))
        return array


def write_tensor(
    given: MutableMapping[str, str],
    subgraph: int,
    tensor: int,
    *,
    form: str = "stored",
    order: str = "",
    shift: int = 0,
) -> None:
    """Say which tensor a value holds, in place of what was said before. ``order``: as ``layout.order.spelled`` writes it."""
    for key in ("tensor", "form", "order", "shift"):
        given.pop(PREFIX + key, None)
    texts = {"tensor": f"{subgraph}:{tensor}", "form": form, "order": order, "shift": str(shift) if shift else ""}
    given.update({PREFIX + key: text for key, text in texts.items() if text})


def holds_tensor(given: Mapping[str, str]) -> bool:
    return PREFIX + "tensor" in given


def read_tensor(name: str, given: Mapping[str, str]) -> TensorValue | None:
    """What the value of this name says that it holds; None where it does not, or by parts of axes."""
    texts = {key.removeprefix(PREFIX): text for key, text in own(given).items()}
    try:
        subgraph, tensor = (int(part) for part in texts["tensor"].split(":"))
        order = tuple(int(axis) for axis in texts["order"].split(",")) if texts.get("order") else None
        shift = int(texts.get("shift") or 0)
    except (KeyError, ValueError):
        return None
    return TensorValue(name, subgraph, tensor, order, shift, texts.get("form", "stored"))
