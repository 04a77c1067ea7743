"""Runs whose collectors are other processes: over the loopback with a secret, joined late, killed, refused, resumed; and in two
network namespaces as two hosts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from bench_scripts import script
from stopping import stop

SMALL: dict[str, Any] = {
    "algorithm": "appo",
    "num_workers": 0,
    "num_envs": 4,
    "num_steps": 32,
    "batch_size": 64,
    "policy_hidden": [8],
    "value_hidden": [8],
    "eval_every": 0,
    "eval_envs": 1,
    "final_episodes": 0,
    "target_return": None,
}
ENDLESS = {**SMALL, "total_steps": 100_000_000}


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_GROUP_SECRET", "of the test")


class Collecting:
    """`shoal collect` as a process."""

    def __init__(self, address: str, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shoal.cli", "collect", address, "--num-workers", "0", *arguments],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid

    def end(self) -> tuple[int, str, str]:
        """Exit status and what it wrote."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def collecting() -> Iterator[Any]:
    started: list[Collecting] = []

    def start(*arguments: str, **environment: str) -> Collecting:
        started.append(Collecting(*arguments, **environment))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def until(condition: Any, trainer: shoal.learn.Trainer | None = None) -> None:
    """Until it holds, while the run goes on."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        if trainer is None:
            time.sleep(0.02)
        else:
            assert not trainer.wait(0.02)


def test_a_run_learns_from_collectors_of_other_processes(tmp_path: Path, collecting: Any) -> None:
    trainer = shoal.learn.Trainer(
        "CartPole-v1",
        listen="127.0.0.1:0",
        run_dir=tmp_path / "run",
        normalize_obs=True,
        normalize_reward=True,
        **{**SMALL, "total_steps": 6_000},
    )
    with trainer:
        assert trainer.address is not None
        assert trainer.config["max_lag"] == 8
        both = [collecting(trainer.address, "--json"), collecting(trainer.address, "--json", "--num-collectors", "2")]
        until(lambda: len(trainer.collectors) == 3)
        trainer.start()
        trainer.wait()
        result = trainer.result()
    assert result.ending == "budget"
    assert result.steps >= 6_000
    ends = [collector.end() for collector in both]
    assert [status for status, _, _ in ends] == [0, 0], ends
    done = [json.loads(out) for _, out, _ in ends]
    assert all(each["over"] and each["why"] == "the run is over" for each in done)
    assert sum(each["steps"] for each in done) >= 6_000
    records = [json.loads(line) for line in (tmp_path / "run/progress.jsonl").read_text().splitlines()]
    trained = [record for record in records if "train/loss" in record]
    assert trained[-1]["collect/collectors"] >= 1
    assert max(record["train/policy_lag"] for record in trained) <= 8
    assert shoal.learn.load_policy(tmp_path / "run", which="last").predict([0.0, 0.0, 0.0, 0.0]) is not None


def test_a_collector_that_is_killed_is_told_of_and_others_join_late(
    tmp_path: Path, collecting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with shoal.learn.Trainer("CartPole-v1", listen="127.0.0.1:0", run_dir=tmp_path / "run", **ENDLESS) as trainer:
        trainer.start()
        first = collecting(trainer.address)
        until(lambda: trainer.status()["step"] > 0, trainer)
        (there,) = trainer.collectors
        assert (there["number"], there["host"], there["pid"]) == (0, os.uname().nodename, first.pid)
        seen = shoal_stat()
        (remote,) = (each for each in seen["remote_collectors"] if each["address"] == trainer.address)
        assert (remote["pid"], remote["num_collectors"], remote["lost"]) == (os.getpid(), 1, 0)
        os.kill(first.pid, signal.SIGKILL)
        until(lambda: not trainer.collectors, trainer)
        second = collecting(trainer.address)
        before = trainer.status()["step"]
        until(lambda: trainer.status()["step"] > before + 1000, trainer)
        assert [each["number"] for each in trainer.collectors] == [1]
        assert trainer.status()["lost_rollouts"] <= 1
    assert "collector 0 (process" in caplog.text
    assert "is lost: its connection has ended" in caplog.text
    status, out, _ = second.end()
    assert status == 0
    assert "the learner has stopped" in out


def shoal_stat() -> dict[str, Any]:
    from shoal.stat import snapshot

    return snapshot()


def test_a_collector_that_is_stopped_is_lost_within_seconds(tmp_path: Path, collecting: Any) -> None:
    with shoal.learn.Trainer("CartPole-v1", listen="127.0.0.1:0", run_dir=tmp_path / "run", **ENDLESS) as trainer:
        trainer.start()
        stopped = collecting(trainer.address)
        until(lambda: trainer.status()["step"] > 0, trainer)
        stop(stopped.pid)
        until(lambda: not trainer.collectors, trainer)
        os.kill(stopped.pid, signal.SIGCONT)
    status, _, err = stopped.end()
    assert status == 1
    assert "the learner" in err


LEARNER = """
import json, sys, shoal
trainer = shoal.learn.Trainer("CartPole-v1", **json.loads(sys.argv[1]))
with trainer:
    trainer.start()
    print(trainer.address, flush=True)
    trainer.wait()
