"""Session that runs a converted model in ONNX Runtime and carries its states from run to run, as LiteRT does.

    session = Session("model.onnx")
    outputs = session.run({"audio": chunk})     # {name: array}, in the model's order
    session.reset()                             # back to the initial states
    kept = session.save()                       # the current states, {state: array}
    session.restore(kept)                       # back to them, in this session or another of the same model
    other = session.stream()                    # another stream through the loaded model, with its own states
    ended = Session("model.end.onnx", states_of=session)  # another signature of the file, with the same states

Needs the extra ``runtime``. Models without states are supported as well.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnx_tflite_plugin.errors import MissingExtra
from onnx_tflite_plugin.graph.metadata import CarriedState, read_authored, read_states
from onnx_tflite_plugin.graph.ort_values import UNKNOWN_TO_NUMPY, dtype_of, from_value, to_value
from onnx_tflite_plugin.graph.serialized import Converted
from onnx_tflite_plugin.source.model import Array

_RENAMED = {
    "float": "float32",
    "double": "float64",
    "string": "object",
}  # ONNX Runtime's names that differ from numpy's


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output. Dynamic dimensions are None or a name; ``scale`` is None if it has none, or one per channel."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]
    scale: float | None = None
    zero_point: int = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype in numpy, or in ml_dtypes if numpy lacks it."""
        own = UNKNOWN_TO_NUMPY.get(self.type)
        return np.dtype(own[0] if own else _RENAMED.get(self.type, self.type))

    def __str__(self) -> str:
        sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{'string' if self.type == 'string' else self.dtype.name} [{sizes}]"


class Session:
    """One model and its states. Not thread-safe: threads would share the states.

    ``model``: the path of an ONNX file, its content, or a ``Conversion``.
    ``providers`` and ``options`` (an ``onnxruntime.SessionOptions``) are passed to ONNX Runtime. ``inputs`` and ``outputs``
    are the model's own, without the states. ``states_of``: a session of another signature of the same file, with which
    states of equal names are shared. Raises MissingExtra without onnxruntime, FileNotFoundError, and ValueError if ONNX
    Runtime cannot load the model, or a shared state differs.
    """

    def __init__(
        self,
        model: str | Path | bytes | Converted,
        *,
        providers: Sequence[Any] = ("CPUExecutionProvider",),
        options: Any = None,
        states_of: Session | None = None,
    ) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtra("onnxruntime", "runtime") from error
        if isinstance(model, str | os.PathLike):
            model = os.fspath(model)
            if not Path(model).is_file():
                raise FileNotFoundError(f"there is no file {model!r}")
        elif not isinstance(model, bytes):
            if not hasattr(model, "proto"):
                raise TypeError(f"a model must be a path, bytes or a Conversion, not {type(model).__name__}")
            model = model.proto.SerializeToString()
        if options is None:
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3  # otherwise ONNX Runtime warns of every state's default value
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=list(providers))
            states = read_states(self._session.get_modelmeta().custom_metadata_map)
        except Exception as error:
            raise ValueError(f"the model cannot be loaded: {error}") from error
        self._ort_value = onnxruntime.OrtValue
        self._next_states: dict[str, str] = {state.output: state.input for state in states}
        quantized = _quantization(self._session.get_modelmeta().custom_metadata_map)
        fed = [replace(_port(port), **quantized.get(port.name, {})) for port in self._session.get_inputs()]
        defaults = [_port(port) for port in self._session.get_overridable_initializers()]
        self._ports = {port.name: port for port in (*fed, *defaults)}
        carried = self._state_names
        self.inputs = tuple(port for port in fed if port.name not in carried)
        self.outputs = tuple(
            replace(port, **quantized.get(port.name, {}))
            for port in map(_port, self._session.get_outputs())
            if port.name not in self._next_states
        )
        used = (*self.inputs, *self.outputs, *(self._ports[name] for name in carried))
        self._bytewise = any(port.type in UNKNOWN_TO_NUMPY for port in used)
        self._initial = {state.input: self._initial_value(state) for state in states if state.initial is not None}
        self._carried: dict[str, Any] = {}
        if states_of is None:
            self.reset()
        else:
            self._share_states(states_of)

    def _share_states(self, other: Session) -> None:
        for name in self._state_names & other._state_names:
            own, theirs = self._ports[name], other._ports[name]
            if (own.type, own.shape) != (theirs.type, theirs.shape):
                raise ValueError(f"state {name!r} is {own}, but in the session to share it with it is {theirs}")
        self._carried = other._carried
        for name, value in self._initial.items():
            self._carried.setdefault(name, value)

    @property
    def _state_names(self) -> set[str]:
        """Return the names of the session's states."""
        return {*self._next_states.values()}

    def __repr__(self) -> str:
        ends = " → ".join(", ".join(port.name for port in ports[:3]) for ports in (self.inputs, self.outputs))
        states = (
            f"{len(self._next_states)} state{'' if len(self._next_states) == 1 else 's'}"
            if self._next_states
            else "no states"
        )
        return f"<Session: {ends}; {states}>"

    def reset(self) -> None:
        """Reset the states to their initial values."""
        self._set_states(self._initial)

    def _set_states(self, states: Mapping[str, Any]) -> None:
        """Replace the states, also those of sessions that share them."""
        for name in self._state_names:
            self._carried.pop(name, None)
        self._carried.update(states)

    def _own_states(self) -> dict[str, Any]:
        return {name: value for name, value in self._carried.items() if name in self._state_names}

    def save(self) -> dict[str, Array]:
        """Return copies of the states by name, to store or restore. Empty before the first run."""
        return {name: self._to_array(value, self._ports[name]) for name, value in self._own_states().items()}

    def restore(self, states: Mapping[str, Any]) -> None:
        """Continue from the result of ``save``; omitted states are reset.

        Raises ValueError for a name, dtype or shape that is not the model's; the states are then unchanged.
        """
        for name in states:
            if name not in self._state_names:
                listed = ", ".join(map(repr, sorted(self._state_names))) or "none"
                raise ValueError(f"there is no state {name!r}; the model's states are {listed}")
        arrays = {name: np.array(_check_array(array, self._ports[name], "state")) for name, array in states.items()}
        self._set_states({**self._initial, **arrays})

    def stream(self) -> Session:
        """Return a session for another stream through the same loaded model, with its own, initial states."""
        other = copy(self)
        other._carried = {}
        other.reset()
        return other

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run the model and update its states. Returns all outputs by name in the model's order.

        Arrays must have the input's dtype; lists and numbers are converted to it. Raises ValueError for a name, dtype or
        shape that is not the model's. A run that fails leaves the states unchanged.
        """
        feeds = {**self._own_states(), **self._check_inputs(inputs)}
        names = [port.name for port in self.outputs]
        wanted = [*names, *self._next_states]
        if self._bytewise:
            values = {
                name: value if isinstance(value, self._ort_value) else to_value(value, self._ports[name].type)
                for name, value in feeds.items()
            }
            returned = self._session.run_with_ort_values(wanted, values)
            results = [from_value(value, port.type) for value, port in zip(returned, self.outputs, strict=False)]
        else:
            results = returned = self._session.run(wanted, feeds)
        self._carried.update(zip(self._next_states.values(), returned[len(names) :], strict=True))
        return dict(zip(names, results, strict=False))

    # --- inputs -------------------------------------------------------------------------------

    def _check_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        if not isinstance(inputs, Mapping):
            raise TypeError(f"inputs are arrays by name, not {type(inputs).__name__}")
        ports = {port.name: port for port in self.inputs}
        listed = ", ".join(f"{port.name!r}" for port in self.inputs) or "none"
        for name in inputs:
            if name in self._next_states.values():
                raise ValueError(f"{name!r} is a state, not an input: the session carries it, and reset() resets it")
            if name not in ports:
                raise ValueError(f"there is no input {name!r}; the model's inputs are {listed}")
        missing = [name for name in ports if name not in inputs]
        if missing:
            raise ValueError(f"no array for {', '.join(map(repr, missing))}; the model's inputs are {listed}")
        return {name: _check_array(inputs[name], port) for name, port in ports.items()}

    def _initial_value(self, state: CarriedState) -> Array:
        """Return the value before the first run: a scalar for all elements, or a list in C order."""
        port = self._ports[state.input]
        shape = [size if size > 0 else 1 for size in state.shape]
        value = np.asarray(state.initial, port.dtype)
        return np.array(np.broadcast_to(value, shape) if value.size == 1 else value.reshape(shape), order="C")

    def _to_array(self, value: Any, port: Port) -> Array:
        return np.array(from_value(value, port.type) if isinstance(value, self._ort_value) else value)


def _port(info: Any) -> Port:
    return Port(info.name, dtype_of(info), tuple(info.shape))


def _quantization(metadata: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return scale and zero point of each input and output that has one of each; empty if the metadata is malformed."""
    try:
        facts = read_authored(metadata)
    except ValueError:
        return {}
    return {
        one["name"]: {"scale": one["scale"][0], "zero_point": one["zero_point"][0]}
        for one in (*facts.get("inputs", ()), *facts.get("outputs", ()))
        if len(one.get("scale", ())) == 1 and len(one.get("zero_point", ())) == 1
    }


