"""Parts of a file that LiteRT runs beside those of the ONNX model: what an operator needs comes along, and states begin anew."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.cases import builtin
from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.verify import LiteRT, draw
from onnx_tflite_plugin.verify.runtimes.extraction import cut_file
from onnx_tflite_plugin.verify.runtimes.structure import entry, read


def test_a_part_keeps_the_scales_in_between_of_an_integer_lstm() -> None:
    case = next(case for case in builtin() if case.id == "UNIDIRECTIONAL_SEQUENCE_LSTM-int8_plain")
    data = case.build()
    face = entry(read(data))
    part = cut_file(data, face.subgraph, [t.index for t in face.inputs], [t.index for t in face.outputs])
    (arrays,) = draw(face, runs=1)
    np.testing.assert_array_equal(LiteRT(part, "builtin").run(arrays)[0], LiteRT(data, "builtin").run(arrays)[0])


def test_a_file_whose_offsets_lead_nowhere_is_not_cut() -> None:
    data = next(case for case in builtin() if case.id == "ABS-float32").build()
    with pytest.raises(InvalidModel, match="an offset is invalid"):
        cut_file(data[:40], read(data).main, [0], [1])