"""


def learner(**arguments: Any) -> tuple[subprocess.Popen[str], str]:
    """A run in a process of its own, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", LEARNER, json.dumps(arguments)], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_a_learner_that_is_killed_is_one_error_or_waited_for(tmp_path: Path) -> None:
    run_dir = str(tmp_path / "run")
    process, address = learner(listen="127.0.0.1:0", run_dir=run_dir, save_every_seconds=0, **ENDLESS)
    ended: list[Any] = []

    def patient() -> None:
        ended.append(shoal.learn.collect(address, num_workers=0, wait=60))

    waiting = threading.Thread(target=patient)
    waiting.start()
    try:
        with pytest.raises(shoal.ConnectionLost, match="the learner .* is lost") as caught:

            def kill_soon(assigned: dict[str, Any]) -> None:
                assert assigned["env"] == "CartPole-v1"
                until(lambda: (Path(run_dir) / "checkpoints/last/state.json").exists())
                process.kill()

            shoal.learn.collect(address, num_workers=0, callback=kill_soon)
        assert caught.value.pid == process.pid
        assert caught.value.host == os.uname().nodename
    finally:
        process.kill()
        process.communicate()
    steps = json.loads((tmp_path / "run/checkpoints/last/state.json").read_text())["step"]
    with shoal.learn.Trainer(resume=True, run_dir=run_dir, num_workers=0, total_steps=steps + 1000) as resumed:
        assert resumed.address == address
        resumed.start()
        resumed.wait()
        assert resumed.status()["resume"] == "anew"
        learned_from = resumed.result().steps
        assert learned_from >= steps + 1000
    waiting.join(60)
    assert ended[0].over
    assert ended[0].steps >= learned_from, "what it sent to the learner that was lost counts too"


def test_several_collectors_are_processes_with_environments_where_they_are_asked_to_be(tmp_path: Path) -> None:
    ended: list[shoal.learn.Collected] = []
    options = {**SMALL, "total_steps": 2_000, "algorithm": "impala"}
    options.pop("batch_size")
    with shoal.learn.Trainer("shoal/CartPole-v1", listen="127.0.0.1:0", run_dir=tmp_path / "run", **options) as trainer:
        assert trainer.address is not None
        address = trainer.address

        def collect() -> None:
            ended.append(
                shoal.learn.collect(address, num_collectors=2, num_workers=0, backend="serial", context="forkserver")
            )

        collecting = threading.Thread(target=collect)
        collecting.start()
        until(lambda: len(trainer.collectors) == 2)
        assert os.getpid() not in [each["pid"] for each in trainer.collectors]
        trainer.start()
        trainer.wait()
    collecting.join(60)
    assert ended[0].over
    assert ended[0].steps >= 2_000
    assert ended[0].run == json.loads((tmp_path / "run/config.json").read_text())["run"]


