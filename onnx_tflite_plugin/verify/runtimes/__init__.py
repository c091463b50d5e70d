"""What a model runs in: LiteRT, around operators that it has no kernel of, and ONNX Runtime; the file as LiteRT reads it, and its parts."""
