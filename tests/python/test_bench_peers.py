"""benchmarks/adapters.py: figures of adapters beside their peers' own classes come to stand on their pages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bench_scripts import BENCHMARKS, script


@pytest.fixture
def adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, of a source folder with one page."""
    found = script("adapters")
    page = tmp_path / "docs/migrating/gymnasium.md"
    page.parent.mkdir(parents=True)
    page.write_text(f"before\n{found.BEGIN}\nold\n{found.END}\nafter\n")
    monkeypatch.setattr(found, "ROOT", tmp_path)
    monkeypatch.setattr(found, "KEPT", tmp_path / "results/kept.json")
    monkeypatch.setattr(found, "this_machine", lambda: {"date": "2026-01-02", "cpu": "a CPU", "cpus": 2})
    return found


def result(title: str, ratio: str, theirs: int) -> str:
    sides = {
        "ours": {"steps_per_second": 2000, ratio: 1.0, "from": 1.0, "to": 1.0},
        "theirs": {"steps_per_second": theirs, ratio: 2000 / theirs, "from": 1.5, "to": 12.34},
    }
    return json.dumps({"page": "gymnasium", "title": title, "rounds": 3, "ratio": ratio, "sides": sides})


def test_what_was_measured_again_takes_the_place_of_what_was_kept(
    adapters: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for theirs in (400, 1000):
        path = tmp_path / "printed"
        path.write_text(f"for people\n{result('steps', 'shoal_is', theirs)}\n{result('more', 'shoal_is', 10)}\n")
        monkeypatch.setattr(sys, "argv", ["adapters.py", "--keep", "--write", str(path)])
        adapters.main()
    assert len(json.loads(adapters.KEPT.read_text())) == 2
    page = (tmp_path / "docs/migrating/gymnasium.md").read_text()
    assert page.startswith("before\n") and page.endswith("after\n") and "old" not in page
    assert (
        "a CPU, 2 CPUs, 2026-01-02. × is how many times as fast the first one, Shoal's, was" in page
        and "of 3 rounds" in page
    )
    assert page.count("| steps | steps/s | × (from – to) |\n|---|---|---|\n| **ours** | 2,000 | |\n") == 1
    assert "| theirs | 1,000 | 2.00 (1.50 – 12.3) |" in page and "| theirs | 10 | 200 (1.50 – 12.3) |" in page


def test_a_file_without_results_is_an_error(adapters: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "printed").write_text("for people\n")
    with pytest.raises(SystemExit, match="--json"):
        adapters.results_of(tmp_path / "printed")


def test_pages_have_the_figures_that_are_kept() -> None:
    adapters = script("adapters")
    pages = {name for _, name in re.findall(r'(beside_peers\.(?:main|tell)\((?:__doc__, )?)"(\w+)"', sources())}
    assert {"stable_baselines3", "di_engine", "gymnasium"} <= pages
    for page in pages:
        text = (adapters.ROOT / f"docs/migrating/{page}.md").read_text()
        shown = text.partition(adapters.BEGIN)[2].partition(adapters.END)[0].strip()
        own = [found for found in adapters.kept().values() if found["page"] == page]
        assert adapters.BEGIN in text and adapters.END in text and (not own or shown == adapters.figures(own)), page


def sources() -> str:
    return "\n".join(path.read_text() for path in BENCHMARKS.glob("*.py"))


def test_a_benchmark_prints_what_is_kept() -> None:
    command = [sys.executable, BENCHMARKS / "gymnasium_envs.py", "--task", "cartpole", "--envs", "2", "--steps", "5"]
    done = subprocess.run([*command, "--rounds", "2", "--json"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["page"], found["title"], found["rounds"]) == ("gymnasium", "CartPole-v1, 2 environments", 2)
    assert [side["shoal_is"] for side in found["sides"].values()][0] == 1.0 and len(found["sides"]) == 5
    assert all(side["from"] <= side["shoal_is"] <= side["to"] for side in found["sides"].values())
