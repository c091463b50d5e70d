"""TensorFlow's own operators in a TFLite file (select operators, lite/delegates/flex), one module per kind of
computation.

Each assignment of a module is a handler. Most handlers rewrite the operator to built-in operators (``rewriting``), so
that layout, quantization and fusions apply to it; the others lower it themselves.
"""
