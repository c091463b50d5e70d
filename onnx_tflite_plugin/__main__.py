"""Entry point of ``python -m onnx_tflite_plugin``."""

from onnx_tflite_plugin.cli import main

if __name__ == "__main__":
    main()
