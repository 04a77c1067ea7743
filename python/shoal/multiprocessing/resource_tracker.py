"""CPython's `multiprocessing.resource_tracker`, under a name of this package: `from shoal.multiprocessing.resource_tracker import …`."""

import multiprocessing.resource_tracker as _cpythons
import sys
from multiprocessing.resource_tracker import *  # noqa: F403  # for type checkers

sys.modules[__name__] = _cpythons
