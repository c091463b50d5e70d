"""Report declared bias scales that contradict the scales in the file."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.declared import declarations_of, find_operators
from onnx_tflite_plugin.binding.bias_scales import describe_bias_scale
from onnx_tflite_plugin.guard import BUILTIN
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Model


def bias_scale_messages(code: str, model: Model, host: Host) -> Iterator[str]:
    """Yield a message for each bias whose declared scale contradicts the file.

    Comparing outputs cannot reveal the mistake, because the reference kernel uses the declared scale too. Operators
    that only the built-in pack handles are not checked.
    """
    if all(pack == BUILTIN for pack, _ in host.registered_handlers(code)):
        return
    for op in find_operators(model, code):
        declared = declarations_of(op, host)
        if declared is not None:
            messages = (describe_bias_scale(op, slot, declared.quantization) for slot in declared.quantization.biases)
            yield from filter(None, messages)
