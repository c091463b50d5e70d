"""The ONNX model in ONNX Runtime: a default session, states carried from step to step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import VerificationError
from ..source.model import Array
from .packages import optional, quiet

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

_PREFIX = "onnx_tflite_plugin."
_SERIALIZED_LIMIT = 2**31 - 1


class OrtError(VerificationError):
    """ONNX Runtime cannot run the converted model."""


@dataclass(frozen=True, slots=True)
class State:
    """An output fed back into an input at the next step; ``initial`` is set where the input has no default."""

    input: str
    output: str
    dtype: str
    shape: tuple[int, ...]
    initial: Any = None

    def first(self) -> Array:
        """What the first step is fed where the model holds no default."""
        value = np.zeros(self.shape, self.dtype)
        if self.initial is not None:
            value[...] = np.asarray(self.initial, self.dtype).reshape(self.shape if np.size(self.initial) > 1 else ())
        return value


@dataclass(frozen=True, slots=True)
class Place:
    """Where a TFLite tensor's value stands in the ONNX model, and in what form.

    ``order``: the value is ``numpy.transpose(tensor, order)``, without axes of size 1 that it leaves out and with one
    where it says -1. ``shift``: what was added to the stored integers.
    """

    value: str
    subgraph: int
    tensor: int
    order: tuple[int, ...] | None = None
    shift: int = 0
    form: str = "stored"

    def apply(self, array: Array) -> Array:
        """The tensor's array as the ONNX value holds it."""
        if self.order is not None:
            array = np.ascontiguousarray(np.transpose(array, self.order))
        if self.shift:
            wide = array.astype(np.int32) + self.shift
            array = wide.astype({"int8": np.uint8, "uint8": np.int8}.get(array.dtype.name, array.dtype))
        return array

    def restore(self, array: Array, dtype: np.dtype[Any]) -> Array | None:
        """The tensor's array from the ONNX value; None where its rank does not fit the order."""
        if self.shift:
            array = (array.astype(np.int32) - self.shift).astype(dtype)
        if self.order is not None:
            if len(self.order) != array.ndim:
                return None
            held = sorted(axis for axis in self.order if axis >= 0)
            array = np.transpose(array, np.argsort(self.order, kind="stable"))
            array = array.reshape(array.shape[array.ndim - len(held) :])
            array = np.expand_dims(array, tuple({*range(max(held, default=0))} - {*held}))
        return array


