"""Packs with faults in a hook, and in the state it leaves."""

from __future__ import annotations

from tests.packs.hostile.packing import PRINTED, PRINTS, hook_pack, hooks

CHANGED = "it changed a lowered operator"
OUTPUTS = "it changed the graph's outputs"

REGISTERED = (
    hook_pack("import raises", "1 / 0", "entry point evil = evil_pack:hooks", "ZeroDivisionError"),
    hook_pack(
        "takes what there is not",
        "@hookimpl\ndef finish(self, sharpness): pass",
        "hooks evil of evil-pack failed",
        "sharpness",
        placed=False,
    ),
    hook_pack(
        "is misspelt",
        "@hookimpl\ndef finnish(self, model): pass",
        "hooks evil of evil-pack: there is no hook 'finnish'; did you mean 'finish'?",
        converts=True,
        placed=False,
    ),
    hook_pack(
        "is misspelt and unmarked",
        "def finnish(self, model): pass",
        "'finnish' is not a hook; did you mean 'finish'?",
        converts=True,
        placed=False,
    ),
    hook_pack(
        "is unmarked",
        "def finish(self, model): pass",
        "'finish' is not called, because it lacks @hookimpl",
        converts=True,
        placed=False,
    ),
    hook_pack(
        "is a wrapper",
        "@hookimpl(wrapper=True)\ndef finish(self, model):\n    return (yield)",
        "'finish' is a wrapper, which is not called",
        converts=True,
        placed=False,
    ),
    hook_pack(
        "is a wrapper as they used to be",
        "@hookimpl(hookwrapper=True)\ndef finish(self, model):\n    yield",
        "'finish' is a wrapper, which is not called",
        converts=True,
        placed=False,
    ),
)

CALLED = (
    hooks("raises", "claim", "1 / 0", "ZeroDivisionError"),
    hooks("exits", "claim", "sys.exit(0)", "SystemExit: 0"),
    hooks("returns text", "claim", "return 'mine'", "the str 'mine', not a Handler, a Decline or None"),
    hooks("raises", "configure", "1 / 0", "ZeroDivisionError"),
    hooks("exits", "configure", "sys.exit(0)", "SystemExit: 0"),
    hooks("raises", "after_lowering", "1 / 0", "ZeroDivisionError"),
    hooks("exits", "after_lowering", "sys.exit(0)", "SystemExit: 0"),
    hooks("raises half way", "after_lowering", "outputs[0].name = 'mine'; 1 / 0", "ZeroDivisionError"),
    hooks("renames", "after_lowering", "outputs[0].name = 'mine'", CHANGED),
    hooks("changes the node", "after_lowering", "outputs[0].producer().op_type = 'Neg'", CHANGED),
    hooks("adds an operand", "after_lowering", "outputs[0].producer().resize_inputs(3)", CHANGED),
    hooks("changes an operand", "after_lowering", "outputs[0].producer().replace_input_with(0, None)", CHANGED),
    hooks(
        "adds an attribute", "after_lowering", "outputs[0].producer().attributes.add(ir.AttrInt64('axis', 1))", CHANGED
    ),
    hooks("changes the shape", "after_lowering", "outputs[0].shape = ir.Shape([7])", CHANGED),
    hooks("raises", "finish", "1 / 0", "ZeroDivisionError"),
    hooks("raises half way", "finish", "model.graph.outputs[0].name = 'mine'; 1 / 0", "ZeroDivisionError"),
    hooks("exits", "finish", "sys.exit(3)", "SystemExit: 3"),
    hooks("never ends its recursion", "finish", "self.finish(model)", "RecursionError"),
    hooks("drops the outputs", "finish", "model.graph.outputs.clear()", f"{OUTPUTS}, from 'y' float [2, 3] to none"),
    hooks(
        "renames an input", "finish", "model.graph.inputs[0].name = 'mine'", "it changed the graph's inputs", "'mine'"
    ),
    hooks("changes an output's dtype", "finish", "model.graph.outputs[0].dtype = ir.DataType.INT8", OUTPUTS),
    hooks(
        "makes a node nobody knows", "finish", "model.graph[0].op_type = 'Evil'", "it leaves an invalid model", "Evil"
    ),
    hooks("drops a node", "finish", "model.graph.remove(model.graph[0])", "it leaves an invalid model"),
    hooks("removes the name", "finish", "model.graph[0].outputs[0].name = None", OUTPUTS),
    hooks("returns a model", "finish", "return model", "it returned a Model; it must change the model in place"),
    hooks("prints", "finish", PRINTS, *PRINTED, converts=True, warns=False, placed=False),
)

PACKS = (*REGISTERED, *CALLED)
