"""CPython's `multiprocessing.shared_memory`, under a name of this package: `from shoal.multiprocessing.shared_memory import …`."""

import multiprocessing.shared_memory as _cpythons
import sys
from multiprocessing.shared_memory import *  # noqa: F403  # for type checkers

sys.modules[__name__] = _cpythons
