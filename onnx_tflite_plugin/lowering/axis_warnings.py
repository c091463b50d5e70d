"""Warnings about options that confuse channels first and channels last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnx_tflite_plugin.api.layouts import Implicit, Transparent
from onnx_tflite_plugin.binding.bound import BoundGraph
from onnx_tflite_plugin.layout.constraints import implicit_layouts
from onnx_tflite_plugin.layout.tensor_layout import layout_axes
from onnx_tflite_plugin.lowering.interface import InterfaceNames
from onnx_tflite_plugin.options import ConvertOptions
from onnx_tflite_plugin.source.model import Dims, Tensor

_IMAGE_LETTERS = {4: "NHWC", 5: "NDHWC"}


def axis_warnings(
    main: BoundGraph, names: InterfaceNames, options: ConvertOptions, stored_dims: Sequence[Dims]
) -> Iterator[str]:
    """Yield a warning for each option that contradicts a known channel axis.

    ``stored_dims``: the shapes of graph inputs in the file, before ``--input-shape``.
    """
    channels = _channel_axes(main) if options.input_shape or options.layout else {}
    for name, tensor, file_dims in zip(names.inputs, main.inputs, stored_dims, strict=True):
        axis = channels.get(tensor)
        if axis is None or len(file_dims) != tensor.rank or file_dims[axis] in (None, tensor.dims[axis]):
            continue
        yield (
            f"--input-shape {name}: the channels of the model are axis {axis}, whose size changes from {file_dims[axis]} to "
            f"{tensor.dims[axis]}; if you meant a channels-first shape, pass the sizes in the order of the file, "
            f"{_letters(tensor)}, and add --channels-first"
        )
    tensors = [*zip(names.inputs, main.inputs, strict=True), *zip(names.outputs, main.outputs, strict=True)]
    for position, (name, tensor) in enumerate(tensors):
        keys = {name, tensor.name, *([str(position)] if position < len(main.inputs) else [])}
        for key, text in options.layout.items():
            if key in keys:
                yield from _layout_warnings(f"--layout {key}={text}", text, tensor, channels.get(tensor), options)


def _layout_warnings(
    option: str, text: str, tensor: Tensor, channels: int | None, options: ConvertOptions
) -> Iterator[str]:
    file_letters, _, requested_letters = text.partition(":")
    has_image_letters = sorted(file_letters.upper()) == sorted(_letters(tensor))
    named_axis = file_letters.upper().find("C") if has_image_letters else channels
    if channels is not None and named_axis != channels:
        letters = _letters(tensor)
        yield (
            f"{option}: the letters name axis {named_axis} of the file as the channels, but the model's channels are axis {channels}; "
            f"{letters}:{letters[0]}C{letters[1:-1]} puts them first"
        )
    elif file_letters == requested_letters and not options.channels_first and options.io_layout == "source":
        yield f"{option}: the new order is the file's order, so the option has no effect"


def _letters(tensor: Tensor) -> str:
    return _IMAGE_LETTERS.get(tensor.rank, "the channels last")


def _channel_axes(main: BoundGraph) -> Mapping[Tensor, int]:
    """Return the channel axis of each image that has channels last in the file.

    The axis is known from operators that require channels as the second axis. Elementwise operators pass it on to
    tensors of equal shape.
    """
    axes: dict[Tensor, int] = {}
    for bound in main.operators:
        layout = bound.declared.layout
        if isinstance(layout, Implicit) and bound.declared.axes is not None:
            for slot, required in implicit_layouts(bound.op, layout, bound.declared.axes).items():
                tensor, axis_order = bound.op.tensor(slot), layout_axes(required)
                is_image = tensor is not None and not tensor.is_constant and tensor.rank in _IMAGE_LETTERS
                if tensor is not None and is_image and axis_order[:2] == (0, tensor.rank - 1):
                    axes[tensor] = tensor.rank - 1
    elementwise = [bound.op for bound in main.operators if isinstance(bound.declared.layout, Transparent)]
    for operators in (elementwise, elementwise[::-1]):
        for op in operators:
            tensors = [t for t in (*op.inputs, *op.outputs) if t is not None and not t.is_constant]
            image = next((t for t in tensors if t in axes), None)
            axes |= {t: axes[image] for t in tensors if image is not None and t.dims == image.dims and t not in axes}
    return axes
