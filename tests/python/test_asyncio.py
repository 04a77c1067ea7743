"""Vector environments and model services in asyncio, and their descriptors in select."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import time
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, NoAsyncCallError

import shoal
from shoal.errors import DeadlineExceeded, ModelError
from shoal.serve.client import Reply

BOUND = 60.0
"""Seconds in which what is awaited comes."""

ACTIONS = np.zeros(4, np.int64)


class Slow(gymnasium.Wrapper):
    """Steps that take a while."""

    def step(self, action: Any) -> Any:
        time.sleep(0.05)
        return super().step(action)


class Late(gymnasium.Wrapper):
    """Steps that fail as a wait does."""

    def step(self, action: Any) -> Any:
        raise TimeoutError("of the environment")


@pytest.fixture(params=[None, 2], ids=["together", "one_by_one"])
def batch_size(request: pytest.FixtureRequest) -> Any:
    return request.param


def received(result: Any) -> list[Any]:
    observations, rewards, terminated, truncated, infos = result
    order = np.argsort(infos["env_id"])
    return [np.asarray(part)[order].copy() for part in (observations, rewards, terminated, truncated)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_is_awaited_is_what_recv_returns(num_workers: int, batch_size: int | None) -> None:
    def make() -> Any:
        return shoal.make_vec("CartPole-v1", 4, num_workers=num_workers, batch_size=batch_size and 4)

    async def awaited(envs: Any) -> list[Any]:
        envs.async_reset(seed=3)
        results = [received(await envs.recv_async())]
        for _ in range(5):
            envs.send(ACTIONS, np.arange(4))
            results.append(received(await envs.recv_async(timeout=BOUND)))
        return results

    def plain(envs: Any) -> list[Any]:
        envs.async_reset(seed=3)
        results = [received(envs.recv())]
        for _ in range(5):
            envs.send(ACTIONS, np.arange(4))
            results.append(received(envs.recv()))
        return results

    with make() as envs, make() as same:
        for ours, theirs in zip(asyncio.run(awaited(envs)), plain(same), strict=True):
            for own, other in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(own, other)


def test_other_tasks_run_while_environments_step(batch_size: int | None) -> None:
    async def main(envs: Any) -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.001)

        counting = asyncio.create_task(count())
        for _ in range(3):
            envs.send(ACTIONS, np.arange(4))
            for _ in range(4 // envs.batch_size):
                await envs.recv_async()
        counting.cancel()
        return turns

    with shoal.make_vec("CartPole-v1", 4, num_workers=2, batch_size=batch_size, wrappers=[Slow]) as envs:
        envs.reset(seed=0)
        assert asyncio.run(main(envs)) > 10


def test_two_at_a_time() -> None:
    async def steps(envs: Any) -> int:
        for _ in range(5):
            envs.send(ACTIONS)
            await envs.recv_async()
        return 5

    async def main(*all: Any) -> list[int]:
        return await asyncio.gather(*map(steps, all))

    with (
        shoal.make_vec("CartPole-v1", 4, num_workers=1) as first,
        shoal.make_vec("CartPole-v1", 4, num_workers=1) as second,
    ):
        first.reset(seed=0), second.reset(seed=0)
        assert asyncio.run(main(first, second)) == [5, 5]


def test_a_timeout_leaves_them_in_flight(batch_size: int | None) -> None:
    async def main(envs: Any) -> None:
        envs.send(ACTIONS, np.arange(4))
        with pytest.raises(TimeoutError):
            await envs.recv_async(timeout=0.01)
        waiting = asyncio.create_task(envs.recv_async())
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert envs.in_flight == 4
        for _ in range(4 // envs.batch_size):
            assert len((await envs.recv_async())[1]) == envs.batch_size

    with shoal.make_vec("CartPole-v1", 4, num_workers=2, batch_size=batch_size, wrappers=[Slow]) as envs:
        envs.reset(seed=0)
        asyncio.run(main(envs))


def test_what_an_environment_raises_is_raised() -> None:
    with shoal.make_vec("CartPole-v1", 4, num_workers=2, wrappers=[Late]) as envs:
        envs.reset(seed=0)
        envs.send(ACTIONS)
        with pytest.raises(TimeoutError, match="of the environment"):
            asyncio.run(envs.recv_async())


def test_a_death_is_noticed(batch_size: int | None) -> None:
    async def main(envs: Any) -> None:
        envs.send(ACTIONS, np.arange(4))
        for worker in envs.health():
            os.kill(worker["pid"], signal.SIGKILL)
        for _ in range(4 // envs.batch_size):
            await asyncio.wait_for(envs.recv_async(), BOUND)

    with shoal.make_vec("CartPole-v1", 4, num_workers=2, batch_size=batch_size, wrappers=[Slow]) as envs:
        envs.reset(seed=0)
        with pytest.raises(shoal.WorkerDied):
            asyncio.run(main(envs))


def test_closed_while_a_task_waits() -> None:
    async def main(envs: Any) -> None:
        envs.send(ACTIONS)
        waiting = asyncio.create_task(envs.recv_async())
        await asyncio.sleep(0)
        envs.close()
        with pytest.raises(ClosedEnvironmentError):
            await asyncio.wait_for(waiting, BOUND)

    with shoal.make_vec("CartPole-v1", 4, num_workers=2, wrappers=[Slow]) as envs:
        envs.reset(seed=0)
        asyncio.run(main(envs))
        with pytest.raises(ClosedEnvironmentError):
            envs.fileno()


def test_of_nothing_that_is_in_flight_there_is_nothing_to_await(batch_size: int | None) -> None:
    with shoal.make_vec("CartPole-v1", 4, num_workers=2, batch_size=batch_size) as envs:
        envs.reset(seed=0)
        with pytest.raises(NoAsyncCallError):
            asyncio.run(envs.recv_async())


@pytest.mark.parametrize("num_workers", [0, 2])
def test_select_waits_for_environments(num_workers: int, batch_size: int | None) -> None:
    with shoal.make_vec("CartPole-v1", 4, num_workers=num_workers, batch_size=batch_size, wrappers=[Slow]) as envs:
        envs.reset(seed=0)
        envs.send(ACTIONS, np.arange(4))
        if num_workers:
            assert select.select([envs], [], [], 0.0) == ([], [], [])
        rows = 0
        while rows < 4:
            assert select.select([envs], [], [], BOUND)[0] == [envs]
            try:
                rows += len(envs.recv(timeout=None if num_workers == 0 else 0.0)[1])
            except TimeoutError:
                continue


class TestReplies:
    @pytest.fixture
    def service(self) -> Any:
        def slow(rows: np.ndarray) -> np.ndarray:
            time.sleep(0.05)
            if rows.min() < 0:
                raise ValueError("negative")
            return rows * 2

        with shoal.ModelService({"double": slow}, context="thread") as service:
            yield service

    def test_many_are_awaited_at_once(self, service: Any) -> None:
        async def main() -> list[Any]:
            model = service.model("double")
            replies = [model.submit(np.float32(i)) for i in range(8)]
            assert isinstance(replies[0], Reply)

            async def one(reply: Any) -> Any:
                return await reply

            return await asyncio.gather(*map(one, replies))

        assert asyncio.run(main()) == [2.0 * i for i in range(8)]

    def test_other_tasks_run_meanwhile(self, service: Any) -> None:
        async def main() -> int:
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0.001)

            counting = asyncio.create_task(count())
            await service.model("double").submit(np.float32(1))
            counting.cancel()
            return turns

        assert asyncio.run(main()) > 3

    def test_what_the_model_raises_is_raised(self, service: Any) -> None:
        async def main() -> None:
            await service.model("double").submit(np.float32(-1))

        with pytest.raises(ModelError, match="negative"):
            asyncio.run(main())

    def test_a_deadline_is_kept(self, service: Any) -> None:
        async def main() -> None:
            await service.model("double").submit(np.float32(1), timeout=0.01)

        with pytest.raises(DeadlineExceeded):
            asyncio.run(main())

    def test_of_a_model_of_this_process(self) -> None:
        from shoal.serve.local import LocalModels

        async def main() -> Any:
            return await LocalModels({"double": lambda rows: rows * 2}).find("double").submit(np.float32(4))

        assert asyncio.run(main()) == 8.0
