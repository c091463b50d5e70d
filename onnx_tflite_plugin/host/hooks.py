"""Hooks of installed packs, called under guard.

Results are checked, and failing hooks are skipped. A hook that fails ends the conversion only if the model uses its
pack; otherwise it is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from inspect import isfunction
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pluggy

from onnx_tflite_plugin.api import hooks as hookspecs
from onnx_tflite_plugin.api.declarations import Decline, Handler
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bound import label
from onnx_tflite_plugin.binding.declared import OperatorInstance, check_acceptance
from onnx_tflite_plugin.checked import describe, did_you_mean
from onnx_tflite_plugin.errors import HandlerError, Problem
from onnx_tflite_plugin.graph.names import unusable_names
from onnx_tflite_plugin.guard import BUILTIN, Failed, Mismatch, WrongResult, attribute_errors
from onnx_tflite_plugin.host.model_changes import (
    ValueSnapshot,
    copy_model,
    describe_interface_change,
    describe_violation,
)
from onnx_tflite_plugin.source.model import Operator

if TYPE_CHECKING:
    import onnx_ir as ir

Check = Callable[["ir.Model", "ir.Model"], str]
"""Takes the models before and after a change. Returns why the changed model does not fit the target, or ""."""

HOOK_NAMES = ("claim", "configure", "after_lowering", "rename", "finish")


class Hook(NamedTuple):
    """One hook function of a pack, as pluggy found it.

    ``argument_names``: the arguments that the function declares.
    """

    name: str
    pack: str
    plugin: object
    function: Callable[..., Any]
    argument_names: Sequence[str]

    def __call__(self, **arguments: Any) -> Any:
        return self.function(*[arguments[name] for name in self.argument_names])

    def attribute_errors(self, at: str = "") -> AbstractContextManager[None]:
        return attribute_errors(f"hook {self.name}", self.pack, self.function, at)


class _Manager(pluggy.PluginManager):
    """Plugin manager that considers only names defined by the plugin.

    Python adds thirty names to each object, and a host registers every handler.
    """

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        return None if name.startswith("__") else super().parse_hookimpl_opts(plugin, name)

    def parse_hookspec_opts(self, module_or_class: ModuleType | type, name: str) -> Any:
        return super().parse_hookspec_opts(module_or_class, name) if name in HOOK_NAMES else None


class Hooks:
    """All plugins of one host: hooks of packs, and handlers that claim operators.

    ``warn``: called for each skipped hook. ``failures``: pack -> failures of its hooks.
    """

    def __init__(self, options: Mapping[str, Any], warn: Callable[[str], None]) -> None:
        self.options, self.warn = options, warn
        self.failures: dict[str, list[Failed]] = {}
        self._skipped: dict[tuple[str, str], Failed] = {}  # (name of a hook, pack) -> failure
        self._code_by_plugin: dict[str, str] = {}  # for handlers only: plugin name -> operator
        self._cached: dict[tuple[str, str], Sequence[Hook]] = {}  # (name of a hook, operator) -> implementations
        self._manager = _Manager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)

    # --- plugins ------------------------------------------------------------------------------

    def register(self, plugin: object, code: str, pack: str) -> None:
        """Register a plugin as ``CODE@pack``."""
        self._cached.clear()
        self._manager.register(plugin, name=f"{code}@{pack}")
        if _is_internal(plugin):
            self._code_by_plugin[f"{code}@{pack}"] = code

    def add(self, plugin: object, code: str, pack: str) -> None:
        """Register and configure the hooks of a pack; warn about misspelled ones.

        Raises Failed for a hook with an unknown argument, and if ``configure`` fails.
        """
        with attribute_errors(f"hooks {code}", pack, plugin):
            if wrong := _find_wrong_argument(plugin):
                raise Mismatch(wrong)
            self.register(plugin, code, pack)
            for text in _find_uncalled_hooks(plugin):
                self.warn(f"hooks {code} of {pack}: {text}")
        for hook in self._implementations("configure"):
            if hook.plugin is plugin:
                with hook.attribute_errors():
                    hook(options=self.options)

    def skip(self, pack: str, failed: Failed, names: Iterable[str] = HOOK_NAMES) -> None:
        """Record a failure, and skip the hooks of the pack with these names from now on."""
        self._cached.clear()
        self.failures.setdefault(pack, []).append(failed)
        self._skipped |= dict.fromkeys(((name, pack) for name in names), failed)

    def skipped(self, name: str) -> dict[str, Failed]:
        """Return {pack: failure} of the packs whose hook ``name`` is skipped."""
        return {pack: failed for (hook, pack), failed in self._skipped.items() if hook == name}

    def implementations(self) -> list[tuple[str, str]]:
        """Return (pack, hook name) of all hooks except the host's own."""
        return sorted(
            {
                (hook.pack, name)
                for name in HOOK_NAMES
                for hook in self._implementations(name)
                if not _is_internal(hook.plugin)
            }
        )

    def finish_packs(self) -> tuple[str, ...]:
        """Return the packs with a ``finish`` hook, in the order of their calls."""
        return tuple(dict.fromkeys(hook.pack for hook in self._implementations("finish")))

    def _implementations(self, name: str, code: str = "") -> Sequence[Hook]:
        """Return the implementations of a hook in pluggy's order: last registered first.

        ``tryfirst`` and ``trylast`` change the order. ``code``: omit handlers of other operators; "" omits none.
        """
        if (name, code) not in self._cached:
            self._cached[name, code] = tuple(self._find_implementations(name, code))
        return self._cached[name, code]

    def _find_implementations(self, name: str, code: str) -> Iterator[Hook]:
        for implementation in reversed(getattr(self._manager.hook, name).get_hookimpls()):
            if code and self._code_by_plugin.get(implementation.plugin_name, code) != code:
                continue
            pack = implementation.plugin_name.rpartition("@")[2]
            is_skipped = (name, pack) in self._skipped and not _is_internal(implementation.plugin)
            if not is_skipped and not (implementation.hookwrapper or implementation.wrapper):
                yield Hook(name, pack, implementation.plugin, implementation.function, implementation.argnames)

    # --- calls during a conversion ------------------------------------------------------------

    def claims(
        self, at: OperatorInstance, has_pack_handler: bool = False
    ) -> Iterator[tuple[str, Handler | Decline | Failed]]:
        """Yield (pack, answer) of each pack: a handler, a Decline or a Failed.

        The hook of a pack is not called if the pack has an entry point for the operator. ``has_pack_handler``: True if
        a pack other than the built-in one has such an entry point; the built-in pack's hook is then not called either.
        """
        hooks = self._implementations("claim", at.op.code)
        packs_with_handler = {hook.pack for hook in hooks if _is_internal(hook.plugin)} | (
            {BUILTIN} if has_pack_handler else set()
        )
        for hook in hooks:
            if hook.pack in packs_with_handler and not _is_internal(hook.plugin):
                continue
            try:
                answer = _call_claim(hook, at)
            except Failed as failed:
                yield hook.pack, failed
            else:
                if answer is not None:
                    yield hook.pack, answer

    def registered_handlers(self, code: str) -> list[tuple[str, object]]:
        """Return (pack, plugin) of handlers registered for an operator by entry points."""
        return [(hook.pack, hook.plugin) for hook in self._implementations("claim", code) if _is_internal(hook.plugin)]

    def check(self, used_packs: Collection[str]) -> None:
        """Raise HandlerError if a pack that the model uses has failed hooks."""
        problems = [failed.problem(pack) for pack in sorted(used_packs) for failed in self.failures.get(pack, ())]
        if problems:
            raise HandlerError("an op pack that the model uses fails:", problems)

    def after_lowering(
        self, op: Operator, outputs: tuple[ir.Value | None, ...], used_packs: Collection[str]
    ) -> list[Problem]:
        """Call the hook of every pack for one lowered operator.

        A failing hook is skipped, and its changes are undone. Returns the failures of packs that the model uses.
        """
        problems: list[Problem] = []
        for hook in self._implementations("after_lowering"):
            snapshots = [ValueSnapshot(value) for value in outputs if value is not None]
            try:
                with hook.attribute_errors(label(op)):
                    hook(op=op, outputs=outputs)
                    if any(snapshot.has_changed for snapshot in snapshots):
                        raise Mismatch("it changed a lowered operator, which only `finish` may do")
            except Failed as failed:
                for snapshot in snapshots:
                    snapshot.restore()
                if hook.pack in used_packs:
                    problems.append(failed.problem(label(op)))
                self._skip_hook(hook, failed)
        return problems

    def rename(
        self, inputs: tuple[str, ...], outputs: tuple[str, ...], used_packs: Collection[str]
    ) -> Mapping[str, str]:
        """Return the new names that the packs' hooks give to graph inputs and outputs.

        If several hooks rename a value, the first hook wins. Raises HandlerError if a pack that the model uses fails.
        """
        renames: dict[str, str] = {}
        for hook in self._implementations("rename"):
            try:
                with hook.attribute_errors():
                    new_names = _check_renames(
                        hook(inputs=inputs, outputs=outputs), (*inputs, *outputs), {*renames.values()}
                    )
            except Failed as failed:
                if hook.pack in used_packs:
                    raise HandlerError("the model cannot be renamed:", [failed.problem(hook.pack)]) from failed
                self._skip_hook(hook, failed)
            else:
                renames = {**new_names, **renames}
        return renames

    def finish(self, model: ir.Model, used_packs: Collection[str], check: Check = lambda before, after: "") -> ir.Model:
        """Return the finished model, changed by the hook of every pack.

        Changes of failed hooks are undone. Raises HandlerError if the model is already invalid, or if a pack that the model uses fails.
        """
        hooks = self._implementations("finish")
        if not hooks:
            return model
        from onnx_tflite_plugin.graph.streaming import proto_to_check
        from onnx_tflite_plugin.graph.validity import check_valid

        check_valid(model, proto_to_check(model))
        for hook in hooks:
            before = copy_model(model)
            try:
                with hook.attribute_errors():
                    result = hook(model=model)
                    if result is not None:
                        raise WrongResult(f"it returned {describe(result)}; it must change the model in place")
                    problem = (
                        describe_interface_change(before, model) or describe_violation(model) or check(before, model)
                    )
                    if problem:
                        raise Mismatch(problem)
            except Failed as failed:
                if hook.pack in used_packs:
                    raise HandlerError("the model cannot be finished:", [failed.problem(hook.pack)]) from failed
                self._skip_hook(hook, failed)
                model = before
        return model

    def _skip_hook(self, hook: Hook, failed: Failed) -> None:
        self.skip(hook.pack, failed, [hook.name])
        self.warn(f"{failed.reason}; the hook is skipped")


