"""Packs with faults in an import, a handler, its declarations, its entry point, or a fusion."""

from __future__ import annotations

from dataclasses import replace

from tests.packs.hostile.packing import (
    FUSION,
    HANDLER,
    PRINTED,
    PRINTS,
    Hostile,
    declares,
    fuses,
    handler,
    imports,
    lowers,
)

IMPORTED = (
    imports("raises", 'raise RuntimeError("not today")', "RuntimeError: not today"),
    imports("exits with 0", "sys.exit(0)", "SystemExit: 0"),
    imports("raises what is no Exception", "raise Quit", "Quit"),
    imports("is no Python", "def evil(:", "SyntaxError"),
    imports("raises without text", "raise Mute", "Mute: (its text raises RuntimeError)"),
    imports("lacks the handler", "", "module 'evil_pack' has no 'evil'", placed=False),
    imports("gives something else", "evil = 5", "the int 5, not a handler", placed=False),
    imports("gives a bare function", "def evil(ctx, x): return x", "a function, not a handler", placed=False),
    imports("misspells a keyword", handler(quantisation="Raw()"), "'quantisation'; did you mean 'quantization'?"),
    imports("declares text as layout", handler(layout="'n c'"), "Handler(layout=...) takes", "not the str 'n c'"),
    imports("declares a class as layout", handler(layout="Transparent"), "write Transparent(...)"),
    imports(
        "declares no mapping", handler(layout="Implicit('n c')"), "Implicit(onnx=...) takes a mapping of int to str"
    ),
    imports(
        "declares text as version", handler(max_version="'1'"), "Handler(max_version=...) takes int, not the str '1'"
    ),
    imports("misspells a value", handler(quantization="SameScale(unequal='skip')"), "'dequantize' or 'refuse'"),
    imports("prints", f"{PRINTS}\n{handler()}", *PRINTED, converts=True, placed=False),
)

LOWERED = (
    lowers("raises", 'raise ValueError("bad luck")', "ValueError: bad luck", "op 0 CUSTOM.Evil v1 'y'"),
    lowers("exits with 0", "sys.exit(0)", "SystemExit: 0"),
    lowers("exits with 3", "sys.exit(3)", "SystemExit: 3"),
    lowers("raises what is no Exception", "raise Quit", "Quit"),
    lowers("raises without text", "raise Mute", "Mute: (its text raises RuntimeError)"),
    lowers("never ends its recursion", "return evil(ctx, x)", "RecursionError"),
    lowers("runs out of memory", "raise MemoryError", "MemoryError"),
    lowers(
        "raises an error of the converter",
        "from onnx_tflite_plugin import ConversionError; raise ConversionError('mine')",
        "ConversionError: mine",
    ),
    lowers("returns an array", "import numpy as np; return np.zeros(3)", "a ndarray for output 0, not a value"),
    lowers("returns nothing", "pass", "None for output 0, which is used"),
    lowers("returns too much", "return x, x", "2 values, but the operator has 1 output"),
    lowers(
        "returns another dtype",
        "return ctx.ops.Cast(x, to='int64')",
        "output 0 is int64, but its tensor 'y' is float32; convert",
    ),
    lowers(
        "returns another shape",
        "return ctx.ops.Concat(x, x, axis=0)",
        "but it is 2 by the file and the handler's declarations",
        placed=False,
    ),
    lowers(
        "returns a stranger",
        "return ir.Value(name='stray')",
        "'stray' for output 0, which is not a value of this model",
    ),
    lowers(
        "takes a stranger", "return ctx.ops.Abs(ir.Value(name='stray'))", "operand 'stray' is not a value of this model"
    ),
    lowers("takes text", "return ctx.ops.Abs('x')", "str 'x' cannot be an operand"),
    lowers("renames its operand", "x.name = 'mine'; return ctx.ops.Abs(x)", "the lowering changed operand 'x'"),
    lowers(
        "reshapes its operand", "x.shape = ir.Shape([3, 2]); return ctx.ops.Abs(x)", "the lowering changed operand 'x'"
    ),
    lowers(
        "turns its operand", "x.dtype = ir.DataType.INT8; return ctx.ops.Abs(x)", "the lowering changed operand 'x'"
    ),
    lowers("has no such operator", "return ctx.ops.Absolute(x)", "ONNX has no operator Absolute"),
    lowers("has no such attribute", "return ctx.ops.Abs(x, sharpness=3)", "Abs has no attribute sharpness"),
    lowers(
        "gives an attribute that is none",
        "return ctx.ops.domain('evil').Abs(x, how=b'x')",
        "cannot be an attribute: pass numbers, text, lists of them, or an array",
    ),
    lowers("activates what the host does", "return ctx.activate(x)", "ctx.activate needs activation=FusedActivation"),
    lowers("runs a stranger", "return ctx.inline(7, [x])", "subgraph 7 does not exist; the model has 1"),
    lowers("prints", f"{PRINTS}; return ctx.ops.Abs(x)", *PRINTED, converts=True, placed=False),
    Hostile(
        "lowering is an object that raises",
        "class Lower:\n    def __call__(self, ctx, x): raise ValueError('bad luck')\n"
        "evil = Handler('CUSTOM.Evil', Lower(), 1, Transparent())\n",
        HANDLER,
        ("handler evil_pack:Lower of evil-pack failed: ValueError: bad luck",),
    ),
)

