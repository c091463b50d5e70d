"""Selection of the target: its default options, and traits changed by options."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.options import ConvertOptions, options_of

if TYPE_CHECKING:
    from onnx_tflite_plugin.api.target import Target
    from onnx_tflite_plugin.host import Host


def apply_target_defaults(options: ConvertOptions, host: Host) -> ConvertOptions:
    """Return the options with the target's defaults in place of the general defaults.

    Raises UnsupportedOption if the target does not exist, or has a default for an option that does not exist.
    """
    target = host.targets.get(options.target)
    general_defaults = {option.name: option.default for option in options_of(ConvertOptions)}
    unknown = next((name for name in target.defaults if name not in general_defaults), None)
    if unknown is not None:
        raise UnsupportedOption(
            f"target {target.name} has a default for the option {unknown!r}, which does not exist{did_you_mean(unknown, general_defaults)}"
        )
    changed = {
        name: default for name, default in target.defaults.items() if getattr(options, name) == general_defaults[name]
    }
    return replace(options, **cast("dict[str, Any]", changed))


def target_of(options: ConvertOptions, host: Host) -> Target:
    """Return the selected target, with the traits that the options override.

    Raises UnsupportedOption if the target does not exist or does not support the options.
    """
    from onnx_tflite_plugin.rewrite import RULES

    target = host.targets.get(options.target)
    unknown = next((name for name in target.passes if name not in RULES and ":" not in name), None)
    if unknown is not None:
        raise UnsupportedOption(
            f"target {target.name} lists the pass {unknown!r}, which does not exist{did_you_mean(unknown, RULES)}"
        )
    low, _, high = target.opsets
    if options.opset is not None and not low <= options.opset <= high:
        raise UnsupportedOption(
            f"--opset {options.opset}: target {target.name} supports opsets {low} to {high}; choose one of them or "
            "another --target"
        )
    # Only targets that may saturate choose between uint8 and int8 weights.
    if options.weights_dtype in ("uint8", "int8") and not target.may_saturate:
        raise UnsupportedOption(
            f"--weights-dtype {options.weights_dtype}: target {target.name} has one dtype for weights; use "
            "--weights-dtype auto or keep"
        )
    if options.attention == "causal" and not target.fuses_cached_attention:
        raise UnsupportedOption(
            f"--attention causal: target {target.name} has no operator for attention over a cache; use --attention file, "
            "--target onnxruntime or --target generic"
        )
    target = replace(target, fuses_cached_attention=options.attention == "causal")
    if options.weights_dtype == "keep":
        # int2 weights are still widened, because no integer kernel of ONNX Runtime loads them.
        target = replace(
            target, weights={dtype: storage for dtype, storage in target.weights.items() if dtype == "int2"}
        )
    if options.optimize == "readable":
        target = _without_fast_replacements(target)
    if options.folds_constants or options.optimize == "speed":
        target = replace(target, rounds_activations=False)
    return replace(target, fast_dynamic_quantization=False, int4_block=0) if options.folds_constants else target


def _without_fast_replacements(target: Target) -> Target:
    """Return the target without the traits that select faster operators.

    PRelu stays one operator, weights are dequantized by DequantizeLinear, and lookup tables are constants.
    """
    return replace(target, channel_blocked_operators=frozenset(), cast_mul_weights=False, stores_tables=True)
