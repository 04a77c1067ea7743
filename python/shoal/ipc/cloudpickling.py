"""cloudpickle's way of sending what cannot be imported, with the name of the file that each function was written in.

From release 3.1.3 on cloudpickle itself leaves that name out: tracebacks, warnings, breakpoints and `inspect.getsource` would have
no source line in the process that a function comes to.
"""

from __future__ import annotations

import io
from types import CodeType
from typing import Any

import cloudpickle

__all__ = ["Pickler", "dumps"]

_FILENAME = 10  # its place among the arguments of CodeType()


def _reduce_code(code: CodeType) -> Any:
    make, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return make, (*arguments[:_FILENAME], code.co_filename, *arguments[_FILENAME + 1 :])


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle comes without types
    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child({CodeType: _reduce_code})


def dumps(obj: Any) -> bytes:
    """`obj` as bytes that `pickle.loads` takes. The errors are those of whatever cannot be pickled."""
    with io.BytesIO() as file:
        Pickler(file).dump(obj)
        return file.getvalue()
