"""Bugs to plant in the core, each with the tests that must fail for it: ``python -m tests.mutations.core [NAME ...]``.

A bug is other text in a module, planted in a copy of the checkout. ``test_mutations`` checks that every one can be planted
and that its tests are there; whether they fail takes minutes, and is tried by the command.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from . import core_more
from .planted import Planted, of_tests

ROOT = Path(__file__).parents[2]
CORE = ROOT / "onnx_tflite_plugin"
COPIED = (
    "onnx_tflite_plugin",
    "op_handlers",
    "conformance",
    "tests",
    "packs",
    "examples",
    "pyproject.toml",
    "setup.cfg",
)
SECONDS = 600


MUTATIONS: tuple[Planted, ...] = (
    *of_tests(
        "layout/frame",
        (
            "a cut letter is cut where it has one element",
            "layout/frame.py",
            "if here == 1 or size is None:",
            "if size is None:",
        ),
        (
            "a cut counts from the start of its axis",
            "layout/frame.py",
            "Atom(axis, stride * axes.inner(axis, letter), size)",
            "Atom(axis, stride, size)",
        ),
        ("a size that does not divide is divided", "layout/frame.py", "if rest == 0 or size % rest:", "if rest == 0:"),
        ("letters of several sizes may be cut", "layout/frame.py", "- {1}) <= 1", "- {1}) <= 2"),
        (
            "a unit need have size 1 in one slot only",
            "layout/frame.py",
            "if all(slot.sizes.get(a, 1) == 1",
            "if any(slot.sizes.get(a, 1) == 1",
        ),
        (
            "a unit that is left out comes back",
            "layout/frame.py",
            "            if letter in letters & self.units:\n                continue\n",
            "",
        ),
    ),
    *of_tests(
        "layout/prices",
        (
            "the file's order is left out where another is dear",
            "layout/spread.py",
            "not candidates[bound] or any(price(freedoms[bound], order) for order in candidates[bound])",
            "not candidates[bound]",
        ),
        (
            "what costs along the last axis costs along the others",
            "layout/plan.py",
            "prices(along, set(innermost) <= letters,",
            "prices(along, not set(innermost) <= letters,",
        ),
        (
            "operators that gain nothing are told",
            "layout/plan.py",
            "strict=False) if gain > 0)",
            "strict=False) if gain >= 0)",
        ),
    ),
    *of_tests(
        "lowering/counted_loops",
        (
            "an order does not cross a border",
            "layout/spread.py",
            "return [(tensor, permuted(tensor.dims, perm)) for tensor in border.tensors]",
            "return []",
        ),
        ("sequences keep their order in loops", "layout/borders.py", "tensors[0].rank > 2", "tensors[0].rank > 3"),
        (
            "a loop counts as often as what is around it",
            "layout/borders.py",
            "(REPEATED if passed is not None and passed.loops else 1)",
            "1",
        ),
        (
            "what a loop repeats counts once",
            "layout/plan.py",
            "yield solver.Wire(weight * self.times,",
            "yield solver.Wire(weight,",
        ),
    ),
    *of_tests(
        "layout/plan",
        (
            "orders are offered without bound",
            "layout/spread.py",
            "if order in orders or len(orders) >= MOST_CANDIDATES or",
            "if order in orders or",
        ),
        (
            "a constant carries an order",
            "layout/spread.py",
            "if tensor.constant or (tensor, order) in self.told",
            "if (tensor, order) in self.told",
        ),
    ),
    *of_tests(
        "layout/sequences",
        (
            "an order that shows a unit in some slots comes first",
            "layout/spread.py",
            "(frame.uneven(order), order != frame.source)",
            "(order != frame.source,)",
        ),
        (
            "operators of any order show every axis of size 1",
            "layout/candidates.py",
            "units = isinstance(layout, Transparent) and bound.declared.effects is None",
            "units = False",
        ),
        (
            "a sequence is better an image, and a single position a sequence",
            "layout/candidates.py",
            "if len(flat) < len(layout.squeezable) else",
            "if len(flat) >= len(layout.squeezable) else",
        ),
    ),
    *of_tests(
        "conversion/runtime",
        (
            "entries of a file plan their state apart",
            "binding/states.py",
            "in model.source.signatures}) <= 1",
            "in model.source.signatures}) <= 2",
        ),
    ),
    *of_tests(
        "binding/consistency",
        (
            "an unknown shape is that of a scalar",
            "layout/candidates.py",
            "if tensor is not None and tensor.rank == 0 < rank:",
            "if False:",
        ),
        (
            "the zero point of a fixed range is not looked at",
            "quantization/plan.py",
            "or quantization.zero_point[0] != zero_point:",
            ":",
        ),
    ),
    *of_tests(
        "quantization/storage_plan",
        (
            "states are kept in another dtype",
            "quantization/plan.py",
            "        kept.update(t for t in (*bound.op.inputs, *bound.op.outputs) if t is not None and t.is_variable)\n",
            "",
        ),
        (
            "callers take and give another dtype",
            "quantization/plan.py",
            "        if bound.declared.subgraphs or (bound.declared.effects is not None and not safe):\n"
            "            kept.update(_quantized(bound))\n",
            "",
        ),
        (
            "subgraphs take and give another dtype",
            "quantization/plan.py",
            "for graph in model.graphs if graph is not model.main for t in",
            "for graph in () for t in",
        ),
        (
            "weights of 8 bit products are floats",
            "quantization/plan.py",
            "if not dtypes <= self.target.multiplies:\n            return Weights.DEQUANTIZED",
            "if not dtypes <= self.target.multiplies:\n            return Weights.FOLDED",
        ),
        (
            "operators with weights stay in the file's dtype",
            "quantization/plan.py",
            "if all((t in edges or t.constant) and t not in weights for t in tensors)",
            "if all(t in edges or t.constant for t in tensors)",
        ),
        (
            "slots that need not agree are asked whether they do",
            "quantization/plan.py",
            "tensors = _alike(bound) if declared.among is None else _quantized(bound, declared.among)",
            "tensors = _alike(bound)",
        ),
        (
            "bare integers are shifted",
            "quantization/plan.py",
            "return Arithmetic.STORED if declared.shift_safe else Arithmetic.FILE",
            "return Arithmetic.STORED",
        ),
    ),
    *of_tests(
        "binding/calls",
        (
            "a call gives way whatever its scales",
            "binding/inlining.py",
            "return (a.dtype, a.dims, a.quantization) == (b.dtype, b.dims, b.quantization) and",
            "return (a.dtype, a.dims) == (b.dtype, b.dims) and",
        ),
        ("a composite that calls itself gives way", "binding/inlining.py", " or index in within:", ":"),
        (
            "a call that remembers gives way",
            "binding/inlining.py",
            "if tensors is None or any(tensor.is_variable for tensor in graph.tensors):",
            "if tensors is None:",
        ),
    ),
    *of_tests(
        "passes/reshape",
        (
            "a size of 0 is no operand's size",
            "passes/recurrent/reshape_once.py",
            "if target is None or not target.all():",
            "if target is None:",
        ),
    ),
    *of_tests(
        "passes/rows",
        (
            "rows in the order of their products",
            "passes/recurrent/rows.py",
            "[by_index[k] for k in sorted(by_index)]",
            "[*by_index.values()]",
        ),
    ),
    *of_tests(
        "passes/rows_of_integers",
        (
            "each row is rounded to its own scale",
            "passes/recurrent/rows_of_integers.py",
            "np.repeat([row.result.scale.reshape(()) for row in self.rows], self.batch)",
            "np.tile([row.result.scale.reshape(()) for row in self.rows], self.batch)",
        ),
        (
            "a row without a bias adds nothing",
            "passes/recurrent/rows_of_integers.py",
            "[np.zeros_like(present) if bias is None else bias for bias in biases]",
            "[present if bias is None else bias for bias in biases]",
        ),
    ),
    *of_tests(
        "passes/sum",
        (
            "a product is repeated by what it adds",
            "passes/recurrent/sum_in_gemm.py",
            "or shape != sizes(node.outputs[0])",
            "",
        ),
    ),
    *of_tests(
        "passes/rules",
        (
            "a Transpose alone between DQ and Q is refused",
            "passes/rules.py",
            "and (node.op_type != TRANSPOSED or _within_unit(node)):",
            ":",
        ),
        (
            "what runs on no integers has kernels",
            "targets/base.py",
            'frozenset()) | self.no_integer_kernel.get("*", frozenset())',
            "frozenset())",
        ),
    ),
    *of_tests(
        "passes/products",
        ("two products of 129 in all fit", "passes/weights/products.py", "PAIR = 128", "PAIR = 129"),
    ),
    *of_tests(
        "passes/channel_pad",
        (
            "channels that are cut off are zeros",
            "passes/channels/channel_pad_as_convolution.py",
            "if others.any() or pads.min() < 0 else",
            "if others.any() else",
        ),
    ),
    *of_tests(
        "passes/affine",
        (
            "a channel that is repeated is convolved by itself",
            "passes/images/affine_as_convolution.py",
            "if shape[2:] == [1, 1] or sizes(value) != shape:",
            "if shape[2:] == [1, 1]:",
        ),
    ),
    *of_tests(
        "source/source",
        (
            "the operator's number is the newer field",
            "source/subgraphs.py",
            'number = max(table.number("deprecated_builtin_code"), table.number("builtin_code"))',
            'number = table.number("builtin_code")',
        ),
    ),
    *of_tests(
        "source/invalid",
        (
            "an input may be computed",
            "source/subgraphs.py",
            "if tensors[number].constant or number in inputs:",
            "if tensors[number].constant:",
        ),
    ),
    *of_tests(
        "verify/compare",
        (
            "a NaN that is not there is none",
            "verify/comparison/distance.py",
            "if wrong := int(np.count_nonzero(here != there)):",
            "if wrong := int(np.count_nonzero(here & ~there)):",
        ),
        (
            "the band is twice the spread",
            "verify/comparison/compare.py",
            "self.spread * (2 if self.mean <= self.mean_spread else 1)",
            "self.spread * 2",
        ),
    ),
    *of_tests(
        "quantization/blocks",
        (
            "blocks are no dynamic quantization",
            "verify/comparison/tolerance.py",
            "(slot.quantization is not None or slot.dtype in NIBBLES)",
            "(slot.quantization is not None)",
        ),
        (
            "blocks smaller than the least fuse",
            "targets/base.py",
            "return divisor if divisor >= least else 0",
            "return divisor",
        ),
    ),
    *of_tests(
        "conversion/report",
        (
            "nodes of inner graphs do not count",
            "report.py",
            "for node in model.graph.all_nodes():",
            "for node in model.graph:",
        ),
        (
            "fused operators count once",
            "pipeline.py",
            "{op for bound in model.operators() for op in bound.members}",
            "{bound.op for bound in model.operators()}",
        ),
        (
            "an axis of size 1 that moves is told as a Transpose",
            "layout/plan.py",
            "if without_unit_axes(order) != without_unit_axes(start):",
            "if order != start:",
        ),
    ),
    *core_more.MUTATIONS,
)


def survives(mutation: Planted, folder: Path) -> bool:
    """Whether all its tests pass in a copy of the checkout with the bug in it."""
    module = folder / "onnx_tflite_plugin" / mutation.module
    text = module.read_text()
    module.write_text(text.replace(mutation.old, mutation.new))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutation.tests]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=SECONDS, check=False)
    finally:
        module.write_text(text)
    return ran.returncode != 1


def main(names: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            source, copy = ROOT / name, Path(folder) / name
            shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
        survivors = 0
        for mutation in MUTATIONS:
            if names and mutation.name not in names:
                continue
            survived = survives(mutation, Path(folder))
            survivors += survived
            sys.stdout.write(f"{'SURVIVES' if survived else 'killed':9}{mutation.module}: {mutation.name}\n")
            sys.stdout.flush()
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
