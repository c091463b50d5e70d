"""Key-value caches that stay in ONNX Runtime's memory from run to run."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.source.model import Array


class BoundCaches:
    """Runs of a session with bound caches.

    ``pairs``: cache input -> output with its next value. ``in_place``: the model writes into the memory
    of the input; otherwise two buffers per cache alternate.
    """

    def __init__(self, session: Any, pairs: Mapping[str, str], *, in_place: bool) -> None:
        self._session, self._pairs, self.in_place = session, pairs, in_place
        self._spare: dict[str, Any] = {}

    def run(self, inputs: Mapping[str, Array], caches: MutableMapping[str, Any], outputs: Sequence[str]) -> list[Any]:
        """Return the values of the outputs, and update ``caches`` to their next values.

        ``caches``: input name -> array or OrtValue.
        """
        from onnxruntime import OrtValue

        binding = self._session.io_binding()
        next_values: dict[str, Any] = {}
        for name, array in inputs.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(array))
        for name, output in self._pairs.items():
            value = caches[name]
            if not isinstance(value, OrtValue):
                caches[name] = value = _copy_to_value(value)
            next_values[name] = value if self.in_place else self._spare.pop(name, None) or _copy_to_value(value.numpy())
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(output, next_values[name])
        for name in outputs:
            binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding)
        if not self.in_place:
            self._spare = {name: caches[name] for name in self._pairs}
        caches.update(next_values)
        return list(binding.get_outputs()[len(next_values) :])


def _copy_to_value(array: Array) -> Any:
    """Return an array as a value in ONNX Runtime's memory."""
    from onnxruntime import OrtValue

    value = OrtValue.ortvalue_from_shape_and_type(list(array.shape), array.dtype.type)
    value.update_inplace(np.ascontiguousarray(array))
    return value
