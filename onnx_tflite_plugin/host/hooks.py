"""The hooks of installed packs: each is called under guard, what it leaves behind is checked, what fails is left out.

A hook that fails ends the conversion only where the model uses its pack; else it is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from inspect import isfunction
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pluggy

from onnx_tflite_plugin.api import hooks as hookspecs
from onnx_tflite_plugin.api.declarations import Decline, Handler
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.binding.bound import label
from onnx_tflite_plugin.binding.declared import At
from onnx_tflite_plugin.checked import described, did_you_mean
from onnx_tflite_plugin.errors import HandlerError, Problem
from onnx_tflite_plugin.guard import BUILTIN, Failed, Mismatch, guarded, raised
from onnx_tflite_plugin.source.model import Operator

if TYPE_CHECKING:
    import onnx_ir as ir

NAMES = ("claim", "configure", "after_lowering", "finish")


class Hook(NamedTuple):
    """One function of one pack, as pluggy found it; ``takes`` names the arguments it wants."""

    name: str
    pack: str
    plugin: object
    function: Callable[..., Any]
    takes: Sequence[str]

    def __call__(self, **given: Any) -> Any:
        return self.function(*[given[name] for name in self.takes])

    def guarded(self, at: str = "") -> AbstractContextManager[None]:
        return guarded(f"hook {self.name}", self.pack, self.function, at)


class _Manager(pluggy.PluginManager):
    """Looks for hooks among a plugin's own names alone: Python gives each thirty more, and a host registers every handler."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        return None if name.startswith("__") else super().parse_hookimpl_opts(plugin, name)

    def parse_hookspec_opts(self, module_or_class: ModuleType | type, name: str) -> Any:
        return super().parse_hookspec_opts(module_or_class, name) if name in NAMES else None