def test_one_of_several_that_dies_is_told_of_at_once_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[shoal.learn.Collected] = []
    with shoal.learn.Trainer("shoal/CartPole-v1", listen="127.0.0.1:0", run_dir=tmp_path, **ENDLESS) as trainer:
        assert trainer.address is not None
        address = trainer.address

        def collect() -> None:
            ended.append(shoal.learn.collect(address, num_collectors=2, num_workers=0, backend="serial"))

        collecting = threading.Thread(target=collect)
        collecting.start()
        until(lambda: len(trainer.collectors) == 2)
        trainer.start()
        os.kill(trainer.collectors[0]["pid"], signal.SIGKILL)
        until(lambda: "a collector has ended, 1 of 2 are left" in caplog.text, trainer)
        until(lambda: trainer.status()["step"] > 0, trainer)
        trainer.stop()
        trainer.wait()
    collecting.join(60)
    assert ended[0].steps > 0 and not ended[0].over


def test_a_learner_that_cannot_begin_leaves_its_port_to_others(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path / "run", **{**SMALL, "total_steps": 256})
    with pytest.raises(ValueError, match="already holds a run"):
        shoal.learn.Trainer("shoal/CartPole-v1", listen=address, run_dir=tmp_path / "run", **ENDLESS)
    with shoal.learn.Trainer("shoal/CartPole-v1", listen=address, run_dir=tmp_path / "other", **ENDLESS) as second:
        assert second.address == address


def test_who_does_not_belong_here_is_refused(tmp_path: Path, collecting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal import _learn

    with shoal.learn.Trainer("CartPole-v1", listen="127.0.0.1:0", run_dir=tmp_path / "run", **ENDLESS) as trainer:
        trainer.start()
        status, _, err = collecting(trainer.address, SHOAL_GROUP_SECRET="another").end()
        assert status == 1
        assert "SHOAL_GROUP_SECRET is another there than here" in err
        with pytest.raises(shoal.Error, match="it belongs to run of yesterday, and here is run"):
            _learn.come_to(trainer.address, run="of yesterday")
        with pytest.raises(shoal.Error, match="SHOAL_GROUP_SECRET is another there than here"):
            shoal.learn.collect(trainer.address, secret="another")
        assert not trainer.collectors
        status, _, err = collecting(trainer.address, "--plugin", str(tmp_path / "none.so")).end()
        assert status != 0
        assert "none.so" in err
    with pytest.raises(TimeoutError, match="nobody has answered there"):
        _learn.come_to(trainer.address, timeout=0.2)
    monkeypatch.delenv("SHOAL_GROUP_SECRET")
    with pytest.raises(ValueError, match="connect to 192.0.2.1 without a secret: set SHOAL_GROUP_SECRET"):
        shoal.learn.collect("192.0.2.1:7000")
    with pytest.raises(ValueError, match="listen on 0.0.0.0 without a secret"):
        shoal.learn.train("CartPole-v1", listen="0.0.0.0:0", run_dir=tmp_path / "other", **SMALL)


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    def refused(match: str, **arguments: Any) -> None:
        with pytest.raises(ValueError, match=match):
            shoal.learn.train(
                **{"env": "CartPole-v1", "listen": "127.0.0.1:0", "run_dir": tmp_path / "run", **SMALL, **arguments}
            )

    refused("listen= is for algorithm= 'appo' and 'impala', not for a2c", algorithm="a2c")
    refused("leave out policy= and nproc=", nproc=2)
    refused("needs an environment's id", env=type("Env", (), {}))
    refused("leave out deterministic, or listen", deterministic=True)
    refused("'somewhere' is no address: give host:port", listen="somewhere")
    with pytest.raises(ValueError, match="num_collectors is 0"):
        shoal.learn.collect("127.0.0.1:1", num_collectors=0)
    refusals: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ValueError, "wait is -1", {"wait": -1}),
        (ValueError, "wait is 'x'", {"wait": "x"}),
        (TypeError, "address is 7000, it has to be text", {"address": 7000}),
        (ValueError, "has the port 0: name the one on which the learner listens", {"address": "127.0.0.1:0"}),
        (TypeError, "secret is bytes, it has to be text", {"secret": b""}),
        (TypeError, "callback is 5, it has to be a function", {"callback": 5}),
    ]
    for error, match, arguments in refusals:
        with pytest.raises(error, match=match):
            shoal.learn.collect(**{"address": "127.0.0.1:1", **arguments})
    with pytest.raises(TimeoutError, match="within 0.2"):
        shoal.learn.collect("127.0.0.1:1", wait=0.2)
    with pytest.raises(ValueError, match="callback= is of one collector"):
        shoal.learn.collect("127.0.0.1:1", num_collectors=2, callback=print)
    shoal.learn.train("CartPole-v1", run_dir=tmp_path / "alone", **{**SMALL, "total_steps": 256})
    with pytest.raises(ValueError, match="steps its environments itself"):
        shoal.learn.train(resume=True, run_dir=tmp_path / "alone", listen="127.0.0.1:0", total_steps=512)


