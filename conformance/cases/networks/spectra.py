"""Spectra of windows, as audio models take them: complex numbers between a transform and what makes them real."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from conformance.case import Case
from conformance.models import Net, Spec, constant, net, tensor


def cases() -> Iterator[Case]:
    for name, x in (("spectra", tensor(2, 5, 16)), ("spectra of an unknown number of windows", tensor(2, None, 16))):
        for op in ("SQUEEZE", "RESHAPE"):
            yield net("RFFT2D", f"{name}, {op}", spectrum(x, op), opsets=(None, 17, 20, 26))
    x = tensor(None, None, 16)
    yield net("RFFT2D", "spectra of unknown sizes, SQUEEZE", spectrum(x, "SQUEEZE"), opsets=(None, 17, 20, 26))


def spectrum(x: Spec, code: str) -> Callable[[Net], None]:
    """Windows ``[n, t, 16]`` as rows of images of height 1; the axis of size 1 goes while the numbers are complex."""

    def draw(model: Net) -> None:
        n, t, _ = x.shape
        rows = model.call("EXPAND_DIMS", [x, constant(-2)], x.shaped(n, t, 1, 16))
        lengths = constant(np.array([1, 16], np.int32))
        spectra = model.call("RFFT2D", [rows, lengths], tensor(n, t, 1, 9, dtype="complex64"))
        flat = tensor(n, t, 9, dtype="complex64")
        if code == "SQUEEZE":
            flat_ref = model.call("SQUEEZE", [spectra], flat, squeeze_dims=(-2,))
        else:
            flat_ref = model.call("RESHAPE", [spectra, constant([n or -1, t or -1, 9])], flat)
        model.output(model.call("COMPLEX_ABS", [flat_ref], tensor(n, t, 9)))

    return draw
