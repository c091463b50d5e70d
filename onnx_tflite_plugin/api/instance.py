"""An operator, as passed to the functions of a declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from onnx_tflite_plugin.source.model import Operator

if TYPE_CHECKING:
    from onnx_tflite_plugin.api.target import Target


class Instance(Protocol):
    """One operator of a model, as passed to the functions of a declaration.

    The context of a lowering is an Instance too.
    """

    @property
    def op(self) -> Operator:
        """Return the operator as stored in the file.

        ``op[k]`` is input ``k``, and ``op[out(0)]`` is output 0, as tensors.
        """

    @property
    def target(self) -> Target: ...
    @property
    def opset(self) -> int:
        """After planning, return the model's opset.

        Before planning, return the requested opset, or the target's highest if none was requested.
        A declaration that depends on a high opset must require it with ``min_opset``.
        """
