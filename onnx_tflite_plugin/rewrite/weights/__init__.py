"""Weights of products: the dtype in which sums are exact on every processor, and values that are slow."""

from __future__ import annotations

from onnx_tflite_plugin.rewrite.declaration import Gain, Needed, RuleDeclaration

RULES = (RuleDeclaration(__name__, "subnormal_weights", "", Gain(1, 0.3, 0.3, 0.3)),)
