"""Convert one operator with a handler, without a file, and print the emitted ONNX.

Example: ``convert_one(relu9, [tensor(1, 5, 7, 3)], alpha=9.0)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import onnx.printer

from conformance.models import Spec, between_convolutions, in_isolation
from onnx_tflite_plugin.api import Handler
from onnx_tflite_plugin.codes import NAMED_BY_THE_FILE
from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.host import Host


def convert_one(
    handler: Handler,
    inputs: Sequence[Spec | None],
    options: Any = None,
    *,
    outputs: Sequence[Spec] = (),
    between: bool = False,
    show: bool = True,
    **conversion: Any,
) -> Conversion:
    """Convert a model of one operator, with ``handler``, and print its nodes.

    Args:
        handler: the handler, as decorated with ``@handler``; it need not be installed.
        inputs: the operands: ``tensor(...)``, ``constant(...)``, or None for an absent operand.
        options: option name -> value. For a custom operator, pass bytes, or a mapping that becomes a FlexBuffer.
        outputs: the results, as ``tensor(...)``. By default there is one result, with the shape, dtype and quantization of
            the first input that is not constant.
        between: True to add convolutions before and after the operator, so that its images are channels first.
        show: True to print the model in ONNX's text format.
        conversion: options that are passed to ``onnx_tflite_plugin.convert``.

    Returns:
        The conversion: ``.model``, ``.proto``, ``.report``.

    Raises:
        ConversionError: the handler refuses or fails.
        ValueError: all inputs are constant and ``outputs`` is empty.
    """
    template = next((spec for spec in inputs if spec is not None and spec.value is None), None)
    if template is None and not outputs:
        raise ValueError(
            "all inputs are constant, so the output's dtype and shape cannot be inferred; pass outputs=[tensor(...)]"
        )
    results = outputs or [replace(template, name="")] if template is not None else outputs
    place = between_convolutions if between else in_isolation
    name = "custom_options" if handler.code.startswith(NAMED_BY_THE_FILE) else "options"
    case = place(handler.code, "one", inputs, *results, **{name: options})
    host = Host(handlers={handler.code: handler}, prefer=["inline"])
    result = convert(case.build(), host=host, **conversion)
    if show:
        print(text(result))
    return result


def text(conversion: Conversion) -> str:
    """Return the model in ONNX's text format without the converter's metadata."""
    proto = type(conversion.proto)()
    proto.CopyFrom(conversion.proto)
    del proto.metadata_props[:]
    graph = proto.graph
    for entry in (*graph.node, *graph.input, *graph.output, *graph.value_info):
        del entry.metadata_props[:]
    del graph.value_info[:]
    return str(onnx.printer.to_text(proto))
