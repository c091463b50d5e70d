"""What every handler must pass, built in or from a third party: models, cases, bounds, runner.

A case is one small .tflite model; its conversion is run beside LiteRT under every layout plan:

    unary("NEG", "int8", tensor(2, 5, 7, 3, dtype="int8"))                      one operator, alone
    unary("NEG", "int8", x, place=between_convolutions, transposes=2)           channels first
    binary("ADD", "a row", tensor(2, 5, 7, 3), constant(drawn(7, 1)))           ... and a constant
    alone("PAD", "rank 2", [x, constant([[0, 1], [2, 0]])], y, options={...})   any operands and results
    net("SHAPE", "of an image", draw)                                           any model, step by step

``models`` has these helpers, ``case.Case`` everything else that a case may ask for. Sizes of axes differ (2, 5, 7, 3),
scales and zero points too, so that what is mixed up shows. A module in ``cases`` stands where its handlers do in
``op_handlers``, with a function ``cases()`` that yields. Packs bring theirs by the entry point group
``onnx_tflite_plugin.cases``.
"""