def _suggest_conversion(array: Array, port: Port) -> str:
    """Return how to convert an array of another dtype: by quantization if floats are given for quantized values."""
    if array.dtype.kind != "f" or port.dtype.kind not in "iu" or port.scale is None:
        return f"convert the array if intended: array.astype({port.dtype.name!r})"
    limits = np.iinfo(port.dtype)
    quantized = f"np.round(array / {port.scale:.9g}) + {port.zero_point}"
    return f"quantize it: np.clip({quantized}, {limits.min}, {limits.max}).astype({port.dtype.name!r})"


def _check_array(given: Any, port: Port, kind: str = "input") -> Array:
    """Return the array if it matches the input. Raises ValueError otherwise."""
    what = f"{kind} {port.name!r} is {port}"
    array = np.asarray(given)
    if port.type == "string":
        if array.dtype.kind not in "OSU":
            raise ValueError(f"{what}, not {array.dtype.name}")
        texts = [
            item.decode(errors="surrogateescape") if isinstance(item, bytes) else item
            for item in array.reshape(-1).tolist()
        ]
        array = np.array(texts, object).reshape(array.shape)
    elif array.dtype != port.dtype:
        if hasattr(given, "dtype"):
            raise ValueError(f"{what}, not {array.dtype.name}; {_suggest_conversion(array, port)}")
        try:
            array = np.asarray(given, port.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{what}; the given value cannot be converted: {error}") from None
    if port.shape and not _matches_shape(array.shape, port.shape):  # [] in ONNX Runtime is a scalar or an unknown rank
        raise ValueError(f"{what}; the array has shape {list(array.shape)}")
    return array


def _matches_shape(sizes: Sequence[int], declared: Sequence[int | str | None]) -> bool:
    return len(sizes) == len(declared) and all(
        n == size for n, size in zip(sizes, declared, strict=True) if isinstance(size, int)
    )
