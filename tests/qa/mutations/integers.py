"""Planted bugs in the bit-exact integer arithmetic of the kernels."""

from __future__ import annotations

from onnx_tflite_plugin.api import FixedOutputRange
from tests.qa.mutations.planting import Mutation, leave_out

TANH_WORDS = "TANH-every_int16_from_a_scale_of_"


MUTATIONS = (
    Mutation(
        "a probability above 1 is not clipped",
        "SOFTMAX",
        ("SOFTMAX-int16,_rows_of_one",),
        emits={"Min": leave_out},
    ),
    Mutation("beta is not part of the table", "SOFTMAX", ("SOFTMAX-int16,_beta_0.3",), options={"beta": 1.0}),
    Mutation(
        "int16 is computed in float",
        "TANH",
        (f"{TANH_WORDS}0.0003",),
        fields={"quantization": FixedOutputRange({"int16": (1 / 32768, 0)})},
    ),
)
