"""CPython's `multiprocessing.dummy`, under a name of this package: `from shoal.multiprocessing.dummy import …`."""

import multiprocessing.dummy as _cpythons
import sys
from multiprocessing.dummy import *  # noqa: F403  # for type checkers

sys.modules[__name__] = _cpythons
