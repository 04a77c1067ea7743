"""The log lines of the C++ parts."""

def write(level: str, source: str, text: str) -> None:
    """As the C++ parts do."""

def to_stderr() -> None:
    """
    From now on they go to stderr; those that wait for Python's logging are delivered.
    """
