"""Compare models by meaning, whatever their opset: equivalent variants are run once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from onnx import FunctionProto, GraphProto, ModelProto
from onnx.defs import get_schema, has


def meaning_of(proto: ModelProto) -> bytes:
    """Return a key that is equal for models with equal graphs and equal versions of every operator.

    An opset is a list of versions: of two that give all operators of a model the same ones, either may stand in the file.
    """
    body = ModelProto()
    body.CopyFrom(proto)
    opsets = {one.domain: one.version for one in proto.opset_import}
    body.ClearField("opset_import")
    body.ClearField("ir_version")
    versions = sorted({(*key, _since(*key, opsets.get(key[0], 0))) for key in _operators(proto)})
    content: bytes = body.SerializeToString(deterministic=True)
    return content + repr(versions).encode()


def _operators(proto: ModelProto) -> Iterator[tuple[str, str]]:
    """Yield domain and type of every node in all graphs and functions."""
    left: list[GraphProto | FunctionProto] = [proto.graph, *proto.functions]
    while left:
        for node in left.pop().node:
            yield node.domain, node.op_type
            for attribute in node.attribute:
                left += [*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs]


@cache
def _since(domain: str, op_type: str, opset: int) -> int:
    """Return the opset that introduced the version of an operator; the opset itself if ONNX does not define the operator."""
    return int(get_schema(op_type, opset, domain).since_version) if has(op_type, opset, domain) else opset
