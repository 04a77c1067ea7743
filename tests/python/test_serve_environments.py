"""Environments reach their models from everywhere they may run."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

import numpy as np
import pytest

import shoal
from served_models import AskingEnv, double, make_double, pid


def _check_steps(envs: Any, server: int) -> None:
    obs, _ = envs.reset(seed=1)
    assert not obs.any()
    for step in range(1, 10):
        obs, rewards, *_ = envs.step(np.zeros(envs.num_envs, int))
        np.testing.assert_array_equal(obs, np.full((envs.num_envs, 2), 2.0 * step))
        assert set(rewards) == {server}


class TestEnvironments:
    @pytest.mark.parametrize("context", ["auto", "spawn"])
    def test_workers_ask_the_service(self, context: str) -> None:
        with shoal.ModelService({"double": make_double, "pid": pid}) as service:
            options = shoal.WorkerOptions(models=service)
            with closing(shoal.make_vec(AskingEnv, 4, num_workers=2, context=context, worker=options)) as envs:
                _check_steps(envs, int(service.model("pid")(0)))

    @pytest.mark.own_process
    def test_forked_workers_ask_the_service(self) -> None:
        with shoal.ModelService({"double": make_double, "pid": pid}) as service:
            options = shoal.WorkerOptions(models=service)
            with closing(shoal.make_vec(AskingEnv, 4, num_workers=2, context="fork", worker=options)) as envs:
                _check_steps(envs, int(service.model("pid")(0)))

    def test_environments_of_this_process_ask_it_too(self) -> None:
        with shoal.ModelService({"double": double, "pid": pid}) as service:
            options = shoal.WorkerOptions(models=service)
            with closing(shoal.make_vec(AskingEnv, 2, backend="serial", worker=options)) as envs:
                _check_steps(envs, int(service.model("pid")(0)))

    def test_asynchronous_environments(self) -> None:
        with shoal.ModelService({"double": double, "pid": pid}) as service:
            options = shoal.WorkerOptions(models=service)
            with closing(shoal.make_vec(AskingEnv, 4, num_workers=2, batch_size=2, worker=options)) as envs:
                obs, _ = envs.reset()
                assert not obs.any()

    def test_without_a_service_workers_load_their_own(self) -> None:
        options = shoal.WorkerOptions(models={"double": make_double, "pid": pid})
        with closing(shoal.make_vec(AskingEnv, 2, num_workers=2, worker=options)) as envs:
            envs.reset()
            _, pids, *_ = envs.step(np.zeros(2, int))
            assert len(set(pids)) == 2

    def test_without_make_vec_models_are_called_directly(self) -> None:
        shoal.serve.use({"double": double, "pid": pid})
        try:
            env = AskingEnv()
            env.reset()
            obs, reward, *_ = env.step(0)
            np.testing.assert_array_equal(obs, [2, 2])
            assert reward == os.getpid()
        finally:
            shoal.serve.use(None)

    def test_a_process_without_models_says_how_to_get_them(self) -> None:
        with pytest.raises(RuntimeError, match=r"WorkerOptions\(models="):
            shoal.worker().model("double")
