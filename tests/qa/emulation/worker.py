"""Runs converted models in ONNX Runtime and writes their outputs. Needs only NumPy and onnxruntime, because it is emulated.

``worker.py JOBS OUT [START]``: jobs.json lists the models; OUT/<job>.npz gets the outputs. Standard output has one JSON
object a line: the processor's features first, then one a model, with the seconds it took or its error.
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
    """Return the names of the processor's features as NumPy detects them: SSE42, AVX2, AVX512F, ASIMDDP."""
    core = import_module(f"numpy.{'_core' if hasattr(np, '_core') else 'core'}._multiarray_umath")
    return sorted(name for name, present in core.__cpu_features__.items() if present)


def run(job: dict[str, Any], folder: Path, out: Path) -> None:
    """Run one model in a session with one thread and default optimizations, passing states from run to run."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / job["model"]), options, providers=["CPUExecutionProvider"])
    wanted = [*job["outputs"], *(state["output"] for state in job["states"])]
    carried: dict[str, Any] = {}
    returned = {}
    with np.load(folder / job["feeds"]) as stored:
        for k, names in enumerate(job["runs"]):
            fed = {name: stored[f"{k}.{place}"] for place, name in enumerate(names)}
            values = dict(zip(wanted, session.run(wanted, {**fed, **carried}), strict=True))
            carried = {state["input"]: values[state["output"]] for state in job["states"]}
            returned.update({f"{k}.{place}": values[name] for place, name in enumerate(job["outputs"])})
    np.savez(out / f"{job['name']}.npz", **returned)


def main(path: str, target: str) -> None:
    jobs, out = Path(path), Path(target)
    print(json.dumps({"features": features()}), flush=True)
    for job in json.loads(jobs.read_text()):
        start = time.perf_counter()
        reported: dict[str, Any] = {"job": job["name"]}
        print(json.dumps({"started": job["name"]}), flush=True)
        try:
            run(job, jobs.parent, out)
        except Exception as error:
            reported["error"] = " ".join(str(error).split())
        print(json.dumps({**reported, "seconds": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
