"""Recognize equivalent models, so that equivalent variants of a case run once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from onnx import FunctionProto, GraphProto, ModelProto
from onnx.defs import get_schema, has


def equivalence_key(proto: ModelProto) -> bytes:
    """Return a key that is equal for models with equal graphs and operator versions.

    Two opsets are interchangeable if they have the same version of every operator in a model.
    """
    without_versions = ModelProto()
    without_versions.CopyFrom(proto)
    opsets = {entry.domain: entry.version for entry in proto.opset_import}
    without_versions.ClearField("opset_import")
    without_versions.ClearField("ir_version")
    operators = {
        (domain, op_type, _first_opset(domain, op_type, opsets.get(domain, 0))) for domain, op_type in _operators(proto)
    }
    content: bytes = without_versions.SerializeToString(deterministic=True)
    return content + repr(sorted(operators)).encode()


def _operators(proto: ModelProto) -> Iterator[tuple[str, str]]:
    """Yield the domain and type of every node in all graphs and functions."""
    pending: list[GraphProto | FunctionProto] = [proto.graph, *proto.functions]
    while pending:
        for node in pending.pop().node:
            yield node.domain, node.op_type
            for attribute in node.attribute:
                pending += [*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs]


@cache
def _first_opset(domain: str, op_type: str, opset: int) -> int:
    """Return the first opset with the version that an operator has in ``opset``.

    For operators that ONNX does not define, return ``opset``.
    """
    return int(get_schema(op_type, opset, domain).since_version) if has(op_type, opset, domain) else opset
