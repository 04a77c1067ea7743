"""The C++ headers: which are public and installed, that each compiles alone, the examples in their comments, their contracts."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"
BUILD = ROOT / "build" / "release"
LIST = ROOT / "cmake" / "public_headers.txt"
PAGE = ROOT / "docs" / "public-headers.md"
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"(shoal/[^"]+)"', re.MULTILINE)

if not LIST.is_file():
    pytest.skip("the sources are not part of an installed package", allow_module_level=True)

needs_build = pytest.mark.skipif(
    not (BUILD / "compile_commands.json").exists(), reason="there is no build in build/release"
)


def public_headers() -> list[str]:
    return [line for line in LIST.read_text().splitlines() if line.startswith("shoal/")]


def headers() -> list[str]:
    return sorted(str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.h"))


def includes(header: str) -> list[str]:
    return INCLUDE.findall((SOURCES / header).read_text())


def closure(roots: list[str]) -> set[str]:
    """These headers of ours, and all that they include."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        header = waiting.pop()
        if header not in found:
            found.add(header)
            waiting += includes(header)
    return found


# --- what is public


def test_the_page_names_the_headers_of_the_list() -> None:
    table = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    named = [word for line in table for word in re.findall(r"`(shoal/[^`]+\.h)`", line.split("|")[1])]
    assert sorted(named) == sorted(public_headers())


def test_no_public_header_needs_a_test_double_or_a_layer_above() -> None:
    assert [header for header in closure(public_headers()) if "/testing/" in header] == []
    assert [header for header in closure(public_headers()) if header.startswith("shoal/learn/")] == []


def of_tests(path: Path) -> bool:
    return "testing" in path.parts or path.stem.endswith(("_test", "_benchmark"))


def test_what_only_tests_include_lies_in_a_testing_folder() -> None:
    users: dict[str, list[Path]] = {}
    for folder in (SOURCES, ROOT / "python" / "bindings", ROOT / "examples"):
        for path in folder.rglob("*"):
            if path.suffix in (".h", ".cc"):
                for header in INCLUDE.findall(path.read_text()):
                    users.setdefault(header, []).append(path)
    doubles = [
        header
        for header in headers()
        if "/testing/" not in header
        and header not in public_headers()
        and any(of_tests(user) for user in users.get(header, ()))
        and all(of_tests(user) for user in users[header])
    ]
    assert doubles == []
    wrong = [
        f"{user.relative_to(ROOT)} includes {header}"
        for header, places in users.items()
        for user in places
        if "/testing/" in header and not of_tests(user)
    ]
    assert wrong == []


# --- compiling


@dataclass(frozen=True)
class Unit:
    """A file to compile: a header, alone or with the example of its comment."""

    header: str
    text: str

    @property
    def name(self) -> str:
        return self.header.removesuffix(".h").replace("/", "_") + ".cc"


def compiler() -> list[str]:
    """The compiler of the build, with the options that every layer gets, but for what finds our own headers."""
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        if entry["file"].endswith("/src/shoal/version.cc"):
            words = shlex.split(entry["command"])
            break
    else:
        raise AssertionError("build/release compiles no src/shoal/version.cc")
    cache = (BUILD / "CMakeCache.txt").read_text()
    found = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", cache, re.MULTILINE)
    assert found is not None
    options = [word for word in words if re.match(r"-(D|f|std=)", word)]
    systems = [f"-isystem{after}" for word, after in zip(words, words[1:], strict=False) if word == "-isystem"]
    return [found[1], *options, *systems, "-fsyntax-only"]


def failures(units: list[Unit], include: Path, folder: Path) -> list[str]:
    """What the compiler says of those that do not compile."""
    command = [*compiler(), f"-I{include}"]

    def compile_one(unit: Unit) -> str:
        path = folder / unit.name
        path.write_text(unit.text)
        done = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=100)
        return f"{unit.header}:\n{done.stderr}" if done.returncode else ""

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return [said for said in pool.map(compile_one, units) if said]


# --- the examples in comments


@dataclass(frozen=True)
class Around:
    """What the example of a header stands in.

    Attributes:
        function: its head, where it is not `void shown()`; "" where the example stands at namespace scope.
        before: what the example takes as given.
        includes: beside the header itself.
    """

    function: str = "void shown()"
    before: str = ""
    includes: tuple[str, ...] = ()


