"""Packs with faults in an import, a handler, its declarations, or a fusion."""

from __future__ import annotations

from dataclasses import replace

from tests.packs.hostile.packing import (
    FUSION,
    HANDLER,
    PRINTED,
    PRINTS,
    Hostile,
    declaration_fault,
    fusion_fault,
    handler,
    import_fault,
    lowering_fault,
)

IMPORTED = (
    import_fault("raises", 'raise RuntimeError("not today")', "RuntimeError: not today"),
    import_fault("exits with 0", "sys.exit(0)", "SystemExit: 0"),
    import_fault("raises a BaseException", "raise Quit", "Quit"),
    import_fault("has a syntax error", "def evil(:", "SyntaxError"),
    import_fault("raises an error without text", "raise Mute", "Mute: (its text raises RuntimeError)"),
    import_fault("lacks the handler", "", "module 'evil_pack' has no 'evil'", has_location=False),
    import_fault("defines an int as handler", "evil = 5", "the int 5, not a handler", has_location=False),
    import_fault(
        "defines a plain function as handler",
        "def evil(ctx, x): return x",
        "a function, not a handler",
        has_location=False,
    ),
    import_fault("misspells a keyword", handler(quantisation="Raw()"), "'quantisation'; did you mean 'quantization'?"),
    import_fault("declares text as layout", handler(layout="'n c'"), "Handler(layout=...) takes", "not the str 'n c'"),
    import_fault("declares a class as layout", handler(layout="Transparent"), "write Transparent(...)"),
    import_fault(
        "declares text as mapping",
        handler(layout="Implicit('n c')"),
        "Implicit(onnx=...) takes a mapping of int to str",
    ),
    import_fault(
        "declares text as version", handler(max_version="'1'"), "Handler(max_version=...) takes int, not the str '1'"
    ),
    import_fault("misspells a value", handler(quantization="SameScale(unequal='skip')"), "'dequantize' or 'refuse'"),
    import_fault("prints", f"{PRINTS}\n{handler()}", *PRINTED, converts=True, has_location=False),
)

LOWERED = (
    lowering_fault("raises", 'raise ValueError("bad luck")', "ValueError: bad luck", "op 0 CUSTOM.Evil v1 'y'"),
    lowering_fault("exits with 0", "sys.exit(0)", "SystemExit: 0"),
    lowering_fault("exits with 3", "sys.exit(3)", "SystemExit: 3"),
    lowering_fault("raises a BaseException", "raise Quit", "Quit"),
    lowering_fault("raises an error without text", "raise Mute", "Mute: (its text raises RuntimeError)"),
    lowering_fault("recurses without end", "return evil(ctx, x)", "RecursionError"),
    lowering_fault("runs out of memory", "raise MemoryError", "MemoryError"),
    lowering_fault(
        "raises an error of the converter",
        "from onnx_tflite_plugin import ConversionError; raise ConversionError('mine')",
        "ConversionError: mine",
    ),
    lowering_fault("returns an array", "import numpy as np; return np.zeros(3)", "a ndarray for output 0, not a value"),
    lowering_fault("returns nothing", "pass", "None for output 0, which is used"),
    lowering_fault("returns too many values", "return x, x", "2 values, but the operator has 1 output"),
    lowering_fault(
        "returns another dtype",
        "return ctx.ops.Cast(x, to='int64')",
        "output 0 is int64, but its tensor 'y' is float32; convert",
    ),
    lowering_fault(
        "returns another shape",
        "return ctx.ops.Concat(x, x, axis=0)",
        "but 2 is expected from the file and the handler's declarations",
    ),
    lowering_fault(
        "returns a value of another model",
        "return ir.Value(name='stray')",
        "'stray' for output 0, which is not a value of this model",
    ),
    lowering_fault(
        "uses a value of another model",
        "return ctx.ops.Abs(ir.Value(name='stray'))",
        "operand 'stray' belongs to another conversion, not to this model",
    ),
    lowering_fault("uses text as operand", "return ctx.ops.Abs('x')", "str 'x' cannot be an operand"),
    lowering_fault("renames its operand", "x.name = 'mine'; return ctx.ops.Abs(x)", "the lowering changed operand 'x'"),
    lowering_fault(
        "reshapes its operand", "x.shape = ir.Shape([3, 2]); return ctx.ops.Abs(x)", "the lowering changed operand 'x'"
    ),
    lowering_fault(
        "changes the dtype of its operand",
        "x.dtype = ir.DataType.INT8; return ctx.ops.Abs(x)",
        "the lowering changed operand 'x'",
    ),
    lowering_fault("uses an unknown operator", "return ctx.ops.Absolute(x)", "ONNX has no operator Absolute"),
    lowering_fault("uses an unknown attribute", "return ctx.ops.Abs(x, sharpness=3)", "Abs has no attribute sharpness"),
    lowering_fault(
        "uses bytes as attribute",
        "return ctx.ops.domain('evil').Abs(x, how=b'x')",
        "cannot be an attribute: pass numbers, text, lists of them, or an array",
    ),
    lowering_fault(
        "applies the activation of the host", "return ctx.activate(x)", "ctx.activate needs activation=FusedActivation"
    ),
    lowering_fault(
        "inlines an unknown subgraph", "return ctx.inline(7, [x])", "subgraph 7 does not exist; the model has 1"
    ),
    lowering_fault("prints", f"{PRINTS}; return ctx.ops.Abs(x)", *PRINTED, converts=True, has_location=False),
    Hostile(
        "lowering is an object that raises",
        "class Lower:\n    def __call__(self, ctx, x): raise ValueError('bad luck')\n"
        "evil = Handler('CUSTOM.Evil', Lower(), 1, Transparent())\n",
        HANDLER,
        ("handler evil_pack:Lower of evil-pack failed: ValueError: bad luck",),
    ),
)

