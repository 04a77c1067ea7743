"""The weights of served models: updated, pinned, kept over a restart."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from promise import await_that
from served_models import double, linear, pid
from shoal import _core
from shoal.errors import DeadlineExceeded, ModelError, ServiceDied
from shoal.serve.weights import pack_state
from stopping import stop


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


class Counting:
    """Answers with its weight and how often it was asked since it got that; keeps the arrays that it is given, and writes to them."""

    def __init__(self) -> None:
        self.state = {"weight": np.ones(1), "asked": np.zeros(1)}

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.state["asked"] += 1
        return np.repeat([[self.state["weight"][0], self.state["asked"][0]]], len(x), axis=0)


class Gated(Filled):
    """Is loaded once there is no file `shut`; makes the file `loading` before."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        while (folder / "shut").exists():
            (folder / "loading").touch()
            time.sleep(0.001)


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

    def test_versions_of_a_model_that_is_no_module_of_torch_are_kept(self) -> None:
        def weights(value: float) -> dict[str, np.ndarray]:
            return {"weight": np.full(1, value), "asked": np.zeros(1)}

        with shoal.ModelService({"counting": Counting}, keep_versions=2) as service:
            latest, first = service.model("counting"), service.model("counting").pin(1)
            assert first(0).tolist() == [1, 2]  # the first row of a kind is asked twice
            for version in (2, 3, 4):
                service.update("counting", weights(10.0 * version))
                assert latest(0)[0] == 10 * version
                assert first(0).tolist() == [1, 1]  # as version 1 was kept, whatever was asked since
                assert first.version == 1
            assert latest.pin(3)(0)[0] == 30

    def test_models_without_weights_are_served_beside_others_whose_versions_are_kept(self) -> None:
        models = {"double": double, "filled": Filled, "counting": Counting}
        with shoal.ModelService(models, keep_versions=1) as service:
            assert service.model("double").pin(1)(2.0) == 4
            with pytest.raises(ValueError, match=r"a model that is a Filled has no state_dict\(\)"):
                service.model("filled").pin(1)(0)
            for version in (2, 3):
                service.update("filled", filled(version))
            assert set(service.model("filled").pin(2)(0)) == {2.0}
            assert set(service.model("filled")(0)) == {3.0}
            with pytest.raises(ValueError, match=r"has no load_state_dict\(\), so no weights to update"):
                service.update("double", {})
            assert service.model("double").pin(1)(3.0) == 6

    @pytest.mark.parametrize("version", [2.5, "3", 2**63, 2**70, -1, 0, True])
    def test_a_version_that_no_server_could_name_changes_nothing(self, version: Any) -> None:
        with shoal.ModelService({"filled": Filled, "double": double}) as service:
            for mode in ("barrier", "latest"):
                with pytest.raises(ValueError, match=r"\(version=…\) takes an int from 1 to 2\*\*63 - 1, got"):
                    service.update("filled", filled(2), version=version, mode=mode)
            with pytest.raises(ValueError, match=r"pin\(version\) takes an int from 1 to 2\*\*63 - 1, got"):
                service.model("filled").pin(version)
            assert set(service.model("filled")(0)) == {1.0}
            assert service.update("filled", filled(2), version=np.int64(2)) == 2
            assert service.update("filled", filled(3), version=2**63 - 1) == 2**63 - 1
            assert set(service.model("filled")(0)) == {3.0}

    def test_a_server_looks_at_a_version_before_it_takes_weights(self) -> None:
        with shoal.ModelService({"filled": Filled}, context="thread") as service:
            for version in (2.5, 2**70):
                with pytest.raises(ValueError, match="an int from 1"):
                    service._manager._command("update", 0, version, pack_state(filled(2)), wait=True)
            assert set(service.model("filled")(0)) == {1.0}
            assert service.update("filled", filled(2)) == 2

    def test_a_restarted_server_has_the_latest_weights(self) -> None:
        with shoal.ModelService({"filled": Filled, "pid": pid}, on_fault="restart") as service:
            service.update("filled", filled(7), version=7)
            os.kill(int(service.model("pid")(0)), signal.SIGKILL)
            model = service.model("filled")
            assert set(model(0)) == {7.0}
            assert model.version == 7

    def test_latest_weights_of_other_names_or_shapes_are_refused_and_not_kept(self) -> None:
        torch = pytest.importorskip("torch")
        good = linear().state_dict()
        models = {"linear": linear, "double": double, "pid": pid}
        with shoal.ModelService(models, on_fault="restart") as service:
            for wrong, message in (
                ({"weight": good["weight"]}, "lack 'bias'"),
                ({**good, "bias": torch.zeros(5)}, r"'bias' of the new weights has the shape \(5,\), not \(2,\)"),
            ):
                with pytest.raises(ValueError, match=message):
                    service.update("linear", wrong, mode="latest")
            with pytest.raises(ValueError, match="has no load_state_dict"):
                service.update("double", {}, mode="latest")
            twice = {name: value * 2 for name, value in good.items()}
            assert service.update("linear", twice, mode="latest") == 2
            with pytest.raises(ValueError, match="lack 'bias'"):
                service.update("linear", {"weight": good["weight"]}, mode="latest")
            os.kill(int(service.model("pid")(0)), signal.SIGKILL)
            model = service.model("linear")
            assert model(np.ones(3, np.float32))[0] == 6
            assert model.version == 2

    @pytest.mark.parametrize("refused", [1, 20])
    def test_a_restarted_server_has_the_latest_weights_that_fit(
        self, refused: int, capfd: pytest.CaptureFixture[str]
    ) -> None:
        wrong = {"a": np.zeros(3), "b": np.zeros(3)}  # which only its load_state_dict knows
        told: list[str] = []
        with shoal.ModelService({"filled": Filled, "pid": pid}, on_fault="restart") as service:
            model = service.model("filled")
            service.update("filled", filled(7), version=7, mode="latest")
            await_that(lambda: set(model(0)) == {7.0}, "the weights of version 7")
            unanswered = 0
            while unanswered < refused:
                with contextlib.suppress(ValueError):  # the answer was there at once
                    last = service.update("filled", wrong, mode="latest")
                    unanswered += 1
            os.kill(int(service.model("pid")(0)), signal.SIGKILL)
            assert set(model(0)) == {7.0}
            assert model.version == 7
            await_that(
                lambda: (
                    told.append(capfd.readouterr().err)
                    or f"the weights of version {last} of the model 'filled' cannot be loaded" in "".join(told)
                ),
                "a line in the log",
            )
            assert service.update("filled", filled(90)) == last + 1
            assert set(model(0)) == {90.0}

    def test_a_server_that_loads_meanwhile_gets_an_update_too(self, tmp_path: Path) -> None:
        make = functools.partial(Gated, tmp_path)
        with shoal.ModelService({"filled": make, "pid": pid}, on_fault="restart") as service:
            (tmp_path / "shut").touch()
            os.kill(int(service.model("pid")(0)), signal.SIGKILL)
            await_that((tmp_path / "loading").exists, "another server to load")
            with pytest.raises(ServiceDied):
                service.update("filled", filled(8), version=8)
            (tmp_path / "shut").unlink()
            model = service.model("filled")
            await_that(lambda: set(model(0)) == {8.0}, "the weights of version 8")

    def test_a_server_that_is_restarted_takes_clients_once_it_has_the_updates_that_returned(
        self, tmp_path: Path
    ) -> None:
        make = functools.partial(Gated, tmp_path)
        with shoal.ModelService({"filled": make, "pid": pid}, on_fault="restart", instances=2) as service:
            manager = service._manager
            is_ready, may_go_on = threading.Event(), threading.Event()
            wait_ready = manager._wait_ready

            def wait_long(instance: int, generation: int) -> None:
                wait_ready(instance, generation)
                is_ready.set()
                may_go_on.wait(60)

            manager._wait_ready = wait_long  # type: ignore[method-assign]

            def answer_to_a_new_client() -> tuple[int, float, float]:
                made: list[Any] = []

                def ask() -> None:
                    made.append((int(service.model("pid")(0)), *service.model("filled")(0)[:2]))

                thread = threading.Thread(target=ask)
                thread.start()
                thread.join()
                return made[0]

            (tmp_path / "shut").touch()
            dead, alive = (worker.pid for worker in service._workers if worker is not None)
            os.kill(dead, signal.SIGKILL)
            await_that((tmp_path / "loading").exists, "another server to load")
            service.update("filled", filled(8), version=8)
            (tmp_path / "shut").unlink()
            assert is_ready.wait(60)
            try:
                assert [answer_to_a_new_client() for _ in range(4)] == [(alive, 8, 8)] * 4
            finally:
                may_go_on.set()
            await_that(lambda: answer_to_a_new_client()[0] != alive, "the new server's first client")
            assert [answer_to_a_new_client()[1:] for _ in range(4)] == [(8, 8)] * 4

    def test_a_busy_server_loads_the_last_of_the_updates_that_nobody_waits_for(self) -> None:
        gate, entered = threading.Event(), threading.Event()
        loaded: list[float] = []

        class Slow(Filled):
            def load_state_dict(self, state: dict[str, Any]) -> None:
                super().load_state_dict(state)
                loaded.append(state["a"][0])

            def __call__(self, x: np.ndarray) -> np.ndarray:
                if (x == 1).any():
                    entered.set()
                    gate.wait(60)
                return super().__call__(x)

        with shoal.ModelService({"slow": Slow}, context="thread") as service:
            model = service.model("slow")
            model(0)
            running = model.submit(1)
            assert entered.wait(60)
            for version in range(2, 100):
                service.update("slow", filled(version), mode="latest")
            client = _core.serve.Client(service.address, 60)  # after them: they have come
            gate.set()
            running.result()
            assert set(model(0)) == {99.0}
            assert model.version == 99
            assert loaded == [97, 98, 99]
            del client

    def test_a_forked_child_cannot_update(self) -> None:
        with shoal.ModelService({"filled": Filled}) as service:
            child = os.fork()
            if child == 0:
                try:
                    service.update("filled", filled(2))
                except RuntimeError as error:
                    os._exit(0 if f"update() is for process {os.getppid()}" in str(error) else 2)
                finally:
                    os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            assert set(service.model("filled")(0)) == {1.0}
            assert service.update("filled", filled(2)) == 2

    @pytest.mark.parametrize("rows", [1, 3])
    def test_rows_fail_whose_pinned_version_cannot_be_loaded(self, rows: int) -> None:
        class Forward(Counting):
            def load_state_dict(self, state: dict[str, Any]) -> None:
                if state["weight"][0] == 1:
                    raise RuntimeError("it cannot go back")
                super().load_state_dict(state)

        with shoal.ModelService({"forward": Forward}, keep_versions=2, max_delay=3600.0, context="thread") as service:
            latest = service.model("forward")
            first = latest.pin(1)
            assert first(0.0)[0] == 1
            service.update("forward", {"weight": np.full(1, 2.0), "asked": np.zeros(1)})
            assert latest(0.0)[0] == 2
            for reply in [first.submit(0.0) for _ in range(rows)]:
                with pytest.raises(ModelError, match="RuntimeError: it cannot go back"):
                    reply.result()
            assert latest(0.0)[0] == 2

    def test_a_close_waits_for_no_server_that_loads(self, tmp_path: Path) -> None:
        make = functools.partial(Gated, tmp_path)
        with shoal.ModelService({"filled": make, "pid": pid}, on_fault="restart", start_timeout=1000) as service:
            (tmp_path / "shut").touch()
            os.kill(int(service.model("pid")(0)), signal.SIGKILL)
            await_that((tmp_path / "loading").exists, "another server to load")

    def test_a_stopped_server_does_not_lose_updates_without_a_word(self) -> None:
        with shoal.ModelService({"filled": Filled, "pid": pid}) as service:
            stopped = int(service.model("pid")(0))
            stop(stopped)
            with pytest.raises(DeadlineExceeded, match="taken no command"):
                for _ in range(10_000):
                    service.update("filled", filled(2), mode="latest")
            os.kill(stopped, signal.SIGCONT)
            version = service.update("filled", filled(3))
            model = service.model("filled")
            assert set(model(0)) == {3.0} and model.version == version

    def test_ctrl_c_ends_an_update(self) -> None:
        with shoal.ModelService({"filled": Filled, "pid": pid}) as service:
            stopped = int(service.model("pid")(0))
            stop(stopped)
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                service.update("filled", filled(2))
            os.kill(stopped, signal.SIGCONT)
