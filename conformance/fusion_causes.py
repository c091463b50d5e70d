"""Find a fusion of a pack without which a failing case would pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from conformance.explanation import ComparableCase
from conformance.variants import Variant
from onnx_tflite_plugin.api.patterns import Call, Fusion, Operand, Output
from onnx_tflite_plugin.conversion import Conversion
from onnx_tflite_plugin.graph.node_metadata import source_handler, source_operators
from onnx_tflite_plugin.guard import BUILTIN, definition_location, of_pack
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Model


class AppliedFusion(NamedTuple):
    """A fusion of a pack that applied in a converted model.

    ``operators``: text that lists the replaced operators, such as ``op 0 ABS, op 1 ADD``.
    """

    fusion: Fusion
    pack: str
    operators: str

    @property
    def text(self) -> str:
        patterns = " or ".join(dict.fromkeys(map(_format_pattern, self.fusion.patterns)))
        pattern = patterns and f" with the pattern {patterns}"
        return f"the fusion {self.fusion.name}{of_pack(self.pack)}{pattern} replaced {self.operators}"

    @property
    def check_location(self) -> str:
        location = definition_location(self.fusion.check)
        return f" ({location})" if location else ""


def messages_on_fusions(trial: ComparableCase, variant: Variant, conversion: Conversion) -> Iterator[str]:
    """Yield a message on each fusion that applied, if the case passes without them.

    Only fusions of packs are considered.
    """
    applied_fusions = [*applied_pack_fusions(conversion, trial.source, trial.host)]
    if not applied_fusions or not trial.replaced(trial.case, trial.host.without_pack_fusions()).passes(variant):
        return
    for applied in applied_fusions:
        accepts = f"its check accepts too much{applied.check_location}"
        lowers = f"its lowering is wrong ({definition_location(applied.fusion.handler.lower)})"
        causes = [lowers, accepts] if applied.fusion.name in trial.case.fusions else [accepts, lowers]
        yield f"{applied.text}; without it the case passes, so {' or '.join(causes)}"


def applied_pack_fusions(conversion: Conversion, model: Model, host: Host) -> Iterator[AppliedFusion]:
    """Yield the fusions of packs that applied, with the operators that they replaced."""
    operators_by_source: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for node in conversion.model.graph.all_nodes():
        handler, pack = source_handler(node.metadata_props)
        if pack not in ("", BUILTIN):
            operators_by_source.setdefault((handler, pack), set()).update(source_operators(node.metadata_props))
    for pack, fusion in host.fusions() if operators_by_source else ():
        operators = operators_by_source.get((fusion.handler.name, pack), set())
        if len(operators) > 1:
            texts = (f"op {k} {model.subgraphs[graph].operators[k].code}" for graph, k in sorted(operators))
            yield AppliedFusion(fusion, pack, ", ".join(texts))


def _format_pattern(part: Call | Output | Operand) -> str:
    """Return a pattern such as ``DIV(x, ADD(ABS(x), one))``."""
    match part:
        case Call(code=code, operands=operands):
            return f"{code}({', '.join(map(_format_pattern, operands))})"
        case Output(call=call, k=k):
            return f"{_format_pattern(call)}[{k}]"
    return part.name