DECLARED = (
    declaration_fault(
        "layout", "lambda at: 1 / 0", "layout declared by handler evil_pack:evil of evil-pack failed: ZeroDivision"
    ),
    declaration_fault(
        "layout", "lambda at: 'n h w c'", "layout declared by", "it returned the str 'n h w c', not Implicit"
    ),
    declaration_fault("layout", "lambda at: sys.exit(0)", "layout declared by", "SystemExit: 0"),
    declaration_fault(
        "layout", "lambda: Transparent()", "layout declared by", "takes 0 positional arguments but 1 was given"
    ),
    declaration_fault(
        "layout",
        "Implicit({0: 'n c h w'})",
        "layout=Implicit requires axes=, such as axes='n h w c -> n h w c'",
        "entry point CUSTOM.Evil = evil_pack:evil",
    ),
    declaration_fault(
        "layout",
        "Implicit({0: 'a c'}), axes='a b -> a b'",
        "slot 0: 'a c' does not reorder the axes declared in 'a b -> a b': c is unknown, b is missing",
    ),
    declaration_fault("axes", "lambda at: ['a', 'b']", "axes declared by", "it returned a list, not str or None"),
    declaration_fault("axes", "'n h w c -> n h w c'", "do not fit a tensor of rank 2"),
    declaration_fault("axes", "'n c'", "axes 'n c' have no '->'"),
    declaration_fault("axis_price", "lambda at: at.op.options.axis", "axis_price declared by", "AttributeError"),
    declaration_fault(
        "axis_price", "AxisPrice('Softmaxx', 'a1')", "no target has a price for 'Softmaxx'; did you mean 'Softmax'?"
    ),
    declaration_fault(
        "indexed_by_axis", "lambda at: {0}", "indexed_by_axis declared by", "a set, not a mapping of int to int"
    ),
    replace(
        declaration_fault("axis_number_slots", "(0,)", "the declarations of handler evil_pack:evil of evil-pack"),
        has_location=False,
    ),
    declaration_fault(
        "quantization", "lambda at: NotQuantizable", "quantization declared by", "the class NotQuantizable"
    ),
    declaration_fault(
        "quantization", "lambda at: at.target.no_such_trait", "quantization declared by", "AttributeError"
    ),
    declaration_fault(
        "activation", "lambda at: 'RELU7'", "activation declared by", "'RELU7' is not an activation; did you mean 'RELU"
    ),
    declaration_fault(
        "activation",
        "FusedActivation(lambda at: 'CLAMPED')",
        "activation declared by handler evil_pack:evil of evil-pack failed",
        "it returned the str 'CLAMPED', not an ActivationKernel",
    ),
    declaration_fault("min_opset", "lambda at: '20'", "min_opset declared by", "it returned the str '20', not int"),
    declaration_fault(
        "min_opset", "lambda at: at.op[5]", "min_opset declared by", "LookupError: CUSTOM.Evil has no input 5"
    ),
    declaration_fault("subgraphs", "('body',)", "the operator has no option 'body'"),
    declaration_fault(
        "effects", "Effects(state_key=lambda at: 1 / 0)", "effects.state_key declared by", "ZeroDivisionError"
    ),
    declaration_fault("effects", "Effects(reads=(3,))", "the operator has no tensor in slot 3, which Effects lists"),
    declaration_fault(
        "accepts", "lambda at: 1 / 0", "accepts of handler evil_pack:evil of evil-pack failed: ZeroDivision"
    ),
    declaration_fault(
        "accepts", "lambda at: 'no'", "accepts of handler", "it returned the str 'no', not a Decline or None"
    ),
    declaration_fault("accepts", "lambda at: sys.exit(0)", "accepts of handler", "SystemExit: 0"),
    declaration_fault(
        "evaluate", "lambda at: 1 / 0", "evaluate of handler evil_pack:evil of evil-pack failed: ZeroDivision"
    ),
    declaration_fault(
        "evaluate", "lambda at: [1.0, 2.0]", "evaluate of handler", "it returned a list, not an array or None"
    ),
)

