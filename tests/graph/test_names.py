"""Names of internal values, after long names of the TFLite file."""

from __future__ import annotations

import pytest

from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.graph.names import (
    MAX_INTERNAL_NAME,
    expand_name,
    resolve_keys,
    shared_scopes,
    shorten_name,
    with_suffix,
)

SCOPE = "FeatureExtractor/MobilenetV1"


PAD = "reflection_pad1d/MirrorPad"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("model/conv1/Relu", "model/conv1/Relu"),
        (f"net/{SCOPE}/Conv2d_1_depthwise/weights", f"net/{SCOPE}/Conv2d_1_depthwise/weights"),
        (f"a/{PAD};model/cq_t2010v2_1/{PAD}", f"a/{PAD}"),
        (f"net/{SCOPE}/Conv2d_1/Relu6;net/{SCOPE}/Conv2d_2/weights", f"net/{SCOPE}/Conv2d_1/Relu6"),
        (";StatefulPartitionedCall/" + "a" * 50 + ";1", "StatefulPartitionedCall/" + "a" * 50),
        ("net_1.00_96/torch.nn.modules.Linear_a;" + "b" * 90, "net_1.00_96/Linear_a"),
        ("net_1.00_96/block_10_depthwise/torch.nn.modules.linear.Linear_a", "net_1.00_96/block_10_depthwise/Linear_a"),
        ("model.conv.weight", "model.conv.weight"),
        ("conv/weights_quant/FakeQuantWithMinMaxVars", "conv/weights_quant"),
        ("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVars"),
        ("a" * MAX_INTERNAL_NAME + "/b", "a" * (MAX_INTERNAL_NAME - 16) + "/b"),
        ("a" * 90, "a" * MAX_INTERNAL_NAME),
        ("scope/" + "a" * MAX_INTERNAL_NAME, "a" * MAX_INTERNAL_NAME),
        ("/" * 90, ""),
        ("transformers.models.bert.modeling." * 2 + "Bert_embeddings;1", "Bert_embeddings"),
        ("a" * 90 + "_conv/" + "1" * 20, "conv/" + "1" * 20),
    ],
)
def test_long_name_is_shortened_to_the_end_of_its_first_operation(name: str, short: str) -> None:
    assert shorten_name(name) == short


def test_tensors_of_one_layer_keep_the_same_scopes() -> None:
    scopes = "FeatureExtractor/MobilenetV1/Conv2d_13_pointwise_1_Conv2d_2_1x1_192"
    for operation in ("Relu6", "weights_quant", "Conv2D_Fold_bias", "weights_quant/FakeQuantWithMinMaxVars"):
        assert shorten_name(f"{scopes}/{operation}").startswith("MobilenetV1/Conv2d_13_pointwise_1_Conv2d_2_1x1_192/")


def test_names_of_one_block_lose_the_same_scopes() -> None:
    block = "wrapper/GPT2LMHeadModel_m/GPT2Model_transformer/GPT2Block_0"
    names = [f"{block}/LayerNorm_ln_1", f"{block}/GPT2MLP_mlp/NewGELUActivation_act", "logits"]
    outer = shared_scopes(names)
    assert outer == "wrapper/GPT2LMHeadModel_m/"
    assert [shorten_name(name, outer_scopes=outer) for name in names] == [name.removeprefix(outer) for name in names]


def test_names_that_fit_keep_all_scopes() -> None:
    assert shared_scopes(["net/conv/weights", "net/conv/bias"]) == ""
    assert shared_scopes(["a" * 90, "b" * 90]) == ""


def test_suffix_of_a_shortened_name_does_not_cut_it() -> None:
    name = shorten_name("block/" * 30 + "Conv2D")
    assert with_suffix(with_suffix(name, "/weight"), "/zero_point") == f"{name}/weight/zero_point"
    assert len(with_suffix("input/" * 100, "/scale")) <= 120


KNOWN = [("scope/one/Relu", 1), ("scope/one/Relu6", 2), ("alias/one/Relu6", 2), ("a…b", 3)]


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("scope…6", "scope/one/Relu6"),
        ("…Relu6", "scope/one/Relu6"),
        ("a…b", "a…b"),
        ("none…6", "none…6"),
        ("scope", "scope"),
    ],
)
def test_shortened_name_selects_the_tensor_if_it_is_unique(name: str, full: str) -> None:
    assert expand_name(name, KNOWN, "--outputs") == full


def test_a_name_without_its_middle_must_be_unique() -> None:
    with pytest.raises(UnsupportedOption, match=r"--outputs scope…: 2 names match; .* scope/one/Relu, scope/one/Relu6"):
        expand_name("scope…", KNOWN, "--outputs")


def test_keys_of_options_may_omit_the_middle_of_a_name() -> None:
    names, stored = ["input", "output"], ["serving/long/x:0", "serving/long/y:0"]
    assert resolve_keys({"serv…x:0": 1, "ou…t": 2}, names, stored, "--rename") == {"input": 1, "output": 2}
