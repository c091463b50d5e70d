"""Names of internal values, after long names of the TFLite file."""

from __future__ import annotations

import pytest

from onnx_tflite_plugin.graph.names import MAX_INTERNAL_NAME, shorten_name

SCOPE = "FeatureExtractor/MobilenetV1"


PAD = "reflection_pad1d/MirrorPad"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("model/conv1/Relu", "model/conv1/Relu"),
        (f"{SCOPE}/Conv2d_1_depthwise/weights", f"{SCOPE}/Conv2d_1_depthwise/weights"),
        (f"net/{SCOPE}/MobilenetV1/Conv2d_1_depthwise/weights", "MobilenetV1/MobilenetV1/Conv2d_1_depthwise/weights"),
        (f"a/{PAD};model/cq_t2010v2_1/{PAD}", f"a/{PAD}"),
        (f"net/{SCOPE}/Conv2d_1/Relu6;net/{SCOPE}/Conv2d_2/weights", f"net/{SCOPE}/Conv2d_1/Relu6"),
        (";StatefulPartitionedCall/" + "a" * 50 + ";1", "a" * 50),
        ("net_1.00_96/torch.nn.modules.Linear_a;" + "b" * 70, "net_1.00_96/torch.nn.modules.Linear_a"),
        ("net_1.00_96/block_10_depthwise/torch.nn.modules.linear.Linear_a", "net_1.00_96/block_10_depthwise/Linear_a"),
        ("a" * MAX_INTERNAL_NAME + "/b", "b"),
        ("a" * 70, "a" * MAX_INTERNAL_NAME),
        ("scope/" + "a" * MAX_INTERNAL_NAME, "a" * MAX_INTERNAL_NAME),
        ("/" * 70, ""),
        (
            "transformers.models.bert.modeling." * 2 + "Bert_embeddings;1",
            "Bert_embeddings",
        ),
        ("a" * 70 + "_conv/" + "1" * 20, "conv/" + "1" * 20),
    ],
)
def test_a_long_name_is_the_end_of_its_first_operation(name: str, short: str) -> None:
    assert shorten_name(name) == short
