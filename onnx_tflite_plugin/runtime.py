"""Session that runs a converted model in ONNX Runtime, with states as in LiteRT.

The session carries states from run to run:

    session = Session("model.onnx")
    outputs = session.run({"audio": chunk})     # {name: array}, in the model's order
    session.reset()                             # back to the initial states
    states = session.save()                     # the current states, {state: array}
    session.restore(states)                     # back to these states, in any session of the same model
    second = session.stream()                   # a second stream through the loaded model, with separate states
    end = Session("model.end.onnx", states_of=session)  # another signature of the file, with the same states

The caches of a language model are states, which stay in ONNX Runtime's memory:

    session = Session("model.onnx")  # converted with --signature all
    tokens = session.generate([3, 17, 5], 32)

With one model per signature:

    prefill = Session("model.prefill_128.onnx")
    decode = Session("model.decode.onnx", states_of=prefill)
    tokens = decode.generate([3, 17, 5], 32, prefill=prefill)

Needs the extra ``runtime``. Models without states are supported as well.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from onnx_tflite_plugin.checked import describe, did_you_mean, list_first
from onnx_tflite_plugin.errors import MissingExtra
from onnx_tflite_plugin.graph.decoder import Decoder, GraphInput, recognize_decoder
from onnx_tflite_plugin.graph.int8_faults import describe_int8_fault
from onnx_tflite_plugin.graph.model_metadata import CarriedState, is_causal, read_author_metadata, read_states
from onnx_tflite_plugin.graph.ort_arrays import BoundArrays, can_bind
from onnx_tflite_plugin.graph.ort_caches import BoundCaches
from onnx_tflite_plugin.graph.ort_options import choose_options
from onnx_tflite_plugin.graph.ort_ports import RUNTIME_DTYPES, Port, check_array, port_of
from onnx_tflite_plugin.graph.ort_values import UNKNOWN_TO_NUMPY, from_value, to_value
from onnx_tflite_plugin.graph.serialized import Converted
from onnx_tflite_plugin.graph.session_arguments import (
    check_generation,
    check_session_options,
    describe_load_failure,
    read_source,
)
from onnx_tflite_plugin.source.model import Array


class Session:
    """A model and its states. Not thread-safe: threads would share the states.

    ``model``: the path of an ONNX file, its content, a ``ModelProto``, or a ``Conversion``. ``providers`` and
    ``options`` (an ``onnxruntime.SessionOptions``) are passed to ONNX Runtime. Without ``options``, idle threads do not
    spin, and a model with less than 1 MiB of intermediate tensors runs in one thread. With up to 64 MiB of
    intermediate tensors, their memory is not reused, which is faster. ``states_of``: a session of another signature of
    the same file, with which states of equal names are shared. Attributes ``inputs`` and ``outputs``: inputs and
    outputs of the model, without the states. Raises MissingExtra without onnxruntime, FileNotFoundError, and ValueError
    if ONNX Runtime cannot load the model, if a shared state differs, or if no state is shared.
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
        if fault := describe_int8_fault(onnxruntime):
            warnings.warn(fault, RuntimeWarning, stacklevel=2)
        source = read_source(model)
        checked_providers = check_session_options(onnxruntime, providers, options)
        if not isinstance(states_of, Session | None):
            raise TypeError(f"states_of is {describe(states_of)}; give the Session to share states with")
        try:
            if options is None:
                options = choose_options(onnxruntime, source)
            self._session = onnxruntime.InferenceSession(source, options, providers=checked_providers)
            metadata = self._session.get_modelmeta().custom_metadata_map
            states = read_states(metadata)
        except Exception as error:
            raise ValueError(describe_load_failure(source, error)) from error
        self._ort_value = onnxruntime.OrtValue
        self._next_states: dict[str, str] = {state.output: state.input for state in states}  # {output: state}
        quantized = _quantization(metadata)
        input_ports = [replace(port_of(port), **quantized.get(port.name, {})) for port in self._session.get_inputs()]
        default_ports = [port_of(port) for port in self._session.get_overridable_initializers()]
        self._ports = {port.name: port for port in (*input_ports, *default_ports)}
        output_ports = [replace(port_of(port), **quantized.get(port.name, {})) for port in self._session.get_outputs()]
        causal = is_causal(metadata)
        self._decoder = None if states else _decoder(input_ports, output_ports, heads_first=causal)
        cache_outputs = self._decoder.caches if self._decoder else {}
        self._next_states |= {output: name for name, output in cache_outputs.items()}
        self._caches = BoundCaches(self._session, cache_outputs, in_place=causal)
        self._state_names = frozenset(self._next_states.values())
        self.inputs = tuple(port for port in input_ports if port.name not in self._state_names)
        self.outputs = tuple(port for port in output_ports if port.name not in self._next_states)
        self._input_ports = {port.name: port for port in self.inputs}
        output_by_name = {port.name: port for port in output_ports}
        self._results = (*self.outputs, *(output_by_name[name] for name in self._next_states))
        session_ports = (*self.inputs, *self.outputs, *(self._ports[name] for name in self._state_names))
        self._uses_ort_values = any(port.type in UNKNOWN_TO_NUMPY for port in session_ports)
        self._arrays = self._bind_arrays()
        self._initial = {state.input: self._initial_value(state) for state in states if state.initial is not None}
        self._initial |= {name: np.zeros(self._ports[name].static_shape, np.float32) for name in cache_outputs}
        self._states: dict[str, Any] = {}  # shared with the sessions of ``states_of``
        if states_of is None:
            self.reset()
        else:
            self._share_states(states_of)

    def _share_states(self, owner: Session) -> None:
        """Use the states of another session.

        Raises ValueError if a state differs, or if the sessions have no state in common.
        """
        if self._state_names.isdisjoint(owner._state_names):
            states, owner_states = (_list_states(session._state_names) for session in (self, owner))
            raise ValueError(
                "states_of is a session of a different model: no state would be shared, because this model has "
                f"{states}, and the other model {owner_states}; omit states_of, or pass a session of the same TFLite file"
            )
        for name in self._state_names & owner._state_names:
            port, owner_port = self._ports[name], owner._ports[name]
            if (port.type, port.shape) != (owner_port.type, owner_port.shape):
                raise ValueError(f"state {name!r} is {port}, but in the session of states_of it is {owner_port}")
        self._states = owner._states
        for name, value in self._initial.items():
            self._states.setdefault(name, value)

    def _bind_arrays(self) -> BoundArrays | None:
        """Return preallocated memory for states and outputs.

        Return None if a size is dynamic, or if the model has caches.
        """
        states = [self._ports[name] for name in self._state_names]
        if self._decoder is not None or self._uses_ort_values or not all(map(can_bind, (*states, *self._results))):
            return None
        return BoundArrays(self._session, states, self._results)

    def __repr__(self) -> str:
        interface = " → ".join(", ".join(port.name for port in ports[:3]) for ports in (self.inputs, self.outputs))
        states = (
            f"{len(self._next_states)} state{'' if len(self._next_states) == 1 else 's'}"
            if self._next_states
            else "no states"
        )
        return f"<Session: {interface}; {states}>"

    def reset(self) -> None:
        """Reset the states to their initial values."""
        self._set_states(self._initial)

    def _set_states(self, states: Mapping[str, Any]) -> None:
        """Replace the states of this session and of sessions that share them."""
        for name in self._state_names:
            self._states.pop(name, None)
        self._states.update(states)

    def _state_inputs(self) -> dict[str, Any]:
        """Return the states of this model; shared states may include another model's."""
        return {name: value for name, value in self._states.items() if name in self._state_names}

    def save(self) -> dict[str, Array]:
        """Return copies of the states by name, to store or to restore them later."""
        return {name: self._to_array(value, self._ports[name]) for name, value in self._state_inputs().items()}

    def restore(self, states: Mapping[str, Any]) -> None:
        """Set the states to the result of ``save``; omitted states are reset.

        Raises ValueError for a name, dtype or shape that is not the model's; the states then stay unchanged.
        """
        if not isinstance(states, Mapping):
            raise TypeError(
                f"states must be a mapping from name to array, not {type(states).__name__}; pass the result of save()"
            )
        for name in states:
            if name not in self._state_names:
                state_list = ", ".join(map(repr, sorted(self._state_names))) or "none"
                raise ValueError(f"there is no state {name!r}; the model's states are {state_list}")
        arrays = {name: np.array(check_array(array, self._ports[name], "state")) for name, array in states.items()}
        self._set_states({**self._initial, **arrays})

    def stream(self) -> Session:
        """Return a session with new states for a second stream through the loaded model."""
        session = copy(self)
        session._states = {}
        session._caches = BoundCaches(
            self._session, self._decoder.caches if self._decoder else {}, in_place=self._caches.in_place
        )
        session._arrays = session._bind_arrays()
        session.reset()
        return session

    def run(self, inputs: Mapping[str, Any], *extra_arguments: object) -> dict[str, Array]:
        """Run the model, update its states, and return output name -> array.

        The outputs have the model's order. Arrays must have the input's dtype; lists and numbers are converted to it.
        Raises ValueError for a name, dtype or shape that is not the model's. A run that fails leaves the states
        unchanged, except for caches that are written in place.
        """
        if extra_arguments:  # ONNX Runtime's own run takes names of outputs first
            raise TypeError("run takes one argument, arrays by input name: run({name: array}); it returns all outputs")
        if self._decoder is not None:
            cached_outputs = self._caches.run(
                self._check_inputs(inputs), self._states, [port.name for port in self.outputs]
            )
            return {
                port.name: from_value(value, port.type)
                for port, value in zip(self.outputs, cached_outputs, strict=True)
            }
        checked, states = self._check_inputs(inputs), self._state_inputs()
        names = [port.name for port in self.outputs]
        results: Sequence[Array]
        if self._arrays is not None:
            results = all_results = self._arrays.run(checked, states)
        elif self._uses_ort_values:
            values = {
                name: value if isinstance(value, self._ort_value) else to_value(value, self._ports[name].type)
                for name, value in {**states, **checked}.items()
            }
            all_results = self._session.run_with_ort_values([port.name for port in self._results], values)
            results = [from_value(value, port.type) for value, port in zip(all_results, self.outputs, strict=False)]
        else:
            results = all_results = self._session.run([port.name for port in self._results], {**states, **checked})
        self._states.update(zip(self._next_states.values(), all_results[len(names) :], strict=True))
        return dict(zip(names, results, strict=False))

    def generate(
        self,
        tokens: Sequence[int],
        count: int,
        *,
        start: int = 0,
        stop: Collection[int] = (),
        prefill: Session | None = None,
    ) -> list[int]:
        """Return up to ``count`` tokens of highest score that follow ``tokens``.

        ``start``: the position of the first token; the caches contain the tokens before it. ``stop``: tokens that end
        the result. ``prefill``: a session of the prefill signature, which shares its caches with this session
        (``states_of``). That session runs all complete chunks of the prompt; this session runs the remaining tokens. A model of
        all signatures needs no ``prefill``: it runs all tokens of the prompt at once. Raises ValueError if the model is
        not a language model with scores, or for more tokens than the caches can store.
        """
        names = [port.name for port in self.outputs]
        if self._decoder is None or len(names) != 1:
            raise ValueError(
                "generate needs a language model, with inputs for tokens, positions and caches, and scores as its only "
                f"output; this model's inputs are {self._input_names()}"
            )
        if not isinstance(prefill, Session | None):
            raise TypeError(f"prefill is {describe(prefill)}; give the Session of the prefill signature")
        prompt_tokens = check_generation(tokens, count, start, stop, self._decoder.slots)
        if prefill is not None and prefill._states is not self._states:
            raise ValueError(
                "this session and the session 'prefill' have different caches; create one of them with states_of= the other"
            )
        processed = 0 if prefill is None else prefill._run_prompt(prompt_tokens[:-1], start)
        result: list[int] = []
        while len(result) < count:
            remaining = (prompt_tokens + result)[processed:]
            chunk = remaining if self._decoder.length is None else remaining[:1]
            scores = self._run_tokens(chunk, start + processed)[names[0]]
            processed += len(chunk)
            if processed >= len(prompt_tokens):
                result.append(int(scores.reshape(-1, scores.shape[-1])[-1].argmax()))
                if result[-1] in stop:
                    break
        return result

    def _run_prompt(self, tokens: Sequence[int], start: int) -> int:
        """Run all complete chunks of tokens, and return the number of tokens in them."""
        if self._decoder is None:
            raise ValueError("argument 'prefill' must be a Session of a language model")
        length = self._decoder.length or max(len(tokens), 1)
        complete = len(tokens) // length * length
        for offset in range(0, complete, length):
            self._run_tokens(tokens[offset : offset + length], start + offset)
        return complete

    def _run_tokens(self, tokens: Sequence[int], position: int) -> dict[str, Array]:
        """Run consecutive tokens, the first at ``position``, and return the outputs."""
        assert self._decoder is not None
        positions = self._decoder.position_inputs(position, len(tokens))
        name = self._decoder.positions
        positions[name] = positions[name].astype(self._ports[name].dtype)
        try:
            return self.run({self._decoder.tokens: [[*tokens]], **positions})
        except RuntimeError as error:
            vocabulary = self.outputs[0].shape[-1] if len(self.outputs) == 1 else None
            if isinstance(vocabulary, int) and max(tokens) >= vocabulary:
                raise ValueError(f"the token {max(tokens)} is outside the vocabulary, 0 to {vocabulary - 1}") from error
            raise

    # --- inputs -------------------------------------------------------------------------------

    def _check_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        if not isinstance(inputs, Mapping):
            example = ", ".join(f"{port.name!r}: array{k}" for k, port in enumerate(self.inputs))
            raise TypeError(
                f"inputs must be a mapping from name to array, not {type(inputs).__name__}; pass {{{example}}}"
            )
        ports = self._input_ports
        if inputs.keys() != ports.keys():
            self._raise_for_names(inputs)
        return {name: check_array(inputs[name], port) for name, port in ports.items()}

    def _input_names(self) -> str:
        """Return the quoted names of the inputs as text."""
        return ", ".join(map(repr, self._input_ports)) or "none"

    def _raise_for_names(self, inputs: Mapping[str, Any]) -> NoReturn:
        """Raise ValueError for the first unknown input name, or for missing inputs."""
        ports = self._input_ports
        input_list = self._input_names()
        for name in inputs:
            if name in self._state_names:
                raise ValueError(f"{name!r} is a state, not an input: the session carries it, and reset() resets it")
            if name not in ports:
                hint = f"; position {name} is session.inputs[{name}].name" if _is_position(name, len(ports)) else ""
                hint = hint or did_you_mean(str(name), ports)
                raise ValueError(f"there is no input {name!r}; the model's inputs are {input_list}{hint}")
        missing = [name for name in ports if name not in inputs]
        raise ValueError(f"no array for {', '.join(map(repr, missing))}; the model's inputs are {input_list}")

    def _initial_value(self, state: CarriedState) -> Array:
        """Return the value of a state before the first run."""
        port = self._ports[state.input]
        shape = [size if size > 0 else 1 for size in state.shape]
        value = np.asarray(state.initial, port.dtype)
        return np.array(np.broadcast_to(value, shape) if value.size == 1 else value.reshape(shape), order="C")

    def _to_array(self, value: Any, port: Port) -> Array:
        return np.array(from_value(value, port.type) if isinstance(value, self._ort_value) else value)


