"""How the codes of operators begin that the schema does not name."""

CUSTOM, COMPOSITE, UNKNOWN = "CUSTOM.", "COMPOSITE.", "UNKNOWN_"
NAMED_BY_THE_FILE = (CUSTOM, COMPOSITE)


def named_by_the_file(code: str) -> bool:
    """Whether an operator is custom or a composite: its author alone knows what it gives."""
    return code.startswith(NAMED_BY_THE_FILE)


def bare(code: str) -> str:
    """What the file names the operator: the code without the prefix."""
    prefix = next((prefix for prefix in NAMED_BY_THE_FILE if code.startswith(prefix)), "")
    return code.removeprefix(prefix)
