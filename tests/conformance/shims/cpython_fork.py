"""CPython's tests of multiprocessing, for the start method "fork"."""

import test._test_multiprocessing as tests

tests.PRELOAD = ["__main__", __name__]
tests.install_tests_in_module_dict(globals(), "fork")