def _is_position(key: object, number: int) -> bool:
    """True if a key is a valid position in a list of ``number`` inputs."""
    return isinstance(key, int) and 0 <= key < number


def _decoder(inputs: Sequence[Port], outputs: Sequence[Port], *, heads_first: bool) -> Decoder | None:
    """Return the decoder of a language model with float32 caches of static shapes.

    Return None for any other model.
    """
    graph_inputs = [GraphInput(port.name, RUNTIME_DTYPES.get(port.type, port.type), port.shape) for port in inputs]
    decoder = recognize_decoder(graph_inputs, [port.name for port in outputs], heads_first=heads_first)
    input_ports, output_ports = ({port.name: port for port in ports} for ports in (inputs, outputs))
    cache_pairs = [
        (input_ports[name], output_ports[output]) for name, output in (decoder.caches.items() if decoder else ())
    ]
    if any((cache.type, cache.shape) != (output.type, output.shape) for cache, output in cache_pairs):
        return None
    caches = [cache for cache, _ in cache_pairs]
    return decoder if all(port.type == "float" and port.shape == port.static_shape for port in caches) else None


def _quantization(metadata: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return name -> quantization and normalization of an input or output.

    Return an empty mapping if the metadata is malformed.
    """
    try:
        author_metadata = read_author_metadata(metadata)
    except ValueError:
        return {}
    return {
        entry["name"]: {
            "axis": entry.get("axis", 0),
            **{key: tuple(entry.get(key, ())) for key in ("scale", "zero_point", "mean", "std")},
        }
        for entry in (*author_metadata.get("inputs", ()), *author_metadata.get("outputs", ()))
    }


def _list_states(names: Collection[str]) -> str:
    """Return the names of states as text."""
    return f"the states {list_first([*map(repr, sorted(names))], 3)}" if names else "no states"
