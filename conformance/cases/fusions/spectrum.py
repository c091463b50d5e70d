"""Real and imaginary parts of spectra, and mel filters, fused to matrix products.

Similar graphs must not be fused.

A transform over two rows is not fused. If there are more filters than frequencies, they remain a separate product,
because a merged product would take more multiplications.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from conformance.builder import TensorRef
from conformance.case import Case
from conformance.models import Net, Spec, constant, net, random_array, tensor


def cases() -> Iterator[Case]:
    for name, points, sizes in (
        ("16 points in one product", 16, (2, 5)),
        ("1024 points in two products", 1024, (2, 5)),
        ("1024 points, dynamic shape", 1024, (None, None)),
    ):
        for op in ("CAST", "REAL", "IMAG"):
            for removes_height in (False, True):
                build = spectrum_part(tensor(*sizes, 1, points - 3), points, op, removes_height)
                suffix = "height removed" if removes_height else "height kept"
                yield net(
                    "RFFT2D", f"{op} of spectra, {name}, {suffix}", build, nodes=["MatMul"], fusions=["RFFT2D_PART"]
                )
    for name, points, units, fuses in (
        ("mel filters", 1024, 11, True),
        ("more filters than frequencies", 16, 37, False),
    ):
        for biased in (False, True):
            build = spectrum_filters(tensor(None, None, 1, points - 3), points, units, biased)
            fusions = ["RFFT2D_FILTERS"] if fuses else ["RFFT2D_PART"]
            yield net(
                "RFFT2D", f"{name}{', a bias and RELU' if biased else ''}", build, nodes={"MatMul": 1}, fusions=fusions
            )
    x = tensor(2, 3, 1, 16)
    yield net("RFFT2D", "REAL of spectra of two rows", spectrum_part(x, 16, "REAL", False, rows=2), nodes=["DFT"])


def spectrum_part(x: Spec, points: int, code: str, removes_height: bool, rows: int = 1) -> Callable[[Net], None]:
    """Return a builder of the real or imaginary part of spectra.

    The samples have shape ``[n, t, rows, samples]``.

    ``points``: length of the transform. ``code``: REAL, IMAG or CAST. ``removes_height``: SQUEEZE removes the axis of
    rows.
    """

    def build(model: Net) -> None:
        n, t = x.shape[:2]
        sizes: tuple[int | None, ...] = (n, t, rows, points // 2 + 1)
        lengths = constant(np.array([rows, points], np.int32))
        spectra = model.call("RFFT2D", [model.input(x), lengths], tensor(*sizes, dtype="complex64"))
        if removes_height:
            sizes = (n, t, points // 2 + 1)
            spectra = model.call("SQUEEZE", [spectra], tensor(*sizes, dtype="complex64"), squeeze_dims=(-2,))
        dtypes = {"in_data_type": 8, "out_data_type": 0} if code == "CAST" else {}
        model.output(model.call(code, [spectra], tensor(*sizes), **dtypes))

    return build


def spectrum_filters(x: Spec, points: int, units: int, biased: bool) -> Callable[[Net], None]:
    """Return a builder of a dense layer on the real parts of spectra.

    The samples have shape ``[n, t, 1, samples]``.
    """

    def build(model: Net) -> None:
        n, t = x.shape[:2]
        frequencies = points // 2 + 1
        samples = model.input(x)
        lengths = constant(np.array([1, points], np.int32))
        spectra = model.call("RFFT2D", [samples, lengths], tensor(n, t, 1, frequencies, dtype="complex64"))
        real = model.call("REAL", [spectra], tensor(n, t, 1, frequencies))
        shape: Spec | TensorRef = constant([-1, frequencies])
        if n is None:  # as Keras exports a dense layer on a tensor of several dynamic dimensions
            sizes = model.call("SHAPE", [real], tensor(4, dtype="int32"), out_type=2)
            last = model.call("GATHER", [sizes, constant([3])], tensor(1, dtype="int32"), axis=0)
            shape = model.call("CONCATENATION", [constant([-1]), last], tensor(2, dtype="int32"), axis=0)
        matrix = model.call("RESHAPE", [real, shape], tensor(None, frequencies))
        weights = [
            constant(random_array(units, frequencies) / 16),
            *([constant(random_array(units))] if biased else []),
        ]
        activation = "RELU" if biased else "NONE"
        model.output(
            model.call("FULLY_CONNECTED", [matrix, *weights], tensor(None, units), fused_activation_function=activation)
        )

    return build
