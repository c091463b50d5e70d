"""Compute TensorFlow's results for the cases of select operators.

Requires TensorFlow, but not the project:

    python -m venv tf && tf/bin/pip install tensorflow-cpu
    tf/bin/python -m tools.tensorflow_cases

This writes ``conformance/cases/custom/select/tensorflow.npz``: for each case the NodeDef, its operands, and the results
of TensorFlow's CPU kernel. A NodeDef contains only the attributes that its case sets.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

os.environ.update(TF_ENABLE_ONEDNN_OPTS="0", TF_CPP_MIN_LOG_LEVEL="3")  # use the kernels without oneDNN

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tools.tensorflow_operands import Array, Constant, Row
from tools.tensorflow_rows import every_row

FILE = Path(__file__).parents[1] / "conformance/cases/custom/select/tensorflow.npz"


def node_of(row: Row) -> Any:
    """Return the NodeDef of a case, with the dtypes and the number of its operands."""
    definition = op_def_registry.get(row.op)
    node = tf.compat.v1.NodeDef(name="op", op=row.op, input=[f"i{k}" for k in range(len(row.operands))])
    arrays = [operand.array if isinstance(operand, Constant) else operand for operand in row.operands]
    attribute_types = {attribute.name: attribute.type for attribute in definition.attr}
    remaining = list(arrays)
    for argument in definition.input_arg:
        count = 1
        if argument.number_attr:
            count = len(remaining) - (len(definition.input_arg) - 1)
            node.attr[argument.number_attr].i = count
        if argument.type_attr:
            node.attr[argument.type_attr].type = tf.as_dtype(remaining[0].dtype).as_datatype_enum
        remaining = remaining[count:]
    for name, value in row.attributes.items():
        attribute_type, attribute = attribute_types[name], node.attr[name]
        if attribute_type == "type":
            attribute.type = tf.as_dtype(value).as_datatype_enum
        elif attribute_type.startswith("list("):
            attribute.list.i.extend(value)
        elif attribute_type == "shape":
            for size in value:
                attribute.shape.dim.add(size=size)
        elif attribute_type == "string":
            attribute.s = value.encode()
        else:
            setattr(attribute, {"int": "i", "float": "f", "bool": "b"}[attribute_type], value)
    return node


def run(row: Row, node: Any) -> list[Array]:
    """Return the results of TensorFlow's kernel for a case."""
    with tf.Graph().as_default() as graph:
        arrays = [operand.array if isinstance(operand, Constant) else operand for operand in row.operands]
        feeds = {}
        for k, (operand, array) in enumerate(zip(row.operands, arrays, strict=True)):
            if isinstance(operand, Constant):
                tf.constant(array, name=f"i{k}")
            else:
                feeds[tf.compat.v1.placeholder(array.dtype, array.shape, name=f"i{k}")] = array
        definition = graph.as_graph_def()
        definition.node.append(node)
        with tf.Graph().as_default() as copy:
            tf.import_graph_def(definition, name="")
            outputs = copy.get_operation_by_name("op").outputs
            with tf.compat.v1.Session() as session:
                feeds_by_tensor = {copy.get_tensor_by_name(t.name): a for t, a in feeds.items()}
                return [np.asarray(a) for a in session.run(list(outputs[: row.outputs]), feeds_by_tensor)]


def store(rows: Sequence[Row]) -> None:
    """Write the cases with their results; exit with the errors if any case fails."""
    index, data, errors = [], bytearray(), list[str]()

    def append_array(array: Array) -> list[Any]:
        data.extend(np.ascontiguousarray(array).tobytes())
        return [array.dtype.name, list(array.shape)]

    for row in rows:
        node = node_of(row)
        try:
            results = run(row, node)
        except Exception as error:
            errors.append(
                f"{row.op}, {row.name}: {str(error).splitlines()[0]}; {str(error).partition('Node:')[2][:300]}"
            )
            continue
        arrays = [operand.array if isinstance(operand, Constant) else operand for operand in row.operands]
        index.append(
            {
                "op": row.op,
                "name": row.name,
                "node": base64.b64encode(node.SerializeToString(deterministic=True)).decode(),
                "constant": [isinstance(operand, Constant) for operand in row.operands],
                "operands": [append_array(array) for array in arrays],
                "results": [append_array(array) for array in results],
            }
        )
    if errors:
        raise SystemExit("\n".join(errors))
    head = json.dumps({"tensorflow": tf.__version__, "cases": index}, separators=(",", ":")).encode()
    np.savez_compressed(FILE, index=np.frombuffer(head, np.uint8), data=np.frombuffer(bytes(data), np.uint8))
    print(f"{len(rows)} cases of {len({row.op for row in rows})} operators, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    store(every_row())
