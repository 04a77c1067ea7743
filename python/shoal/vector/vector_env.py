"""The vector environment that users hold: Gymnasium's interface over Shoal's engine."""

from __future__ import annotations

import _thread
import functools
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import gymnasium
import numpy as np
from gymnasium import logger
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError, ResetNeeded
from gymnasium.vector.utils import batch_space

import shoal.process
from shoal import _core
from shoal.errors import RemoteTraceback
from shoal.identity.shared import SharedDict
from shoal.ipc import cloudpickling
from shoal.ipc.sharing import Parcel
from shoal.vector import infos as info_batches
from shoal.vector.action_parts import batch_of, checked_ids, with_part
from shoal.vector.episodes import add_statistics, options_text
from shoal.vector.forks import keep_from_children
from shoal.vector.seeding import CheckedSeeds, Seeds, reset_mask_of, seeds_left, seeds_of
from shoal.vector.snapshots import Snapshots
from shoal.vector.worker import EnvGroup

__all__ = ["VectorEnv"]

Own = TypeVar("Own", bound="VectorEnv")


class VectorEnv(Snapshots, gymnasium.vector.VectorEnv[Any, Any, Any]):
    """`num_envs` environments that are reset and stepped together. Made by `shoal.make_vec`.

        with shoal.make_vec("CartPole-v1", 8) as envs:      # closed at the end of the block
            observations, infos = envs.reset(seed=0)

    Observations are arrays with one row an environment (dicts and tuples of arrays for Dict and Tuple spaces, tuples of
    objects for spaces without arrays of fixed size, such as Text, Sequence, Graph and custom ones), rewards
    float64 of shape (num_envs,), `terminated` and `truncated` bool of that shape, infos a dict of arrays with masks, all
    as `gymnasium.vector` defines them. With `copy=False` the observations are views of memory that the next reset or
    step overwrites.

    An exception of an environment is raised here as it was there, with the environment, the action and the worker's
    traceback. After it, and after `shoal.WorkerDied`, only close() is of use. `make_vec(on_fault=…)` can choose otherwise.

    Threads: one at a time.
    Fork: in a forked child the calls of environments in worker processes raise RuntimeError, and close() does nothing.
    """

    _reserved_calls = frozenset({"reset", "step", "close"})
    _final_keys = ("final_obs", "final_info")  # of the infos, in this order

    def __init__(
        self,
        engine: _core.VectorEnv,
        description: dict[str, Any],
        *,
        autoreset_mode: gymnasium.vector.AutoresetMode,
        copy: bool = True,
        timeout: float | None = None,
        seed: Seeds = None,
        group: EnvGroup | None = None,
        native: bool = False,
        episode_statistics: bool = False,
        shared_state: _core.process.SharedState | None = None,
        exact: bool = False,
        parcel: Parcel | None = None,
        marks_rows: bool = False,
    ) -> None:
        self._engine = engine
        self._marks_rows = marks_rows  # infos say by MARKS which rows are no transitions
        self._parcel = parcel  # what its workers share with this process
        self._group = group  # the environments themselves, where they live in this process
        self._native = native
        self._shared_state = shared_state if shared_state is not None else _core.process.SharedState.create()
        self.num_envs = engine.num_envs
        self.num_workers = engine.num_workers
        self.copy = copy
        self.timeout = timeout
        self.autoreset_mode = autoreset_mode
        self.metadata = {**description["metadata"], "autoreset_mode": autoreset_mode}
        self.render_mode = description["render_mode"]
        self.spec = description["spec"]
        engine.set_title(getattr(self.spec, "id", None) or description.get("name") or "")
        self.single_observation_space = description["observation_space"]
        self.single_action_space = description["action_space"]
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._io = _core.BatchIo(
            engine, self.single_observation_space, self.single_action_space, copy, exact, episode_statistics
        )
        self._sends_actions = self._io.sends_actions
        self._first_seed = seed  # of those that were not reset yet
        self._resets: np.ndarray | None = None  # the mask of the reset under way
        self._pending: str | None = None
        self._interrupted = False  # whether what a signal's handler raised, as Ctrl-C's does, left it
        self._parts: dict[int, Any] = {}  # actions that wait for the others, by environment
        self._own_answer: Callable[[], list[Any]] | None = None  # to a call under way, where _group gives it
        self._replies: list[bytes] = []  # of the workers to the call under way, once all are there
        self._received: list[Any] = []  # a result that recv() has not returned yet
        self._was_reset = False
        self._told_arguments = False  # whether the workers may have some of a reset before
        if any(worker["pid"] for worker in engine.stats()["workers"]):  # they are in other processes
            keep_from_children(self, "these environments were", ("_engine", "_io"), VectorEnv._leave_to_parent)

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in every environment, or in those that `options["reset_mask"]` selects.

        Args:
            seed: environment i gets `seed + i`, or element i of a sequence; None leaves its generator as it is.
            options: given to every environment's reset, without the mask.

        Actions that were sent for some environments, and wait for the others, are thrown away; with a mask they are an
        AlreadyPendingCallError. So is a call that Ctrl-C has interrupted: it is waited for, and what it returns is thrown away.
        """
        self.finish_interrupted(options)
        if self._parts and "reset_mask" in (options or {}):
            raise AlreadyPendingCallError(
                f"reset(): environments {sorted(self._parts)} are in flight; send() the others and recv() first", "send"
            )
        self._parts = {}
        try:
            self.reset_async(seed=seed, options=options)
            return self.reset_wait()
        except (TimeoutError, AlreadyPendingCallError):
            raise
        except BaseException:
            self._interrupted = self._pending is not None
            raise

    def reset_async(self, seed: Seeds = None, options: dict[str, Any] | None = None) -> None:
        self._check_idle("reset_async")
        seeds, mask, options = self._reset_arguments_of(seed, options)
        self._send_reset_arguments(options, seeds, mask)
        self._begin_reset(seeds.values, mask)

    def _begin_reset(self, seeds: Any, mask: np.ndarray | None) -> None:
        """Once its arguments are told; of all, or of those that `mask` selects."""
        self._resets = mask
        try:
            self._io.reset_async(seeds, None if mask is None else mask.view(np.uint8))
        except BaseException:
            self._keep_if_begun("reset")
            raise
        self._pending = "reset"

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        self._check_pending("reset")
        observations, extra = self._wait(self._io.reset_wait, timeout)
        self._note_reset(self._resets)
        return observations, self._infos(extra) if extra else {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps every environment with its action; what has ended is reset as `autoreset_mode` says."""
        try:
            self.step_async(actions)
            return self.step_wait()
        except (TimeoutError, AlreadyPendingCallError):
            raise
        except BaseException:
            self._interrupted = self._pending is not None
            raise

    def step_async(self, actions: Any) -> None:
        if self._pending is not None or self._parts or not self._was_reset or self.closed:
            self._check_idle("step_async")
            if self._parts:
                raise AlreadyPendingCallError(
                    f"step(): environments {sorted(self._parts)} were sent actions; send() the others theirs, and recv()",
                    "send",
                )
            self._engine.require_open("step")
            raise ResetNeeded("Cannot call step() before reset() has been called.")
        try:
            if self._sends_actions:
                rows = self._io.store_actions(actions)
                self._ask("set_actions", [(rows[lo:hi],) for lo, hi in self._ranges()])
                self._io.step_stored()
            else:
                self._io.step_async(actions)
        except BaseException:
            self._keep_if_begun("step")
            raise
        self._pending = "step"

    def _step_async_whole(self, actions: Sequence[Any]) -> None:
        """step_async() with one action an environment, which gets it as it is."""
        self._ask("set_whole_actions", [(list(actions[lo:hi]),) for lo, hi in self._ranges()])
        try:
            self._io.step_stored()
        except BaseException:
            self._keep_if_begun("step")
            raise
        self._pending = "step"

    def step_wait(self, timeout: float | None = None) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._pending != "step" or self.closed:
            self._check_pending("step")
        observations, rewards, terminated, truncated, extra = self._wait(self._io.step_wait, timeout)
        return observations, rewards, terminated, truncated, self._infos(extra) if extra else {}

    # What AsyncVectorEnv does one by one: code for it runs on these, too, with all environments as the batch.

    @property
    def batch_size(self) -> int:
        """Rows of what recv() returns: all environments."""
        return self.num_envs

    @property
    def env_ids(self) -> np.ndarray:
        """The environments of the rows, int64."""
        return np.arange(self.num_envs)

    @property
    def in_flight(self) -> int:
        """How many environments were sent and not received."""
        return self.num_envs if self._pending in ("reset", "step") else len(self._parts)

    def async_reset(self, seed: Seeds = None, options: dict[str, Any] | None = None) -> None:
        """reset_async(), whose result recv() returns; all environments."""
        if self._parts:
            raise AlreadyPendingCallError("async_reset: environments are in flight; recv() them first", "send")
        if options is not None and "reset_mask" in options:
            raise ValueError("async_reset: without batch_size all environments are reset; use reset() for some of them")
        self.reset_async(seed=seed, options=options)

    def send(self, actions: Any, env_ids: Any = None) -> None:
        """Actions for `env_ids`, by default for all environments; see AsyncVectorEnv.send(). They may be sent in parts: the
        step begins with the last of them."""
        if self._pending is not None or self.closed:
            self._check_idle("send")
        if env_ids is None and not self._parts:
            self.step_async(actions)
            return
        ids = checked_ids(self.env_ids if env_ids is None else env_ids, self.num_envs, self._parts)
        if not self._was_reset:
            self.step_async(actions)  # raises
        before, parts = self._parts, with_part(self._parts, ids, actions, self.single_action_space, self._io)
        if len(parts) < self.num_envs:
            self._parts = parts
            return
        self._parts = {}
        try:
            self.step_async(batch_of([parts[i] for i in range(self.num_envs)], self.single_action_space))
        except BaseException:
            if self._pending is None:  # it has not begun
                self._parts = before
            raise

    def recv(self, timeout: float | None = None) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """The result of all environments; see AsyncVectorEnv.recv()."""
        if self._pending == "reset":
            observations, infos = self.reset_wait(timeout)
            ended = np.zeros((2, self.num_envs), np.bool_)
            result = (observations, np.zeros(self.num_envs), ended[0], ended[1], infos)
        elif self._pending == "step":
            result = self.step_wait(timeout)
        else:
            self._check_idle("recv")
            self._engine.require_open("recv")
            missing = [i for i in range(self.num_envs) if i not in self._parts]
            raise NoAsyncCallError(
                f"recv: waits for all {self.num_envs} environments, of which {missing} are not in flight; send() them "
                "first",
                "recv",
            )
        result[4]["env_id"] = self.env_ids
        result[4]["_env_id"] = np.ones(self.num_envs, np.bool_)
        return result

    async def recv_async(
        self, timeout: float | None = None
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """recv() for asyncio: other tasks run while the environments do.

            envs.send(actions)
            observations, rewards, terminated, truncated, infos = await envs.recv_async()

        Environments of this process (num_workers=0, or native ones in threads) step when they are received, as by recv(): the
        loop stands still meanwhile. One task at a time; one that is cancelled leaves the environments in flight.

        Args:
            timeout: seconds, as of recv().
        """
        from shoal.awaiting import readable  # which imports asyncio

        timeout = self.timeout if timeout is None else timeout
        end = None if timeout is None else time.monotonic() + timeout
        while not self.closed and not self._received and (fd := self._io.watch()) >= 0:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                break
            await readable(fd, left)
            try:
                return self.recv(0.0)
            except TimeoutError as error:  # too early
                if not self._is_under_way(error):
                    raise
        return self.recv(None if end is None else max(0.0, end - time.monotonic()))

    def fileno(self) -> int:
        """A descriptor for select, poll and event loops: readable when recv(), step_wait() or reset_wait() have a result.

        Ask for it before every wait, after send() or step_async(): that is what makes it unreadable. It may be readable
        too early, 50 times a second at most, so that a worker that has died is noticed: call recv(timeout=0), which then
        raises TimeoutError. Environments of this process do their work in that call, and are always readable. It is the
        environments' own: do not close it.
        """
        self._check_open("fileno")
        return self._io.fileno()

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The result of method `name` of every environment, or the attribute `name` where it cannot be called."""
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Begins call(): every worker asks its environments one after the other, all workers at the same time."""
        if name in self._reserved_calls:
            raise ValueError(f"call({name!r}) would step around the vector environment: use its own {name}()")
        self._check_idle("call_async")
        self._ask_async("call", [(name, args, kwargs)] * self.num_workers)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """One result an environment. After a TimeoutError the call is still under way: wait again, or close()."""
        self._check_pending("call")
        results: tuple[Any, ...] = self._wait(self._answers, timeout)
        return results

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """The attribute `name` of every environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets the attribute `name`: to element i in environment i for a list or tuple, else to `values` in all."""
        self._check_idle("set_attr")
        if not isinstance(values, list | tuple):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(
                f"Values must be a list or tuple with length equal to the number of environments. Got `{len(values)}` "
                f"values for {self.num_envs} environments."
            )
        self._ask("set_attr", [(name, values[lo:hi]) for lo, hi in self._ranges()])

    def render(self) -> tuple[Any, ...] | None:
        """What every environment renders: None each in "human" mode, which shows it in a window of its own. None of native
        environments, which have no `render_mode`."""
        return None if self._native else self.call("render")

    @property  # type: ignore[misc]  # nobody sets it, as in Gymnasium's AsyncVectorEnv
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]  # as there
        """The environments' generators (copies, where they live in other processes). Native environments draw in C++: they
        have none, which is an AttributeError."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]  # as there
        return self.get_attr("np_random_seed")

    def counter(self, name: str) -> _core.process.Counter:
        """What the environments add to as `shoal.worker().counter(name)`, over all workers; readable after close() too.
        The environments of one WorkerPool count together."""
        return self._shared_state.counter(name)

    def counters(self) -> dict[str, int]:
        """All counters that somebody has asked for, by name."""
        return dict(self._shared_state.counters())

    @property
    def shared(self) -> SharedDict:
        """What the environments have as `shoal.worker().shared`."""
        return SharedDict(self._shared_state)

    def stats(self) -> dict[str, Any]:
        """What the engine has done so far: batches, waiting, and for each worker its pid, steps, busy time and restarts.

        With worker processes `placement` says where they run, and why. `zygotes` are those of this process, whosever
        workers they started: see `shoal.process.zygotes()`.
        """
        return {**self._engine.stats(), "zygotes": shoal.process.zygotes()}

    def health(self) -> list[dict[str, Any]]:
        """How every worker is: a dict each, with `pid` (None without a process), `state` ("starting", "idle", "stepping",
        "hung", "restarting", "dropped" or "closed"), `first_env` and `num_envs`, `env` (the environment whose code runs, or
        None) and `since` (for how many seconds), `rss` (bytes), `restarts`, `recycles` (for its memory), `last_fault` (a `shoal.Fault` or None) and
        `faults` (how many, by kind).

        Any thread may ask, also while a step is under way; it never waits.
        """
        workers: list[dict[str, Any]] = self._engine.health()
        return workers

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Closes the environments and ends the workers. Called by close(timeout, terminate), once.

        Args:
            timeout: seconds for a call that is still under way to end (by default 1), and then for the environments to
                close (by default 10). Workers that take longer are killed, which is logged.
            terminate: kills the workers at once: their environments are not closed.

        All are closed, whatever some of them raise. Then the first exception is raised here, with notes of the others. Ctrl-C
        kills the workers that are not done, and is raised as well.
        """
        failures: list[BaseException] = []
        try:
            try:
                if self._pending is not None:
                    logger.warn(f"Calling `close` while waiting for a pending call to `{self._pending}` to complete.")
                    if timeout is not None and not terminate:
                        terminate = not self._finish_pending(timeout)
            except BaseException:
                terminate = True
                raise
            finally:
                self._pending = None
                if self._group is not None:
                    failures = [failure for _, failure in self._group.close()]
        finally:
            try:
                self._engine.close(0.0 if terminate else timeout)
            except Exception as failure:
                cause = failure.__cause__
                failures += [failure, *(cause.others if isinstance(cause, RemoteTraceback) else ())]
        if failures:
            self._tell_close_failures(failures)

    def _tell_close_failures(self, failures: list[BaseException]) -> None:
        """Raises the first; one that is to end the program (KeyboardInterrupt) before all others."""
        first = next((failure for failure in failures if not isinstance(failure, Exception)), failures[0])
        for other in failures:
            if other is not first and hasattr(first, "add_note"):
                where = ", ".join(getattr(other, "__notes__", ())) or "close()"
                first.add_note(f"{where} raised {type(other).__name__}: {other}")
        raise first

    def close(self, **kwargs: Any) -> None:
        """Closes the environments: see close_extras(). Further calls do nothing, whatever the first one raised."""
        try:
            super().close(**kwargs)
        finally:
            self.closed = True
            self._io.wake()

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_io") and not self.closed:
            self._pending = None  # nobody is there to be warned
            try:
                self.close()
            except KeyboardInterrupt:
                _thread.interrupt_main()  # what is raised here reaches nobody

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"cannot pickle {type(self).__name__!r} object: it holds running environments, which can be neither copied nor "
            "sent. Send a function that makes one (by shoal.make_vec), to be called where it is needed, or what this one "
            "returns; snapshot() and restore() hand over where its environments are"
        )

    def _leave_to_parent(self) -> None:
        """In a forked child: a call under way is the parent's, and environments of the process itself are its to close."""
        self._pending = None
        if self._group is not None:
            self._group.leave_to_parent()

    def _finish_pending(self, timeout: float | None) -> bool:
        """Waits for the call under way and drops what comes of it; False when it did not end in time."""
        try:
            self._wait_of_pending()(timeout)
        except TimeoutError:
            return False
        except Exception:  # the environments are closed anyway
            pass
        return True

    def _wait_of_pending(self) -> Any:
        if self._pending == "call":
            return self._gathered if self._own_answer is None else self._answers
        return {"reset": self._io.reset_wait, "step": self._io.step_wait}[self._pending or ""]

    def _keep_if_begun(self, call: str) -> None:
        """After what a signal's handler raised, which comes between the beginning of a call and its being known here at times."""
        if self._pending is not None or self.closed:
            return
        if self._has_request() if call == "call" else self._io.is_under_way:
            self._pending, self._interrupted = call, True

    def _has_request(self) -> bool:
        """Whether workers are still asked, or have answered: _gathered() returns it."""
        try:
            self._engine.request_wait(0.0, self._replies)
        except TimeoutError:
            return True
        except Exception:  # there is none; or it failed, which the next call tells
            pass
        return bool(self._replies)

    def finish_interrupted(self, options: dict[str, Any] | None = None) -> None:
        """Waits for a call that Ctrl-C has left under way, if there is one, before a reset of all environments, which are told
        something first at times: what it returns is dropped, and what it raises is raised. For Shoal's own use."""
        if not self._interrupted or "reset_mask" in (options or {}):
            return
        if self._pending is not None:
            self._wait(self._wait_of_pending(), None)
        self._interrupted = False

    def _wait(self, wait: Any, timeout: float | None) -> Any:
        try:
            result = wait(self.timeout if timeout is None else timeout)
        except BaseException as error:
            if not self._is_left(error):
                self._pending = None
            elif not isinstance(error, TimeoutError):
                self._interrupted = True
            raise
        self._pending = None
        return result

    def _is_left(self, error: BaseException) -> bool:
        """Whether the call that `error` left goes on, or has a result that nobody got: a signal's handler may raise anything."""
        if isinstance(error, TimeoutError | KeyboardInterrupt) and self._is_under_way(error):
            return True
        if self._pending == "call":
            if self._group is not None or self._replies:  # an answer that cannot be read
                return False
            return self._has_request()
        return self._io.has_call

    def _is_under_way(self, error: BaseException) -> bool:
        """Whether the call that `error` left goes on: not if it is an environment's own."""
        return self._group is None and not isinstance(error.__cause__, RemoteTraceback)

    def _infos(self, extra: int, batch: gymnasium.vector.VectorEnv[Any, Any, Any] | None = None) -> dict[str, Any]:
        """`batch` has as many environments as the result has rows; by default this one."""
        batch = self if batch is None else batch
        entries = self._info_entries() if extra & _core.EXTRA_INFOS else []
        final_observations: dict[int, Any] = {}
        if extra & _core.EXTRA_FINAL:
            rows = np.flatnonzero(self._io.has_final())
            final_observations = {int(row): self._io.final_observation(int(row)) for row in rows}
        batched = self._batched_infos(batch, entries, final_observations)
        if self._marks_rows:
            batched = info_batches.without_marks(batched)
        if extra & _core.EXTRA_EPISODES:
            add_statistics(batched, *self._io.episodes())
        if extra & _core.EXTRA_FAULT:
            info_batches.add_faults(batched, self._io.fault(), self._engine.faults())
        return batched

    def _batched_infos(
        self,
        batch: gymnasium.vector.VectorEnv[Any, Any, Any],
        entries: Sequence[info_batches.Entry],
        final_observations: dict[int, Any],
    ) -> dict[str, Any]:
        return info_batches.batch(batch, entries, final_observations, self._final_keys)

    def _info_entries(self) -> list[info_batches.Entry]:
        entries: list[info_batches.Entry] = self._io.infos()
        return entries

    def _reset_arguments_of(
        self, seed: Seeds, options: dict[str, Any] | None
    ) -> tuple[CheckedSeeds, np.ndarray | None, dict[str, Any] | None]:
        """The seeds, by default those of make_vec for each environment's first reset; the mask, or None; the options without
        it."""
        seeds = seeds_of(self._first_seed if seed is None else seed, self.num_envs)
        mask = None
        if options is not None and not isinstance(options, Mapping):
            raise TypeError(f"reset(options=…) takes a dict, got {options!r}")
        if options is not None and "reset_mask" in options:
            options = dict(options)
            mask = reset_mask_of(options.pop("reset_mask"), self.num_envs)
        return seeds, mask, options

    def _note_reset(self, mask: np.ndarray | None) -> None:
        """After a reset: the environments that it left out keep their seeds of make_vec."""
        self._was_reset = True
        self._first_seed = seeds_left(self._first_seed, mask, self.num_envs)

    def _send_reset_arguments(
        self, options: dict[str, Any] | None, seeds: CheckedSeeds, mask: np.ndarray | None
    ) -> None:
        if self._native and seeds.large:
            raise ValueError(f"native environments take seeds from 0 to 2**64 - 1, got {seeds.large}")
        # An empty dict is given to environments in Python, as it is; native ones cannot tell it from none.
        plain = (not options if self._native else options is None) and not seeds.large
        # None are told, too, where some of a reset before may have stayed: one that failed, or that left environments out.
        if plain and not self._told_arguments:
            return
        self._told_arguments = True
        self._tell_reset_arguments(options, seeds, mask)
        self._told_arguments = not plain

    def _tell_reset_arguments(
        self, options: dict[str, Any] | None, seeds: CheckedSeeds, mask: np.ndarray | None
    ) -> None:
        """`mask`: of those that are reset; None: all are."""
        if self._native:
            self._engine.set_reset_options(options_text(options))
            return
        large = seeds.large
        self._ask("set_reset_arguments", [(options, large and large[lo:hi]) for lo, hi in self._ranges()])

    def _ask(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> None:
        """Calls `method` of every worker's EnvGroup, with `arguments` by worker, all at the same time."""
        self._ask_async(method, arguments)
        self._wait(self._answers, None)

    def _ask_async(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> None:
        if self._group is not None:
            self._own_answer = functools.partial(getattr(self._group, method), *arguments[0])
        elif self._native:
            raise AttributeError(
                f"native environments have no attributes to {method.replace('_', ' ')}: {arguments[0][0]!r}"
            )
        else:
            self._request_async([cloudpickling.dumps((method, own)) for own in arguments])
        self._pending = "call"

    def _request(self, messages: list[bytes], timeout: float | None = None) -> list[bytes]:
        """What the workers answer, all asked at the same time; those whose message is empty are not asked, and answer nothing."""
        self._request_async(messages)
        answers: list[bytes] = self._wait(self._gathered, timeout)
        return answers

    def _request_async(self, messages: list[bytes]) -> None:
        self._replies = []
        try:
            self._engine.request_async(messages)
        except BaseException:
            self._keep_if_begun("call")
            raise
        self._pending = "call"

    def _gathered(self, timeout: float | None) -> list[bytes]:
        """The workers' answers to the request under way, also to who asks again: a signal may have kept them from the first."""
        if not self._replies:
            self._engine.request_wait(timeout, self._replies)
        return self._replies

    def _answers(self, timeout: float | None) -> tuple[Any, ...]:
        """What the workers answered to _ask_async(), in the order of the environments."""
        if self._own_answer is None:
            answers = zip(self._gathered(timeout), self._ranges(), strict=True)
            # A worker that has been dropped answers nothing.
            values = tuple(
                value
                for answer, (lo, hi) in answers
                for value in (pickle.loads(answer) if answer else [None] * (hi - lo))
            )
            self._replies = []
            return values
        ask, self._own_answer = self._own_answer, None
        try:
            return tuple(ask())
        finally:
            self._io.environments_changed()

    def _ranges(self) -> list[tuple[int, int]]:
        """The rows of every worker."""
        if self._group is not None:
            return [(0, self.num_envs)]
        workers = self._engine.stats()["workers"]
        return [(w["first_env"], w["first_env"] + w["num_envs"]) for w in workers]

    def _check_open(self, call: str) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"Trying to operate on `{type(self).__name__}`, after a call to `close()`.")

    def _check_idle(self, call: str) -> None:
        self._check_open(call)
        if self._pending is not None:
            raise AlreadyPendingCallError(
                f"Calling `{call}` while waiting for a pending call to `{self._pending}` to complete.", self._pending
            )

    def _check_pending(self, call: str) -> None:
        self._check_open(call)
        if self._pending != call:
            self._engine.require_open(f"{call}_wait")
            raise NoAsyncCallError(f"Calling `{call}_wait` without any prior call to `{call}_async`.", call)
