"""API names that changed in version 0.2, with their new names.

The old names work until 0.3 and emit DeprecationWarning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any, TypeVar

from onnx_tflite_plugin.checked import did_you_mean

Class = TypeVar("Class", bound=type)

EXPORTS = {
    "Along": "AxisPrice",
    "Behaviour": "Behavior",
    "Borders": "SubgraphBoundary",
    "Contents": "ListContents",
    "Refused": "Refusal",
    "Where": "Check",
    "Widened": "WidenedConstant",
    "applied_activation": "effective_activation",
    "letters": "axis_names",
    "permuted_by": "permutation_axes",
    "reduced_by": "reduction_axes",
    "reshaped": "reshape_axes_of",
    "spelled": "format_axes",
    "spend": "spend_budget",
    "transposed_pads": "conv_transpose_pads",
}
"""Names in ``onnx_tflite_plugin.api``."""

DECLARATIONS = {
    "along": "axis_price",
    "assumes": "value_dependent_slots",
    "borders": "boundary",
    "contents": "list_contents",
    "converts": "result_dtypes",
    "holds_axes": "axis_number_slots",
    "holds_batch": "dynamic_batch_values",
    "inlines": "inlined_subgraph",
    "sizes": "result_shape",
}
"""Keywords of ``@handler`` and ``@fusion``."""

FUSION = {**DECLARATIONS, "where": "check"}
"""Keywords of ``@fusion``."""

CALL = {"beside": "siblings"}
"""Keywords of ``Call``."""

CONTEXT = {
    "by_axis": "permute_entries",
    "folds": "folds_weights",
    "integers": "uses_integers",
    "known": "constant_array",
    "looked_up": "look_up",
    "quantized": "is_quantized",
    "raw": "quantized_values",
    "required": "require_constant",
    "reshaped": "reshape_to_slot",
    "wanted": "is_used",
}
"""Attributes of ``Context``."""

STATE = {"known": "has_value"}
"""Attributes of ``State``."""

AXIS_PRICE = {"onnx": "price_key"}
"""Fields of ``AxisPrice``."""

EFFECTS = {"names": "state_key"}
"""Fields of ``Effects``."""

BOUNDARY = {"first": "first_slot"}
"""Fields of ``SubgraphBoundary``."""

DEQUANTIZED = {"stored": "as_in_file"}
"""Fields of ``Dequantized``."""

SAME_SCALE = {"among": "slots"}
"""Fields of ``SameScale``."""

TARGET = {
    "accelerates": "accelerated_operators",
    "attends_causally": "fuses_cached_attention",
    "blocks_channels": "channel_blocked_operators",
    "dequantizes": "dequantized_operators",
    "lacks": "missing_operators",
    "multiplies": "cast_mul_dtypes",
    "multiplies_dynamically": "fast_dynamic_quantization",
    "multiplies_weights": "cast_mul_weights",
    "no_int8_from": "no_int8_moves_opset",
    "opens": "opens_in_onnxruntime",
    "packs_tables": "packed_int4_lookups",
    "prefers": "fast_operators",
    "saturates": "may_saturate",
    "widens": "wider_dtypes",
    "wraps_int8": "wrapping_int8_operators",
}
"""Fields of ``Target``."""

TARGET_METHODS = {"block": "fused_block_size", "refusal": "unsupported_reason", "wider": "wider_dtype"}
"""Methods of ``Target``."""

REPORT = {"lengths": "signature_lengths", "moved": "local_plan_differences"}
"""Attributes of ``Report``."""

VERIFICATION = {"by_packs": "pack_kernel_operators"}
"""Attributes of ``Verification``."""

COMPARISON = {"distance": "max_error", "mean": "mean_error"}
"""Attributes of a comparison in ``Verification.comparisons``."""

VERIFY = {"Distance": "ErrorStatistics", "draw": "generate_inputs", "measure": "measure_error"}
"""Names in ``onnx_tflite_plugin.verify``."""

TENSOR = {"constant": "is_constant", "disregarded": "ignored_quantization", "static": "is_static"}
"""Attributes of ``Tensor``."""

OPERATOR = {"hands_on": "accesses_states"}
"""Attributes of ``QuantizedOperator``."""

CASE_PROPERTIES = {"counts": "expects_success"}
"""Properties of ``conformance.case.Case``."""

CASE = {
    "fuses": "fusions",
    "given": "input_arrays",
    "kernel_refuses": "kernel_refusal",
    "known": "known_failure",
    "refused": "refusal",
    "sizes": "dynamic_sizes",
    "span": "input_range",
    "transposes": "max_transposes",
    "why": "tolerance_reason",
}
"""Fields of ``conformance.case.Case``."""

KIT = {
    "BOTH": "PLACEMENTS",
    "Placed": "Placement",
    "alone": "in_isolation",
    "drawn": "random_array",
    "filled": "random_constant",
    "int32s": "int32_arrays",
    "plumbed": "is_image",
}
"""Names in ``conformance.models``."""

CASES = {"builtin": "builtin_cases"}
"""Names in ``conformance.cases``."""

SPEC = {"scaled": "rescale", "shaped": "with_shape"}
"""Methods of ``conformance.models.Spec``."""

NET = {
    "calls": "call_multi_output",
    "drained": "output_through_conv",
    "moved": "select_channels",
    "place": "add_operand",
    "plumbed": "input_through_conv",
    "without_rank": "remove_rank",
}
"""Methods of ``conformance.models.Net``."""


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Emit a DeprecationWarning for an old name, attributed to the caller's caller."""
    warnings.warn(f"{old} is now {new}; the old name works until 0.3", DeprecationWarning, stacklevel)


