"""Parts of a file that LiteRT runs beside those of the ONNX model: what an operator needs comes along, and states begin anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from verify_graphs import model as made_of
from verify_graphs import slot, subgraph

import onnx_tflite_plugin as otp
from conformance.cases import builtin
from conformance.cases.state.variables import running_sum
from conformance.models import Net, constant, tensor
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import LiteRT, LiteRTError, OnnxRuntime, Tolerance, Trial, draw
from onnx_tflite_plugin.verify.diagnosis import contradicted
from onnx_tflite_plugin.verify.operators.diverging import Search
from onnx_tflite_plugin.verify.runtimes.part import cut_file
from onnx_tflite_plugin.verify.runtimes.structure import entry, read


def test_a_part_keeps_the_scales_in_between_of_an_integer_lstm() -> None:
    case = next(case for case in builtin() if case.id == "UNIDIRECTIONAL_SEQUENCE_LSTM-int8_plain")
    data = case.build()
    face = entry(read(data))
    part = cut_file(data, face.subgraph, [t.index for t in face.inputs], [t.index for t in face.outputs])
    (arrays,) = draw(face, runs=1)
    np.testing.assert_array_equal(LiteRT(part, "builtin").run(arrays)[0], LiteRT(data, "builtin").run(arrays)[0])


@pytest.mark.parametrize("fresh", [True, False])
def test_a_search_of_a_model_that_carries_no_states_begins_anew_in_every_run(fresh: bool) -> None:
    net = Net()
    running_sum("float32")(net)
    data = net.build()
    proto = otp.convert(data, state="reset").proto
    model = read(data)
    trial = Trial(data, model, entry(model), Tolerance())
    search = Search(trial, proto, OnnxRuntime(proto), fresh=fresh)
    compared = [comparison for comparison, _ in search.comparisons(draw(trial.entry, runs=3))]
    assert len(compared) >= 3
    assert all(comparison.ok for comparison in compared) is fresh


@pytest.mark.parametrize("loads", [("xnnpack", "builtin", "reference"), ("builtin", "reference"), ("reference",)])
def test_the_reference_kernels_are_asked_where_no_others_run(loads: tuple[str, ...]) -> None:
    class Some(Trial):
        def litert(self, kernels: str, *_: Any, **__: Any) -> list[list[Array]]:
            if kernels not in loads:
                raise LiteRTError(f"{kernels} does not load")
            return [[np.zeros(3)]]

    net = Net()
    running_sum("float32")(net)
    data = net.build()
    model = read(data)
    found = Some(data, model, entry(model), Tolerance()).expected([[]])
    assert tuple(found) == (tuple(k for k in loads if k != "reference") or ("reference",))


@pytest.mark.parametrize(("batch", "blamed"), [(None, False), (1, True)])
def test_a_shape_contradicts_what_litert_computes_but_where_it_is_open(batch: int | None, blamed: bool) -> None:
    graph = subgraph(inputs=[slot(0)], outputs=[slot(1, shape=(batch, 4))])
    assert (contradicted(made_of(graph), {"shapes": {"1": [3, 4]}}) is not None) is blamed


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2"])
def test_litert_is_handed_small_integers_in_bytes(dtype: str) -> None:
    """As numbers: its Python API knows no narrower dtype."""
    net = Net()
    x = tensor(2, 3, dtype=dtype, scale=0)
    net.output(net.call("RESHAPE", [x, constant([3, 2])], tensor(3, 2, dtype=dtype, scale=0)))
    data = net.build()
    given = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    session = LiteRT(data, "builtin")
    (ordered,) = session._ordered([given])
    assert ordered.dtype.itemsize == 1
    assert ordered.dtype.name in ("int8", "uint8")
