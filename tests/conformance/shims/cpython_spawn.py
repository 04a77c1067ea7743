"""CPython's tests of multiprocessing, for the start method "spawn"."""

import test._test_multiprocessing as tests

import shoal.multiprocessing

tests.reduction = shoal.multiprocessing.reduction
tests.PRELOAD = ["__main__", __name__]
tests.install_tests_in_module_dict(globals(), "spawn")
