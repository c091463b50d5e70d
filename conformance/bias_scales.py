"""Messages on biases whose declared scale contradicts the case's model."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.declared import declarations_of, instances
from onnx_tflite_plugin.binding.bias_scales import describe_bias_scale
from onnx_tflite_plugin.guard import BUILTIN
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Model


def messages_on_bias_scales(code: str, model: Model, host: Host) -> Iterator[str]:
    """Yield a message for each bias of a pack whose scale contradicts the file's.

    The reference kernel gets its bias by the same declaration, so that a comparison cannot find the mistake.
    """
    if all(pack == BUILTIN for pack, _ in host.registered_handlers(code)):
        return
    for op in instances(model, code):
        declared = declarations_of(op, host)
        if declared is not None:
            messages = (describe_bias_scale(op, slot, declared.quantization) for slot in declared.quantization.biases)
            yield from filter(None, messages)
