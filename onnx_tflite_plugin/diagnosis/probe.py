"""Program that runs a file in LiteRT and prints the result as JSON.

Usage: ``python probe.py FILE``. Inputs are zeros, or ones if zeros fail. The program runs in a separate process,
because a broken file may crash it. It imports nothing from the package, so that it starts quickly.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import numpy as np

CPU_SECONDS = 20  # limit of processor time: a model that runs longer is not broken


def probe(source: str | bytes) -> dict[str, Any]:
    """Return why LiteRT refuses a file, or the shapes that LiteRT computes.

    The result is ``{"refused": reason}`` or ``{"shapes": {tensor index: shape}}``, for the tensors of the main
    subgraph. ``source``: path or content of the file.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    model_argument = {"model_path" if isinstance(source, str) else "model_content": source}
    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = Interpreter(**model_argument, experimental_op_resolver_type=resolver, num_threads=1)
        model.allocate_tensors()
        try:
            model.invoke()
        except RuntimeError:  # a kernel may divide by zero
            for tensor in model.get_input_details():
                model.set_tensor(tensor["index"], np.ones(tensor["shape"], tensor["dtype"]))
            model.invoke()
    except (ValueError, RuntimeError, IndexError) as error:
        return {"refused": " ".join(str(error).split()) or "LiteRT gave no reason"}
    return {"shapes": {str(tensor["index"]): tensor["shape"].tolist() for tensor in model.get_tensor_details()}}


if __name__ == "__main__":
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except ImportError:  # no resource limits on Windows
        pass
    sys.stdout.write(json.dumps(probe(sys.argv[1])))
