"""Rewrites of a finished ONNX model for one runtime: rules that a target names, and rules that ONNX Runtime needs."""

from __future__ import annotations

from onnx_tflite_plugin.rewrite import channels, images, recurrent, tokens, weights
from onnx_tflite_plugin.rewrite.declaration import PACK_PASS, RuleDeclaration, declare_pack_pass

RULES = {rule.name: rule for package in (channels, images, recurrent, tokens, weights) for rule in package.RULES}
"""The declaration of every built-in rule by name."""


def rule_named(name: str, pack: str = "") -> RuleDeclaration:
    """Return the declaration of a built-in rule, or of a pass of ``pack``, ``module:attribute``. Raises KeyError if there is none."""
    return declare_pack_pass(name, pack) if PACK_PASS in name else RULES[name]