def _call_claim(hook: Hook, at: OperatorInstance) -> Handler | Decline | None:
    """Return the result of a ``claim`` hook, or the Decline of the returned handler.

    Raises Failed if the hook fails or returns anything else.
    """
    with hook.attribute_errors(label(at.op)):
        try:
            answer = hook(op=at.op, target=at.target, opset=at.opset)
        except Refusal as refusal:
            return Decline(str(refusal))
        if not (answer is None or isinstance(answer, Handler | Decline)):
            raise WrongResult(f"it returned {describe(answer)}, not a Handler, a Decline or None")
        is_pack_hook = not _is_internal(hook.plugin)  # handlers of the host are already checked
        if isinstance(answer, Handler) and is_pack_hook and not _is_handler_of(answer, at.op):
            remedy = "use replace(handler, code=op.code)"
            raise WrongResult(f"it returned a handler of {answer.code} for {at.op.code}; {remedy}")
    if isinstance(answer, Handler) and is_pack_hook:
        return check_acceptance(answer, hook.pack, at) or answer
    return answer


def _is_handler_of(handler: Handler, op: Operator) -> bool:
    """True if a handler names the operator, or its family: ``CUSTOM.Flex*``."""
    codes = (handler.code, *handler.aliases)
    return op.code in codes or any(code.endswith("*") and op.code.startswith(code[:-1]) for code in codes)


