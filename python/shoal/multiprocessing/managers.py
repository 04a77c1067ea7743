"""CPython's `multiprocessing.managers`, under a name of this package: `from shoal.multiprocessing.managers import …`."""

import multiprocessing.managers as _cpythons
import sys
from multiprocessing.managers import *  # noqa: F403  # for type checkers

sys.modules[__name__] = _cpythons
