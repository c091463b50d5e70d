"""Worker that runs converted models in one runtime.

It runs in the runtime's interpreter and imports nothing of this project. It reads one JSON object per line, ``{"model":
PATH, "inputs": PATH.npz, "outputs": PATH.npz}``, and replies with one line, ``{"error": TEXT}``. The text is empty if
the outputs were written, in the order of the model. Inputs are arrays by name.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

SNAPDRAGON_8_GEN_3 = "57"
"""Number of the emulated system on a chip in Qualcomm's emulator."""

Run = Callable[[str, Mapping[str, Any]], list[Any]]


def run_onnxruntime(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    import onnxruntime

    return list(onnxruntime.InferenceSession(path).run(None, dict(feeds)))


def run_reference(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(path).run(None, dict(feeds)))


def run_openvino(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    import openvino

    core = openvino.Core()
    # The default on processors with bfloat16 has only 8 significant bits.
    model = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    results = model([next(feeds[name] for name in port.names if name in feeds) for port in model.inputs])
    return [np.array(results[port]) for port in model.outputs]


def run_tract(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    import tract

    model = tract.onnx().load(path)
    names = [model.input_name(k) for k in range(model.input_count())]
    for k, name in enumerate(names):
        array = feeds[name]
        sizes = ",".join(map(str, array.shape))
        kind = str(array.dtype).replace("float", "f").replace("uint", "u").replace("int", "i")
        model.set_input_fact(k, f"{sizes},{kind}" if sizes else kind)
    runnable = model.into_model().into_runnable()
    return [value.to_numpy() for value in runnable.run([feeds[name] for name in names])]


def run_opencv(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    import cv2

    network = cv2.dnn.readNetFromONNX(path)
    for name, array in feeds.items():
        network.setInput(array, name)
    results = network.forward(network.getUnconnectedOutLayersNames())
    return [np.array(result) for result in results]


def run_onnx2torch(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    import onnx
    import onnx2torch
    import torch

    module = onnx2torch.convert(onnx.load(path)).eval()
    with torch.no_grad():
        results = module(*(torch.from_numpy(array) for array in feeds.values()))
    return [result.numpy() for result in (results if isinstance(results, list | tuple) else [results])]


def run_qnn(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """Run the whole graph in the emulator of Qualcomm's HTP, or fail."""
    import onnxruntime
    import onnxruntime_qnn

    name = onnxruntime_qnn.get_ep_name()
    if not any(device.ep_name == name for device in onnxruntime.get_ep_devices()):
        onnxruntime.register_execution_provider_library(name, onnxruntime_qnn.get_library_path())
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]
    # Without a model number, the emulated processor has no float16 kernels and refuses large Concats.
    emulator_options = {"backend_path": onnxruntime_qnn.get_qnn_htp_path(), "soc_model": SNAPDRAGON_8_GEN_3}
    options.add_provider_for_devices(devices[:1], emulator_options)
    return list(onnxruntime.InferenceSession(path, options).run(None, dict(feeds)))


def run_tvm(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    shapes = {name: list(array.shape) for name, array in feeds.items()}
    module = from_onnx(onnx.load(path), shape_dict=shapes, keep_params_in_input=False)
    machine = relax.VirtualMachine(relax.build(module, target="llvm"), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(array) for array in feeds.values()))
    return [tensor.numpy() for tensor in ([result] if hasattr(result, "numpy") else result)]


RUNTIMES: Mapping[str, tuple[str, Run]] = {
    "onnxruntime": ("onnxruntime", run_onnxruntime),
    "reference": ("onnx", run_reference),
    "openvino": ("openvino", run_openvino),
    "tract": ("tract", run_tract),
    "opencv": ("opencv-python-headless", run_opencv),
    "onnx2torch": ("onnx2torch", run_onnx2torch),
    "tvm": ("apache-tvm", run_tvm),
    "qnn": ("onnxruntime-qnn", run_qnn),
}
"""Distribution and function of each runtime by name."""


def main() -> None:
    distribution, run = RUNTIMES[sys.argv[1]]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # runtimes print to stdout
    print(json.dumps({"version": version(distribution)}), file=answers, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        error = ""
        try:
            with np.load(job["inputs"]) as arrays:
                feeds = {name: arrays[name] for name in arrays.files}
            results = run(job["model"], feeds)
            np.savez(job["outputs"], **{f"{k:04}": np.asarray(result) for k, result in enumerate(results)})
        except BaseException as failure:  # tract's panics do not derive from Exception
            error = f"{type(failure).__name__}: {failure}".strip()
        print(json.dumps({"error": error[:2000]}), file=answers, flush=True)


if __name__ == "__main__":
    main()
