"""Worker that runs converted models under emulation.

It needs only NumPy and onnxruntime. ``worker.py JOBS OUT``: the JSON file JOBS lists the models; outputs are written to
OUT/<job>.npz. Standard output has one JSON object per line: the features of the processor, then one per model, with its
seconds or its error.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


def features() -> list[str]:
    """Return the features that NumPy detects: SSE42, AVX2, AVX512F, ASIMDDP."""
    core = import_module(f"numpy.{'_core' if hasattr(np, '_core') else 'core'}._multiarray_umath")
    return sorted(name for name, present in core.__cpu_features__.items() if present)


def run(job: dict[str, Any], folder: Path, out: Path) -> None:
    """Run one model with one thread, passing states from run to run."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / job["model"]), options, providers=["CPUExecutionProvider"])
    output_names = [*job["outputs"], *(state["output"] for state in job["states"])]
    states: dict[str, Any] = {}
    outputs = {}
    with np.load(folder / job["feeds"]) as arrays:
        for k, names in enumerate(job["runs"]):
            feeds = {name: arrays[f"{k}.{position}"] for position, name in enumerate(names)}
            values = dict(zip(output_names, session.run(output_names, {**feeds, **states}), strict=True))
            states = {state["input"]: values[state["output"]] for state in job["states"]}
            outputs.update({f"{k}.{position}": values[name] for position, name in enumerate(job["outputs"])})
    np.savez(out / f"{job['name']}.npz", **outputs)


def main(path: str, target: str) -> None:
    jobs, out = Path(path), Path(target)
    print(json.dumps({"features": features()}), flush=True)
    for job in json.loads(jobs.read_text()):
        start = time.perf_counter()
        record: dict[str, Any] = {"job": job["name"]}
        print(json.dumps({"started": job["name"]}), flush=True)
        try:
            run(job, jobs.parent, out)
        except Exception as error:
            record["error"] = " ".join(str(error).split())
        print(json.dumps({**record, "seconds": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
