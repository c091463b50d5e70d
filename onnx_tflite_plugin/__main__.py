"""Entry point of ``python -m onnx_tflite_plugin``."""

import sys

try:
    from onnx_tflite_plugin.cli import main
except KeyboardInterrupt:  # imports take a tenth of a second
    sys.stderr.write("error: interrupted\n")
    sys.exit(130)

if __name__ == "__main__":
    main()
