"""TensorFlow's own operators in a TFLite file, one module per kind of computation.

These are select operators (lite/delegates/flex). Most handlers rewrite the operator to built-in operators
(``rewriting``), so that layout, quantization and fusions apply to it. The other handlers lower the operator themselves.
"""
