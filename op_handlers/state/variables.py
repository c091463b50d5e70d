"""Resource variables.

A handle is a constant that identifies a state. READ_VARIABLE returns the state, and ASSIGN_VARIABLE replaces it.
"""

from __future__ import annotations

from collections.abc import Callable

from onnx_tflite_plugin.api import (
    Context,
    Decline,
    Effects,
    Instance,
    Raw,
    Refusal,
    Resource,
    Terminate,
    Transparent,
    Value,
    handler,
    out,
)


def variable_key(at: Instance) -> str:
    """Return ``container/shared_name``, the key of a variable in all subgraphs."""
    return "/".join(part for part in (at.op.options.container, at.op.options.shared_name) if part)


def check_handle(at: Instance) -> Decline | None:
    """Return a Decline unless the result is a resource.

    The kernel assumes this (var_handle.cc).
    """
    result = at.op[out(0)]
    return None if result.dtype == "resource" else Decline(f"the result has dtype {result.dtype}, expected resource")


@handler(
    "VAR_HANDLE",
    max_version=1,
    layout=Terminate(),
    quantization=Raw(),
    effects=Effects(state_key=variable_key),
    accepts=check_handle,
)
def var_handle(ctx: Context) -> Resource:
    """Return the variable's handle."""
    return ctx.make_resource(variable_key(ctx))


def check_value(slot: int) -> Callable[[Instance], Decline | None]:
    """Return an ``accepts`` function that declines resources as values."""

    def accepts(at: Instance) -> Decline | None:
        tensor = at.op.tensor(slot)
        if tensor is None or tensor.dtype != "resource":
            return None
        return Decline(f"the variable would contain {tensor.name!r}, which is a resource and has no value")

    return accepts


@handler(
    "READ_VARIABLE",
    max_version=1,
    layout=Transparent(),
    axes="_ -> ...",
    quantization=Raw(shift_safe=True),
    effects=Effects(reads=(0,)),
    accepts=check_value(out(0)),
)
def read_variable(ctx: Context, _resource: Resource) -> Value:
    """Return the state's current value."""
    state = ctx.state(ctx.resource(0))
    if not state.has_value:
        raise Refusal(f"variable {state.name!r} is read before it is assigned, which LiteRT refuses too")
    state.declare(ctx.dtype(out(0)), ctx.shape(out(0)))
    return state.get()


@handler(
    "ASSIGN_VARIABLE",
    max_version=1,
    layout=Transparent(),
    axes="_, ... -> _",
    quantization=Raw(shift_safe=True),
    effects=Effects(writes=(0,)),
    accepts=check_value(1),
)
def assign_variable(ctx: Context, _resource: Resource, value: Value) -> tuple[()]:
    """Set the state's next value."""
    state = ctx.state(ctx.resource(0))
    state.declare(ctx.dtype(1), ctx.shape(1))
    state.set(value)
    return ()
