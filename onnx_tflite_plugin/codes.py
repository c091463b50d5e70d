"""How the codes of operators begin that the schema does not name."""

CUSTOM, COMPOSITE, UNKNOWN = "CUSTOM.", "COMPOSITE.", "UNKNOWN_"
NAMED_BY_THE_FILE = (CUSTOM, COMPOSITE)


def bare(code: str) -> str:
    """What the file names the operator: the code without the prefix."""
    prefix = next((prefix for prefix in NAMED_BY_THE_FILE if code.startswith(prefix)), "")
    return code.removeprefix(prefix)
