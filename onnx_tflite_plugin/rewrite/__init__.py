"""Rewrite rules for a finished ONNX model.

Each target lists the rules to apply. Most rules only make the model faster. Without the remaining rules, a runtime fails or computes
inexact results.
"""

from __future__ import annotations

from onnx_tflite_plugin.rewrite import channels, images, recurrent, tokens, weights
from onnx_tflite_plugin.rewrite.declaration import PACK_PASS, RuleDeclaration, declare_pack_pass

RULES = {rule.name: rule for package in (channels, images, recurrent, tokens, weights) for rule in package.RULES}
"""Name -> declaration of a built-in rule."""


def find_rule(name: str, pack: str = "") -> RuleDeclaration:
    """Return the declaration of a built-in rule, or of a pass of a pack.

    A pass of ``pack`` is named ``module:attribute``. Raises KeyError if there is no built-in rule of this name.
    """
    return declare_pack_pass(name, pack) if PACK_PASS in name else RULES[name]
