"""Time .tflite files in OpenVINO: ``python openvino_reader.py FILE ROUNDS``.

Run it with a Python interpreter that has OpenVINO, which reads .tflite files itself. The script prints JSON,
``{"version": ..., "seconds": [...]}``: processor time of one thread in each round.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import openvino  # type: ignore[import-not-found]

ROUND_SECONDS = 0.01
"""Approximate duration of a round; a round repeats the run."""


def measure(path: str, rounds: int) -> list[float]:
    """Return the processor seconds per run in each round; inputs are zeros."""
    settings = {
        "INFERENCE_NUM_THREADS": 1,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",  # the default is bfloat16 if the processor supports it
    }
    compiled = openvino.Core().compile_model(openvino.Core().read_model(path), "CPU", settings)
    request = compiled.create_infer_request()
    inputs = [
        np.zeros(
            [size.get_length() if size.is_static else 1 for size in port.partial_shape], port.element_type.to_dtype()
        )
        for port in compiled.inputs
    ]
    start = time.process_time()
    request.infer(inputs)
    start = time.process_time()
    request.infer(inputs)
    repeats = max(1, round(ROUND_SECONDS / max(time.process_time() - start, 1e-6)))
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(repeats):
            request.infer(inputs)
        seconds.append((time.process_time() - start) / repeats)
    return seconds


if __name__ == "__main__":
    print(json.dumps({"version": openvino.__version__, "seconds": measure(sys.argv[1], int(sys.argv[2]))}))
