"""The view of one operator that declared functions are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from onnx_tflite_plugin.source.model import Operator

if TYPE_CHECKING:
    from onnx_tflite_plugin.api.target import Target


class Instance(Protocol):
    """One operator of a model, as declared functions see it. The context of a lowering is one too."""

    @property
    def op(self) -> Operator:
        """The operator as the file has it: ``op[k]`` is a tensor, ``op[out(0)]`` an output."""

    @property
    def target(self) -> Target: ...
    @property
    def opset(self) -> int:
        """While declarations are read the opset asked for, else the highest the target takes; later the model's own.

        What a declaration makes of the highest one it must ask for with ``min_opset``.
        """
