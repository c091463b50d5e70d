"""Find operands that the lowering or the reference kernel does not read.

If both ignore an operand, such as a bias, their results agree, so a comparison cannot reveal the mistake.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType
from typing import Any

from onnx_tflite_plugin.api import Handler

_CONTEXT_READS = frozenset({"array", "constant", "constant_array", "inputs", "quantized_values", "require_constant"})
"""Members of a context through which a lowering can read an operand that its parameters do not name."""
_POSITIONAL = 0x04  # CO_VARARGS of the flags of a code object: the function has a parameter *args


def unread_operands(handler: Handler) -> Iterator[str]:
    """Yield the names of operands that neither the lowering nor the kernel reads.

    Operands whose parameter begins with an underscore are ignored on purpose and not included.
    """
    for name, lowering_reads, kernel_reads in _operands(handler):
        if not (lowering_reads or kernel_reads):
            yield name


def operands_that_only_the_kernel_reads(handler: Handler) -> Iterator[str]:
    """Yield the names of operands that the kernel reads and the lowering does not.

    Nothing is yielded for a lowering that may read operands through its context.
    """
    code = getattr(handler.lower, "__code__", None)
    if code is None or not _CONTEXT_READS.isdisjoint(code.co_names):
        return
    for name, lowering_reads, kernel_reads in _operands(handler):
        if kernel_reads and not lowering_reads:
            yield name


def _operands(handler: Handler) -> Iterator[tuple[str, bool, bool]]:
    """Yield (name, lowering reads it, kernel reads it) for each operand."""
    kernel: Any = handler.kernel
    if kernel is None:
        return
    codes = [getattr(function, "__code__", None) for function in (handler.lower, kernel)]
    if not all(isinstance(code, CodeType) and not code.co_flags & _POSITIONAL for code in codes):
        return
    lowering_parameters, kernel_parameters = (
        [*_parameters(code)][1:] for code in codes if code is not None
    )  # without ctx and op
    for (name, lowering_reads), (kernel_name, kernel_reads) in zip(
        lowering_parameters, kernel_parameters, strict=False
    ):
        if not (name.startswith("_") or kernel_name.startswith("_")):
            yield name, lowering_reads, kernel_reads


def _parameters(code: CodeType) -> Iterator[tuple[str, bool]]:
    """Yield (name, code reads it) for each parameter of a function."""
    inner_codes = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    loaded = {
        name
        for part in (code, *inner_codes)
        for step in dis.get_instructions(part)
        if step.opname.startswith("LOAD")
        for name in (step.argval if isinstance(step.argval, tuple) else (step.argval,))
    }
    reads_all = "locals" in code.co_names
    for name in code.co_varnames[: code.co_argcount]:
        yield name, reads_all or name in loaded or name in code.co_cellvars