class Hooks:
    """All plugins of one host: packs' hooks, and the handlers that claim operators. ``warn`` is told what is left out.

    ``failures``: by pack, what failed of its hooks.
    """

    def __init__(self, options: Mapping[str, Any], warn: Callable[[str], None]) -> None:
        self.options, self.warn = options, warn
        self.failures: dict[str, list[Failed]] = {}
        self._left_out: set[tuple[str, str]] = set()
        self._serves: dict[str, str] = {}  # the operator of each handler, by the name of its plugin
        # by hook and operator, until another plugin is taken in
        self._found: dict[tuple[str, str], Sequence[Hook]] = {}
        self._manager = _Manager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)

    # --- plugins ------------------------------------------------------------------------------

    def register(self, plugin: object, code: str, pack: str) -> None:
        """Take in a plugin as ``CODE@pack``."""
        self._found.clear()
        self._manager.register(plugin, name=f"{code}@{pack}")
        if _own(plugin):
            self._serves[f"{code}@{pack}"] = code

    def add(self, plugin: object, code: str, pack: str) -> None:
        """Take in a pack's hooks, say which of them are misspelt, and configure them. Raises Failed."""
        with guarded(f"hooks {code}", pack, plugin):
            self.register(plugin, code, pack)
            for text in _suspicious(plugin):
                self.warn(f"hooks {code} of {pack}: {text}")
        for hook in self._of("configure"):
            if hook.plugin is plugin:
                with hook.guarded():
                    hook(options=self.options)

    def leave_out(self, pack: str, failed: Failed, names: Iterable[str] = NAMES) -> None:
        """These hooks of a pack are not called any more."""
        self._found.clear()
        self.failures.setdefault(pack, []).append(failed)
        self._left_out |= {(name, pack) for name in names}

    def implemented(self) -> list[tuple[str, str]]:
        """(pack, hook) of what packs implement, but for handlers, which claim their operator."""
        return sorted({(hook.pack, name) for name in NAMES for hook in self._of(name) if not _own(hook.plugin)})

    def finishing(self) -> tuple[str, ...]:
        """The packs that are handed the finished model, in that order."""
        return tuple(dict.fromkeys(hook.pack for hook in self._of("finish")))

    def _of(self, name: str, code: str = "") -> Sequence[Hook]:
        """The implementations of one hook in pluggy's order: the last registered first, but for tryfirst and trylast.

        ``code``: without the handlers of other operators, which have nothing to say of it.
        """
        if (name, code) not in self._found:
            self._found[name, code] = tuple(self._implementing(name, code))
        return self._found[name, code]

    def _implementing(self, name: str, code: str) -> Iterator[Hook]:
        for implementation in reversed(getattr(self._manager.hook, name).get_hookimpls()):
            if code and self._serves.get(implementation.plugin_name, code) != code:
                continue
            pack = implementation.plugin_name.rpartition("@")[2]
            left_out = (name, pack) in self._left_out and not _own(implementation.plugin)
            if not left_out and not (implementation.hookwrapper or implementation.wrapper):
                yield Hook(name, pack, implementation.plugin, implementation.function, implementation.argnames)

    # --- while a model is converted -----------------------------------------------------------

    def claims(self, at: At, offered: bool = False) -> Iterator[tuple[str, Handler | Decline | Failed]]:
        """(pack, its handler, why it declines, or how it failed) of every pack that knows the operator.

        Where an entry point of a pack serves it, the pack's hook is not asked, nor the built-in pack's where another has one
        (``offered``).
        """
        hooks = self._of("claim", at.op.code)
        served = {hook.pack for hook in hooks if _own(hook.plugin)} | ({BUILTIN} if offered else set())
        for hook in hooks:
            if hook.pack in served and not _own(hook.plugin):
                continue
            try:
                answer = _claim(hook, at)
            except Failed as failed:
                yield hook.pack, failed
            else:
                if answer is not None:
                    yield hook.pack, answer

    def registered(self, code: str) -> list[tuple[str, object]]:
        """Return (pack, plugin) of what serves an operator by its entry point."""
        return [(hook.pack, hook.plugin) for hook in self._of("claim", code) if _own(hook.plugin)]

    def check(self, used: Collection[str]) -> None:
        """Raises HandlerError where a pack that the model uses has hooks that failed."""
        problems = [failed.problem(pack) for pack in sorted(used) for failed in self.failures.get(pack, ())]
        if problems:
            raise HandlerError("an op pack that the model uses does not work:", problems)

    def after_lowering(
        self, op: Operator, outputs: tuple[ir.Value | None, ...], used: Collection[str]
    ) -> list[Problem]:
        """Tell every pack of one lowered operator. Returns the failures of packs that the model uses.

        What a hook changes of the values and the nodes that make them is undone.
        """
        problems: list[Problem] = []
        for hook in self._of("after_lowering"):
            seen = [_Seen(value) for value in outputs if value is not None]
            try:
                with hook.guarded(label(op)):
                    hook(op=op, outputs=outputs)
                    if any(one.changed for one in seen):
                        raise Mismatch("it changed what was lowered, which only `finish` may")
            except Failed as failed:
                for one in seen:
                    one.restore()
                if hook.pack in used:
                    problems.append(failed.problem(label(op)))
                self._fails(hook, failed)
        return problems

    def finish(self, model: ir.Model, used: Collection[str]) -> ir.Model:
        """Hand the finished model to every pack. Whatever fails of a pack the model does not use is undone.

        Raises HandlerError where a pack that the model uses fails, or the model is not valid to begin with.
        """
        hooks = self._of("finish")
        if not hooks:
            return model
        import onnx_ir as ir

        from onnx_tflite_plugin.graph.validity import LARGEST_PROTO, check_valid, weight_bytes

        checked = weight_bytes(model) <= LARGEST_PROTO
        if checked:
            check_valid(model, ir.to_proto(model))
        for hook in hooks:
            before = _copied(model)
            try:
                with hook.guarded():
                    result = hook(model=model)
                    if result is not None:
                        raise Mismatch(f"it returned {described(result)}; the model is to be changed in place")
                    wrong = _interface_lost(before, model) or (_invalid(model) if checked else "")
                    if wrong:
                        raise Mismatch(wrong)
            except Failed as failed:
                if hook.pack in used:
                    raise HandlerError("the model cannot be finished:", [failed.problem(hook.pack)]) from failed
                self._fails(hook, failed)
                model = before
        return model

    def _fails(self, hook: Hook, failed: Failed) -> None:
        self.leave_out(hook.pack, failed, [hook.name])
        self.warn(f"{failed.reason}; it is left out")


def _claim(hook: Hook, at: At) -> Handler | Decline | None:
    with hook.guarded(label(at.op)):
        try:
            answer = hook(op=at.op, target=at.target, opset=at.opset)
        except Refused as refusal:
            return Decline(str(refusal))
        if not (answer is None or isinstance(answer, Handler | Decline)):
            raise Mismatch(f"it returned {described(answer)}, not a Handler, a Decline or None")
        return answer


