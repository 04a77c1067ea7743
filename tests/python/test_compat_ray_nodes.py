"""shoal.compat.ray on two nodes of one machine: placement by Ray's resources, a node that vanishes, one that comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from ray_envs import WhereEnv
from test_compat_ray import SMALL, knowing_the_tests, one, quiet

ray: Any = pytest.importorskip("ray", reason="it is in an environment of its own: ./shoal test --only ray")
import shoal.compat.ray  # noqa: E402

pytestmark = [pytest.mark.keeps_processes, pytest.mark.timeout(240)]

FAR = {"num_cpus": 0, "resources": {"far": 1}}


@pytest.fixture
def nodes() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    with knowing_the_tests():
        cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 2, "resources": {"near": 1}, "object_store_memory": 100 * 2**20},
        )
        ray.init(address=cluster.address, **quiet())
        yield cluster
    ray.shutdown()
    cluster.shutdown()


def far(cluster: Any) -> Any:
    return cluster.add_node(num_cpus=2, resources={"far": 2}, object_store_memory=100 * 2**20)


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"


def test_a_run_goes_on_without_a_node_and_with_the_next(nodes: Any, tmp_path: Path) -> None:
    there = far(nodes)
    options = {**SMALL, "total_steps": 10**9, "num_workers": 0, "run_dir": tmp_path / "run"}
    near = {"num_cpus": 0, "resources": {"near": 1}}
    with shoal.compat.ray.Trainer("CartPole-v1", num_collectors=2, remote_configs=[near, FAR], **options) as trainer:
        trainer.start()
        until(lambda: not trainer.wait(0.05) and len(trainer.collectors) == 2 and trainer.status()["step"] > 0)
        nodes.remove_node(there, allow_graceful=False)
        until(lambda: not trainer.wait(0.05) and len(trainer.collectors) == 1)
        before = trainer.status()["step"]
        until(lambda: not trainer.wait(0.05) and trainer.status()["step"] > before + 1000)
        far(nodes)
        until(lambda: not trainer.wait(0.05) and len(trainer.collectors) == 2)
        assert trainer.status()["lost_rollouts"] <= 1


def test_batches_come_from_the_nodes_that_ray_was_told(nodes: Any) -> None:
    there = far(nodes)
    with shoal.compat.ray.RayCollector(
        WhereEnv, one, num_collectors=2, frames_per_batch=10, remote_configs=[{"resources": {"near": 1}}, FAR]
    ) as collector:
        until(lambda: next(collector) and len(collector.stats()["collectors"]) == 2)
        first, second = collector.stats()["collectors"]
        here = ray.get_runtime_context().get_node_id()
        assert first["node_id"] == here != second["node_id"]
        nodes.remove_node(there, allow_graceful=False)
        for _ in range(20):
            next(collector)
        far(nodes)
        until(
            lambda: next(collector) and collector.stats()["collectors"][1]["node_id"] not in (here, second["node_id"])
        )
