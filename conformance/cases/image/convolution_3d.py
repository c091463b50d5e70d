"""CONV_3D and CONV_3D_TRANSPOSE: windows along three axes, and chains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, constant, in_isolation, net, random_array, tensor

VOLUME = (2, 3, 5, 7, 2)
CLAMPS = ("RELU", "RELU6", "RELU_N1_TO_1")
WINDOWS = (  # kernel, stride, dilation
    ((3, 2, 4), (1, 1, 1), (1, 1, 1)),
    ((2, 3, 4), (2, 1, 3), (1, 1, 1)),
    ((2, 3, 2), (1, 2, 1), (1, 1, 1)),
    ((3, 3, 3), (2, 2, 2), (1, 1, 1)),
    ((2, 2, 3), (1, 1, 1), (2, 3, 1)),
    ((2, 2, 2), (1, 1, 1), (1, 2, 4)),
    ((1, 1, 1), (1, 1, 1), (1, 1, 1)),
)
DILATED_STRIDED = (((2, 2, 2), (2, 1, 2), (2, 1, 1)),)  # dilation and stride at once


def cases() -> Iterator[Case]:
    for op in ("CONV_3D", "CONV_3D_TRANSPOSE"):
        yield from window_cases(op)
        yield from bias_cases(op)
        yield from network_cases(op)
    yield from dynamic_size_cases()
    yield from runtime_size_cases()


def window_name(kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> str:
    """Return a description of kernel, stride and dilation, for the name of a case."""
    sizes_by_label = (("", kernel), (" stride ", stride), (" dilated ", dilation))
    return "".join(
        label + "x".join(map(str, sizes)) for label, sizes in sizes_by_label if not label or set(sizes) != {1}
    )


def output_sizes(
    padding: str, size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """Return the output size of a forward convolution."""
    windows = zip(size, kernel, stride, dilation, strict=True)
    return [-(-(n if padding == "SAME" else n - (k - 1) * d) // s) for n, k, s, d in windows]


def conv_3d_case(
    op: str,
    name: str,
    kernel: Sequence[int] = (3, 2, 4),
    stride: Sequence[int] = (1, 1, 1),
    dilation: Sequence[int] = (1, 1, 1),
    *,
    padding: str = "SAME",
    volume: Sequence[int] = VOLUME,
    out: int = 3,
    biased: bool | None = True,
    activation: str = "NONE",
    **case_fields: Any,
) -> Case:
    """Return a case of CONV_3D or CONV_3D_TRANSPOSE.

    ``biased``: None for a bias that is an absent operand.
    """
    n, *size, channels = volume
    result_size = output_sizes(padding, size, kernel, stride, dilation)
    options = conv_3d_options(padding, stride, dilation, activation)
    if op == "CONV_3D":
        x, y, w = tensor(*volume), tensor(n, *result_size, out), constant(random_array(*kernel, channels, out))
        operands = [x, w]
    else:
        x, y, w = (
            tensor(n, *result_size, channels),
            tensor(n, *size, out),
            constant(random_array(*kernel, out, channels)),
        )
        operands = [constant(list(y.shape)), w, x]
    bias = [constant(random_array(out))] if biased else [] if biased is False else [None]
    return in_isolation(op, name, [*operands, *bias], y, options=options, **case_fields)


def conv_3d_options(
    padding: str, stride: Sequence[int], dilation: Sequence[int] = (1, 1, 1), activation: str = "NONE"
) -> dict[str, Any]:
    """Return the options of CONV_3D or CONV_3D_TRANSPOSE."""
    strides = {f"stride_{axis}": s for axis, s in zip("dhw", stride, strict=True)}
    dilations = {f"dilation_{axis}_factor": d for axis, d in zip("dhw", dilation, strict=True)}
    return {"padding": padding, **strides, **dilations, "fused_activation_function": activation}


def window_cases(op: str) -> Iterator[Case]:
    for padding in ("SAME", "VALID"):
        for windows in (*WINDOWS, *DILATED_STRIDED):
            volume = (1, 5, 7, 11, 2)
            yield conv_3d_case(op, f"{padding} {window_name(*windows)}", *windows, padding=padding, volume=volume)
        yield conv_3d_case(op, f"{padding} at every opset", (2, 3, 2), (1, 2, 2), padding=padding, opsets=EVERY_OPSET)
    yield conv_3d_case(op, "a kernel larger than the volume", (5, 3, 2), volume=(1, 2, 3, 3, 2))
    yield conv_3d_case(op, "one channel in and out", volume=(2, 3, 5, 7, 1), out=1)


def bias_cases(op: str) -> Iterator[Case]:
    yield conv_3d_case(op, "without bias", biased=False)
    yield conv_3d_case(op, "with an absent bias", biased=None)
    for activation in CLAMPS:
        yield conv_3d_case(op, f"with {activation}", activation=activation)
    for activation in ("TANH", "SIGN_BIT"):
        yield conv_3d_case(op, f"with {activation}, which the kernel ignores", activation=activation)


# --- between convolutions ---------------------------------------------------------------------


def add_conv_3d(model: Net, op: str, x: Any, channels: int, shape: Sequence[int]) -> TensorRef:
    """Add a 3 x 3 x 3 convolution that keeps the size."""
    spec = x if not isinstance(x, TensorRef) else model.spec(x)
    input_channels, y = spec.shape[-1] or 1, tensor(*shape, channels)
    if op == "CONV_3D":
        operands = [x, constant(random_array(3, 3, 3, input_channels, channels))]
    else:
        operands = [constant([*shape, channels]), constant(random_array(3, 3, 3, channels, input_channels)), x]
    return model.call(op, operands, y, **conv_3d_options("SAME", (1, 1, 1)))


def network_cases(op: str) -> Iterator[Case]:
    """Yield cases of operators between two 3-D convolutions.

    All of them become channels first.
    """
    shape = VOLUME[:-1]

    def build_two(model: Net) -> None:
        x = add_conv_3d(model, op, tensor(*VOLUME), 3, shape)
        model.output(add_conv_3d(model, op, x, 4, shape))

    def convolutions_around(add_operator: Callable[[Net, TensorRef], TensorRef]) -> Callable[[Net], None]:
        def build(model: Net) -> None:
            x = add_operator(model, add_conv_3d(model, op, tensor(*VOLUME), 3, shape))
            model.output(add_conv_3d(model, op, x, 4, shape) if len(model.spec(x).shape) == 5 else x)

        return build

    def add_bias(model: Net, x: TensorRef) -> TensorRef:
        return model.call(
            "ADD", [x, constant(random_array(5, 1, 3))], tensor(*shape, 3), fused_activation_function="RELU"
        )

    def add_mean(model: Net, x: TensorRef) -> TensorRef:
        return model.call("MEAN", [x, constant([1, 2, 3])], tensor(2, 3), keep_dims=False)

    def add_concatenation(model: Net, x: TensorRef) -> TensorRef:
        return model.call(
            "CONCATENATION", [x, add_conv_3d(model, op, tensor(*VOLUME), 3, shape)], tensor(*shape, 6), axis=4
        )

    yield net(op, "two in a row", build_two, max_transposes=2)
    yield net(op, "around an addition", convolutions_around(add_bias), max_transposes=2)
    yield net(op, "before a mean", convolutions_around(add_mean), max_transposes=1)
    yield net(op, "before a concatenation", convolutions_around(add_concatenation), max_transposes=3)


def runtime_size_cases() -> Iterator[Case]:
    """Yield cases of CONV_3D_TRANSPOSE with runtime sizes.

    SAME padding depends on the sizes.
    """
    volumes = ((1, 5, 7, 11), (2, 7, 6, 13))
    for padding in ("SAME", "VALID"):
        for kernel, stride, dilation in (*WINDOWS, *DILATED_STRIDED):
            arrays = []
            for batch, *size in volumes:
                input_size = output_sizes(padding, size, kernel, stride, dilation)
                output_shape = np.array([batch, *size, 3], np.int32)
                arrays.append({"output_shape": output_shape, "volume": random_array(batch, *input_size, 2)})
            x, y = tensor(None, None, None, None, 2, name="volume"), tensor(None, None, None, None, 3)
            operands = [tensor(5, dtype="int32", name="output_shape"), constant(random_array(*kernel, 3, 2)), x]
            name = f"sizes known at runtime, {padding} {window_name(kernel, stride, dilation)}"
            options = conv_3d_options(padding, stride, dilation)
            case_fields: dict[str, Any] = {"options": options, "input_arrays": arrays, "dynamic_sizes": (), "runs": 2}
            yield in_isolation("CONV_3D_TRANSPOSE", name, operands, y, **case_fields)


def dynamic_size_cases() -> Iterator[Case]:
    """Yield cases with dynamic sizes, and weights that are graph inputs."""
    arrays = [{"x0": random_array(n, 3, 5, 7, 2)} for n in (1, 3)]
    x, y = tensor(None, 3, 5, 7, 2), tensor(None, 3, 5, 7, 3)
    w = constant(random_array(3, 3, 3, 2, 3))
    yield in_isolation(
        "CONV_3D", "dynamic batch", [x, w], y, options=conv_3d_options("SAME", (1, 1, 1)), input_arrays=arrays, runs=2
    )
    x, y = tensor(2, None, 5, 7, 2), tensor(2, None, 5, 7, 3)
    arrays = [{"x0": random_array(2, n, 5, 7, 2)} for n in (1, 4)]
    yield in_isolation(
        "CONV_3D", "dynamic depth", [x, w], y, options=conv_3d_options("SAME", (1, 1, 1)), input_arrays=arrays, runs=2
    )
    strided = conv_3d_options("SAME", (2, 1, 1))
    yield in_isolation(
        "CONV_3D",
        "dynamic depth with a stride",
        [x, w],
        y,
        options=strided,
        input_arrays=arrays,
        runs=2,
    )
    options, y = conv_3d_options("SAME", (2, 2, 2)) | {"dilation_d_factor": 2}, tensor(2, None, 3, 4, 3)
    yield in_isolation(
        "CONV_3D", "dynamic depth, dilated", [x, w], y, options=options, input_arrays=arrays, refusal="--input-shape"
    )
    operands = [tensor(*VOLUME), tensor(2, 3, 2, 2, 3), tensor(3)]
    yield in_isolation(
        "CONV_3D",
        "weights as a graph input",
        operands,
        tensor(*VOLUME[:-1], 3),
        options=conv_3d_options("SAME", (1, 1, 1)),
    )
    shape = tensor(5, dtype="int32", name="shape")
    runtime_shape = {"shape": np.array([2, 3, 5, 7, 3], np.int32)}
    weights = constant(random_array(3, 3, 3, 3, 2))
    operands = [shape, weights, tensor(*VOLUME)]
    # A static output shape in the file is used unchanged.
    options = conv_3d_options("SAME", (1, 1, 1))
    yield in_isolation(
        "CONV_3D_TRANSPOSE",
        "runtime output shape with a stored shape",
        operands,
        tensor(2, 3, 5, 7, 3),
        options=options,
        input_arrays=runtime_shape,
    )
    y = tensor(None, None, None, None, 3)
    yield in_isolation(
        "CONV_3D_TRANSPOSE",
        "runtime output shape",
        operands,
        y,
        options=options,
        input_arrays=runtime_shape,
    )
    operands = [tensor(2, 3, 5, 7, 4), constant(random_array(3, 3, 3, 2, 4))]
    yield in_isolation(
        "CONV_3D", "in groups", operands, tensor(2, 3, 5, 7, 4), options=options, kernel_refusal="filter->dims->data[3]"
    )
