"""Packs with faults in a hook, or in the model that the hook leaves."""

from __future__ import annotations

from tests.packs.hostile.packing import PRINTED, PRINTS, hook_fault, hook_pack

CHANGED = "it changed a lowered operator"
OUTPUTS = "it changed the graph's outputs"

REGISTERED = (
    hook_pack("import raises", "1 / 0", "entry point evil = evil_pack:hooks", "ZeroDivisionError"),
    hook_pack(
        "has an unknown argument",
        "@hookimpl\ndef finish(self, sharpness): pass",
        "hooks evil of evil-pack failed",
        "sharpness",
        has_location=False,
    ),
    hook_pack(
        "is misspelt",
        "@hookimpl\ndef finnish(self, model): pass",
        "hooks evil of evil-pack: 'finnish' is not called, because there is no hook of this name; did you mean 'finish'?",
        converts=True,
        has_location=False,
    ),
    hook_pack(
        "is misspelt and unmarked",
        "def finnish(self, model): pass",
        "'finnish' is not a hook; did you mean 'finish'?",
        converts=True,
        has_location=False,
    ),
    hook_pack(
        "is unmarked",
        "def finish(self, model): pass",
        "'finish' is not called, because it lacks @hookimpl",
        converts=True,
        has_location=False,
    ),
    hook_pack(
        "is a wrapper",
        "@hookimpl(wrapper=True)\ndef finish(self, model):\n    return (yield)",
        "'finish' is a wrapper, which is not called",
        converts=True,
        has_location=False,
    ),
    hook_pack(
        "is an old-style wrapper",
        "@hookimpl(hookwrapper=True)\ndef finish(self, model):\n    yield",
        "'finish' is a wrapper, which is not called",
        converts=True,
        has_location=False,
    ),
)

CALLED = (
    hook_fault("raises", "claim", "1 / 0", "ZeroDivisionError"),
    hook_fault("exits", "claim", "sys.exit(0)", "SystemExit: 0"),
    hook_fault("returns text", "claim", "return 'mine'", "the str 'mine', not a Handler, a Decline or None"),
    hook_fault("raises", "configure", "1 / 0", "ZeroDivisionError"),
    hook_fault("exits", "configure", "sys.exit(0)", "SystemExit: 0"),
    hook_fault("raises", "after_lowering", "1 / 0", "ZeroDivisionError"),
    hook_fault("exits", "after_lowering", "sys.exit(0)", "SystemExit: 0"),
    hook_fault("raises after a change", "after_lowering", "outputs[0].name = 'mine'; 1 / 0", "ZeroDivisionError"),
    hook_fault("renames", "after_lowering", "outputs[0].name = 'mine'", CHANGED),
    hook_fault("changes the node", "after_lowering", "outputs[0].producer().op_type = 'Neg'", CHANGED),
    hook_fault("adds an operand", "after_lowering", "outputs[0].producer().resize_inputs(3)", CHANGED),
    hook_fault("changes an operand", "after_lowering", "outputs[0].producer().replace_input_with(0, None)", CHANGED),
    hook_fault(
        "adds an attribute", "after_lowering", "outputs[0].producer().attributes.add(ir.AttrInt64('axis', 1))", CHANGED
    ),
    hook_fault("changes the shape", "after_lowering", "outputs[0].shape = ir.Shape([7])", CHANGED),
    hook_fault("raises", "finish", "1 / 0", "ZeroDivisionError"),
    hook_fault("raises after a change", "finish", "model.graph.outputs[0].name = 'mine'; 1 / 0", "ZeroDivisionError"),
    hook_fault("exits", "finish", "sys.exit(3)", "SystemExit: 3"),
    hook_fault("recurses without end", "finish", "self.finish(model)", "RecursionError"),
    hook_fault(
        "drops the outputs", "finish", "model.graph.outputs.clear()", f"{OUTPUTS}, from 'y' float [2, 3] to none"
    ),
    hook_fault(
        "renames an input", "finish", "model.graph.inputs[0].name = 'mine'", "it changed the graph's inputs", "'mine'"
    ),
    hook_fault("changes an output's dtype", "finish", "model.graph.outputs[0].dtype = ir.DataType.INT8", OUTPUTS),
    hook_fault(
        "makes an unknown node", "finish", "model.graph[0].op_type = 'Evil'", "it leaves an invalid model", "Evil"
    ),
    hook_fault("drops a node", "finish", "model.graph.remove(model.graph[0])", "it leaves an invalid model"),
    hook_fault("removes the name", "finish", "model.graph[0].outputs[0].name = None", OUTPUTS),
    hook_fault("returns a model", "finish", "return model", "it returned a Model; it must change the model in place"),
    hook_fault("prints", "finish", PRINTS, *PRINTED, converts=True, warns_always=False, has_location=False),
)

PACKS = (*REGISTERED, *CALLED)
