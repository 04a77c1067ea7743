"""Replies of a model service: taken once, gathered, awaited and cancelled."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import shoal
from promise import await_that
from served_models import MODELS
from shoal.errors import Cancelled, ModelError

pytestmark = pytest.mark.keeps_processes


@pytest.fixture(scope="module", params=["auto", "thread"])
def service(request: pytest.FixtureRequest) -> Iterator[shoal.ModelService]:
    with shoal.ModelService(MODELS, max_batch=8, context=request.param) as service:
        yield service


def held_by(gate: threading.Event) -> Callable[[np.ndarray], np.ndarray]:
    """A model that answers batches with a row above 0 once the gate is open."""

    def slow(x: np.ndarray) -> np.ndarray:
        if (x > 0).any():
            gate.wait(60)
        return x

    return slow


def test_submit_and_gather(service: shoal.ModelService) -> None:
    model = service.model("double")
    row = np.zeros(2)
    replies = []
    for i in range(10):
        row[:] = i  # may be written to after submit()
        replies.append(model.submit(row))
    for i, answer in enumerate(model.gather(replies)):
        np.testing.assert_array_equal(answer, [2 * i, 2 * i])
    assert replies[0].version == model.version == 1


def test_replies_of_one_thread_are_awaited_in_several_loops() -> None:
    gate = threading.Event()

    async def of(reply: Any) -> float:
        asyncio.get_running_loop().call_soon(started.release)
        return float(await reply)

    with shoal.ModelService({"slow": held_by(gate)}, context="thread") as service, ThreadPoolExecutor(8) as pool:
        model = service.model("slow")
        model(0.0)
        for _ in range(3):
            gate.clear()
            started = threading.Semaphore(0)
            replies = [model.submit(float(i)) for i in range(1, 9)]
            awaited = [pool.submit(asyncio.run, of(reply)) for reply in replies]
            for _ in replies:
                started.acquire()
            gate.set()
            assert [one.result(60) for one in awaited] == list(range(1, 9))


def test_gather_has_one_deadline_and_takes_nothing_before_all_are_there() -> None:
    gate = threading.Event()
    with shoal.ModelService({"slow": held_by(gate)}, context="thread", max_batch=1) as service:
        model = service.model("slow")
        model(0.0)
        replies = [model.submit(0.0), model.submit(1.0)]
        await_that(replies[0].done, "the first reply")
        for _ in range(2):
            with pytest.raises(TimeoutError, match="has not answered 2 requests after 0.01 s"):
                model.gather(replies, timeout=0.01)
        gate.set()
        assert model.gather(replies, timeout=60) == [0, 1]


def test_gather_leaves_what_it_has_not_given(service: shoal.ModelService) -> None:
    model = service.model("picky")
    replies = [model.submit(float(x)) for x in (1, -1, 2)]
    with pytest.raises(ModelError, match="a negative row"):
        model.gather(replies)
    assert replies[0].done()
    assert [replies[0].result(), replies[2].result()] == [2, 3]
    with pytest.raises(Cancelled):
        replies[0].result()


def test_a_result_is_taken_once(service: shoal.ModelService) -> None:
    reply = service.model("double").submit(1.0)
    assert reply.result() == 2.0
    with pytest.raises(Cancelled):
        reply.result()


def test_a_cancelled_request_has_no_result(service: shoal.ModelService) -> None:
    reply = service.model("double").submit(1.0)
    reply.cancel()
    with pytest.raises(Cancelled):
        reply.result()


def test_a_reply_is_not_pickled_and_says_what_is(service: shoal.ModelService) -> None:
    reply = service.model("double").submit(1)
    for copies in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=r"send its result\(\), or the model 'double'"):
            copies(reply)
    assert reply.result() == 2
