"""Comparison of every submodel with LiteRT on the same inputs.

The comparison determines the verdict.

``points`` finds the ONNX values that hold TFLite tensors. ``cut`` and ``cut_litert`` cut both models at these tensors, so
that operators read them as graph inputs. ``operands`` and ``random_sets`` supply their values. ``references``:
alternative results of LiteRT. ``segment``: submodels that run together. ``segment_comparer`` compares them, and ``comparer``
loops over all segments.
"""
