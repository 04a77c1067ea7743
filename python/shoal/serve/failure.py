"""What is told of an exception of a user's, as texts that can be sent, whatever the exception's own methods do."""

from __future__ import annotations

import traceback

__all__ = ["sendable", "text_of", "told", "trace_of"]


def told(error: BaseException) -> str:
    """Its kind and its text."""
    kind, text = type(error).__name__, text_of(error)
    return f"{kind}: {text}" if text else kind


def text_of(error: BaseException) -> str:
    try:
        return sendable(str(error))
    except Exception as raised:  # its own __str__ may fail
        return f"<str() of the exception raised {type(raised).__name__}>"


def trace_of(error: BaseException) -> str:
    """Its traceback, as Python prints it; the kind alone where that cannot be made."""
    try:
        return sendable("".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip())
    except Exception:
        return told(error)


def sendable(text: str) -> str:
    r"""Surrogates, which names of files may have and UTF-8 has not, as `\udce9`."""
    return text.encode("utf-8", "backslashreplace").decode()
