"""Operators that published lists of runtimes lack.

Command: ``python -m tests.qa.runtimes.lists MODELS --target portable``. CoreML and other runtimes that cannot run here
publish lists of supported operators. The files hold one name per line, and the source; ``com.microsoft.Name`` is an
operator of ONNX Runtime.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.errors import ConversionError

ROOT = Path(__file__).parents[3]
FOLDER = Path(__file__).with_name("operators")
LISTS: Mapping[str, Path] = {
    "coreml": FOLDER / "coreml.txt",
    "sentis": ROOT / "packs" / "sentis" / "onnx_tflite_sentis" / "operators.txt",
    "webnn": FOLDER / "webnn.txt",
}


def read_list(path: Path) -> frozenset[str]:
    """Return the operators of a list; lines that begin with # are comments."""
    return frozenset(line for line in path.read_text(encoding="utf-8").split("\n") if line and not line.startswith("#"))


def missing_operators(model: ir.Model, supported: frozenset[str]) -> frozenset[str]:
    """Return the operators of a model and its subgraphs that are not in a list."""
    names = {f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in model.graph.all_nodes()}
    return frozenset(names - supported)


def convert_all(files: Sequence[Path], target: str) -> Iterator[ir.Model]:
    """Yield the models of all files that convert for a target."""
    for path in files:
        for file in sorted(path.rglob("*.tflite")) if path.is_dir() else [path]:
            try:
                yield otp.convert(file, target=target, state="reset").model
            except ConversionError as refusal:
                print(f"{file.name}: {refusal.message}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--target", action="append", default=[])
    arguments = parser.parse_args()
    lists = {name: read_list(path) for name, path in LISTS.items()}
    for target in arguments.target or ["portable"]:
        models = list(convert_all(arguments.models, target))
        for name, supported in lists.items():
            missing_by_model = [missing_operators(model, supported) for model in models]
            missing = Counter(operator for operators in missing_by_model for operator in operators)
            listed = ", ".join(f"{operator} ({count})" for operator, count in missing.most_common())
            complete = missing_by_model.count(frozenset())
            print(f"{name}, target {target}: {complete} of {len(models)} models; outside the list: {listed}")


if __name__ == "__main__":
    main()