AROUND = {
    "env.h": Around(function="", before="using shm::DType;", includes=("shoal/env/register_env.h",)),
    "register_env.h": Around(
        function="",
        before="""
            struct Coin : Env {
              Coin() : Env(Discrete{2}, Discrete{2}) {}
              void reset(const Row&) override {}
              Outcome step(const Row&, const Row&) override { return {}; }
            };""",
    ),
    "program.h": Around(function="int shown(const ForkHooks& hooks)"),
    "client.h": Around(
        function="void shown(const std::string& address, const RequestKind& kind, "
        "std::span<const std::byte* const> example, std::span<const std::byte* const> rows)"
    ),
    "server.h": Around(function="void shown(const std::string& address)"),
    "journal.h": Around(function="void shown(Journal<8>& journal, std::byte* base, std::uint64_t place)"),
    "a3c.h": Around(
        function="void shown(std::shared_ptr<ActorProcesses> actors, const A3cConfig& config, std::uint64_t seed)"
    ),
    "replay.h": Around(
        function="void shown(const std::vector<shm::TensorSpec>& specs, const shm::TensorSpec& spec, "
        "std::span<const shm::TensorView> obs, const std::byte* action, const ReplayRandom& random, ReplaySamples& samples)"
    ),
    "group.h": Around(
        function="void shown(std::span<float> gradient, std::vector<std::byte>& bytes, std::span<const std::byte> mine)"
    ),
    "make_learner.h": Around(
        function="void shown(std::unique_ptr<vector::VectorEnv> envs, const AlgorithmConfig& config, "
        "std::int64_t total_steps, std::uint64_t seed)"
    ),
    "minibatch.h": Around(
        function="void shown(Minibatch& batch, collect::Rollout& rollout, const Advantages& advantages, "
        "const Sequences& rows, Optimizer& optimizer, double learning_rate)"
    ),
    "trainer.h": Around(
        before="using namespace std::chrono_literals; void show(const TrainStatus&);",
        function="void shown(std::shared_ptr<vector::VectorEnv> envs, std::shared_ptr<vector::VectorEnv> eval_envs, "
        "const TrainConfig& config, const std::filesystem::path& run_directory)",
    ),
}
"""By the name of the header's file; others have nothing around them."""


def examples(text: str) -> list[str]:
    """The code in comments of a header: lines that are set in by three spaces, the last of which ends as code does."""
    found = []
    for block in re.findall(r"(?:^[ \t]*///?(?:   .*)?\n)+", text, re.MULTILINE):
        code = "\n".join(re.sub(r"^[ \t]*///?", "", line) for line in block.splitlines())
        if re.search(r";[ ]*(//.*)?$", code, re.MULTILINE) and re.search(r"[;}][ ]*(//.*)?\s*\Z", code):
            found.append(code)
    return found


def unit(header: str, text: str) -> Unit:
    """A file that includes the header and, where its comments show an example, compiles that too."""
    around = AROUND.get(header.rpartition("/")[2], Around())
    space = re.search(r"^namespace (shoal[\w:]*) \{", text, re.MULTILINE)
    shown = examples(text)
    lines = [f'#include "{name}"' for name in (header, *(around.includes if shown else ()), header)]
    if shown:
        lines += [f"namespace {space[1] if space else 'shoal'} {{", around.before]
        for number, code in enumerate(shown):
            head = around.function.replace(" shown(", f" shown_{number}(")
            lines += [f"{head} {{", code, "}"] if head else [code]
        lines.append("}")
    return Unit(header, "\n".join(lines) + "\n")


@needs_build
def test_the_installed_headers_are_the_public_ones_and_what_they_include_and_compile_alone(tmp_path: Path) -> None:
    install = ["cmake", "--install", str(BUILD), "--prefix", str(tmp_path / "prefix"), "--component", "development"]
    subprocess.run(install, check=True, capture_output=True, timeout=100)
    include = tmp_path / "prefix" / "include"
    installed = {str(path.relative_to(include)) for path in include.rglob("*") if path.is_file()}
    assert installed == closure(public_headers())
    # With the example in its comment, where it has one.
    units = [unit(header, (SOURCES / header).read_text()) for header in public_headers()]
    said = failures(units, include, tmp_path)
    assert not said, "\n".join(said)


