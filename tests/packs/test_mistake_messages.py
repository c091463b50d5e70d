"""Messages about one mistake each in a handler or its cases."""

from __future__ import annotations

import pytest

from tests.helpers.author_pack import CASES, FLOAT_CASE, HANDLER, INT8_CASE, RETURN, FailingOutput

OTHER_SHAPE = 'in_isolation(OP, "float32", [tensor(2, 5, 7, 3)], tensor(2, 5, 7, 4))'
NO_SCALE = 'in_isolation(OP, "int8", [tensor(2, 5, 7, 3, dtype="int8")], replace(tensor(2, 5, 7, 3, dtype="int8"), scale=None))'
IMPORTS = "from dataclasses import replace\nfrom conformance.models import in_isolation,"

MISTAKES = {
    "wrong operator name": (
        [(HANDLER, "ctx.ops.Softsign", "ctx.ops.SoftSign")],
        ["ONNX has no operator SoftSign; did you mean 'Softsign'?"],
    ),
    "operator name of another framework": (
        [(HANDLER, RETURN, "return ctx.ops.Subtract(x, x)")],
        ["ONNX has no operator Subtract; did you mean 'Sub'?"],
    ),
    "wrong attribute": (
        [(HANDLER, RETURN, "return ctx.ops.LeakyRelu(x, aplha=0.1)")],
        ["LeakyRelu has no attribute aplha; did you mean 'alpha'?"],
    ),
    "int operand of a float operator": (
        [(HANDLER, RETURN, "return ctx.ops.Add(x, 1)")],
        ["the operands of Add are float32 and int64, but must have one dtype", "write 1.0 instead of 1"],
    ),
    "no return": ([(HANDLER, RETURN, "ctx.ops.Softsign(x)")], ["None for output 0, which is used; is a `return` missing?"]),
    "too many results": ([(HANDLER, RETURN, RETURN + ", x")], ["2 values, but the operator has 1 output"]),
    "axes of another rank": (
        [(HANDLER, "layout=Transparent(),", "layout=Transparent(), axes='n h w c -> n h w',")],
        ["axes 'n h w' of output 0 do not fit a tensor of rank 4; write a letter for each axis", "axes='n h w c -> n h w', at "],
    ),
    "axes of an output that the operator lacks": (
        [(HANDLER, "layout=Transparent(),", "layout=Transparent(), axes='... -> ..., n',")],
        ["axes '... -> ..., n' have 2 outputs, but the operator has 1; write axes for each output"],
    ),
    "an ellipsis in axes where a layout is required": (
        [
            (HANDLER, "layout=Transparent(),", "layout=Implicit(onnx={0: 'n c h w'}), axes='... -> ...',"),
            (HANDLER, "Transparent", "Implicit"),
        ],
        ["layout=Implicit requires the layout 'n c h w', but the axes '...' do not name its letters; write the letter of each axis"],
    ),
    "swapped axes": (
        [(HANDLER, "layout=Transparent(),", "layout=Transparent(), axes='... h w c -> ... w h c',")],
        ["the emitted value has size 5 along axis 1, but 7 is expected from the file and the handler's declarations"],
    ),
    "an output without scale": (
        [(CASES, INT8_CASE, NO_SCALE), (CASES, "from conformance.models import", IMPORTS)],
        ["output 0, 'y0', is int8 without scale and zero point in the file", "give the tensor a scale, or return int8"],
    ),
    "quantized values for a float operator": (
        [(HANDLER, "Dequantized()", "SameScale()"), (HANDLER, "Dequantized, ", "SameScale, ")],
        ["ONNX has no Softsign of int8; quantization=Dequantized() would compute on floats"],
    ),
    "no quantization": (
        [(HANDLER, "    quantization=Dequantized(),\n", "")],
        ["are quantized, but the handler supports only floats", "declare quantization= in @handler of author.acme:acme"],
    ),
    "float16 for a quantized output": (
        [(HANDLER, RETURN, "return ctx.ops.Cast(ctx.ops.Softsign(x), to='float16')")],
        ["output 0 is float16, but its tensor 't4' is int8; the converter quantizes float32; convert it with ctx.ops.Cast"],
    ),
    "floats from a lowering with integer arithmetic": (
        [
            (HANDLER, "Dequantized()", "Integer()"),
            (HANDLER, "Dequantized, ", "Integer, "),
            (HANDLER, RETURN, "return ctx.ops.Softsign(ctx.ops.Cast(x, to='float32'))"),
        ],
        [
            "output 0 is float32, but with quantization=Integer(...) it must hold the quantized values of 't4', int8",
            "return quantized values, for example by ctx.quantize(value, like=out(0)), or declare Dequantized()",
        ],
    ),
    "an operator without a kernel in ONNX Runtime": (
        [
            (HANDLER, "Dequantized()", "SameScale()"),
            (HANDLER, "Dequantized, ", "SameScale, "),
            (HANDLER, RETURN, "return ctx.ops.Relu(x)"),
            (CASES, 'tensor(2, 5, 7, 3, dtype="int8")', 'tensor(2, 5, 7, 3, dtype="int16")'),
        ],
        ["ONNX Runtime has no kernel for Relu of int16 (node 'op1/Relu'), although ONNX defines it; cast its operands"],
    ),
    "an axis that the operand lacks": (
        [(HANDLER, RETURN, "return ctx.ops.ReduceMax(x, [ctx.axis(7)], keepdims=1)")],
        ["axis 7 does not exist: 'x0' has rank 1, in handler author.acme:acme of author, at ", "acme.py:23 in acme"],
    ),
    "a wrong shape in a case": (
        [(CASES, FLOAT_CASE, OTHER_SHAPE), (CASES, "from conformance.models import", IMPORTS)],
        ["output 0 of the kernel has shape [2, 5, 7, 3], but 'y0' has [2, 5, 7, 4] in the model; correct the kernel"],
    ),
    "a lowering with too many operands": (
        [(HANDLER, "x: Value)", "x: Value, y: Value)")],
        ["the operator has 1 operand, the lowering takes 2; after its first parameter, the lowering needs one parameter per operand"],
    ),
    "a kernel with too many operands": (
        [(HANDLER, "x: Array)", "x: Array, y: Array)")],
        ["the operator has 1 operand, the kernel takes 2", "the case cannot be run: kernel of CUSTOM.Acme"],
    ),
    "a kernel that changes its operand": (
        [(HANDLER, "np.asarray(x / (1 + np.abs(x)))", "np.divide(x, 1 + np.abs(x), out=x)")],
        ["kernel of CUSTOM.Acme", "read-only", "acme.py:"],
    ),
    "a kernel with a wrong dtype": (
        [(HANDLER, "np.asarray(x / (1 + np.abs(x)))", "np.asarray(x, np.int32)")],
        [
            "output 0 of the kernel is int32, but 'y0' is float32 in the model; return an array of float32",
            "is int8 in the model; return an array of float32, or of quantized values in int8",
        ],
    ),
    "a dtype variable without operand": (
        [(HANDLER, "layout=Transparent(),", "layout=Transparent(), types='float32 int8 -> T',")],
        ["types: 'float32 int8 -> T': the result dtype T is not the dtype variable of any operand; write the result dtypes explicitly"],
    ),
    "options of a custom operator": (
        [(CASES, FLOAT_CASE, FLOAT_CASE.replace("7, 3)", "7, 3), options={'by': 2}"))],
        [
            "1 failed",
            "CUSTOM has no options table, but was given the option 'by'; write custom_options={...} for a custom operator",
        ],
    ),
    "an attribute of the operator on the instance": (
        [(HANDLER, "quantization=Dequantized(),", "quantization=lambda op: op.inputs[0] and Dequantized(),")],
        ["a declared function gets an Instance, which has no 'inputs'; write at.op.inputs"],
    ),
    "a dtype that TFLite lacks in a case": (
        [(CASES, FLOAT_CASE, FLOAT_CASE.replace("7, 3)", "7, 3, dtype='i8')"))],
        ["tensor(dtype='i8'): it is not a dtype; did you mean 'int8'?"],
    ),
    "an operator of a newer opset": (
        [(HANDLER, RETURN, "return ctx.ops.Swish(x)")],
        ["Swish needs opset 24, the model has opset 18; try --opset 24; the handler's author can declare min_opset=24"],
    ),
    "a dtype that is not quantized": (
        [(HANDLER, RETURN, "return ctx.ops.Cast(x, to='int32')")],
        [
            "is int8; the converter quantizes float32; convert it with ctx.ops.Cast(value, to='float32'), at ",
            "acme.py:23 in acme",
        ],
    ),
    "a result of another rank": (
        [(HANDLER, RETURN, "return ctx.ops.ReduceSum(x, [1], keepdims=0)")],
        ["has rank 3, but 4 is expected", "correct the lowering or the declarations, at ", "acme.py:23 in acme"],
    ),
    "an unclosed group": (
        [(HANDLER, "layout=Transparent(),", "layout=Transparent(), axes='n (h w -> n h w',")],
        ["axes 'n (h w -> n h w' cannot be parsed at '(h w': ')' is missing"],
    ),
    "one result too few": ([(HANDLER, RETURN, "return ()")], ["the lowering returned 0 values, but the operator has 1 output"]),
    "a table of floats": (
        [
            (HANDLER, "Dequantized()", "Lookup(lambda at: np.arange(-128, 128) / 128, dtypes=('int8',))"),
            (HANDLER, "Dequantized, ", "Lookup, "),
        ],
        ["the lookup table has float64 values from -1.0 to 0.9921875, but output 0 is int8; return a table of int8 values"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_message_of_a_mistake_names_fact_and_remedy(failing_output: FailingOutput, name: str) -> None:
    edits, texts = MISTAKES[name]
    printed = failing_output(*edits)
    for text in texts:
        assert text in printed
    assert "Traceback" not in printed
