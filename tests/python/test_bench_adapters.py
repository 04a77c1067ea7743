"""What the adapters of the benchmarks count is what they do. Each is run where its library is installed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from shoal.bench.process import PROGRAM
from shoal.bench.roster import CONTESTANTS, PACKAGES, Contestant, interpreter

NUM_ENVS = 4


def driven(contestant: Contestant, folder: Path) -> dict[str, object]:
    python = interpreter(contestant.peer)
    if python is None:
        pytest.skip(f"benchmarks/peers/setup {contestant.peer} has not been run")
    environment = {**os.environ, "PYTHONPATH": "" if contestant.peer else str(PACKAGES), "PYTHONWARNINGS": "ignore"}
    driver = Path(__file__).with_name("bench_driver.py")
    found = subprocess.run(
        [python, driver, PROGRAM, contestant.adapter, contestant.mode, folder, str(NUM_ENVS), "2"],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert found.returncode == 0, found.stderr[-2000:]
    return json.loads(found.stdout)


@pytest.mark.parametrize("name", [c.name for c in CONTESTANTS.values() if not c.own and not c.plain])
def test_every_counted_step_was_made_and_every_environment_has_a_seed_of_its_own(name, tmp_path):
    found = driven(CONTESTANTS[name], tmp_path)
    counted, made = found["counted"], found["made"]
    # Asynchronous workers step on while nobody counts: before a window begins and after it ends.
    tolerance = NUM_ENVS if name.endswith("async") else 0
    assert counted > 0 and abs(counted - made) <= tolerance, found
    seeds = {int(seed) for seed in (tmp_path / "seeds").read_text().split()}
    # PufferLib's workers start from neighbouring seeds, so that they have some in common.
    assert len(seeds) >= (NUM_ENVS if name.split("-")[0] != "pufferlib" else 2), seeds
