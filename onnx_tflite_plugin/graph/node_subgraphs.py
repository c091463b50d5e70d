"""Subgraphs of nodes: branches of an If, the body of a Loop or Scan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


def node_subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the subgraphs of a node."""
    return (attribute.g for attribute in node.attribute if attribute.HasField("g"))
