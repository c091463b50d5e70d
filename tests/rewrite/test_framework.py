"""Framework of rewrite rules: order, reasons of declined matches, and errors."""

from __future__ import annotations

import logging
from pathlib import Path

import onnx_ir as ir
import pytest
from onnx_ir.passes import InPlacePass, PassResult

from benchmarks.ablation import ablate, disable_rule
from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.errors import TargetRefusal
from onnx_tflite_plugin.rewrite import RULES
from onnx_tflite_plugin.rewrite.declaration import Gain, Needed, RuleDeclaration, sort_rules
from onnx_tflite_plugin.rewrite.rule import RewriteRule, apply_rules, load_rule, nodes, require, run_passes
from onnx_tflite_plugin.targets import TARGETS, target_named
from tests.rewrite.harness import graph

INT8 = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"
ORDER = target_named("onnxruntime").passes


def declare(name: str, *after: str) -> RuleDeclaration:
    return RuleDeclaration(__name__, name, name, Needed("a test"), after=after)


def test_default_target_lists_rules_in_a_valid_order() -> None:
    assert [rule.name for rule in sort_rules(RULES[name] for name in ORDER)] == [*ORDER]


def test_sort_rules_places_each_rule_after_those_it_names() -> None:
    ordered = [rule.name for rule in sort_rules(RULES[name] for name in reversed(ORDER))]
    positions = {name: position for position, name in enumerate(ordered)}
    assert sorted(ordered) == sorted(ORDER)
    assert all(positions[before] < positions[name] for name in ORDER for before in RULES[name].after)


def test_cyclic_rule_order_is_rejected() -> None:
    with pytest.raises(ValueError, match="one, other"):
        sort_rules([declare("one", "other"), declare("other", "one")])


@pytest.mark.parametrize("name", RULES)
def test_every_rule_loads_and_states_its_benefit(name: str) -> None:
    rule = RULES[name]
    assert isinstance(load_rule(rule), RewriteRule)
    assert isinstance(rule.benefit, Needed) or rule.benefit.worst <= rule.benefit.mean <= rule.benefit.best
    assert {*rule.after} <= RULES.keys()


def test_every_rule_is_named_by_a_target() -> None:
    listed = {name for target in TARGETS.values() for name in target.passes}
    of_every_target = {"copy_captures", "keep_float_weights", "reshape_before_if", "unroll_loops"}
    assert RULES.keys() - listed == of_every_target


def test_optional_rules_gain_at_least_two_percent() -> None:
    """Each rule speeds up at least one network by 2 %, with one exception.

    The exception gains only in networks with more subnormal weights.
    """
    rules_of_small_gain = {name for name in ORDER if isinstance(gain := RULES[name].benefit, Gain) and gain.best < 2}
    assert rules_of_small_gain == {"zero_subnormals"}


def test_decline_reasons_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def check(node: ir.Node) -> ir.Node | Decline:
        require(node.op_type != "Abs", "it is Abs")
        return node if node.op_type == "Neg" else Decline("it is Relu")

    rule = RewriteRule(nodes("Abs", "Neg", "Relu"), check, lambda editor, node: None)
    model = graph("(float[3] x) => (float[3] y) { a = Abs (x) b = Abs (a) c = Neg (b) y = Relu (c) }")()
    outcome = rule.apply(model)
    assert (outcome.applied, outcome.declined) == (1, {"it is Abs": 2, "it is Relu": 1})
    model = graph("(float[1,5,7,16] x) => (float[1,5,7,1] y) { y = Conv (x, w) }", w=[[[[1.0]]]])()
    with caplog.at_level(logging.DEBUG, "onnx_tflite_plugin"):
        apply_rules([RULES["split_single_feature_conv"]], model)
    assert "rewrite split_single_feature_conv: not applied (1x): the number of input channels" in caplog.text


def test_error_of_a_pass_is_raised_unchanged() -> None:
    class Failing(InPlacePass):
        def call(self, model: ir.Model) -> PassResult:
            return PassResult(model, False)

        def ensures(self, model: ir.Model) -> None:
            raise TargetRefusal("it overflows")

    with pytest.raises(TargetRefusal, match="it overflows"):
        run_passes(graph("(float[3] x) => (float[3] y) { y = Abs (x) }")(), [Failing()])


def test_ablation_measures_only_rules_that_change_the_network() -> None:
    assert ablate(INT8, "speed", rounds=1).keys() == {"fold_width"}
    with disable_rule("fold_width"):
        assert not ablate(INT8, "speed", rounds=1)
    assert "fold_width" in ablate(INT8, "speed", rounds=1, rule_names=["fold_width"])
