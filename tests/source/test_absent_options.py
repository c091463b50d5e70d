"""Options of an operator: fields in its table, and defaults of omitted ones."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from onnx_tflite_plugin.source.model import Options


def test_absent_field_has_schema_default_by_name_and_key() -> None:
    options = Options("", {}, {"keep_dims": False})
    assert options.keep_dims is options["keep_dims"] is False
    assert list(options) == []
    with pytest.raises(AttributeError, match="has no option 'axis'; options: none"):
        _ = options.axis


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda options: pickle.loads(pickle.dumps(options))])
def test_options_can_be_copied_and_pickled(duplicate: Callable[[Options], Options]) -> None:
    copied = duplicate(Options("AddOptions", {"pot_scale_int16": True}, {"keep_dims": False}))
    assert (copied.table, dict(copied), copied.keep_dims) == ("AddOptions", {"pot_scale_int16": True}, False)
