"""`multiprocessing` and `torch.multiprocessing` over Shoal's processes and memory: `import shoal.multiprocessing as mp`.

    ctx = mp.get_context()                      # "forkserver": from a zygote, in milliseconds; also "spawn", "fork"
    process = ctx.Process(target=lambda: …)     # anything callable; no `if __name__ == "__main__"` needed
    mp.spawn(train, args=(model,), nprocs=4)    # torch's, with its exceptions

Every public name of both modules is here. Nothing is imported before it is used.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from shoal.multiprocessing import names as _names
from shoal.multiprocessing.context import default_context as _default_context

SUBDEBUG = 5
SUBWARNING = 25

_OF_CONTEXT = [
    name for name in dir(type(_default_context)) if not name.startswith("_") and name not in _names.MODULE_OF
]
# For programs that reach into torch.multiprocessing: torch's own.
_OF_TORCH = frozenset({"_get_thread_name", "_set_thread_name", "init_reductions", "reductions"})
# Modules of this package where it has them, CPython's otherwise.
_MODULES = frozenset(
    "connection dummy forkserver heap managers pool queues reduction resource_sharer resource_tracker shared_memory"
    " sharedctypes synchronize util".split()
)

__all__ = sorted({*_OF_CONTEXT, *_names.MODULE_OF})

globals().update((name, getattr(_default_context, name)) for name in _OF_CONTEXT)

if "__main__" in sys.modules:  # what a process that has run the main script sends back
    sys.modules.setdefault("__mp_main__", sys.modules["__main__"])


def __getattr__(name: str) -> Any:
    if name in _names.MODULE_OF:
        value = _names.find(name)
    elif name in _OF_TORCH:
        value = getattr(importlib.import_module("torch.multiprocessing"), name)
    elif name in _MODULES:
        own = f"{__name__}.{name}"
        value = importlib.import_module(own if importlib.util.find_spec(own) else f"multiprocessing.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
