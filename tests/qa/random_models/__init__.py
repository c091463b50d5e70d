"""Random models of operators and networks, compared with LiteRT.

``python -m tests.qa.random_models --seed 7 --count 2000`` tests more models than ``tests/qa/test_random_models.py``.
Model ``k`` of a seed is the same in every run. ``@case_generator("ADD", "SUB")`` registers a function that builds random cases of these
operators. The surroundings of an operator (constants or graph inputs, convolutions, float16 constants, dynamic sizes)
are random in the same way for all operators.
"""
