#!/usr/bin/env python3
"""The check of imports finds every kind of circle, and nothing else, in modules made for it."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from check_imports import check


class CheckImports(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def faults(self, **texts: str) -> list[str]:
        """Of modules with these texts: `a` is python/shoal/a.py, `a__b` a/b.py, and `a__face` a/__init__.py."""
        for path in self.root.glob("python/shoal/**/*.py"):
            path.unlink()
        for name, text in {"face": "", **texts}.items():
            *folders, file = name.split("__")
            path = self.root.joinpath("python", "shoal", *folders, "__init__.py" if file == "face" else f"{file}.py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check(self.root)[1]

    def test_arrows_that_lead_down_pass(self) -> None:
        self.assertEqual(
            self.faults(
                a="import shoal.b\nfrom shoal import c\n",
                b="def f():\n    from shoal.c import g\n",
                c="import os, importlib\nfrom shoal import unknown_to_python\n",
            ),
            [],
        )

    def test_a_circle_is_found_wherever_the_import_stands(self) -> None:
        for text in (
            "import shoal.a\n",
            "from shoal import a\n",
            "from shoal.a import x\n",
            "from . import a\n",
            "from .a import x\n",
            "def f():\n    from shoal.a import x\n",
            "try:\n    import shoal.a\nexcept ImportError:\n    pass\n",
            "if TYPE_CHECKING:\n    pass\nelse:\n    import shoal.a\n",
            "import importlib\nimportlib.import_module('shoal.a')\n",
            "import importlib\nNAMES = {'x': 'shoal.a'}\ndef f(n):\n    return importlib.import_module(NAMES[n])\n",
            "import importlib\ndef f(n):\n    return importlib.import_module(f'shoal.{n}')\n",
        ):
            with self.subTest(text):
                faults = self.faults(a="import shoal.b\n", b=text)
                self.assertIn("modules: 2 import each other: shoal.a, shoal.b\n", faults[0])
                self.assertIn("shoal.a -> shoal.b (python/shoal/a.py:1)", faults[0])

    def test_what_only_a_type_checker_reads_is_no_import(self) -> None:
        for test in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            with self.subTest(test):
                self.assertEqual(self.faults(a="import shoal.b\n", b=f"if {test}:\n    import shoal.a\n"), [])

    def test_a_string_counts_only_where_modules_are_imported_by_name(self) -> None:
        self.assertEqual(self.faults(a="import shoal.b\n", b="NAME = 'shoal.a'\n"), [])

    def test_all_of_a_circle_are_named(self) -> None:
        faults = self.faults(a="import shoal.b", b="import shoal.c", c="import shoal.a", d="import shoal.a")
        self.assertIn("3 import each other: shoal.a, shoal.b, shoal.c\n", faults[0])

    def test_a_face_is_a_module_like_others(self) -> None:
        face = "import importlib\ndef __getattr__(n):\n    return importlib.import_module(f'{__name__}.{n}')\n"
        self.assertEqual(self.faults(a__face=face, a__b="from shoal.a import c\n", a__c=""), [])
        faults = self.faults(a__face=face, a__b="from shoal.a import found_by_the_face\n")
        self.assertIn("shoal.a, shoal.a.b", faults[0])

    def test_packages_that_import_each_other_are_found_without_a_circle_of_modules(self) -> None:
        faults = self.faults(
            a__face="", b__face="", a__one="import shoal.b.one", b__one="", b__two="import shoal.a.two", a__two=""
        )
        self.assertEqual(len(faults), 1, faults)
        self.assertIn("packages: 2 import each other: shoal.a, shoal.b\n", faults[0])
        self.assertIn("shoal.b -> shoal.a (python/shoal/b/two.py:1)", faults[0])

    def test_no_modules_is_no_success(self) -> None:
        self.assertEqual(check(self.root), (0, []))


if __name__ == "__main__":
    unittest.main()
