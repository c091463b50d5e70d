"""Run onnx_ir passes that a pack's target lists.

Errors are attributed to the pack, and the model is checked after each pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from onnx_ir.passes import PassBase

from onnx_tflite_plugin.checked import describe, did_you_mean
from onnx_tflite_plugin.errors import AttributedProblem, HandlerError
from onnx_tflite_plugin.graph.streaming import proto_to_check
from onnx_tflite_plugin.graph.validity import check_valid
from onnx_tflite_plugin.guard import Failed, Mismatch, WrongResult, attribute_errors
from onnx_tflite_plugin.host.hooks import Check
from onnx_tflite_plugin.host.model_changes import copy_model, describe_interface_change, describe_violation
from onnx_tflite_plugin.rewrite.declaration import PACK_PASS

if TYPE_CHECKING:
    import onnx_ir as ir


def _load(module: str, attribute: str) -> object:
    """Return the object ``module:attribute``.

    Raises Mismatch if the object does not exist. The message suggests a similar name.
    """
    try:
        imported = import_module(module)
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            raise Mismatch(f"there is no module {error.name!r}; correct `passes` of the target") from error
        raise
    if not hasattr(imported, attribute):
        raise Mismatch(f"{module} has no {attribute!r}{did_you_mean(attribute, vars(imported))}")
    return getattr(imported, attribute)


def find_pass_problem(pack: str, name: str) -> str:
    """Return why a pass of a pack's target cannot be loaded; empty if it can."""
    module, _, attribute = name.partition(PACK_PASS)
    try:
        with attribute_errors(f"pass {name}", pack, module):
            _load(module, attribute)
    except Failed as failed:
        return failed.reason
    return ""


@dataclass(frozen=True)
class PackPass:
    """An onnx_ir pass ``name`` (``module:attribute``) that a target of ``pack`` lists."""

    pack: str
    name: str

    def apply(self, model: ir.Model, check: Check) -> int:
        """Run the pass. Return 1 if it changed the model, else 0.

        Raises HandlerError, which names pack and pass, if the pass fails, returns another model, or changes the graph inputs
        or outputs. The same error is raised if the model is invalid afterwards, or does not fit the target.
        """
        check_valid(model, proto_to_check(model))  # earlier rewrites are not attributed to the pass
        try:
            return int(self._run(model, check))
        except Failed as failed:
            remedy = f"convert for another --target; report the error to the authors of {self.pack}"
            problem = AttributedProblem(f"target of {self.pack}", failed.reason, remedy)
            raise HandlerError("a pass of the target fails:", [problem]) from failed

    def _run(self, model: ir.Model, check: Check) -> bool:
        module, _, attribute = self.name.partition(PACK_PASS)
        with attribute_errors(f"pass {self.name}", self.pack, module):
            class_or_pass = _load(module, attribute)
            onnx_ir_pass = class_or_pass() if isinstance(class_or_pass, type) else class_or_pass
            if not isinstance(onnx_ir_pass, PassBase):
                raise Mismatch(f"it is {describe(onnx_ir_pass)}, not an onnx_ir.passes.InPlacePass")
            before = copy_model(model)
            result = onnx_ir_pass(model)
            if result.model is not model:
                raise WrongResult("it returned another model: derive it from onnx_ir.passes.InPlacePass")
            if problem := describe_interface_change(before, model) or describe_violation(model) or check(before, model):
                raise Mismatch(problem)
            return result.modified
