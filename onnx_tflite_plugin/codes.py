"""Prefixes of operator codes that the TFLite schema does not define."""

CUSTOM, COMPOSITE, UNKNOWN = "CUSTOM.", "COMPOSITE.", "UNKNOWN_"
NAMED_BY_THE_FILE = (CUSTOM, COMPOSITE)


def has_custom_name(code: str) -> bool:
    """True for a custom operator or a composite, which the file names itself."""
    return code.startswith(NAMED_BY_THE_FILE)


def name_in_file(code: str) -> str:
    """Return an operator's name in the file: its code without the prefix."""
    prefix = next((prefix for prefix in NAMED_BY_THE_FILE if code.startswith(prefix)), "")
    return code.removeprefix(prefix)
