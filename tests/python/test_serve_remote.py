"""Models of a service in another process, which is reached as another host's: over TCP, with a secret; killed, stopped, restarted,
cut off; and in two network namespaces as two hosts."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from enum import Enum
from typing import Any

import numpy as np
import pytest

import shoal
from bench_scripts import script
from served_models import AskingEnv, TotalEnv, double, pid
from served_remotely import Distant
from shoal.errors import Cancelled, DeadlineExceeded, Error, ModelError, OverCapacity, ServiceDied
from test_serve_recurrent import total

SECRET = "of the test"


class Part(Enum):
    A = 1


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_GROUP_SECRET", SECRET)


@pytest.fixture(scope="module")
def distant() -> Iterator[Distant]:
    before = os.environ.get("SHOAL_GROUP_SECRET")
    os.environ["SHOAL_GROUP_SECRET"] = SECRET
    try:
        there = Distant()
    finally:
        if before is None:
            del os.environ["SHOAL_GROUP_SECRET"]
        else:
            os.environ["SHOAL_GROUP_SECRET"] = before
    with there:
        yield there


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def listening(models: dict[str, Any], **arguments: Any) -> shoal.ModelService:
    """A service of this process that others reach by TCP."""
    return shoal.ModelService(models, context="thread", listen="127.0.0.1:0", **arguments)


def connect(service: shoal.ModelService, **arguments: Any) -> shoal.serve.RemoteService:
    assert service.listening is not None
    return shoal.ModelService.connect(service.listening, **arguments)


class TestAsking:
    def test_a_collector_takes_it_as_its_policy(self) -> None:
        with listening({"policy": lambda obs: obs[:, :1]}) as service, connect(service) as remote:
            with shoal.Collector("shoal/Pendulum-v1", remote, num_envs=2, frames_per_batch=4) as collector:
                batch = next(collector)
                assert batch["valid"].all()
                with pytest.raises(NotImplementedError, match="call update"):
                    collector.update_weights({"weight": 1})

    @pytest.mark.parametrize(
        "where", [{"num_workers": 2}, {"num_workers": 2, "context": "spawn"}, {"backend": "serial"}]
    )
    def test_environments_ask_the_service_of_another_host(self, distant: Distant, where: dict[str, Any]) -> None:
        with shoal.ModelService.connect(distant.listening) as service:
            options = shoal.WorkerOptions(models=service)
            with closing(shoal.make_vec(AskingEnv, 4, worker=options, **where)) as envs:
                obs, _ = envs.reset(seed=1)
                assert not obs.any()
                for step in range(1, 10):
                    obs, rewards, *_ = envs.step(np.zeros(4, int))
                    np.testing.assert_array_equal(obs, np.full((4, 2), 2.0 * step))
                    assert set(rewards) == {distant.server}
            assert service.stats()["double"]["rows"] >= 4 * 11

    @pytest.mark.own_process
    def test_forked_processes_ask_it(self, distant: Distant) -> None:
        with shoal.ModelService.connect(distant.listening) as service:
            options = shoal.WorkerOptions(models=service)
            with closing(shoal.make_vec(AskingEnv, 2, num_workers=2, context="fork", worker=options)) as envs:
                envs.reset()
                _, rewards, *_ = envs.step(np.zeros(2, int))
                assert set(rewards) == {distant.server}

    def test_every_way_to_ask_is_there(self, distant: Distant) -> None:
        with shoal.ModelService.connect(distant.listening) as service:
            model = service.model("double")
            assert model(4) == 8
            replies = [model.submit(np.full(3, i)) for i in range(20)]
            np.testing.assert_array_equal(model.gather(replies), [[2 * i] * 3 for i in range(20)])
            rows = np.arange(100.0).reshape(50, 2)
            np.testing.assert_array_equal(model.batch(rows), 2 * rows)

            async def later() -> Any:
                return await asyncio.gather(*(asyncio.ensure_future(awaited(model, i)) for i in range(5)))

            async def awaited(model: Any, value: int) -> Any:
                return await model.submit(value)

            assert asyncio.run(later()) == [0, 2, 4, 6, 8]
            assert pickle.loads(pickle.dumps(model))(5) == 10
            shoal.serve.use(service)
            try:
                assert shoal.worker().model("double")(6) == 12
            finally:
                shoal.serve.use(None)
            with pytest.raises(ValueError, match="no model 'none'; it has double, pid"):
                service.model("none")

    @pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int16", "int64", "bool", "float16"])
    def test_dtypes_and_shapes_are_those_of_the_model(self, distant: Distant, dtype: str) -> None:
        with shoal.ModelService.connect(distant.listening) as service:
            for shape in [(), (3,), (2, 0), (4, 5, 6)]:
                row = np.ones(shape, dtype)
                got = service.model("double")(row)
                np.testing.assert_array_equal(got, row * 2)
                assert (got.dtype, got.shape) == ((row * 2).dtype, shape)

    def test_calls_and_answers_may_be_nested(self) -> None:
        def mixed(x: Any, *, scale: Any) -> Any:
            return {"sum": x["a"] + x["b"][0], ("t", 1): [x["b"][1] * scale, x["a"]], None: (x["a"],)}

        with listening({"mixed": mixed}) as there, connect(there) as service:
            x = {"a": np.ones(2, np.float32), "b": (np.full(2, 2.0), np.arange(3))}
            for model in (service.model("mixed"), there.model("mixed")):
                got = model(x, scale=3)
                assert list(got) == ["sum", ("t", 1), None]
                np.testing.assert_array_equal(got["sum"], [3, 3])
                np.testing.assert_array_equal(got[("t", 1)][0], [0, 3, 6])
                assert isinstance(got[None], tuple)

    def test_keys_that_are_no_text_do_not_cross(self) -> None:
        def first(x: Any) -> Any:
            return x if isinstance(x, np.ndarray) else next(iter(x.values()))

        def keyed(x: Any) -> Any:
            return {Part.A: x}

        with listening({"first": first, "keyed": keyed}) as there, connect(there) as service:
            assert there.model("first")({Part.A: 1}) == 1
            assert service.model("first")({"a": 1}) == 1
            with pytest.raises(ValueError, match="keys that cannot cross to another host: use str"):
                service.model("first")({Part.A: 1})
            with pytest.raises(ValueError, match="the model's answers cannot cross to another host"):
                service.model("keyed")(1)
            assert service.model("first")(2) == 2

    def test_a_row_that_fails_has_the_distant_traceback(self, distant: Distant) -> None:
        with shoal.ModelService.connect(distant.listening) as service:
            picky = service.model("picky")
            replies = [picky.submit(float(x)) for x in (1, -1, 2)]
            assert replies[0].result() == 2
            assert replies[2].result() == 3
            with pytest.raises(ModelError, match="ValueError: a negative row") as caught:
                replies[1].result()
            assert "served_models.py" in caught.value.traceback
            with pytest.raises(ModelError):
                picky(np.full(3, -1.0))  # the first of its kind

    def test_requests_end_at_their_deadline_or_when_they_are_cancelled(self) -> None:
        gate = threading.Event()

        def gated(x: np.ndarray) -> np.ndarray:
            if x.any():
                gate.wait(60)
            return x

        with listening({"gated": gated}, max_batch=4, timeout=50.0) as there, connect(there) as service:
            assert service.directory.timeout == 50.0
            model = service.model("gated")
            assert model(0) == 0
            busy = model.submit(1)
            with pytest.raises(DeadlineExceeded):
                model(2, timeout=0.1)
            with pytest.raises(TimeoutError):
                busy.result(0.01)
            replies = [model.submit(3) for _ in range(2)]
            with pytest.raises(OverCapacity):
                for _ in range(100):
                    replies.append(model.submit(4, wait=False))
            replies[-1].cancel()
            gate.set()
            with pytest.raises(Cancelled):
                replies.pop().result()
            assert busy.result() == 1
            assert {int(reply.result()) for reply in replies} <= {3, 4}
        with listening({"gated": gated}) as there, connect(there, timeout=0.05) as service:
            gate.clear()
            with pytest.raises(DeadlineExceeded):
                service.model("gated")(1)
            gate.set()

    def test_replies_name_the_weights_which_may_be_pinned_and_are_updated_there(self) -> None:
        torch = pytest.importorskip("torch")

        def weights(value: float) -> Any:
            return {"weight": torch.tensor([[value]])}

        linear = torch.nn.Linear(1, 1, bias=False)
        with listening({"linear": linear}, keep_versions=1) as there, connect(there) as service:
            there.update("linear", weights(2.0))
            model = service.model("linear")
            assert model(np.ones(1, np.float32)) == 2.0
            assert model.version == 2
            pinned = model.pin(2)
            assert pinned(np.ones(1, np.float32)) == 2.0
            there.update("linear", weights(3.0))
            assert model(np.ones(1, np.float32)) == 3.0
            assert model.version == 3
            assert pinned(np.ones(1, np.float32)) == 2.0
            assert service.stats()["linear"]["version"] == 3
            with pytest.raises(ValueError, match="version 17 are not kept"):
                model.pin(17)(np.ones(1, np.float32))
            with pytest.raises(NotImplementedError, match="call update\\(\\) of the ModelService there"):
                service.update("linear", weights(4.0), version=9, mode="latest")
            with pytest.raises(ValueError, match="no model 'none'"):
                service.update("none", weights(4.0))
            assert model(np.ones(1, np.float32)) == 3.0

    def test_every_environment_of_every_host_has_its_own_state(self) -> None:
        models = {"total": shoal.serve.Recurrent(total, np.zeros(2))}
        with listening(models) as there, connect(there) as one, connect(there) as other:
            hosts = [
                shoal.make_vec(TotalEnv, 4, num_workers=2, worker=shoal.WorkerOptions(models=service))
                for service in (one, other, there)
            ]
            try:
                for _ in range(2):
                    all_obs = [envs.reset()[0] for envs in hosts]
                    for step in range(1, 5):
                        for i, envs in enumerate(hosts):
                            np.testing.assert_array_equal(all_obs[i][:, 0], np.arange(1, 5) * step)
                            all_obs[i] = envs.step(np.zeros(4, int))[0]
            finally:
                for envs in hosts:
                    envs.close()
            # Who comes where others were begins anew, also where its first row fails.
            model = one.model("total")
            with pytest.raises(ModelError):
                model(np.full(2, -1.0))
            assert model(np.ones(2))[0] == 1
            assert model(np.ones(2))[0] == 2

    def test_a_batch_of_a_recurrent_model_is_refused_here(self) -> None:
        models = {"total": shoal.serve.Recurrent(total, np.zeros(())), "double": double}
        with listening(models) as there, connect(there) as service:
            model = service.model("total")
            assert [model(1.0), model(1.0)] == [1, 2]
            for _ in range(2):
                with pytest.raises(ValueError, match="'total' is Recurrent"):
                    model.batch(np.ones(2))
            assert model(1.0) == 3
            assert service.model("double").batch(np.ones(2)).tolist() == [2, 2]

    def test_a_service_with_several_instances_is_asked_by_as_many_connections(self) -> None:
        with shoal.ModelService({"pid": pid}, instances=2, listen="127.0.0.1:0") as there, connect(there) as service:
            servers: set[int] = set()

            def ask() -> None:
                servers.add(int(service.model("pid")(0)))

            for _ in range(4):  # each thread is a client of its own
                thread = threading.Thread(target=ask)
                thread.start()
                thread.join()
            assert len(servers) == 2

    def test_max_delay_makes_one_batch_of_what_a_host_asks(self) -> None:
        sizes: list[int] = []

        def sized(x: np.ndarray) -> np.ndarray:
            sizes.append(len(x))
            return x

        with listening({"sized": sized}, max_delay=30.0, max_batch=8) as there, connect(there) as service:
            model = service.model("sized")
            model(0)
            sizes.clear()
            assert model.gather([model.submit(i) for i in range(5)]) == [0, 1, 2, 3, 4]
            assert sizes == [5]


class TestDeath:
    def test_a_distant_service_that_is_killed_is_one_error(self) -> None:
        with Distant() as there, shoal.ModelService.connect(there.listening) as service:
            model = service.model("double")
            assert model(1) == 2
            there.kill()
            with pytest.raises(ServiceDied):
                while True:
                    model(1)
            with pytest.raises(ServiceDied, match="the model service .* is lost: its connection has ended"):
                while True:
                    model(1)
            assert str(there.pid) in error_of(model)

    def test_one_that_is_stopped_is_lost_within_seconds(self) -> None:
        with Distant() as there, shoal.ModelService.connect(there.listening) as service:
            reply = service.model("double").submit(1)
            assert reply.result() == 2
            there.stop()
            reply = service.model("double").submit(1)
            with pytest.raises(ServiceDied):
                reply.result()
            with pytest.raises(ServiceDied, match="it was stopped, or its host or the network to it is gone"):
                while True:
                    service.model("double")(1)

    def test_one_that_is_closed_says_so(self) -> None:
        with listening({"double": double}) as there, connect(there) as service:
            assert service.model("double")(1) == 2
            there.close()
            with pytest.raises(ServiceDied):
                service.model("double")(1)
            with pytest.raises(ServiceDied, match="has ended: the model service was closed"):
                while True:
                    service.model("double")(1)

    def test_a_server_that_is_restarted_there_is_asked_again(self) -> None:
        with Distant(on_fault="restart") as there, shoal.ModelService.connect(there.listening) as service:
            model = service.model("pid")
            assert model(0) == there.server
            os.kill(there.server, signal.SIGKILL)
            assert model(0) != there.server
            assert service.model("double")(1) == 2

    def test_a_server_that_dies_there_without_a_restart_is_the_end(self) -> None:
        with Distant() as there, shoal.ModelService.connect(there.listening) as service:
            with pytest.raises(ServiceDied):
                service.model("deadly")(13)
            with pytest.raises(ServiceDied, match="server of the model service"):
                while True:
                    service.model("double")(1)

    def test_with_restart_a_service_that_comes_again_is_asked_again(self) -> None:
        first = Distant()
        with first, shoal.ModelService.connect(first.listening, on_fault="restart", start_timeout=60.0) as service:
            options = shoal.WorkerOptions(models=service)
            with closing(shoal.make_vec(AskingEnv, 2, num_workers=2, worker=options)) as envs:
                envs.reset()
                _, rewards, *_ = envs.step(np.zeros(2, int))
                assert set(rewards) == {first.server}
                first.kill()
                with Distant(listen=first.listening) as second:
                    asked = service.model("pid")
                    until(lambda: answered(asked) == second.server)
                    assert answered(service.model("double")) is not None
                    envs.reset()

    def test_what_comes_again_with_other_models_is_an_error(self) -> None:
        there = listening({"double": double})
        with connect(there, on_fault="restart") as service:
            assert service.model("double")(1) == 2
            address = there.listening
            there.close()
            with shoal.ModelService({"other": double}, context="thread", listen=address):
                with pytest.raises(ServiceDied, match="has other models now: other, where it had double"):
                    while True:
                        answered(service.model("double"), but="other models")

    def test_a_host_that_is_killed_is_told_of_and_the_others_are_answered(
        self, distant: Distant, tmp_path: Any
    ) -> None:
        program = (
            "import shoal, sys\n"
            "service = shoal.ModelService.connect(sys.argv[1])\n"
            "while True: print(service.model('double')(1), flush=True)\n"
        )
        before = stat_of(distant.listening)
        host = subprocess.Popen([sys.executable, "-c", program, distant.listening], stdout=subprocess.PIPE, text=True)
        with shoal.ModelService.connect(distant.listening) as service:
            try:
                assert host.stdout is not None
                assert host.stdout.readline() == "2\n"
                assert service.model("double")(2) == 4
            finally:
                host.kill()
                host.communicate()
            until(lambda: stat_of(distant.listening)["lost"] == before["lost"] + 1)
            assert service.model("double")(3) == 6
            seen = stat_of(distant.listening)
            assert seen["pid"] == distant.pid
            assert seen["state"] == "asked"
            assert seen["relays"] == 1
            assert seen["rows"] > before["rows"]

    def test_connections_that_were_closed_leave_nothing(self, distant: Distant) -> None:
        def one_more() -> None:
            service = shoal.ModelService.connect(distant.listening)
            service.model("pid")(0)
            service.close()
            service.close()
            with pytest.raises(ServiceDied, match="closed"):
                service.model("pid")(0)

        def opened() -> tuple[int, int]:
            return len(os.listdir("/proc/self/fd")), threading.active_count()

        one_more()
        descriptors, threads = opened()
        for _ in range(10):
            one_more()
        # Other threads of this process may have something open for a moment, or may close what earlier tests left.
        until(lambda: opened()[0] <= descriptors and opened()[1] <= threads)
        until(lambda: stat_of(distant.listening)["relays"] == 0)

    def test_it_may_be_closed_while_it_waits_for_an_answer(self) -> None:
        with Distant() as there:
            service = shoal.ModelService.connect(there.listening, on_fault="restart", start_timeout=60.0)
            assert service.model("double")(1) == 2
        host, port = there.listening.split(":")
        came = threading.Event()
        heard: list[bytes] = []
        with socket.create_server((host, int(port))) as deaf:

            def say_nothing() -> None:
                peer, _ = deaf.accept()
                with peer, suppress(TimeoutError):
                    came.set()
                    peer.settimeout(5)
                    heard.append(peer.recv(1))

            thread = threading.Thread(target=say_nothing)
            thread.start()
            assert came.wait(60)
            service.close()
            thread.join(60)
            assert heard == [b""], "it waited on"

    def test_several_threads_may_close_it(self, distant: Distant) -> None:
        for _ in range(5):
            service = shoal.ModelService.connect(distant.listening)
            assert service.model("double")(1) == 2
            threads = [threading.Thread(target=service.close) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive()

    def test_one_that_nobody_has_any_more_ends(self, distant: Distant) -> None:
        threads = threading.active_count()
        service = shoal.ModelService.connect(distant.listening)
        model = service.model("double")
        del service
        gc.collect()
        assert model(1) == 2
        assert stat_of(distant.listening)["relays"] == 1
        del model
        gc.collect()
        until(lambda: stat_of(distant.listening)["relays"] == 0)
        until(lambda: threading.active_count() <= threads)

    def test_one_that_nobody_closes_ends_with_its_program(self, distant: Distant) -> None:
        program = (
            "import shoal, sys\n"
            "service = shoal.ModelService.connect(sys.argv[1])\n"
            "print(service.model('double')(1), flush=True)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, distant.listening], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


def error_of(model: Any) -> str:
    with pytest.raises(ServiceDied) as caught:
        model(1)
    return str(caught.value)


def answered(model: Any, but: str = "") -> int | None:
    """The answer; None while there is nobody to answer. What says `but` is raised."""
    try:
        return int(model(0, timeout=20.0))
    except ServiceDied as error:
        if but and but in str(error):
            raise
        return None


def stat_of(address: str) -> dict[str, Any]:
    from shoal.stat import snapshot

    (seen,) = (each for each in snapshot()["listening_services"] if each["address"] == address)
    return seen


class TestRefusals:
    def test_another_secret_is_refused_on_both_sides(self, distant: Distant, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(Error, match="SHOAL_GROUP_SECRET is another there than here, or only one of the two has it"):
            shoal.ModelService.connect(distant.listening, secret="another")
        with shoal.ModelService.connect(distant.listening, secret=SECRET) as service:
            assert service.model("double")(1) == 2
        monkeypatch.delenv("SHOAL_GROUP_SECRET")
        with pytest.raises(Error, match="SHOAL_GROUP_SECRET is another"):
            shoal.ModelService.connect(distant.listening)
        with shoal.ModelService({"double": double}, context="thread", listen="127.0.0.1:0", secret="own") as there:
            with connect(there, secret="own") as service:
                assert service.model("double")(1) == 2
            with pytest.raises(Error, match="SHOAL_GROUP_SECRET is another"):
                connect(there)

    def test_beyond_the_loopback_there_has_to_be_a_secret(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SHOAL_GROUP_SECRET")
        with pytest.raises(ValueError, match="listen on 0.0.0.0 without a secret: set SHOAL_GROUP_SECRET"):
            shoal.ModelService({"double": double}, listen="0.0.0.0:0")
        with pytest.raises(ValueError, match="connect to 192.0.2.1 without a secret: set SHOAL_GROUP_SECRET"):
            shoal.ModelService.connect("192.0.2.1:7000")

    def test_one_that_cannot_be_sent_leaves_its_port_to_others(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            listen = f"127.0.0.1:{taken.getsockname()[1]}"
        lock = threading.Lock()
        with pytest.raises(Exception, match="pickle"):
            shoal.ModelService({"double": lambda rows: lock and rows}, listen=listen)
        with shoal.ModelService({"double": double}, listen=listen) as service:
            assert service.listening == listen

    def test_an_address_where_nobody_answers_is_one_error(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        with pytest.raises(
            TimeoutError, match=f"no model service has answered at 127.0.0.1:{port} for 0.2 s: start one"
        ):
            shoal.ModelService.connect(f"127.0.0.1:{port}", start_timeout=0.2)
        with pytest.raises(ValueError, match="'somewhere' is no address: give host:port"):
            shoal.ModelService.connect("somewhere")

    def test_what_is_no_model_service_says_what_it_is(self, distant: Distant, tmp_path: Any) -> None:
        with shoal.learn.Trainer(
            "CartPole-v1", listen="127.0.0.1:0", algorithm="appo", run_dir=tmp_path / "run", num_workers=0
        ) as trainer:
            assert trainer.address is not None
            with pytest.raises(
                Error, match="comes to ask models; here is a learner for collectors, which `shoal collect`"
            ):
                shoal.ModelService.connect(trainer.address)
        with pytest.raises(Error, match="comes to collect; here is a model service, which shoal.ModelService.connect"):
            shoal.learn.collect(distant.listening, num_workers=0)

    def test_another_protocol_is_refused(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:

            def speak() -> None:
                peer, _ = server.accept()
                with peer:
                    text = b"shoal connection 0"
                    message = b"\x01" + len(text).to_bytes(4, "little") + text
                    peer.sendall(len(message).to_bytes(8, "little") + message)
                    peer.recv(100)

            thread = threading.Thread(target=speak)
            thread.start()
            with pytest.raises(Error, match="speaks 'shoal connection 0'.*different versions of Shoal"):
                shoal.ModelService.connect(f"127.0.0.1:{server.getsockname()[1]}")
            thread.join()

    def test_arguments_are_checked_before_anything_starts(self) -> None:
        def refused(match: str, **arguments: Any) -> None:
            with pytest.raises(ValueError, match=match):
                shoal.ModelService({"double": double}, **arguments)

        refused("'somewhere' is no address: give host:port", listen="somewhere")
        refused('takes "host:port", got 7000', listen=7000)
        refused("give listen, too", secret="own")
        with listening({"double": double}) as there:
            with pytest.raises(Error, match="another program has this port"):
                shoal.ModelService({"double": double}, listen=there.listening)
        for arguments, match in [
            ({"timeout": 0}, "timeout"),
            ({"on_fault": "no"}, "on_fault"),
            ({"start_timeout": 0}, "start_timeout"),
            ({"timeout": "3"}, "timeout"),
            ({"start_timeout": "3"}, "start_timeout"),
        ]:
            with pytest.raises(ValueError, match=f"{match}=…"):
                shoal.ModelService.connect("127.0.0.1:1", **arguments)
        with pytest.raises(TypeError, match=r"connect\(secret=…\) takes a str, got a int"):
            shoal.ModelService.connect("127.0.0.1:1", secret=3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match='takes "host:port", got 7000'):
            shoal.ModelService.connect(7000)  # type: ignore[arg-type]


NAMESPACES = script("namespaces")
NO_HOSTS = NAMESPACES.why_not()


@pytest.mark.skipif(NO_HOSTS is not None, reason=str(NO_HOSTS))
def test_two_hosts_whose_link_is_cut(tmp_path: Any) -> None:
    """Two network namespaces: abstract sockets of one are not there in the other."""
    program = tmp_path / "asks.py"
    program.write_text(
        "import sys, time, shoal\n"
        "with shoal.ModelService.connect(sys.argv[1]) as service:\n"
        "    print(service.model('double')(21), flush=True)\n"
        "    sys.stdin.readline()\n"
        "    try:\n"
        "        while True: service.model('double')(1)\n"
        "    except shoal.errors.ServiceDied as error:\n"
        "        pass\n"
        "    try:\n"
        "        while True: service.model('double')(1)\n"
        "    except shoal.errors.ServiceDied as error:\n"
        "        print(error, flush=True)\n"
    )
    with NAMESPACES.Namespaces(2) as hosts:
        with Distant(hosts.command(0, []), listen=f"{hosts.address(0)}:0") as there:
            asks = subprocess.Popen(
                hosts.command(1, [sys.executable, str(program), there.listening]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                assert asks.stdout is not None
                assert asks.stdout.readline() == "42\n"
                hosts.cut(1)
                said, _ = asks.communicate("\n", timeout=60)
                assert "the network to it is gone" in said
            finally:
                asks.kill()
                asks.communicate()
