#!/usr/bin/env python3
"""The include check finds every kind of wrong arrow, and nothing else, in sources made for it."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from check_includes import BESIDE, MOST_SOURCES, Rooms, check


class CheckIncludes(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def faults(self, path: str, text: str, rooms: Rooms | None = None) -> list[str]:
        source = self.root / path
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        count, faults = check(self.root, rooms or {})
        self.assertEqual(count, 1)
        source.unlink()
        return faults

    def test_right_arrows_pass(self) -> None:
        for path, text in [
            ("src/shoal/sync/a.h", '#include <atomic>\n#include "shoal/shm/arena.h"\n#include "shoal/sync/b.h"\n'),
            ("src/shoal/learn/a.cc", '#include "shoal/collect/gae.h"\n'),
            ("src/shoal/os/a.cc", '#include "shoal/version.h"\n'),
            ("src/shoal/version.cc", '#include "shoal/version.h"\n'),
            (
                "python/bindings/vector.cc",
                '#include <Python.h>\n#include "rows.h"\n#include "shoal/vector/step/rows.h"\n',
            ),
            ("python/bindings/learn.cc", '#include "shoal/learn/ppo.h"\n'),
            ("src/shoal/os/a.h", '// #include "shoal/vector/step/rows.h" would be wrong here\n'),
        ]:
            with self.subTest(path):
                self.assertEqual(self.faults(path, text), [])

    def test_wrong_arrows_are_found(self) -> None:
        for path, text, expected in [
            ("src/shoal/os/a.h", '#pragma once\n#include "shoal/shm/arena.h"\n', ":2: os includes shm"),
            ("src/shoal/sync/a.cc", "  #  include <shoal/learn/ppo.h>\n", ":1: sync includes learn"),
            ("src/shoal/vector/a.cc", "#include <torch/torch.h>\n", "vector includes LibTorch"),
            ("src/shoal/collect/a.cc", "#include <ATen/ATen.h>\n", "collect includes LibTorch"),
            ("src/shoal/learn/a.cc", "#include <torch/torch.h>\n", "learn includes LibTorch"),
            ("src/shoal/env/a.cc", "#include <Python.h>\n", "env uses Python"),
            ("src/shoal/learn/a.cc", "#include <nanobind/nanobind.h>\n", "learn uses Python"),
            ("src/shoal/shm/a.cc", '#include "arena.h"\n', "no path from src/ on"),
            ("src/shoal/shm/a.cc", '#include "shoal/utils/x.h"\n', "there is no layer utils"),
            ("src/shoal/utils/a.cc", "", "there is no layer utils"),
            ("src/shoal/version.cc", '#include "shoal/os/fd.h"\n', "beside the layers"),
            ("python/bindings/vector.cc", "#include <torch/torch.h>\n", "bindings includes LibTorch"),
            ("python/bindings/learn.cc", "#include <torch/torch.h>\n", "bindings includes LibTorch"),
            ("python/bindings/core_module.cc", '#include "shoal/learn/ppo.h"\n', "than _learn includes learn"),
            ("python/bindings/tensors.cc", '#include "shoal/learn/ppo.h"\n', "than _learn includes learn"),
        ]:
            with self.subTest(path + text):
                faults = self.faults(path, text)
                self.assertEqual(len(faults), 1, faults)
                self.assertIn(expected, faults[0])

    def test_a_folder_with_too_many_sources_is_several_rooms(self) -> None:
        folder = self.root / "src" / "shoal" / "os"
        folder.mkdir(parents=True)
        for number in range(MOST_SOURCES):
            (folder / f"{number}.cc").touch()
            (folder / f"{number}_test.cc").touch()
        self.assertEqual(check(self.root, {})[1], [])
        (folder / "one_more.h").touch()
        (fault,) = check(self.root, {})[1]
        self.assertIn(f"src/shoal/os: {MOST_SOURCES + 1} sources", fault)

    def test_arrows_between_rooms_are_those_that_are_named(self) -> None:
        rooms: Rooms = {"os": {BESIDE: (), "a": (), "b": ("a",), "make.cc": (BESIDE, "a", "b")}}
        for path, text, expected in [
            ("src/shoal/os/b/x.h", '#include "shoal/os/b/y.h"\n#include "shoal/os/a/x.h"\n', []),
            ("src/shoal/os/a/x_test.cc", '#include "shoal/os/b/x.h"\n#include "shoal/os/testing/x.h"\n', []),
            ("src/shoal/os/a/x_benchmark.cc", '#include "shoal/os/b/x.h"\n', []),
            ("src/shoal/os/testing/x.h", '#include "shoal/os/b/x.h"\n', []),
            ("src/shoal/sync/x.h", '#include "shoal/os/b/x.h"\n#include "shoal/os/x.h"\n', []),
            ("src/shoal/os/a/x.h", '#include "shoal/os/b/x.h"\n', [":1: os/a includes os/b"]),
            ("src/shoal/os/a/x.h", '\n#include "shoal/os/x.h"\n', [":2: os/a includes os, "]),
            ("src/shoal/os/x.h", '#include "shoal/os/a/x.h"\n', [":1: os includes os/a"]),
            ("src/shoal/os/x.h", '#include "shoal/os/testing/x.h"\n', ["is for tests"]),
            ("src/shoal/sync/x.h", '#include "shoal/os/testing/x.h"\n', ["is for tests"]),
            ("src/shoal/os/c/x.h", "", ["ROOMS has no such room of os"]),
            ("src/shoal/sync/a/x.h", "", ["ROOMS has no such room of sync"]),
            ("src/shoal/os/b/x.h", "", ["lets os/b include os/a, which no file of it does"]),
        ]:
            with self.subTest(path + text):
                faults = self.faults(path, text, rooms)
                self.assertEqual(len(faults), len(expected), faults)
                for fault, part in zip(faults, expected, strict=True):
                    self.assertIn(part, fault)
        rooms_of_bindings: Rooms = {"bindings": {BESIDE: (), "a": (BESIDE,), "b": ("a",)}}
        for path, text, expected in [
            ("python/bindings/a/x.cc", '#include "x.h"\n#include "a/x.h"\n#include "shoal/os/x.h"\n', []),
            ("python/bindings/x.cc", '#include "a/x.h"\n', [":1: bindings includes bindings/a"]),
            ("python/bindings/a/x.cc", '#include "x.h"\n#include "b/x.h"\n', [":2: bindings/a includes bindings/b"]),
            ("python/bindings/b/x.cc", "#include <vector>\n", ["lets bindings/b include bindings/a, which no file"]),
            ("python/bindings/c/x.cc", "", ["ROOMS has no such room of bindings"]),
        ]:
            with self.subTest(path + text):
                faults = self.faults(path, text, rooms_of_bindings)
                self.assertEqual(len(faults), len(expected), faults)
                for fault, part in zip(faults, expected, strict=True):
                    self.assertIn(part, fault)
        text = "".join(f'#include "shoal/os/{room}x.h"\n' for room in ("", "a/", "b/"))
        self.assertEqual(self.faults("src/shoal/os/make.cc", text, rooms), [])

    def test_rooms_that_include_each_other_are_found(self) -> None:
        for arrows in ({"a": ("b",), "b": ("a",)}, {"a": ("a",)}):
            with self.subTest(arrows):
                faults = self.faults("src/shoal/os/x.h", "", {"os": {BESIDE: (), **arrows}})
                self.assertEqual(len(faults), 1, faults)
                self.assertIn("which is not above it", faults[0])

    def test_no_sources_is_no_success(self) -> None:
        self.assertEqual(check(self.root), (0, []))


if __name__ == "__main__":
    unittest.main()
