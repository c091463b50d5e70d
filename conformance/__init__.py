"""Conformance kit for op handlers, built-in or from op packs.

A case is one small .tflite model. It is converted under every layout plan and compared with LiteRT:

    unary("NEG", "int8", tensor(2, 5, 7, 3, dtype="int8"))                      one operator
    unary("NEG", "int8", x, place=between_convolutions, max_transposes=2)       channels first
    binary("ADD", "a row", tensor(2, 5, 7, 3), constant(random_array(7, 1)))    a constant operand
    in_isolation("PAD", "rank 2", [x, constant([[0, 1], [2, 0]])], y, options=...)  any operands and results
    net("SHAPE", "of an image", build_shape_of_image)                           any model, step by step

``models`` defines these helpers; ``case.Case`` documents the options of a case. Axis sizes (2, 5, 7, 3), scales and
zero points are distinct, so that swapping two of them changes the result. Modules in ``cases`` mirror ``op_handlers``;
each has a function ``cases()`` that yields cases. Op packs register theirs in the entry point group
``onnx_tflite_plugin.cases``.
"""
