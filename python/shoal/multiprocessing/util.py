"""CPython's `multiprocessing.util`, under a name of this package: `from shoal.multiprocessing.util import …`."""

import multiprocessing.util as _cpythons
import sys
from multiprocessing.util import *  # noqa: F403  # for type checkers

sys.modules[__name__] = _cpythons
