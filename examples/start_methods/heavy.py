"""Stands for a module that takes seconds to import. It says who has done it."""

import os

imported_by = os.getpid()
