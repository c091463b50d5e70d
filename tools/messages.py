"""Print every message of the packages by file, for review: ``python -m tools.messages [FOLDER...]``."""

from __future__ import annotations

import sys
from itertools import groupby

from tools.texts import list_files, python_texts

PACKAGES = ("onnx_tflite_plugin/", "op_handlers/", "packs/", "conformance/")
NOT_MESSAGES = ("/cases/", "/cases.py", "/tests/", "conformance/registered.py")
"""Substrings of paths of modules with case names, test data or tables instead of messages."""


def main(folders: list[str]) -> None:
    """Print the messages below the given folders, by default those of all packages."""
    for path in list_files(".py"):
        if path.startswith(tuple(folders) or PACKAGES) and not any(part in path for part in NOT_MESSAGES):
            messages = [text for text in python_texts(path) if not text.is_docstring and " -> " not in text.text]
            for file, group in groupby(messages, key=lambda text: text.path):
                print(f"\n{file}")
                print(*(f"{text.line:5}  {text.text}" for text in group), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
