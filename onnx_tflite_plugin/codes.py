"""Prefixes of operator codes that are not in the schema."""

CUSTOM, COMPOSITE, UNKNOWN = "CUSTOM.", "COMPOSITE.", "UNKNOWN_"
NAMED_BY_THE_FILE = (CUSTOM, COMPOSITE)


def has_custom_name(code: str) -> bool:
    """True for a custom operator or a composite: the schema does not define its semantics."""
    return code.startswith(NAMED_BY_THE_FILE)


def bare(code: str) -> str:
    """Return the operator's name in the file: the code without its prefix."""
    prefix = next((prefix for prefix in NAMED_BY_THE_FILE if code.startswith(prefix)), "")
    return code.removeprefix(prefix)