def renamed_attributes(
    names: Mapping[str, str], suggest: Callable[[Any, str], str] | None = None
) -> Callable[[Any, str], Any]:
    """Return a ``__getattr__`` that resolves renamed attributes, with a warning.

    ``suggest``: returns the remedy for any other name; by default the most similar attribute.
    """

    def __getattr__(owner: Any, name: str) -> Any:
        if name not in names:
            remedy = "" if name.startswith("_") else (suggest or _suggest_attribute)(owner, name)
            raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}{remedy}")
        warn_renamed(f"{type(owner).__name__}.{name}", names[name])
        return getattr(owner, names[name])

    return __getattr__


def _suggest_attribute(owner: Any, name: str) -> str:
    return did_you_mean(name, (attribute for attribute in dir(owner) if not attribute.startswith("_")))


def rename_keywords(
    owner: str, keywords: Mapping[str, Any], names: Mapping[str, str], stacklevel: int = 4
) -> dict[str, Any]:
    """Return the keywords under their new names, and warn about each old name.

    If both names are passed, the value of the old name is used. The warning is attributed to the caller's caller.
    """
    for old in sorted(keywords.keys() & names.keys()):
        warn_renamed(f"{owner}({old}=...)", f"{names[old]}=", stacklevel)
    return _under_new_names(keywords, names)


def rename_fields(
    fields: Mapping[str, str], methods: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Class], Class]:
    """Return a dataclass decorator that accepts old field names with a warning.

    Old names work as keywords and attributes. ``methods``: old names that work as attributes but not as keywords. If both names are
    passed, the value of the old name is used, because ``dataclasses.replace`` passes the current value under the new
    name.
    """

    def decorate(cls: Class) -> Class:
        owner: Any = cls
        create, initialize, attributes = owner.__new__, owner.__init__, {**fields, **methods}

        def __new__(subclass: type, *arguments: Any, **keywords: Any) -> Any:
            return create(subclass, *arguments, **_under_new_names(keywords, fields))

        @wraps(initialize)
        def __init__(instance: Any, *arguments: Any, **keywords: Any) -> None:
            initialize(instance, *arguments, **rename_keywords(owner.__name__, keywords, fields))

        owner.__init__, owner.__getattr__ = __init__, renamed_attributes(attributes)
        if create is not object.__new__:  # object.__new__ takes no keywords
            owner.__new__ = __new__
        return cls

    return decorate


def _under_new_names(keywords: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the keywords under their new names; the value of an old name wins."""
    current = {name: value for name, value in keywords.items() if name not in names}
    return {**current, **{names[name]: value for name, value in keywords.items() if name in names}}
