"""Rewrites of a finished ONNX model for one runtime: a target names those that pay on it, in their order."""

from __future__ import annotations

from onnx_tflite_plugin.passes import channels, images, recurrent, tokens, weights

PASSES = {one.name: one for folder in (channels, images, recurrent, tokens, weights) for one in folder.PASSES}
"""By name."""
