"""What LiteRT makes of a file with inputs of zeros, or of ones where zeros fail. A program: ``python probe.py FILE`` prints it as JSON.

It imports nothing of the package, for a process of its own is to begin quickly: a broken file may kill it.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import numpy as np

SECONDS = 20  # of processor time: a model that takes longer is no broken one


def probe(source: str | bytes) -> dict[str, Any]:
    """``{"refused": why}``, or ``{"shapes": {tensor of the main subgraph: sizes}}`` as it computes them.

    ``source``: a file's path, or its content.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    given = {"model_path" if isinstance(source, str) else "model_content": source}
    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = Interpreter(**given, experimental_op_resolver_type=resolver, num_threads=1)
        model.allocate_tensors()
        try:
            model.invoke()
        except RuntimeError:  # zeros may be what a kernel divides by
            for tensor in model.get_input_details():
                model.set_tensor(tensor["index"], np.ones(tensor["shape"], tensor["dtype"]))
            model.invoke()
    except (ValueError, RuntimeError, IndexError) as error:
        return {"refused": " ".join(str(error).split()) or "it gives no reason"}
    return {"shapes": {str(tensor["index"]): tensor["shape"].tolist() for tensor in model.get_tensor_details()}}


if __name__ == "__main__":
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except ImportError:  # no such limits here
        pass
    sys.stdout.write(json.dumps(probe(sys.argv[1])))
