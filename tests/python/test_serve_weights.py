"""The weights of served models: updated, pinned, kept over a restart."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

import shoal
from served_models import double, linear, pid


class Filled:
    """Answers with its two weights; updates that would be torn show as two numbers."""

    def __init__(self) -> None:
        self.weights = {"a": np.ones(500), "b": np.ones(500)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["a"].shape != (500,):
            raise ValueError("500 numbers are needed")
        for name, value in state.items():
            self.weights[name] = value

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.repeat([[*self.weights["a"][:5], *self.weights["b"][:5]]], len(x), axis=0)


def filled(version: int) -> dict[str, np.ndarray]:
    value = float(version)
    return {"a": np.full(500, value), "b": np.full(500, value)}


class TestWeights:
    def test_an_update_is_seen_by_the_next_request(self) -> None:
        with shoal.ModelService({"filled": Filled}, instances=2) as service:
            model = service.model("filled")
            assert set(model(0)) == {1.0}
            for version in range(2, 30):
                assert service.update("filled", filled(version)) == version
                assert set(model(0)) == {float(version)}
                assert model.version == version
            assert service.stats()["filled"]["version"] == 29
            assert service.update("filled", filled(50), version=50, mode="latest") == 50
            while model.version != 50:
                model(0)

    def test_an_update_may_follow_the_start_at_once(self) -> None:
        for _ in range(30):
            with shoal.ModelService({"filled": Filled}, context="thread") as service:
                assert service.update("filled", filled(2)) == 2

    def test_no_reply_mixes_two_versions(self) -> None:
        with shoal.ModelService({"filled": Filled}, max_batch=4) as service:
            wrong: list[Any] = []
            stop = threading.Event()

            def ask() -> None:
                model = service.model("filled")
                while not stop.is_set():
                    replies = [model.submit(0) for _ in range(3)]
                    for reply in replies:
                        if set(reply.result()) != {float(reply.version)}:
                            wrong.append(reply.version)

            threads = [threading.Thread(target=ask) for _ in range(3)]
            for thread in threads:
                thread.start()
            for version in range(2, 200):
                service.update("filled", filled(version), mode="latest")
            stop.set()
            for thread in threads:
                thread.join()
            assert not wrong

    def test_weights_that_do_not_fit_change_nothing(self) -> None:
        torch = pytest.importorskip("torch")
        with shoal.ModelService({"linear": linear, "double": double}, context="thread") as service:
            model = service.model("linear")
            row = np.ones(3, np.float32)
            good = linear().state_dict()
            for wrong, message in (
                ({"weight": good["weight"]}, "lack 'bias'"),
                ({**good, "more": good["bias"]}, "have 'more'"),
                ({**good, "bias": torch.zeros(5)}, r"'bias' of the new weights has the shape \(5,\), not \(2,\)"),
            ):
                with pytest.raises(ValueError, match=message):
                    service.update("linear", wrong)
            assert model(row)[0] == 3
            assert model.version == 1
            assert service.update("linear", {name: value * 2 for name, value in good.items()}) == 2
            assert model(row)[0] == 6
            with pytest.raises(ValueError, match="has no load_state_dict"):
                service.update("double", {})
            with pytest.raises(TypeError, match="a state_dict"):
                service.update("linear", [1])
            with pytest.raises(ValueError, match="versions grow"):
                service.update("linear", good, version=2)

    def test_a_pinned_version_stays(self) -> None:
        pytest.importorskip("torch")
        with shoal.ModelService({"linear": linear}, context="thread", keep_versions=2) as service:
            row = np.ones(3, np.float32)
            good = linear().state_dict()
            first = service.model("linear").pin(1)
            assert first(row)[0] == 3
            for version in range(2, 7):
                service.update("linear", {name: value * version for name, value in good.items()})
                assert first(row)[0] == 3
                assert first.version == 1
                assert service.model("linear")(row)[0] == 3 * version
            assert service.model("linear").pin(5)(row)[0] == 15
            with pytest.raises(ValueError, match="version 2 are not kept"):
                service.model("linear").pin(2)(row)

    def test_a_restarted_server_has_the_latest_weights(self) -> None:
        with shoal.ModelService({"filled": Filled, "pid": pid}, on_fault="restart") as service:
            service.update("filled", filled(7), version=7)
            os.kill(int(service.model("pid")(0)), signal.SIGKILL)
            model = service.model("filled")
            assert set(model(0)) == {7.0}
            assert model.version == 7
