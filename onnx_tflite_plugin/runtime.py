"""Runs a converted model in ONNX Runtime and carries its states from run to run, as LiteRT does.

    session = Session("model.onnx")
    outputs = session.run({"audio": chunk})     # {name: array}, in the model's order
    session.reset()                             # forget what was heard
    kept = session.save()                       # what it remembers, {state: array}
    session.restore(kept)                       # and back to it, in this session or another of the same model
    other = session.stream()                    # another stream through the loaded model, with states of its own
    ended = Session("model.end.onnx", states_of=session)  # another signature of the file, which remembers the same

Needs the extra ``runtime``. A model without states runs just as well.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnx_tflite_plugin.errors import MissingExtra
from onnx_tflite_plugin.graph.metadata import CarriedState, read_states
from onnx_tflite_plugin.graph.ort_values import UNKNOWN_TO_NUMPY, dtype_of, from_value, to_value
from onnx_tflite_plugin.graph.serialized import Converted
from onnx_tflite_plugin.source.model import Array

_RENAMED = {"float": "float32", "double": "float64", "string": "object"}  # ONNX Runtime's words that are not numpy's


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output. Sizes that only a run tells are None or a name."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """numpy's dtype, or that of ml_dtypes where numpy has none."""
        own = UNKNOWN_TO_NUMPY.get(self.type)
        return np.dtype(own[0] if own else _RENAMED.get(self.type, self.type))

    def __str__(self) -> str:
        sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{'string' if self.type == 'string' else self.dtype.name} [{sizes}]"