def _check_renames(renames: object, names: Sequence[str], taken: Set[str]) -> dict[str, str]:
    """Return the new names that differ from the old ones.

    Raises Mismatch if an old name does not exist or a new name is in use, and WrongResult if ``renames`` is something
    other than a mapping of names or None.
    """
    if renames is None:
        return {}
    if not isinstance(renames, Mapping) or not all(isinstance(text, str) for pair in renames.items() for text in pair):
        raise WrongResult(f"it returned {describe(renames)}, not a mapping of names or None")
    unknown = [old for old in renames if old not in names]
    if unknown:
        existing = ", ".join(map(repr, names))
        raise Mismatch(f"it renames {unknown[0]!r}, which is not a graph input or output; those are {existing}")
    changes = {old: new for old, new in renames.items() if old != new}
    new = [*changes.values()]
    if unusable := unusable_names(new, {*names, *taken}):
        name = unusable[0]
        if not name:
            raise Mismatch("its new name '' is empty")
        if name not in names and name not in taken:
            old_names = " and ".join(repr(old) for old, text in changes.items() if text == name)
            raise Mismatch(f"it gives {old_names} the same new name {name!r}")
        owner = "a graph input or output" if name in names else "another value of the graph"
        old = next(old for old, text in changes.items() if text == name)
        raise Mismatch(f"it renames {old!r} to {name!r}, but {name!r} is taken by {owner}")
    return changes