DECLARED = (
    declares(
        "layout", "lambda at: 1 / 0", "layout declared by handler evil_pack:evil of evil-pack failed: ZeroDivision"
    ),
    declares("layout", "lambda at: 'n h w c'", "layout declared by", "it returned the str 'n h w c', not Implicit"),
    declares("layout", "lambda at: sys.exit(0)", "layout declared by", "SystemExit: 0"),
    declares("layout", "lambda: Transparent()", "layout declared by", "takes 0 positional arguments but 1 was given"),
    declares("layout", "Implicit({0: 'n c h w'})", "an Implicit layout needs axes", "evil_pack:evil in evil-pack"),
    declares("layout", "Implicit({0: 'a c'}), axes='a b -> a b'", "slot 0: 'a c' does not reorder the axes declared"),
    declares("axes", "lambda at: ['a', 'b']", "axes declared by", "it returned a list, not str or None"),
    declares("axes", "'n h w c -> n h w c'", "do not fit a tensor of rank 2"),
    declares("axes", "'n c'", "axes 'n c' have no '->'"),
    declares("axis_price", "lambda at: at.op.options.axis", "axis_price declared by", "AttributeError"),
    declares(
        "axis_price", "AxisPrice('Softmaxx', 'a1')", "no target has a price for 'Softmaxx'; did you mean 'Softmax'?"
    ),
    declares("indexed_by_axis", "lambda at: {0}", "indexed_by_axis declared by", "a set, not a mapping of int to int"),
    replace(declares("holds_axes", "(0,)", "the declarations of handler evil_pack:evil of evil-pack"), placed=False),
    declares("quantization", "lambda at: NotQuantizable", "quantization declared by", "the class NotQuantizable"),
    declares("quantization", "lambda at: at.target.no_such_trait", "quantization declared by", "AttributeError"),
    declares(
        "activation", "lambda at: 'RELU7'", "activation declared by", "'RELU7' is not an activation; did you mean 'RELU"
    ),
    declares(
        "activation",
        "FusedActivation(lambda at: 'CLAMPED')",
        "activation declared by handler evil_pack:evil of evil-pack failed",
        "it returned the str 'CLAMPED', not an ActivationKernel",
    ),
    declares("min_opset", "lambda at: '20'", "min_opset declared by", "it returned the str '20', not int"),
    declares("min_opset", "lambda at: at.op[5]", "min_opset declared by", "LookupError: CUSTOM.Evil has no input 5"),
    declares("subgraphs", "('body',)", "the operator has no option 'body'"),
    declares("effects", "Effects(names=lambda at: 1 / 0)", "effects.names declared by", "ZeroDivisionError"),
    declares("effects", "Effects(reads=(3,))", "the operator has no tensor in slot 3, which Effects names"),
    declares("accepts", "lambda at: 1 / 0", "accepts of handler evil_pack:evil of evil-pack failed: ZeroDivision"),
    declares("accepts", "lambda at: 'no'", "accepts of handler", "it returned the str 'no', not a Decline or None"),
    declares("accepts", "lambda at: sys.exit(0)", "accepts of handler", "SystemExit: 0"),
    declares("evaluate", "lambda at: 1 / 0", "evaluate of handler evil_pack:evil of evil-pack failed: ZeroDivision"),
    declares("evaluate", "lambda at: [1.0, 2.0]", "evaluate of handler", "it returned a list, not an array or None"),
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
            "TFLite has no operator 'abs'; a custom operator is CUSTOM.abs",
            "did you mean 'ABS'?",
        ),
        converts=True,
        warns=True,
        placed=False,
    ),
    Hostile(
        "fusion that is none",
        handler(),
        {**FUSION, "fusions": "evil = evil_pack:evil"},
        ("entry point evil = evil_pack:evil", "it is a Handler, not a fusion"),
        converts=True,
        warns=True,
        placed=False,
    ),
    Hostile(
        "made for another version",
        handler(),
        HANDLER,
        ("it is made for onnx-tflite-plugin ~=9.1.0, this is",),
        warns=True,
        placed=False,
        requires="onnx-tflite-plugin~=9.1.0",
    ),
)

FUSED = (
    fuses("check raises", "check of fusion EVIL of evil-pack failed: ZeroDivision", check="lambda match: 1 / 0"),
    fuses("check exits", "check of fusion EVIL", "SystemExit: 0", check="lambda match: sys.exit(0)"),
    fuses(
        "where returns text",
        "check of fusion EVIL",
        "the str 'no', not a mapping of options or a Decline",
        check="lambda match: 'no'",
    ),
    fuses("layout raises", "layout declared by", "ZeroDivisionError", layout="lambda at: 1 / 0"),
    fuses("min_opset raises", "min_opset declared by", "ZeroDivisionError", min_opset="lambda at: 1 / 0"),
    fuses("lowering raises", "handler evil_pack:fused of evil-pack failed: ZeroDivision", lower="1 / 0"),
    fuses("lowering exits", "handler evil_pack:fused of evil-pack failed: SystemExit", lower="sys.exit(0)"),
    Hostile(
        "fusion without its trait",
        fuses("", trait="'blocks_chanels'").source,
        FUSION,
        ("no trait 'blocks_chanels'; did you mean 'blocks_channels'?",),
        converts=True,
        warns=True,
    ),
)

PACKS = (*IMPORTED, *LOWERED, *DECLARED, *OFFERED, *FUSED)
