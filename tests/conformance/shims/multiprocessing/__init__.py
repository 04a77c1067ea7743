"""`multiprocessing`, with Shoal's functions in the place of its own: put the folder above first on the path.

Its modules are the interpreter's, under their own names, since Shoal's stand on them.
"""

import os
import sys
import sysconfig

_package = os.path.join(sysconfig.get_path("stdlib"), "multiprocessing")
__path__ = [_package]
__file__ = os.path.join(_package, "__init__.py")
with open(__file__) as _file:
    exec(compile(_file.read(), _file.name, "exec"))

_theirs = {name: globals().pop(name) for name in __all__}  # noqa: F821


def __getattr__(name):
    if name not in _theirs:
        raise AttributeError(f"module 'multiprocessing' has no attribute {name!r}")
    import shoal.multiprocessing

    return getattr(shoal.multiprocessing, name, _theirs[name])  # the second: while it is imported itself


sys.modules["__mp_main__"] = sys.modules["__main__"]