def _is_internal(plugin: object) -> bool:
    """True for the host's registration of a handler; False for the hooks of a pack."""
    return type(plugin).__module__.startswith("onnx_tflite_plugin.")


# --- errors -----------------------------------------------------------------------------------


def _find_uncalled_hooks(plugin: object) -> Iterator[str]:
    """Yield warnings for functions that resemble hooks but are not called."""
    marker = f"{hookspecs.PROJECT}_impl"
    for name, function in _functions(plugin):
        hook_options = getattr(function, marker, None)
        if hook_options is not None:
            hook_name = hook_options["specname"] or name
            if hook_name not in HOOK_NAMES:
                hint = did_you_mean(hook_name, HOOK_NAMES) or f"; the hooks are {', '.join(sorted(HOOK_NAMES))}"
                yield f"{hook_name!r} is not called, because there is no hook of this name{hint}"
            elif hook_options["wrapper"] or hook_options["hookwrapper"]:
                yield f"hook {hook_name!r} is a wrapper, which is not called"
        elif name in HOOK_NAMES:
            yield f"{name!r} is not called, because it lacks @hookimpl"
        elif suggestion := did_you_mean(name, HOOK_NAMES):
            arguments = {hook: _arguments(getattr(hookspecs, hook)) for hook in HOOK_NAMES if repr(hook) in suggestion}
            if any(_arguments(function) and _arguments(function) <= allowed for allowed in arguments.values()):
                yield f"{name!r} is not a hook{suggestion}"


def _find_wrong_argument(plugin: object) -> str:
    """Return a message on an unknown argument of a hook; empty if there is none."""
    marker = f"{hookspecs.PROJECT}_impl"
    for name, function in _functions(plugin):
        hook_options = getattr(function, marker, None)
        hook_name = name if hook_options is None else hook_options["specname"] or name
        if hook_options is None or hook_name not in HOOK_NAMES:
            continue
        allowed = _arguments(getattr(hookspecs, hook_name))
        for argument in sorted(_arguments(function) - allowed):
            suggestion = did_you_mean(argument, allowed)
            return f"hook {hook_name!r} has no argument {argument!r}{suggestion or ';'} arguments: {', '.join(sorted(allowed))}"
    return ""


def _functions(plugin: object) -> Iterator[tuple[str, Any]]:
    """Yield the public functions defined by a module or a plugin's class."""
    if isinstance(plugin, ModuleType):
        functions = {
            name: value for name, value in vars(plugin).items() if getattr(value, "__module__", "") == plugin.__name__
        }
    else:
        cls = plugin if isinstance(plugin, type) else type(plugin)
        functions = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    for name, value in functions.items():
        function = getattr(value, "__func__", value)
        if isfunction(function) and not name.startswith("_"):
            yield name, function


def _arguments(function: Any) -> set[str]:
    code = function.__code__
    return {*code.co_varnames[: code.co_argcount]} - {"self", "cls"}
