"""Sessions of an ONNX model in ONNX Runtime, with states carried from run to run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.graph.decoder import cache_pairs
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.model_metadata import CarriedState, is_causal, read_states
from onnx_tflite_plugin.graph.ort_values import UNKNOWN_TO_NUMPY, dtype_of, from_value, to_value
from onnx_tflite_plugin.graph.serialized import read_onnx
from onnx_tflite_plugin.graph.tensor_value import TensorValue
from onnx_tflite_plugin.graph.value_metadata import read_tensor
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.runtimes.packages import import_optional, silence_stderr

if TYPE_CHECKING:
    from onnx import ModelProto

_SERIALIZED_LIMIT = 2**31 - 1


class OrtError(VerificationError):
    """ONNX Runtime cannot run the converted model."""


class WrongShape(OrtError):
    """ONNX Runtime refuses an array because of its shape. ``value``: the ONNX value."""

    value = ""


_WRONG_SHAPE = re.compile(r"(?:Got invalid dimensions|Invalid rank) for input: (.+?)(?::given)? (?:for|Got)")


class OnnxRuntime:
    """Session of an ONNX model, with its states.

    By default it uses ONNX Runtime's optimizations and one thread.

    Args:
        model: a ModelProto, its content, or a path.
        keep: names of intermediate values of the main graph for ``values()``. ONNX Runtime does not fuse across them.
        config: session configuration entries.
        optimized: path where ONNX Runtime writes its optimized graph.
        optimizes: False disables graph optimizations.
        threads: number of threads of an operator.
        profile: prefix of the profile's path; ``session.end_profiling()`` writes the file.
        folder: folder of external data, if ``model`` is not a path.

    Attribute ``session`` is ONNX Runtime's own session.
    """

    def __init__(
        self,
        model: ModelProto | bytes | Path,
        *,
        keep: Sequence[str] = (),
        config: Mapping[str, str] | None = None,
        optimized: Path | None = None,
        optimizes: bool = True,
        threads: int = 1,
        profile: Path | None = None,
        folder: Path | None = None,
    ) -> None:
        package = import_optional("onnxruntime")
        proto, model_folder = _load_proto(model)
        folder = folder or model_folder
        self.proto, self.folder = proto, folder
        self.states = states(proto)
        state_inputs = {state.input for state in self.states}
        state_outputs = {state.output for state in self.states}
        initializers = {tensor.name for tensor in proto.graph.initializer}
        self.inputs = tuple(info for info in proto.graph.input if info.name not in state_inputs | initializers)
        self.outputs = tuple(info for info in proto.graph.output if info.name not in state_outputs)
        self.tensor_values = tensor_values(proto)
        writes_in_place = is_causal(props(proto.metadata_props))
        names = ([info.name for info in self.inputs], [info.name for info in self.outputs])
        self._caches = cache_pairs(*names) if writes_in_place else {}
        self._initializers = initializers
        self._state_values: dict[str, Array] = {}
        self._last_values: dict[str, Array] = {}
        self._keep = tuple(name for name in keep if name not in {info.name for info in proto.graph.output})
        if self._keep:
            proto = _with_outputs(proto, self._keep)
        options = package.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        if profile is not None:
            options.enable_profiling, options.profile_file_prefix = True, str(profile)
        if not optimizes:
            options.graph_optimization_level = package.GraphOptimizationLevel.ORT_DISABLE_ALL
        if folder is not None:
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        if optimized is not None:
            options.optimized_model_filepath = str(optimized)
        for key, value in (config or {}).items():
            options.add_session_config_entry(key, value)
        if proto.ByteSize() > _SERIALIZED_LIMIT:
            raise OrtError("a model of more than 2 GB can only run from a file; save the model and give its path")
        try:
            with silence_stderr():
                self.session = package.InferenceSession(
                    proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
                )
        except Exception as error:
            raise OrtError(f"ONNX Runtime cannot load the model: {error}") from error
        ports = (*self.session.get_inputs(), *self.session.get_overridable_initializers(), *self.session.get_outputs())
        self._dtypes = {port.name: dtype_of(port) for port in ports}
        self._has_special_dtypes = not UNKNOWN_TO_NUMPY.keys().isdisjoint(self._dtypes.values())
        self.reset()

    def load_constants(self, submodel: ModelProto) -> ModelProto | None:
        """Return a submodel with constants loaded from external files, in place.

        Return None if they are too large.
        """
        from onnx import TensorProto
        from onnx.external_data_helper import load_external_data_for_tensor

        external = [tensor for tensor in submodel.graph.initializer if tensor.data_location == TensorProto.EXTERNAL]
        if (
            sum(int(entry.value) for tensor in external for entry in tensor.external_data if entry.key == "length")
            > _SERIALIZED_LIMIT
        ):
            return None
        for tensor in external:
            load_external_data_for_tensor(tensor, str(self.folder))
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]
        return submodel

    def reset(self) -> None:
        """Reset the states to their initial values."""
        self._state_values = {
            state.input: state.initial_value() for state in self.states if state.input not in self._initializers
        }

    def set_states(self, states: Mapping[str, Array]) -> None:
        """Set states for the next run: name of the input -> value."""
        self._state_values |= states

    def feeds(self, inputs: Mapping[str, Array] | Sequence[Array]) -> dict[str, Array]:
        """Return the session's feeds: the inputs and the states.

        ``inputs``: input name -> array, or a list of arrays in the model's order.
        """
        names = [info.name for info in self.inputs]
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(names):
                raise OrtError(
                    f"the ONNX model has {len(names)} inputs ({', '.join(names)}), but {len(inputs)} are given"
                )
            inputs = dict(zip(names, inputs, strict=True))
        return {**self._state_values, **{name: _decode_text(array) for name, array in inputs.items()}}

    def run(self, inputs: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
        """Run once, and return the outputs without the states.

        ``inputs``: input name -> array, or a list of arrays in the model's order.
        """
        names = [info.name for info in self.outputs] + [state.output for state in self.states]
        names += self._keep
        feeds = self.feeds(inputs)
        try:
            with silence_stderr():
                arrays = self.invoke(names, feeds)
        except Exception as error:
            raise _run_error(error) from error
        values = dict(zip(names, (np.asarray(item) for item in arrays), strict=True))
        self._state_values = {state.input: values[state.output] for state in self.states}
        self._last_values = values
        return [values[info.name] for info in self.outputs]

    def invoke(self, names: Sequence[str], feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Return the session's results with these names.

        Exceptions of ONNX Runtime are not converted.
        """
        if self._caches:
            return self._invoke_in_place(names, feeds)
        if not self._has_special_dtypes:
            return self.session.run(names, feeds)  # type: ignore[no-any-return]
        values = {name: to_value(array, self._dtypes[name]) for name, array in feeds.items()}
        results = zip(names, self.session.run_with_ort_values(names, values), strict=True)
        return [from_value(value, self._dtypes[name]) for name, value in results]

    def _invoke_in_place(self, names: Sequence[str], feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Return the session's results, with KV caches written in place.

        Slots that a run does not write keep their values.
        """
        binding = self.session.io_binding()
        arrays = {name: np.array(array, order="C") for name, array in feeds.items()}  # memory of the values
        values = {name: to_value(array, self._dtypes[name]) for name, array in arrays.items()}
        caches = {output: values[cache_input] for cache_input, output in self._caches.items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in names:
            if name in caches:
                binding.bind_ortvalue_output(name, caches[name])
            else:
                binding.bind_output(name, "cpu")
        self.session.run_with_iobinding(binding)
        return [np.array(value.numpy()) for value in binding.get_outputs()]

    def values(self) -> Mapping[str, Array]:
        """Return name -> output, state or ``keep`` value after the last run."""
        return self._last_values


def _run_error(error: Exception) -> OrtError:
    """Return the error of a run that ONNX Runtime refuses."""
    text = f"ONNX Runtime cannot run the model: {error}"
    if not (match := _WRONG_SHAPE.search(text)):
        return OrtError(text)
    refusal = WrongShape(text)
    refusal.value = match[1]
    return refusal


def states(proto: ModelProto) -> tuple[CarriedState, ...]:
    """Return the states that the model declares. Raises OrtError for invalid metadata."""
    try:
        return read_states(props(proto.metadata_props))
    except ValueError as error:
        raise OrtError(str(error)) from error


def tensor_values(proto: ModelProto) -> tuple[TensorValue, ...]:
    """Return the values of the main graph whose metadata name TFLite tensors."""
    graph = proto.graph
    infos = (*graph.input, *graph.value_info, *graph.output)
    values = (read_tensor(info.name, props(info.metadata_props)) for info in infos)
    return tuple({value.name: value for value in values if value is not None}.values())


def _load_proto(model: ModelProto | bytes | Path) -> tuple[ModelProto, Path | None]:
    """Return the model and the folder of its external data. Raises InvalidOnnx."""
    if isinstance(model, bytes):
        return read_onnx(model), None
    if isinstance(model, Path):
        return read_onnx(model, external=False), model.resolve().parent
    return model, None


def _with_outputs(proto: ModelProto, names: Sequence[str]) -> ModelProto:
    """Return a copy with additional outputs."""
    infos = {info.name: info for info in (*proto.graph.value_info, *proto.graph.input)}
    model = type(proto)()
    model.CopyFrom(proto)
    for name in names:
        if name in infos:
            model.graph.output.append(infos[name])
        else:
            model.graph.output.add().name = name
    return model


def _decode_text(array: Array) -> Array:
    """Return the array with texts as str, because ONNX Runtime does not accept bytes."""
    if array.dtype.kind not in "OSU":
        return array
    texts = [item.decode(errors="surrogateescape") if isinstance(item, bytes) else item for item in array.reshape(-1)]
    return np.array(texts, object).reshape(array.shape)
