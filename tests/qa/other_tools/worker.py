"""Worker in a tool's environment: runs a script, prints a JSON line per model.

``worker.py SCRIPT`` reads ``[[source, target, inputs], …]`` from stdin. The script is the body of a function with the
parameters ``source``, ``target`` and ``inputs`` (arrays by name). Output of the tool goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    scope: dict[str, Any] = {}
    exec("def change(source, target, inputs):\n" + textwrap.indent(sys.argv[1], "    "), scope)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for number, (source, target, inputs) in enumerate(json.load(sys.stdin)):
        try:
            scope["change"](source, target, dict(np.load(inputs)))
            problem = "" if Path(target).exists() else "the tool wrote no file"
        except (Exception, SystemExit) as error:
            problem = f"{type(error).__name__}: {error}"[:200]
        print(json.dumps([number, problem]), file=answers, flush=True)


if __name__ == "__main__":
    main()