class OnnxRuntime:
    """One session with default optimizations and one thread, its states, and the values asked for.

    ``keep`` names values of the main graph to return beside the outputs (they keep ONNX Runtime from fusing over them).
    ``optimized`` is where to write the graph that ONNX Runtime made of the model. ``session`` is the session itself.
    """

    def __init__(
        self,
        model: ModelProto | bytes | Path,
        *,
        keep: Sequence[str] = (),
        config: Mapping[str, str] | None = None,
        optimized: Path | None = None,
    ) -> None:
        package = optional("onnxruntime")
        proto, folder = _proto(model)
        self.proto = proto
        self.states = states(proto)
        fed, carried = {state.input for state in self.states}, {state.output for state in self.states}
        stored = {tensor.name for tensor in proto.graph.initializer}
        self.inputs = tuple(info for info in proto.graph.input if info.name not in fed | stored)
        self.outputs = tuple(info for info in proto.graph.output if info.name not in carried)
        self.places = places(proto)
        self._defaults = stored
        self._carried: dict[str, Array] = {}
        self._kept: dict[str, Array] = {}
        self._keep = tuple(name for name in keep if name not in {info.name for info in proto.graph.output})
        if self._keep:
            proto = _with_outputs(proto, self._keep)
        options = package.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        if folder is not None:
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        if optimized is not None:
            options.optimized_model_filepath = str(optimized)
        for key, value in (config or {}).items():
            options.add_session_config_entry(key, value)
        if proto.ByteSize() > _SERIALIZED_LIMIT:
            raise OrtError("a model beyond 2 GB runs only from a file: save it and give its path")
        try:
            with quiet():
                self.session = package.InferenceSession(
                    proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
                )
        except Exception as error:
            raise OrtError(f"ONNX Runtime cannot load the model: {error}") from error
        self.reset()

    def reset(self) -> None:
        """Forget the states."""
        self._carried = {
            state.input: state.first()
            for state in self.states
            if state.initial is not None or state.input not in self._defaults
        }

    def feeds(self, inputs: Mapping[str, Array] | Sequence[Array]) -> dict[str, Array]:
        """What the session is fed for these inputs, by name or in the model's order: they and the states."""
        names = [info.name for info in self.inputs]
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(names):
                raise OrtError(f"the ONNX model has {len(names)} inputs ({', '.join(names)}); given {len(inputs)}")
            inputs = dict(zip(names, inputs, strict=True))
        return {**self._carried, **{name: _feedable(array) for name, array in inputs.items()}}

    def step(self, inputs: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
        """Run once, with inputs by name or in the model's order; returns the outputs without the states."""
        wanted = [info.name for info in self.outputs] + [state.output for state in self.states]
        feeds = self.feeds(inputs)
        try:
            with quiet():
                found = self.session.run([*wanted, *self._keep], feeds)
        except Exception as error:
            raise OrtError(f"ONNX Runtime cannot run the model: {error}") from error
        values = dict(zip([*wanted, *self._keep], (np.asarray(item) for item in found), strict=True))
        self._carried = {state.input: values[state.output] for state in self.states}
        self._kept = values
        return [values[info.name] for info in self.outputs]

    def values(self) -> Mapping[str, Array]:
        """Outputs, states and the values asked for, by name, as the last step left them."""
        return self._kept


def states(proto: ModelProto) -> tuple[State, ...]:
    """The states the model declares."""
    text = next((item.value for item in proto.metadata_props if item.key == _PREFIX + "state"), "[]")
    try:
        return tuple(
            State(item["input"], item["output"], item["dtype"], tuple(item["shape"]), item.get("initial"))
            for item in json.loads(text)
        )
    except (ValueError, KeyError, TypeError) as error:
        raise OrtError(f"the model's {_PREFIX}state cannot be read: {error!r}") from error


def places(proto: ModelProto) -> tuple[Place, ...]:
    """The values of the main graph that say which TFLite tensor they hold."""
    graph = proto.graph
    found = (_place(info) for infos in (graph.input, graph.value_info, graph.output) for info in infos)
    return tuple({place.value: place for place in found if place is not None}.values())


def _place(info: ValueInfoProto) -> Place | None:
    notes = {item.key.removeprefix(_PREFIX): item.value for item in info.metadata_props if item.key.startswith(_PREFIX)}
    try:
        subgraph, tensor = (int(part) for part in notes["tensor"].split(":"))
        order = tuple(int(axis) for axis in notes["order"].split(",")) if notes.get("order") else None
        return Place(info.name, subgraph, tensor, order, int(notes.get("shift") or 0), notes.get("form", "stored"))
    except (KeyError, ValueError):
        return None


def _proto(model: ModelProto | bytes | Path) -> tuple[ModelProto, Path | None]:
    """The model and the folder its external data is in."""
    onnx = optional("onnx")
    try:
        if isinstance(model, bytes):
            return onnx.load_model_from_string(model), None
        if isinstance(model, Path):
            return onnx.load_model(str(model), load_external_data=False), model.resolve().parent
    except Exception as error:
        raise OrtError(f"the ONNX model cannot be read: {error}") from error
    return model, None


def _with_outputs(proto: ModelProto, names: Sequence[str]) -> ModelProto:
    """A copy with more outputs."""
    known = {info.name: info for info in (*proto.graph.value_info, *proto.graph.input)}
    copy = type(proto)()
    copy.CopyFrom(proto)
    for name in names:
        if name in known:
            copy.graph.output.append(known[name])
        else:
            copy.graph.output.add().name = name
    return copy


def _feedable(array: Array) -> Array:
    """ONNX Runtime takes text only as str."""
    if array.dtype.kind not in "OSU":
        return array
    texts = [item.decode(errors="surrogateescape") if isinstance(item, bytes) else item for item in array.reshape(-1)]
    return np.array(texts, object).reshape(array.shape)