def test_an_environment_that_fails_is_told_to_the_learner(
    tmp_path: Path, collecting: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shoal.learn.Trainer(
        "CartPole-v1",
        listen="127.0.0.1:0",
        run_dir=tmp_path / "run",
        env_kwargs={"sutton_barto_reward": True},
        **ENDLESS,
    ) as trainer:
        trainer.start()

        def break_it(assigned: dict[str, Any]) -> None:
            assert assigned["env_kwargs"] == {"sutton_barto_reward": True}
            raise LookupError("no license here")

        with pytest.raises(LookupError, match="no license here"):
            shoal.learn.collect(trainer.address, num_workers=0, callback=break_it)
        until(lambda: "it failed: LookupError: no license here" in caplog.text, trainer)

        def interrupt(assigned: dict[str, Any]) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            shoal.learn.collect(trainer.address, num_workers=0, callback=interrupt)
        until(lambda: "it was interrupted" in caplog.text, trainer)


NAMESPACES = script("namespaces")
NO_HOSTS = NAMESPACES.why_not()


@pytest.mark.skipif(NO_HOSTS is not None, reason=str(NO_HOSTS))
def test_a_learner_and_a_collector_on_two_hosts(tmp_path: Path) -> None:
    """Two network namespaces; then the collector's link is cut."""
    options = ("--total-steps", "100000000", "--seed", "1", "--set", "eval_every=0", "--quiet")
    with NAMESPACES.Namespaces(2) as hosts:
        address = f"{hosts.address(0)}:7000"
        command = (sys.executable, "-m", "shoal.cli")
        learns = subprocess.Popen(
            hosts.command(
                0,
                [
                    *command,
                    "train",
                    "CartPole-v1",
                    "--algorithm",
                    "appo",
                    "--listen",
                    address,
                    *options,
                    "--run-dir",
                    str(tmp_path / "run"),
                ],
            ),
            stderr=subprocess.PIPE,
            text=True,
        )
        collects = subprocess.Popen(
            hosts.command(1, [*command, "collect", address, "--num-workers", "0", "--wait", "30"]),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            until(
                lambda: (
                    (tmp_path / "run/progress.jsonl").exists()
                    and "collect/collectors" in (tmp_path / "run/progress.jsonl").read_text()
                )
            )
            hosts.cut(1)
            assert learns.stderr is not None
            line = next(line for line in learns.stderr if "is lost" in line)
            assert "the network to it is gone" in line
            learns.send_signal(signal.SIGINT)
            assert learns.wait(60) == 130
        finally:
            for process in (collects, learns):
                process.kill()
                process.communicate()
