"""Random models of single operators and networks, converted and compared with LiteRT.

``python -m tests.qa.random_models --seed 7 --count 2000`` tries more than
``tests/qa/test_random_models.py`` does. Model ``k`` of a seed is the same in every run.
``@draws("ADD", "SUB")`` makes a function the one that draws these operators; what surrounds an
operator (constants or graph inputs, convolutions, float16 constants, dynamic sizes) is drawn alike for all of them.
"""