def _own(plugin: object) -> bool:
    return type(plugin).__module__.startswith("onnx_tflite_plugin.")


# --- what is wrong ----------------------------------------------------------------------------


def _suspicious(plugin: object) -> Iterator[str]:
    """Functions that look as if they were meant to be hooks, and are not called."""
    marker = f"{hookspecs.PROJECT}_impl"
    for name, function in _functions(plugin):
        marked = getattr(function, marker, None)
        if marked is not None:
            called = marked["specname"] or name
            if called not in NAMES:
                yield f"there is no hook {called!r}{did_you_mean(called, NAMES)}"
            elif marked["wrapper"] or marked["hookwrapper"]:
                yield f"hook {called!r} is a wrapper, which is not called"
        elif name in NAMES:
            yield f"{name!r} is not called, for it lacks @hookimpl"
        elif near := did_you_mean(name, NAMES):
            wanted = {hook: _arguments(getattr(hookspecs, hook)) for hook in NAMES if repr(hook) in near}
            if any(_arguments(function) and _arguments(function) <= of for of in wanted.values()):
                yield f"{name!r} is no hook{near}"


def _functions(plugin: object) -> Iterator[tuple[str, Any]]:
    """The public functions that a module, or a plugin's class, defines itself."""
    if isinstance(plugin, ModuleType):
        functions = {
            name: value for name, value in vars(plugin).items() if getattr(value, "__module__", "") == plugin.__name__
        }
    else:
        kind = plugin if isinstance(plugin, type) else type(plugin)
        functions = {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}
    for name, value in functions.items():
        function = getattr(value, "__func__", value)
        if isfunction(function) and not name.startswith("_"):
            yield name, function


def _arguments(function: Any) -> set[str]:
    code = function.__code__
    return {*code.co_varnames[: code.co_argcount]} - {"self", "cls"}


class _Seen:
    """A value and the node that makes it, as they were before a hook saw them."""

    def __init__(self, value: ir.Value) -> None:
        self.value, self.node = value, value.producer()
        self._before = self._now()

    def _now(self) -> tuple[tuple[Any, ...], ...]:
        value, node = self.value, self.node
        shape = None if value.shape is None else value.shape.copy()
        described = (value.name, copy(value.type), shape, value.const_value)
        if node is None:
            return (described,)
        return described, (node.op_type, node.domain, node.name), tuple(node.inputs), tuple(node.attributes.items())

    @property
    def changed(self) -> bool:
        return any(
            len(was) != len(now) or any(a is not b and a != b for a, b in zip(was, now, strict=True))
            for was, now in zip(self._before, self._now(), strict=True)
        )

    def restore(self) -> None:
        """Make it what it was."""
        value, node = self.value, self.node
        described, *of_node = self._before
        value.name, value.type, value.shape, value.const_value = described
        if node is not None:
            (node.op_type, node.domain, node.name), inputs, attributes = of_node
            node.resize_inputs(len(inputs))
            for k, operand in enumerate(inputs):
                node.replace_input_with(k, operand)
            node.attributes.clear()
            node.attributes.update(attributes)


def _copied(model: ir.Model) -> ir.Model:
    """A model of its own graph, nodes, values and dtypes; only tensors are shared."""
    copied = model.clone()
    for graph in copied.graphs():
        values = {*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)}
        for value in values:
            value.type = copy(value.type)
    return copied


def _interface_lost(before: ir.Model, after: ir.Model) -> str:
    """How inputs or outputs of the graph were changed, empty where they were not."""
    for side in ("inputs", "outputs"):
        was, now = ([_described(value) for value in getattr(model.graph, side)] for model in (before, after))
        if was != now:
            return f"it changed the graph's {side}, from {', '.join(was) or 'none'} to {', '.join(now) or 'none'}"
    return ""


def _invalid(model: ir.Model) -> str:
    """Why a model that a hook leaves is not valid ONNX, empty where it is."""
    import onnx_ir as ir

    from onnx_tflite_plugin.graph.validity import find_violation

    try:
        wrong = find_violation(ir.to_proto(model))
    except Exception as error:
        wrong = raised(error)
    return wrong and f"it leaves no valid model: {wrong}"


def _described(value: ir.Value) -> str:
    dtype = "?" if value.type is None else value.type.dtype.name.lower()
    return f"{value.name!r} {dtype} {list(value.shape) if value.shape is not None else '?'}"