@needs_build
def test_examples_in_the_comments_of_other_headers_compile(tmp_path: Path) -> None:
    # Not those of vector: the one that shows a pool would need half an engine around it.
    others = [name for name in headers() if name not in public_headers() and not name.startswith("shoal/vector/")]
    texts = {header: (SOURCES / header).read_text() for header in others}
    units = [unit(header, text) for header, text in texts.items() if examples(text)]
    assert units
    said = failures(units, SOURCES, tmp_path)
    assert not said, "\n".join(said)


@needs_build
def test_the_programs_in_documents_compile(tmp_path: Path) -> None:
    texts = [path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))]
    programs = [code for text in texts for code in re.findall(r"^```cpp\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    units = [Unit(f"program_{number}.h", code) for number, code in enumerate(programs)]
    assert units
    said = failures(units, SOURCES, tmp_path)
    assert not said, "\n".join(said)


def test_examples_are_told_from_tables_and_drawings() -> None:
    code = "// What it is.\n//\n//   int i = 0;  // a number\n//   use(i);\n//\n// More.\n"
    assert [re.sub(r"\s+", " ", shown).strip() for shown in examples(code)] == ["int i = 0; // a number use(i);"]
    assert examples("// What it is.\n//\n//   0   4   word: bits 31..1; the futex\n//   4   4   zero\n") == []


@needs_build
def test_an_example_that_does_not_compile_is_told(tmp_path: Path) -> None:
    header = "shoal/version.h"
    text = "//   int i = no_such_thing();\n" + (SOURCES / header).read_text()
    assert "no_such_thing" in "".join(failures([unit(header, text)], SOURCES, tmp_path))


# --- contracts

CLASS = re.compile(
    r"(?P<comment>(?:^[ \t]*//.*\n)*)^(?:template <.*>\n)?"
    r"class (?:\[\[\w+\]\] )?(?:alignas\(\w+\) )?(?P<name>\w+)(?: final)?(?P<bases>(?: : [^{;]*)?)\s*\{",
    re.MULTILINE,
)
LABELS = re.compile(r"^[ \t]*///? ([A-Z][A-Za-z ,]{2,40}):", re.MULTILINE)
FAILURE = re.compile(r"\b(\w*Error|InvalidArgument|InvalidState|TimedOut|WorkerDied)\b")
LAYERS = ("ipc", "process", "serve", "vector")


def missing_contracts(text: str) -> list[str]:
    """Of the classes at namespace scope that are no exceptions: which of the three their comments do not speak of."""
    top = text.partition("#pragma once")[0]
    lost = []
    for found in CLASS.finditer(text):
        if FAILURE.search(found["bases"]):
            continue
        labels = " ".join(LABELS.findall(top + found["comment"])).lower()
        words = [word for word in ("threads", "processes", "death") if word not in labels]
        if words:
            lost.append(f"{found['name']}: {', '.join(words)}")
    return lost


def test_classes_say_their_threads_processes_and_deaths() -> None:
    lost = [
        f"{header}: {line}"
        for header in headers()
        if header.split("/")[1] in LAYERS and "/testing/" not in header
        for line in missing_contracts((SOURCES / header).read_text())
    ]
    assert not lost, "\n".join(lost)


def test_a_class_without_a_contract_is_found() -> None:
    assert missing_contracts("#pragma once\n/// A value.\n/// Threads: any.\nclass A {\n};\n") == [
        "A: processes, death"
    ]
    told = "// Threads, processes: any.\n#pragma once\n/// Death: of a peer: nothing.\nclass A final : public B {\n};\n"
    assert missing_contracts(told) == []
    assert missing_contracts("class E : public Error {\n};\n") == []


# --- their tests


def test_every_cpp_test_is_built_somewhere() -> None:
    """A `*_test.cc` that no CMake file names would never run, nor be told as left out."""
    named = "\n".join(
        path.read_text() for path in SOURCES.rglob("*") if path.name == "CMakeLists.txt" or path.suffix == ".cmake"
    )
    lost = [
        str(path.relative_to(ROOT)) for path in SOURCES.rglob("*_test.cc") if not re.search(rf"\b{path.name}\b", named)
    ]
    assert lost == []
