"""Collectors whose learner is another process, on this host or another: `train(listen=…)` there, `collect()` here."""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shoal import _core, _learn
from shoal.errors import ConnectionLost, Error
from shoal.learn import environments

__all__ = ["Collected", "Listening", "collect"]

_logger = logging.getLogger("shoal.learn")

_TO_REACH = 10.0
"""Seconds in which a learner is found that is there."""

MAX_LAG = 8
"""Of a run that listens, where nobody says it: one more collectors than that can be at work at once."""


@dataclass(frozen=True)
class Collected:
    """What a collector did for its learner.

    Attributes:
        run: the run's name.
        rollouts: that were sent to the learner; of one that was lost the last may not have arrived.
        steps: of environments, in those.
        why: it ended, as the learner says it.
        over: the run is over; otherwise it may go on in another session.
    """

    run: str
    rollouts: int
    steps: int
    why: str
    over: bool


def collect(
    address: str,
    *,
    num_collectors: int = 1,
    num_workers: int | None = None,
    wait: float = 0.0,
    secret: str | None = None,
    backend: str = "auto",
    context: str = "auto",
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> Collected:
    """Collects for the learner at `address`, a run of `shoal.learn.train(…, listen=…)`, until that ends.

    The learner says what to step. Each collector steps `num_envs` environments of its own. Where `address` is not the
    loopback, the secret has to be the same text on both sides.

    Args:
        address: "host:port".
        num_collectors: how many; more than one are processes of their own.
        num_workers: processes in which each steps its environments; 0: its own. By default the CPUs are shared out.
        wait: seconds in which the learner may come, and come back when it is lost or stopped: a collector goes on with the
            next session of the run. 0: it has to be there, and its end is the collector's.
        secret: by default what SHOAL_GROUP_SECRET says.
        backend, context: as of `shoal.make_vec`.
        callback: called with what the learner assigned ("env", "config", …, "run", "number"), each time before collecting
            begins. Of one collector.

    Raises:
        ConnectionLost: the learner was killed, was stopped, or cannot be reached any more, and `wait` is 0.
        TimeoutError: nobody answers at `address`, or not within `wait`.
        ValueError: for an address that is none, or one beyond the loopback without a secret.
        Error: the learner refuses this collector: another secret, run or version of Shoal; the message says which.
    """
    if not isinstance(num_collectors, int) or isinstance(num_collectors, bool) or num_collectors < 1:
        raise ValueError(f"num_collectors is {num_collectors!r}, it has to be a number of collectors, 1 or more")
    if not isinstance(address, str):
        raise TypeError(f'address is {address!r}, it has to be text: "host:port", where the learner listens')
    if address.endswith(":0"):
        raise ValueError(f"{address} has the port 0: name the one on which the learner listens")
    if not isinstance(wait, int | float) or not wait >= 0:
        raise ValueError(f"wait is {wait!r}, it has to be a number of seconds, 0 or more")
    if secret is not None and not isinstance(secret, str):
        raise TypeError(f"secret is {type(secret).__name__}, it has to be text, or None for SHOAL_GROUP_SECRET")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback is {callback!r}, it has to be a function of what the learner assigned")
    where = {"num_workers": num_workers, "backend": backend, "context": context}
    if num_collectors == 1:
        return _collect(address, secret, wait, where, callback)
    if callback is not None:
        raise ValueError("callback= is of one collector: leave it out, or num_collectors")
    if num_workers is None:
        where["num_workers"] = _workers_of_each(num_collectors)
    return _in_processes(num_collectors, address, secret, wait, where)


def _workers_of_each(num_collectors: int) -> int:
    cpus = len(os.sched_getaffinity(0)) // num_collectors
    return cpus if cpus > 1 else 0


def _collect(
    address: str,
    secret: str | None,
    wait: float,
    where: Mapping[str, Any],
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> Collected:
    run, rollouts, steps = "", 0, 0
    while True:
        collector = _learn.come_to(address, secret=secret, run=run, timeout=wait or _TO_REACH)
        run = collector.run
        try:
            end = _work(collector, where, callback)
        except ConnectionLost:
            if not wait:
                raise
            continue
        except BaseException as error:
            collector.fail(_why(error))
            raise
        finally:
            rollouts, steps = rollouts + collector.rollouts, steps + collector.steps
        if end["over"] or not wait:
            return Collected(run, rollouts, steps, end["why"], end["over"])


def _why(error: BaseException) -> str:
    """Of a collector that ends, for the learner."""
    if isinstance(error, KeyboardInterrupt):
        return "it was interrupted"
    text = str(error)
    return f"it failed: {type(error).__name__}" + (f": {text}" if text else "")


def _work(
    collector: _learn.RemoteCollector,
    where: Mapping[str, Any],
    callback: Callable[[dict[str, Any]], None] | None,
) -> dict[str, Any]:
    """Until the learner takes leave."""
    assigned = json.loads(collector.assignment)
    if callback is not None:
        callback({**assigned, "run": collector.run, "number": collector.number})
    options = environments.EnvOptions.of_run(assigned).for_training()
    envs = environments.build(assigned["env"], assigned["config"]["num_envs"], options, **where)
    try:
        end: dict[str, Any] = collector.collect(envs._engine)
        return end
    finally:
        environments.close(envs)


def _in_processes(
    num_collectors: int, address: str, secret: str | None, wait: float, where: Mapping[str, Any]
) -> Collected:
    import shoal.process

    if secret is None:
        secret = os.environ.get("SHOAL_GROUP_SECRET", "")  # which workers do not see
    inside = {**where, "context": "auto"} if where["num_workers"] == 0 else dict(where)
    launcher = shoal.process.launcher(str(where["context"]), preload=[__name__], hide_gpu=False, threads=1)
    workers = launcher.start([(_live, address, secret, wait, inside)] * num_collectors, "collector")
    done: list[Collected] = []
    failures: list[Exception] = []
    left = list(workers)
    try:
        while left:
            for worker in list(left):
                outcome: Collected | Exception
                try:
                    message = worker.recv(0.1)
                except TimeoutError:
                    continue
                except Exception as error:  # the worker's own
                    outcome = error
                else:
                    outcome = _outcome(worker, message)
                left.remove(worker)
                if isinstance(outcome, Collected):
                    done.append(outcome)
                    continue
                failures.append(outcome)
                _logger.warning("a collector has ended, %d of %d are left: %s", len(left), num_collectors, outcome)
    except BaseException:
        for worker in left:
            worker.kill()
        raise
    finally:
        for worker in workers:
            worker.join(5.0)
    if not done:
        raise failures[0]
    return Collected(
        done[0].run,
        sum(each.rollouts for each in done),
        sum(each.steps for each in done),
        done[0].why,
        all(each.over for each in done),
    )


def _outcome(worker: Any, message: bytes | None) -> Collected | Exception:
    """What a collector's process said last, or how it ended without a word."""
    if message is None:
        worker.join(5.0)
        try:
            worker.raise_died()
        except Error as died:
            return died
    outcome = json.loads(message or b"{}")
    if "lost" in outcome:
        return ConnectionLost(**outcome["lost"])
    if "late" in outcome:
        return TimeoutError(outcome["late"])
    return Collected(**outcome)


def _live(context: Any, address: str, secret: str, wait: float, where: dict[str, Any]) -> None:
    """The life of a collector's process."""
    _core.trace.open(f"collector {context.index}")
    try:
        outcome: dict[str, Any] = vars(_collect(address, secret, wait, where))
    except ConnectionLost as lost:
        outcome = {"lost": {"message": str(lost), "host": lost.host, "pid": lost.pid}}
    except TimeoutError as error:
        outcome = {"late": str(error)}
    context.send(json.dumps(outcome).encode())


class Listening:
    """What a run whose collectors are elsewhere remembers of it, and the C++ side that takes them.

    Attributes:
        address: host:port that collectors come to.
        handle: for the C++ trainer.
    """

    def __init__(
        self,
        asked: str,
        about: dict[str, Any],
        config: Mapping[str, Any],
        like: Any,
        secret: str | None = None,
    ) -> None:
        """Listens, and adds to `about` what makes this session of the run known.

        Args:
            asked: "host:port"; port 0 takes a free one.
            like: an environment's engine with the spaces that collectors' have.
            secret: that collectors have to know; by default what SHOAL_GROUP_SECRET says.

        Raises:
            ValueError: where collectors elsewhere could not make the environments.
            Error: the port is taken.
        """
        about["run"] = about.get("run") or uuid.uuid4().hex
        about["attempt"] = about.get("attempt", -1) + 1
        self.handle = _learn.listen(
            asked,
            like,
            json.dumps(config),
            json.dumps(about),
            run=about["run"],
            attempt=about["attempt"],
            secret=secret,
        )
        self.address = about["listen"] = f"{asked.rpartition(':')[0]}:{self.handle.port}"

    @staticmethod
    def check(about: Mapping[str, Any], options: environments.EnvOptions) -> None:
        """Raises ValueError where the run's environments cannot be told to other hosts."""
        if not about["env_is_id"]:
            raise ValueError(
                f"listen= needs an environment's id, which collectors on other hosts make it of; {about['env']} is none"
            )
        for name, value in vars(options).items():
            if value is not None and about.get(name) is None:
                raise ValueError(f"listen= tells collectors on other hosts of {name}, which JSON cannot hold here")
