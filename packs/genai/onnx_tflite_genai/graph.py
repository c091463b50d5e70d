"""Adapt the inputs and outputs of a language model to onnxruntime-genai.

The runtime passes token ids, an attention mask of ones, and one buffer per cache, for both its past and its present. Positions are computed
from the mask.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_tflite_plugin import ConversionError

ATTENTION = "GroupQueryAttention"
_TOKENS, _MASK = "input_ids", "attention_mask"
_PAST_KEY, _PAST_VALUE = 3, 4  # operands of GroupQueryAttention; results 1 and 2 are the present key and value


@dataclass(frozen=True)
class Decoder:
    """Sizes of a language model.

    ``kv_heads``: number of key and value heads. ``head_size``: size of a head. ``cache_length``: maximum number of tokens.
    """

    layers: int
    heads: int
    kv_heads: int
    head_size: int
    cache_length: int
    vocabulary: int


def adapt_to_genai(model: onnx.ModelProto) -> Decoder:
    """Adapt the inputs and outputs to onnxruntime-genai, in place; return the sizes.

    Raises ConversionError if the inputs are not tokens, positions and caches, or if a GroupQueryAttention does not read
    each cache.
    """
    graph = model.graph
    attention_nodes = [node for node in graph.node if node.op_type == ATTENTION]
    new_names: dict[str, str] = {}
    for k, node in enumerate(attention_nodes):
        new_names |= {
            node.input[_PAST_KEY]: f"past_key_values.{k}.key",
            node.input[_PAST_VALUE]: f"past_key_values.{k}.value",
            node.output[1]: f"present.{k}.key",
            node.output[2]: f"present.{k}.value",
        }
    read_names = {name for node in graph.node for name in node.input}
    inputs = [info for info in graph.input if info.name in read_names]  # --attention causal leaves the mask unread
    other_inputs = [info for info in inputs if info.name not in new_names]
    tokens = [info for info in other_inputs if _shape(info)[:1] == [1] and len(_shape(info)) == 2]
    positions = [info for info in other_inputs if len(_shape(info)) == 1]
    logits_outputs = [info for info in graph.output if info.name not in new_names]
    if (
        not attention_nodes
        or len(other_inputs) != 2
        or len(tokens) != 1
        or len(positions) != 1
        or len(logits_outputs) != 1
    ):
        other_names = ", ".join(info.name for info in other_inputs)
        raise ConversionError(
            f"onnxruntime-genai cannot run the model: found {len(attention_nodes)} GroupQueryAttention nodes, and"
            f" the inputs besides caches are {other_names or 'none'}; expected tokens and positions"
        )
    caches = [info for info in inputs if info.name in new_names]
    _, kv_heads, cache_length, head_size = map(int, _shape(caches[0]))
    heads = next(attribute.i for attribute in attention_nodes[0].attribute if attribute.name == "num_heads")
    decoder = Decoder(
        len(attention_nodes), heads, kv_heads, head_size, cache_length, int(_shape(logits_outputs[0])[-1])
    )
    _rename(graph, {**new_names, logits_outputs[0].name: "logits"})
    del graph.input[:]
    graph.input.extend(
        [
            helper.make_tensor_value_info(_TOKENS, TensorProto.INT64, [1, "sequence"]),
            helper.make_tensor_value_info(_MASK, TensorProto.INT64, [1, "total"]),
            *caches,
        ]
    )
    nodes = [*_position_nodes(tokens[0], positions[0]), *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(
        numpy_helper.from_array(np.array(value, np.int64), f"genai/{name}")
        for name, value in (("axis", [0]), ("one", 1))
    )
    return decoder


def _position_nodes(tokens: onnx.ValueInfoProto, positions: onnx.ValueInfoProto) -> list[onnx.NodeProto]:
    """Return the nodes that compute tokens and positions.

    The last position is the number of ones in the mask, minus 1.
    """
    dtypes = [info.type.tensor_type.elem_type for info in (tokens, positions)]
    return [
        helper.make_node("Cast", [_TOKENS], [tokens.name], to=dtypes[0]),
        helper.make_node("Shape", [_TOKENS], ["genai/shape"], start=1, end=2),
        helper.make_node("Squeeze", ["genai/shape", "genai/axis"], ["genai/count"]),
        helper.make_node("ReduceSum", [_MASK], ["genai/total"], keepdims=0),
        helper.make_node("Sub", ["genai/total", "genai/count"], ["genai/start"]),
        helper.make_node("Range", ["genai/start", "genai/total", "genai/one"], ["genai/positions"]),
        helper.make_node("Cast", ["genai/positions"], [positions.name], to=dtypes[1]),
    ]


def _rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Rename values, including those in the subgraphs of nodes."""
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename(attribute.g, names)
    for info in (*graph.input, *graph.output, *graph.value_info):
        info.name = names.get(info.name, info.name)


def _shape(info: onnx.ValueInfoProto) -> list[int | str]:
    return [dim.dim_value or dim.dim_param for dim in info.type.tensor_type.shape.dim]
