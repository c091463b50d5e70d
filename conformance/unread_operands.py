"""Find operands that the lowering or the reference kernel does not read.

Comparing their results cannot reveal an operand that both forget, such as a bias.
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
    for name, is_lowered, is_computed in _operands(handler):
        if not (is_lowered or is_computed):
            yield name


def operands_that_only_the_kernel_reads(handler: Handler) -> Iterator[str]:
    """Yield the names of operands that the kernel reads and the lowering does not.

    Nothing is yielded for a lowering that may read operands through its context.
    """
    code = getattr(handler.lower, "__code__", None)
    if code is None or not _CONTEXT_READS.isdisjoint(code.co_names):
        return
    for name, is_lowered, is_computed in _operands(handler):
        if is_computed and not is_lowered:
            yield name


def _operands(handler: Handler) -> Iterator[tuple[str, bool, bool]]:
    """Yield (name, lowering reads it, kernel reads it) for each operand."""
    kernel: Any = handler.kernel
    if kernel is None:
        return
    codes = [getattr(function, "__code__", None) for function in (handler.lower, kernel)]
    if not all(isinstance(code, CodeType) and not code.co_flags & _POSITIONAL for code in codes):
        return
    lowered, computed = ([*_parameters(code)][1:] for code in codes if code is not None)  # without ctx and op
    for (name, is_lowered), (kernel_name, is_computed) in zip(lowered, computed, strict=False):
        if not (name.startswith("_") or kernel_name.startswith("_")):
            yield name, is_lowered, is_computed


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
