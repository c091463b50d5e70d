"""Rewrites of a finished ONNX model for one runtime: rules that a target names, and those that ONNX Runtime needs."""

from __future__ import annotations

from onnx_tflite_plugin.rewrite import channels, images, recurrent, tokens, weights

RULES = {rule.name: rule for package in (channels, images, recurrent, tokens, weights) for rule in package.RULES}
"""The declaration of every rule by name."""
