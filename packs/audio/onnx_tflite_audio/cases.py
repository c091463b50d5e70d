"""What the handlers must convert, and where they must refuse."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.case import Case
from conformance.models import alone, constant, drawn, tensor

EDGE = np.asarray([-32768, 32767, -1, 1, -3, 0, 255], np.int16)


def cases() -> Iterator[Case]:
    op = "CUSTOM.SignalWindow"
    weights = constant(drawn(7, dtype="int16"))
    for shift in (0, 12, 15):
        x = tensor(2, 5, 7, dtype="int16", scale=0)
        yield alone(op, f"shift {shift}", [x, weights], x, custom_options={"shift": shift})
    one = tensor(7, dtype="int16", scale=0)
    edges = {"x0": EDGE}
    yield alone(op, "ends of the range", [one, constant(EDGE)], one, custom_options={"shift": 12}, given=edges)
    opened = tensor(None, 7, dtype="int16", scale=0)
    yield alone(op, "unknown sizes", [opened, weights], opened, custom_options={"shift": 12})
    yield alone(
        op,
        "another length",
        [tensor(14, dtype="int16", scale=0), weights],
        tensor(14, dtype="int16", scale=0),
        custom_options={"shift": 12},
        refused="is not a frame of 14",
    )

    op = "CUSTOM.SignalRfft"
    options = {"T": 0, "fft_length": 16}
    yield alone(op, "a frame", [tensor(16)], tensor(18), custom_options=options, nodes=["DFT"])
    yield alone(op, "frames with zeros behind", [tensor(3, 5, 11)], tensor(3, 5, 18), custom_options=options)
    yield alone(op, "unknown sizes", [tensor(None, 11)], tensor(None, 18), custom_options=options)
    yield alone(
        op,
        "int16",
        [tensor(16, dtype="int16", scale=0)],
        tensor(18, dtype="int16", scale=0),
        custom_options={"T": 7, "fft_length": 16},
        refused="int16 FFTs round after every butterfly",
    )
    yield alone(
        op,
        "a frame that is too long",
        [tensor(17)],
        tensor(18),
        custom_options=options,
        refused="does not hold a frame of 17",
    )

    op = "CUSTOM.SignalEnergy"
    x, y = tensor(26, dtype="int16", scale=0), tensor(13, dtype="uint32")
    yield alone(op, "all of it", [x], y, custom_options={"start_index": 0, "end_index": 13})
    yield alone(op, "a range", [x], y, custom_options={"start_index": 2, "end_index": 11})
    lowest = {"x0": np.full(26, -32768, np.int16)}
    yield alone(op, "beyond int32", [x], y, custom_options={"start_index": 0, "end_index": 13}, given=lowest)
    yield alone(
        op,
        "a range outside",
        [x],
        y,
        custom_options={"start_index": 2, "end_index": 14},
        refused="does not lie in a spectrum",
    )
