"""Print every message of the packages: ``python -m tools.messages [FOLDER...]``."""

from __future__ import annotations

import re
import sys
from itertools import groupby

from tools.texts import Text, list_files, python_texts

PACKAGES = ("onnx_tflite_plugin/", "op_handlers/", "packs/", "conformance/")
NOT_MESSAGES = ("/cases/", "/cases.py", "/tests/", "conformance/registered.py")
"""Substrings of paths of modules with case names, test data or tables instead of messages."""

_EXPRESSION = re.compile(r"\{[^{}]*\}")
_NAME = re.compile(r"[a-z]|[b-df-hj-np-tv-xz]{2,3}|_|bool|u?int\d+|float\d+|complex\d+|string|\w*_\w*|[\w.]+:\S+")
"""A word that may belong to a list of names: axis letters, a dtype, a name with underscores, an entry point."""
_REGULAR_EXPRESSION = re.compile(r"\\[bdwsSWD(\[)]|\(\?|\.\*(?!\*)|\[\^")
_MAX_NAME_FRACTION = 0.75  # texts with a larger fraction of such words are lists of names


def main(folders: list[str]) -> None:
    """Print the messages below the given folders, by default those of all packages."""
    for path in list_files(".py"):
        if path.startswith(tuple(folders) or PACKAGES) and not any(part in path for part in NOT_MESSAGES):
            messages = [text for text in python_texts(path) if is_message(text)]
            for file, group in groupby(messages, key=lambda text: text.path):
                print(f"\n{file}")
                print(*(f"{text.line:5}  {text.text}" for text in group), sep="\n")


def is_message(text: Text) -> bool:
    """True unless the text is a docstring, a pattern, or a list of names or dtypes."""
    if text.is_docstring or " -> " in text.text or _REGULAR_EXPRESSION.search(text.text):
        return False
    words = [word.strip(",;") for word in _EXPRESSION.sub("", text.text).split()]
    return sum(bool(_NAME.fullmatch(word)) for word in words) <= _MAX_NAME_FRACTION * len(words)


if __name__ == "__main__":
    main(sys.argv[1:])
