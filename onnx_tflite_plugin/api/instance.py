"""The operator, as passed to functions in declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from onnx_tflite_plugin.source.model import Operator

if TYPE_CHECKING:
    from onnx_tflite_plugin.api.target import Target


class Instance(Protocol):
    """One operator of a model, as declared functions see it.

    The context of a lowering is an Instance too.
    """

    @property
    def op(self) -> Operator:
        """Return the operator as in the file: ``op[k]`` is a tensor, ``op[out(0)]`` an output."""

    @property
    def target(self) -> Target: ...
    @property
    def opset(self) -> int:
        """Return the opset: the model's after planning.

        Before planning, the requested opset, or the target's highest if none was requested.
        A declaration that depends on a high opset must require it with ``min_opset``.
        """
