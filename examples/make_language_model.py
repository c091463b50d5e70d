"""Write language_model.tflite: two layers with random weights, 31 tokens, and caches of 19 slots."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from conformance.language_model import Sizes, language_model

Path(__file__).with_name("language_model.tflite").write_bytes(language_model(Sizes("columns")))
