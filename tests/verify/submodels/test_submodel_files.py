"""TFLite files of submodels keep scales; damaged files are rejected."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.cases import builtin_cases
from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.verify import LiteRT, generate_inputs
from onnx_tflite_plugin.verify.runtimes.extraction import cut_file
from onnx_tflite_plugin.verify.runtimes.structure import entry, read


def test_submodel_keeps_intermediate_scales_of_an_integer_lstm() -> None:
    case = next(case for case in builtin_cases() if case.id == "UNIDIRECTIONAL_SEQUENCE_LSTM-int8_plain")
    data = case.build()
    model_entry = entry(read(data))
    submodel = cut_file(
        data, model_entry.subgraph, [t.index for t in model_entry.inputs], [t.index for t in model_entry.outputs]
    )
    (arrays,) = generate_inputs(model_entry, runs=1)
    np.testing.assert_array_equal(LiteRT(submodel, "builtin").run(arrays)[0], LiteRT(data, "builtin").run(arrays)[0])


def test_rejects_a_file_with_invalid_offsets() -> None:
    data = next(case for case in builtin_cases() if case.id == "ABS-float32").build()
    with pytest.raises(InvalidModel, match="an offset is invalid"):
        cut_file(data[:40], read(data).main, [0], [1])
