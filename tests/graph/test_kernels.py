"""First versions of ONNX Runtime for opsets and dtypes equal the installed one."""

from __future__ import annotations

import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from packaging.version import Version

from onnx_tflite_plugin.graph.kernels import INT4_CASTS_FROM, LOADED_FROM, OLDEST_RUNTIME, SCATTERS_FROM, first_runtime
from tools.minimum_versions import minimum_versions

INSTALLED = Version(ort.__version__)
NEWEST = onnx.defs.onnx_opset_version()


def loads(nodes: list[onnx.NodeProto], opset: int) -> bool:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    versions = [row[1] for row in helper.VERSION_TABLE if row[2] == opset]
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=max(8, *versions, 0))
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True


@pytest.mark.parametrize("opset", range(13, 27))
def test_opset_loads_from_the_version_in_the_table(opset: int) -> None:
    if opset > NEWEST:
        pytest.skip(f"opset {opset} needs a newer onnx than {onnx.__version__}")
    first = Version(LOADED_FROM.get(opset, OLDEST_RUNTIME))
    assert loads([helper.make_node("Identity", ["x"], ["y"])], opset) == (first <= INSTALLED)


@pytest.mark.parametrize("dtype", [TensorProto.INT4, TensorProto.UINT4])
def test_4_bit_casts_load_from_the_version_in_the_table(dtype: int) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["narrow"], to=dtype),
        helper.make_node("Cast", ["narrow"], ["y"], to=TensorProto.FLOAT),
    ]
    assert loads(nodes, 21) == (Version(INT4_CASTS_FROM) <= INSTALLED)


def test_scatters_into_caches_load_from_the_version_in_the_table() -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axes"], ["cache"]),
        helper.make_node("TensorScatter", ["cache", "cache"], ["written"], axis=1),
        helper.make_node("Squeeze", ["written", "axes"], ["y"]),
    ]
    axes = helper.make_node("Constant", [], ["axes"], value_ints=[0])
    assert loads([axes, *nodes], 24) == (Version(SCATTERS_FROM) <= INSTALLED)


@pytest.mark.parametrize(
    ("opset", "casts", "version"),
    [(21, ("float",), ""), (21, ("int4",), "1.23"), (25, ("int2",), "1.24"), (26, ("int4",), "1.25")],
)
def test_model_needs_the_newest_version_of_opset_and_casts(opset: int, casts: tuple[str, ...], version: str) -> None:
    assert first_runtime(opset, casts) == version


def test_setup_cfg_and_table_agree_on_the_oldest_runtime() -> None:
    assert f"onnxruntime=={OLDEST_RUNTIME}" in minimum_versions()
