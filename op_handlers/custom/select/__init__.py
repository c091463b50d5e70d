"""TensorFlow's own operators in a TFLite file, one module per kind of computation.

These are select operators (lite/delegates/flex). Each assignment of a module is a handler. Most handlers rewrite the
operator to built-in operators (``rewriting``), so that layout, quantization and fusions apply to it; the others lower
it themselves.
"""
