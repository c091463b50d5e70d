"""Small models for tests of input shapes, and their comparison with LiteRT."""

from __future__ import annotations

from typing import Any

from conformance.models import Net, Spec, constant, random_array, tensor
from onnx_tflite_plugin.conversion import Conversion
from onnx_tflite_plugin.verify import verify


def dims(conversion: Conversion) -> dict[str, list[int | str | None]]:
    """Return the shapes of graph inputs and outputs; a dynamic size is its name, or None."""
    graph = conversion.model.graph
    return {
        str(value.name): [size if isinstance(size, int) else size.value for size in value.shape or ()]
        for value in (*graph.inputs, *graph.outputs)
    }


def agrees(data: bytes, conversion: Conversion, **shapes: tuple[int, ...]) -> bool:
    """Return True if the converted model agrees with LiteRT at these input shapes."""
    return verify(data, conversion.proto.SerializeToString(), shapes=shapes, runs=1).ok


def single_operator(code: str, *operands: Spec, **options: Any) -> bytes:
    """Return a model with one operator; the last spec is the result."""
    model = Net()
    model.output(model.call(code, operands[:-1], operands[-1], **options))
    return model.build()


def classifier(new_shape: list[int]) -> bytes:
    """Return an image classifier with a RESHAPE before its dense layer."""
    model = Net()
    image = tensor(1, 4, 6, 3)
    x = model.input(image)
    w, b = constant(random_array(5, 3, 3, 3)), constant(random_array(5))
    convolved = model.call("CONV_2D", [x, w, b], image.with_shape(1, 2, 3, 5), padding="SAME", stride_h=2, stride_w=2)
    flat = model.call("RESHAPE", [convolved, constant(new_shape)], tensor(1, 30))
    model.output(
        model.call("FULLY_CONNECTED", [flat, constant(random_array(7, 30)), constant(random_array(7))], tensor(1, 7))
    )
    return model.build()