class Session:
    """One model and what it remembers. Not for several threads at once: they would share the states.

    ``model``: the path of an ONNX file, its content, or a ``Conversion``.
    ``providers`` and ``options`` (an ``onnxruntime.SessionOptions``) go to ONNX Runtime. ``inputs`` and ``outputs`` are
    the model's own, without the states. ``states_of``: a session of another signature of the same file; states of one name
    are those of both. Raises MissingExtra without onnxruntime, FileNotFoundError, and ValueError where ONNX Runtime cannot
    load the model, or a state that is to be shared is another one.
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
                raise TypeError(
                    f"a model is given by path or content, or as a Conversion, not as {type(model).__name__}"
                )
            model = model.proto.SerializeToString()
        if options is None:
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3  # it warns of every state's default value
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=list(providers))
            states = read_states(self._session.get_modelmeta().custom_metadata_map)
        except Exception as error:
            raise ValueError(f"the model cannot be loaded: {error}") from error
        self._ort_value = onnxruntime.OrtValue
        self._follows: dict[str, str] = {state.output: state.input for state in states}
        fed = [_port(port) for port in self._session.get_inputs()]
        defaults = [_port(port) for port in self._session.get_overridable_initializers()]
        self._ports = {port.name: port for port in (*fed, *defaults)}
        carried = self._names
        self.inputs = tuple(port for port in fed if port.name not in carried)
        self.outputs = tuple(port for port in map(_port, self._session.get_outputs()) if port.name not in self._follows)
        used = (*self.inputs, *self.outputs, *(self._ports[name] for name in carried))
        self._bytewise = any(port.type in UNKNOWN_TO_NUMPY for port in used)
        self._initial = {state.input: self._first(state) for state in states if state.initial is not None}
        self._carried: dict[str, Any] = {}
        if states_of is None:
            self.reset()
        else:
            self._share(states_of)

    def _share(self, other: Session) -> None:
        for name in self._names & other._names:
            own, theirs = self._ports[name], other._ports[name]
            if (own.type, own.shape) != (theirs.type, theirs.shape):
                raise ValueError(f"state {name!r} is {own}, in the session to share it with {theirs}")
        self._carried = other._carried
        for name, value in self._initial.items():
            self._carried.setdefault(name, value)

    @property
    def _names(self) -> set[str]:
        """Of its states."""
        return {*self._follows.values()}

    def __repr__(self) -> str:
        ends = " → ".join(", ".join(port.name for port in ports[:3]) for ports in (self.inputs, self.outputs))
        states = f"{len(self._follows)} state{'' if len(self._follows) == 1 else 's'}" if self._follows else "no states"
        return f"<Session: {ends}; {states}>"

    def reset(self) -> None:
        """Begin again: the next run starts from the states' initial values."""
        self._go_on(self._initial)

    def _go_on(self, states: Mapping[str, Any]) -> None:
        """These are the states; where sessions share them, of all."""
        for name in self._names:
            self._carried.pop(name, None)
        self._carried.update(states)

    def _own(self) -> dict[str, Any]:
        return {name: value for name, value in self._carried.items() if name in self._names}

    def save(self) -> dict[str, Array]:
        """What is remembered, by the names of the states: copies, to store or to restore. Empty before the first run."""
        return {name: self._to_array(value, self._ports[name]) for name, value in self._own().items()}

    def restore(self, states: Mapping[str, Any]) -> None:
        """Go on from what ``save`` gave; a state that is left out begins anew.

        Raises ValueError for a name, dtype or shape that is not the model's; the states then are as they were.
        """
        for name in states:
            if name not in self._names:
                listed = ", ".join(map(repr, sorted(self._names))) or "none"
                raise ValueError(f"there is no state {name!r}; the model's states are {listed}")
        arrays = {name: np.array(_fitted(array, self._ports[name], "state")) for name, array in states.items()}
        self._go_on({**self._initial, **arrays})

    def stream(self) -> Session:
        """Another stream through the same loaded model: its states are its own, and begin anew."""
        other = copy(self)
        other._carried = {}
        other.reset()
        return other

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """One run: all inputs by name, all outputs by name in the model's order. The states move on.

        Arrays must have the input's dtype; lists and numbers are taken as that. Raises ValueError for a name, dtype or
        shape that is not the model's. A run that fails leaves the states as they were.
        """
        feeds = {**self._own(), **self._checked(inputs)}
        names = [port.name for port in self.outputs]
        wanted = [*names, *self._follows]
        if self._bytewise:
            values = {
                name: value if isinstance(value, self._ort_value) else to_value(value, self._ports[name].type)
                for name, value in feeds.items()
            }
            returned = self._session.run_with_ort_values(wanted, values)
            results = [from_value(value, port.type) for value, port in zip(returned, self.outputs, strict=False)]
        else:
            results = returned = self._session.run(wanted, feeds)
        self._carried.update(zip(self._follows.values(), returned[len(names) :], strict=True))
        return dict(zip(names, results, strict=False))

    # --- inputs -------------------------------------------------------------------------------

    def _checked(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        if not isinstance(inputs, Mapping):
            raise TypeError(f"inputs are arrays by name, not {type(inputs).__name__}")
        ports = {port.name: port for port in self.inputs}
        listed = ", ".join(f"{port.name!r}" for port in self.inputs) or "none"
        for name in inputs:
            if name in self._follows.values():
                raise ValueError(f"{name!r} is a state: the session carries it, reset() sets it back")
            if name not in ports:
                raise ValueError(f"there is no input {name!r}; the model's inputs are {listed}")
        missing = [name for name in ports if name not in inputs]
        if missing:
            raise ValueError(f"no array for {', '.join(map(repr, missing))}; the model's inputs are {listed}")
        return {name: _fitted(inputs[name], port) for name, port in ports.items()}

    def _first(self, state: CarriedState) -> Array:
        """The value before the first run: a number for all elements, or a list in stored order."""
        port = self._ports[state.input]
        shape = [size if size > 0 else 1 for size in state.shape]
        value = np.asarray(state.initial, port.dtype)
        return np.array(np.broadcast_to(value, shape) if value.size == 1 else value.reshape(shape), order="C")

    def _to_array(self, value: Any, port: Port) -> Array:
        return np.array(from_value(value, port.type) if isinstance(value, self._ort_value) else value)


def _port(info: Any) -> Port:
    return Port(info.name, dtype_of(info), tuple(info.shape))


def _fitted(given: Any, port: Port, kind: str = "input") -> Array:
    """The array, if it is what the input takes."""
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
            raise ValueError(
                f"{what}, not {array.dtype.name}; convert it if that is meant: array.astype({port.dtype.name!r})"
            )
        try:
            array = np.asarray(given, port.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{what}; what was given cannot be that: {error}") from None
    if port.shape and not _fits(array.shape, port.shape):  # ONNX Runtime says [] for a scalar and for an unknown rank
        raise ValueError(f"{what}; the array has shape {list(array.shape)}")
    return array


def _fits(sizes: Sequence[int], declared: Sequence[int | str | None]) -> bool:
    return len(sizes) == len(declared) and all(
        n == size for n, size in zip(sizes, declared, strict=True) if isinstance(size, int)
    )
