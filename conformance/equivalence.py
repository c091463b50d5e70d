"""Keys of equivalent models, so that variants with equivalent models run once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from onnx import FunctionProto, GraphProto, ModelProto
from onnx.defs import get_schema, has


def equivalence_key(proto: ModelProto) -> bytes:
    """Return a key that is equal for models with equal graphs and operator versions.

    Two opsets are interchangeable for a model if they define the same version of each of its operators.
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
    """Return the opset that introduced the version of an operator in ``opset``.

    Return ``opset`` for an operator that ONNX does not define.
    """
    return int(get_schema(op_type, opset, domain).since_version) if has(op_type, opset, domain) else opset