OFFERED = (
    Hostile(
        "entry point of another operator",
        handler().replace("CUSTOM.Evil", "CUSTOM.Good"),
        HANDLER,
        ("it is a handler of 'CUSTOM.Good'", "aliases=('CUSTOM.Evil',)"),
    ),
    Hostile(
        "entry point of no operator",
        handler(),
        {"handlers": "CUSTOM.Evil = evil_pack:evil\nabs = evil_pack:evil"},
        (
            "entry point abs = evil_pack:evil",
            "TFLite has no operator 'abs'; did you mean 'ABS'? a custom operator is named CUSTOM.abs",
            "did you mean 'ABS'?",
        ),
        converts=True,
        warns_always=True,
        has_location=False,
    ),
    Hostile(
        "fusion entry point is a handler",
        handler(),
        {**FUSION, "fusions": "evil = evil_pack:evil"},
        (
            "entry point evil = evil_pack:evil",
            "it is a Handler, not a fusion; move the entry point to onnx_tflite_plugin.handlers",
        ),
        converts=True,
        warns_always=True,
        has_location=False,
    ),
    Hostile(
        "made for another version",
        handler(),
        HANDLER,
        ("it requires onnx-tflite-plugin ~=9.1.0, but version",),
        warns_always=True,
        has_location=False,
        requires="onnx-tflite-plugin~=9.1.0",
    ),
)

FUSED = (
    fusion_fault("check raises", "check of fusion EVIL of evil-pack failed: ZeroDivision", check="lambda match: 1 / 0"),
    fusion_fault("check exits", "check of fusion EVIL", "SystemExit: 0", check="lambda match: sys.exit(0)"),
    fusion_fault(
        "check returns text",
        "check of fusion EVIL",
        "the str 'no', not a mapping of options or a Decline",
        check="lambda match: 'no'",
    ),
    fusion_fault("layout raises", "layout declared by", "ZeroDivisionError", layout="lambda at: 1 / 0"),
    fusion_fault("min_opset raises", "min_opset declared by", "ZeroDivisionError", min_opset="lambda at: 1 / 0"),
    fusion_fault("lowering raises", "handler evil_pack:fused of evil-pack failed: ZeroDivision", lower="1 / 0"),
    fusion_fault("lowering exits", "handler evil_pack:fused of evil-pack failed: SystemExit", lower="sys.exit(0)"),
    Hostile(
        "fusion with an unknown trait",
        fusion_fault("", trait="'channel_blocked_operatrs'").source,
        FUSION,
        ("no trait 'channel_blocked_operatrs'; did you mean 'channel_blocked_operators'?",),
        converts=True,
        warns_always=True,
    ),
)

PACKS = (*IMPORTED, *LOWERED, *DECLARED, *OFFERED, *FUSED)
