"""Bodies of nodes: branches of an If, bodies of a Loop or Scan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the inner graphs of a node."""
    return (attribute.g for attribute in node.attribute if attribute.HasField("g"))
