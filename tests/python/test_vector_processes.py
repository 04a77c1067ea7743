"""The process backend of shoal.make_vec: deaths, deadlines, start methods, and what is left behind."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError

import shoal
from interrupting import interrupted_once_there
from promise import await_pids_ended
from sample_envs import CounterEnv, GatedEnv, SpaceEnv, TellingGatedEnv


class DyingEnv(CounterEnv):
    """Ends its process at action 2; sleeps at action 1."""

    def __init__(self, how: str = "kill", length: int = 1000) -> None:
        super().__init__(length)
        self.how = how

    def step(self, action: Any) -> Any:
        if action == 2:
            print("these are my last words", flush=True)
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(7)
        if action == 1:
            time.sleep(3600)
        return super().step(action)


def slice_ns() -> int:
    """How long the scheduler lets this thread run at a time; 0 where the kernel does not tell."""
    with contextlib.suppress(OSError):
        found = re.search(r"^se\.slice\s*:\s*(\d+)", Path("/proc/thread-self/sched").read_text(), re.M)
        return int(found[1]) if found else 0
    return 0


class SliceEnv(CounterEnv):
    def reset(self, **options: Any) -> Any:
        obs, _ = super().reset(**options)
        return obs, {"slice": slice_ns()}


def pids(envs: shoal.VectorEnv) -> list[int]:
    return [worker["pid"] for worker in envs.stats()["workers"]]


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(("how", "exitcode", "text"), [("kill", -9, "SIGKILL"), ("exit", 7, "exit code 7")])
def test_a_worker_that_dies_is_a_worker_died_with_all_that_is_known(how: str, exitcode: int, text: str) -> None:
    envs = shoal.make_vec(functools.partial(DyingEnv, how), 4, num_workers=2)
    envs.reset()
    pid = pids(envs)[1]
    with pytest.raises(shoal.WorkerDied, match=text) as caught:
        envs.step([0, 0, 0, 2])
    died = caught.value
    assert (died.worker, died.index, died.pid, died.exitcode) == ("worker 1", 1, pid, exitcode)
    assert died.env_indices == range(2, 4)
    assert any("these are my last words" in line for line in died.log_tail)
    assert ("where memory is short: dmesg tells" in str(died)) == (how == "kill")
    with pytest.raises(RuntimeError):
        envs.step([0, 0, 0, 0])
    envs.close()


def test_a_worker_that_dies_between_steps_is_noticed() -> None:
    envs = shoal.make_vec(CounterEnv, 4, num_workers=2)
    envs.reset()
    os.kill(pids(envs)[0], signal.SIGKILL)
    with pytest.raises(shoal.WorkerDied, match="SIGKILL"):
        for _ in range(10_000):
            envs.step([0, 0, 0, 0])
    envs.close()


def test_a_worker_that_dies_in_a_call_is_noticed() -> None:
    envs = shoal.make_vec(DyingEnv, 2, num_workers=2)
    envs.set_attr("die", [functools.partial(os._exit, 3)] * 2)
    with pytest.raises(shoal.WorkerDied, match="exit code 3"):
        envs.call("die")
    envs.close()


def test_a_worker_that_dies_while_it_builds_is_noticed() -> None:
    with pytest.raises(shoal.WorkerDied, match="ended with exit code 5 before its environments were built"):
        shoal.make_vec(lambda: os._exit(5), 4, num_workers=2)


def test_with_restart_the_rows_of_a_dead_worker_end_and_go_on() -> None:
    envs = shoal.make_vec(DyingEnv, 4, num_workers=2, on_fault="restart")
    envs.reset(seed=0)
    before = pids(envs)
    last = envs.step([0, 0, 0, 0])[0]
    observations, rewards, terminated, truncated, infos = envs.step([0, 0, 0, 2])
    assert truncated.tolist() == [False, False, True, True] and not terminated.any()
    assert infos["_fault"].tolist() == [False, False, True, True] and infos["fault"][3].kind == "killed"
    assert rewards[2:].tolist() == [0, 0] and observations[:2].tolist() == [[1, 2], [1, 2]]
    assert np.isin(observations[2:], np.stack([last[2:], last[2:] + [[0, 1]] * 2])).all()
    while "down" in (infos := envs.step([0, 0, 0, 0])[-1]):
        assert infos["down"].tolist() == [False, False, True, True]
    assert "fault" not in infos
    assert envs.step([0, 0, 0, 0])[0][2:].tolist() == [[1, 1], [1, 1]]
    after = pids(envs)
    assert after[0] == before[0] and after[1] != before[1]
    assert [worker["restarts"] for worker in envs.stats()["workers"]] == [0, 1]
    envs.close()


def test_a_deadline_leaves_the_step_under_way(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    envs = shoal.make_vec(functools.partial(GatedEnv, gate), 2, num_workers=2)
    envs.reset()
    envs.timeout = 0.05
    with pytest.raises(TimeoutError):
        envs.step([1, 0])
    with pytest.raises(shoal.vector.vector_env.AlreadyPendingCallError):
        envs.step([0, 0])
    gate.touch()
    assert envs.step_wait(timeout=60)[0].tolist() == [[1, 1], [1, 1]]
    envs.close()


def test_closing_ends_a_step_that_never_would() -> None:
    envs = shoal.make_vec(DyingEnv, 2, num_workers=2)
    envs.reset()
    envs.step_async([1, 1])
    workers = pids(envs)
    with pytest.raises(TimeoutError):
        envs.step_wait(timeout=0.05)
    envs.close()
    assert not any(map(alive, workers))


def interrupted(script: Path, *path: str) -> str:
    """What a program leaves on stderr that gets Ctrl-C once it has said that it waits."""
    everywhere = os.pathsep.join([*path, *(folder for folder in sys.path if folder)])
    child = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": everywhere},
    )
    assert child.stdout is not None and child.stdout.readline() == "waiting\n"
    child.send_signal(signal.SIGINT)
    return child.communicate(timeout=40)[1]


def test_ctrl_c_ends_a_wait(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import shoal, sys\n"
        "from test_vector_processes import DyingEnv\n"
        "envs = shoal.make_vec(DyingEnv, 2, num_workers=2)\n"
        "envs.reset()\n"
        "print('waiting', flush=True)\n"
        "envs.step([1, 1])\n"
    )
    errors = interrupted(script)
    assert errors.count("Traceback") == 1 and errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("arguments", [{}, {"batch_size": 2}], ids=["synchronous", "asynchronous"])
def test_after_a_step_that_ctrl_c_interrupted_a_reset_begins_anew(arguments: dict[str, Any], tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    envs = shoal.make_vec(functools.partial(TellingGatedEnv, gate), 2, num_workers=2, **arguments)
    envs.reset()
    with interrupted_once_there(tmp_path / "begun"):
        envs.step([1, 1])
    with pytest.raises(AlreadyPendingCallError):
        envs.reset(options={"reset_mask": np.array([True, False])})
    gate.touch()
    assert envs.reset()[0].tolist() == [[2, 0], [2, 0]]
    assert envs.step([0, 0])[0].tolist() == [[2, 1], [2, 1]]
    envs.close()


class Begins:
    """The engine's calls, after the beginning of one of which there is Ctrl-C."""

    def __init__(self, engine: Any, call: str) -> None:
        self.engine, self.call = engine, call

    def __getattr__(self, name: str) -> Any:
        def begin(*arguments: Any) -> None:
            getattr(self.engine, name)(*arguments)
            raise KeyboardInterrupt

        return begin if name == self.call else getattr(self.engine, name)


@pytest.mark.parametrize(
    ("call", "batch_size"), [("step", None), ("reset", None), ("reset", 2), ("call", None), ("call", 2)]
)
def test_ctrl_c_may_come_when_a_call_has_just_begun(
    call: str, batch_size: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    envs = shoal.make_vec(functools.partial(TellingGatedEnv, gate), 2, num_workers=2, batch_size=batch_size)
    envs.reset()
    asks = call == "call"
    engine, begin = ("_engine", "request_async") if asks else ("_io", f"{call}_async")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(envs, engine, Begins(getattr(envs, engine), begin))
        envs.call("pass_gate") if asks else envs.step([1, 1]) if call == "step" else envs.reset()
    gate.touch()
    assert envs.reset()[0].shape == (2, 2)
    assert envs.step([0, 0])[0].shape == (2, 2)
    envs.close()


def test_actions_of_a_step_that_ctrl_c_has_left_under_way_are_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    envs = shoal.make_vec(functools.partial(TellingGatedEnv, gate), 2, num_workers=2)
    envs.reset()
    envs.send([1], [0])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(envs, "_io", Begins(envs._io, "step_async"))
        envs.send([1], [1])
    gate.touch()
    assert envs.recv()[0].tolist() == [[1, 1], [1, 1]]
    assert envs.in_flight == 0 and envs.step([0, 0])[0].tolist() == [[1, 2], [1, 2]]
    envs.close()


def test_ctrl_c_in_a_close_that_waits_for_a_call_ends_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(timeout: float) -> bool:
        raise KeyboardInterrupt

    envs = shoal.make_vec(functools.partial(TellingGatedEnv, tmp_path / "gate"), 2, num_workers=2)
    envs.reset()
    workers = [worker["pid"] for worker in envs.health()]
    envs.step_async([1, 1])
    monkeypatch.setattr(envs, "_finish_pending", interrupt)
    with pytest.raises(KeyboardInterrupt):
        envs.close(timeout=1)
    await_pids_ended(workers)
    assert envs.closed


@pytest.mark.parametrize("wrong", [{"options": 5}, {"options": {"reset_mask": np.zeros(3, bool)}}])
@pytest.mark.parametrize("way", [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "batch_size": 2}])
def test_a_reset_that_was_refused_leaves_the_first_seed(way: dict[str, Any], wrong: dict[str, Any]) -> None:
    first = []
    for refused in (False, True):
        with shoal.make_vec("CartPole-v1", 2, seed=3, **way) as envs:
            if refused:
                with pytest.raises((TypeError, ValueError)):
                    envs.reset(**wrong)
            first.append(envs.reset()[0].tolist())
    assert first[0] == first[1]


@pytest.mark.parametrize(
    "start",
    [
        "shoal.make_vec('CartPole-v1', 2, num_workers=2, worker=options)",
        "shoal.make_vec('CartPole-v1', 2, num_workers=2, worker=options, batch_size=1)",
        "shoal.ModelService({'x': abs}, preload=['endless'])",
    ],
)
def test_ctrl_c_ends_a_wait_for_a_preload(start: str, tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(
        "import os, time\n"
        "with open(f'/proc/{os.getppid()}/fd/1', 'w') as stdout:\n    stdout.write('waiting\\n')\n"
        "while True:\n    time.sleep(1)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(f"import os, shoal\noptions = shoal.WorkerOptions(preload=['endless'])\n{start}\n")
    errors = interrupted(script, str(tmp_path))
    assert errors.count("Traceback") == 1 and errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("context", ["auto", "forkserver", "spawn", "fork"])
def test_every_start_method_gives_the_same_trajectory(context: str) -> None:
    options = shoal.WorkerOptions(allow_unsafe_fork=True)
    envs = shoal.make_vec(functools.partial(SpaceEnv, "box"), 4, num_workers=2, context=context, worker=options)
    serial = shoal.make_vec(functools.partial(SpaceEnv, "box"), 4, backend="serial")
    assert np.array_equal(envs.reset(seed=3)[0], serial.reset(seed=3)[0])
    for _ in range(20):
        assert np.array_equal(envs.step([0, 1, 2, 3])[0], serial.step([0, 1, 2, 3])[0])
    envs.close()


def test_fork_is_refused_where_threads_live() -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="a thread of the caller")
    thread.start()
    try:
        with pytest.raises(shoal.ForkRefused, match="thread") as refused:
            shoal.make_vec(CounterEnv, 2, num_workers=2, context="fork")
        advice = "What forks all the same: worker=shoal.WorkerOptions(allow_unsafe_fork=True), of vector environments"
        assert advice in str(refused.value)
        options = shoal.WorkerOptions(allow_unsafe_fork=True)
        shoal.make_vec(CounterEnv, 2, num_workers=2, context="fork", worker=options).close()
    finally:
        release.set()
        thread.join()


def test_fork_inherits_what_cannot_be_pickled() -> None:
    lock = threading.Lock()
    options = shoal.WorkerOptions(allow_unsafe_fork=True)
    envs = shoal.make_vec(lambda: (lock, CounterEnv())[1], 2, num_workers=2, context="fork", worker=options)
    assert envs.reset()[0].tolist() == [[1, 0], [1, 0]]
    envs.close()


def test_a_module_that_starts_threads_when_imported_is_not_preloaded(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "threaded_env_module.py").write_text(
        "import threading, time\n"
        "from sample_envs import CounterEnv\n"
        "threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()\n"
        "class Env(CounterEnv): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import gymnasium

    gymnasium.register("ShoalTest/Threaded-v0", "threaded_env_module:Env")
    try:
        for _ in range(2):
            envs = shoal.make_vec("ShoalTest/Threaded-v0", 2, num_workers=2)
            assert envs.reset()[0].tolist() == [[1, 0], [1, 0]]
            envs.close()
    finally:
        del gymnasium.registry["ShoalTest/Threaded-v0"]
        shoal.process.close_launchers()


def test_a_preload_that_the_caller_asks_for_must_work() -> None:
    with pytest.raises(shoal.StartFailed, match="no_such_module_at_all"):
        shoal.make_vec(CounterEnv, 2, num_workers=2, worker=shoal.WorkerOptions(preload=["no_such_module_at_all"]))


def test_workers_have_the_threads_and_variables_they_were_given() -> None:
    class Env(CounterEnv):
        def variable(self, name: str) -> str | None:
            return os.environ.get(name)

    options = shoal.WorkerOptions(threads=3, env={"SHOAL_TEST_VARIABLE": "yes"})
    envs = shoal.make_vec(Env, 2, num_workers=2, worker=options)
    assert envs.call("variable", "OMP_NUM_THREADS") == ("3", "3")
    assert envs.call("variable", "SHOAL_TEST_VARIABLE") == ("yes", "yes")
    assert envs.call("variable", "CUDA_VISIBLE_DEVICES") == ("", "")
    envs.close()


def test_threads_of_an_environment_run_between_its_steps() -> None:
    class Env(CounterEnv):
        def __init__(self) -> None:
            super().__init__()
            self.ticks = 0
            threading.Thread(target=self.tick, daemon=True).start()

        def tick(self) -> None:
            while True:
                self.ticks += 1
                time.sleep(0.001)

    envs = shoal.make_vec(Env, 1, num_workers=1)
    envs.reset()
    deadline = time.monotonic() + 30
    while envs.get_attr("ticks")[0] < 20:
        assert time.monotonic() < deadline, "the waiting worker does not let its other threads run"
        time.sleep(0.001)
    envs.close()


def test_an_id_of_a_module_works_in_the_workers(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "registering_module.py").write_text(
        "import gymnasium\n"
        "from sample_envs import CounterEnv\n"
        "gymnasium.register('Registering-v0', CounterEnv, kwargs={'length': 2})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    envs = shoal.make_vec("registering_module:Registering-v0", 2, num_workers=2)
    try:
        assert envs.call("length") == (2, 2)
        assert envs.spec is not None and envs.spec.id == "Registering-v0"
    finally:
        envs.close()
        shoal.process.close_launchers()


@pytest.mark.parametrize("context", ["forkserver", "spawn"])
def test_a_factory_makes_what_this_program_has_registered(context: str) -> None:
    class OfThisProgram(CounterEnv):
        pass

    names = {"shoal-tests/Local-v0": OfThisProgram, "shoal-tests/Named-v1": "sample_envs:CounterEnv"}
    for name, entry_point in names.items():
        gymnasium.register(name, entry_point, kwargs={"length": 3})
    gymnasium.register("shoal-tests/Stays-v0", "nowhere:Env", kwargs={"guard": threading.Lock()})
    try:
        factories = [functools.partial(gymnasium.make, name) for name in names]
        with shoal.make_vec([lambda make=make: make() for make in factories], context=context, num_workers=2) as envs:
            assert envs.call("length") == (3, 3)
            assert [spec.id for spec in envs.get_attr("spec")] == list(names)
    finally:
        for name in [*names, "shoal-tests/Stays-v0"]:
            del gymnasium.registry[name]


@pytest.mark.parametrize("context", ["forkserver", "spawn"])
@pytest.mark.parametrize("where", ["before", "within"])
def test_a_module_that_registers_its_environment_is_imported_by_workers_without_a_warning(
    context: str, where: str, tmp_path: Path
) -> None:
    (tmp_path / "registers_itself.py").write_text(
        "import gymnasium\n"
        "from sample_envs import CounterEnv\n"
        "class Walk(CounterEnv): ...\n"
        "gymnasium.register('shoal-tests/Walk-v0', 'registers_itself:Walk')\n"
        "gymnasium.make('shoal-tests/OfTheScript-v0').close()\n"
    )
    script = tmp_path / "script.py"
    script.write_text(
        "import gymnasium, shoal\n"
        "gymnasium.register('shoal-tests/OfTheScript-v0', 'sample_envs:CounterEnv')\n"
        "from registers_itself import Walk\n"
        "def walk():\n"
        "    from registers_itself import Walk\n"
        "    return Walk()\n"
        "if __name__ == '__main__':\n"
        f"    env = walk if {where == 'within'} else lambda: Walk()\n"
        f"    with shoal.make_vec(env, num_envs=4, num_workers=2, context={context!r}) as envs:\n"
        "        envs.reset(seed=0)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=100, env={**os.environ, "PYTHONPATH": path}
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_workers_draw_different_numbers_from_numpys_global_generator() -> None:
    class Env(CounterEnv):
        def draw(self) -> float:
            return np.random.random()

    envs = shoal.make_vec(Env, 4, num_workers=4)
    assert len(set(envs.call("draw"))) == 4
    envs.close()


def test_what_environments_print_reaches_the_caller(capfd: pytest.CaptureFixture[str]) -> None:
    class Env(CounterEnv):
        def step(self, action: Any) -> Any:
            print("hello from a step")
            print("and an error", file=sys.stderr)
            return super().step(action)

    envs = shoal.make_vec(Env, 2, num_workers=1)
    envs.reset()
    envs.step([0, 0])
    envs.close()
    output, errors = capfd.readouterr()
    assert output.count("hello from a step") == 2 and errors.count("and an error") == 2


def test_infos_larger_than_any_pipe_come_over(backend_infos: int = 4_000_000) -> None:
    class Env(CounterEnv):
        def step(self, action: Any) -> Any:
            observation, *rest, _ = super().step(action)
            return (observation, *rest, {"blob": np.full(backend_infos, int(action), np.uint8)})

    envs = shoal.make_vec(Env, 4, num_workers=2)
    envs.reset()
    for step in range(3):
        infos = envs.step([0, 1, 2, step])[-1]
        assert infos["blob"].shape == (4, backend_infos)
        assert infos["blob"][:, -1].tolist() == [0, 1, 2, step]
    envs.close()


def test_an_info_that_cannot_leave_its_worker_is_named() -> None:
    class Env(CounterEnv):
        def step(self, action: Any) -> Any:
            observation, *rest, _ = super().step(action)
            return (observation, *rest, {"fine": 1, "lock": threading.Lock()})

    envs = shoal.make_vec(Env, 2, num_workers=1)
    envs.reset()
    with pytest.raises(TypeError, match=r"environment 0: info\['lock'\] is a lock"):
        envs.step([0, 0])
    envs.close()


def test_nothing_is_left_behind() -> None:
    def play(**options: Any) -> None:
        envs = shoal.make_vec(functools.partial(SpaceEnv, "dict"), 6, num_workers=3, **options)
        envs.reset(seed=0)
        for _ in range(5):
            envs.step(envs.action_space.sample())
        workers = pids(envs)
        envs.close()
        assert not any(map(alive, workers))

    play()  # the zygote and its socket stay
    before = descriptors()
    for _ in range(5):
        play()
    assert descriptors() == before
    assert not [name for name in os.listdir("/dev/shm") if "shoal" in name.lower()]


def test_a_dropped_environment_ends_its_workers() -> None:
    envs = shoal.make_vec(CounterEnv, 4, num_workers=2)
    envs.reset()
    workers = pids(envs)
    del envs
    gc.collect()
    assert not any(map(alive, workers))


def test_a_failed_start_leaves_nothing() -> None:
    def fail() -> None:
        with pytest.raises(ZeroDivisionError):
            shoal.make_vec([CounterEnv, CounterEnv, CounterEnv, lambda: 1 // 0], num_workers=4)

    fail()  # the zygote and its socket stay
    before = descriptors()
    for _ in range(3):
        fail()
    assert descriptors() == before


@pytest.mark.parametrize("affinity", ["auto", "none"])
def test_a_worker_for_every_cpu_has_one_to_itself(affinity: str) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    options = shoal.WorkerOptions(affinity=affinity)
    envs = shoal.make_vec(CounterEnv, len(cpus), num_workers=len(cpus), backend="process", worker=options)
    placed = [os.sched_getaffinity(pid) for pid in pids(envs)]
    envs.close()
    alone = len(cpus) > 1 and affinity == "auto"
    assert placed == ([{cpu} for cpu in cpus] if alone else [set(cpus)] * len(cpus))


def test_where_workers_run_is_measured_and_told_and_changes_nothing_else() -> None:
    """Steps until other places were tried, whichever turns out to be faster here."""
    cpus = os.sched_getaffinity(0)
    if len(cpus) < 2:
        pytest.skip("one CPU is no choice")
    envs = shoal.make_vec("CartPole-v1", len(cpus), num_workers=len(cpus), backend="process")
    reference = shoal.make_vec("CartPole-v1", len(cpus), backend="serial")
    assert envs.stats()["placement"].startswith(f"{len(cpus)} CPUs, one for each worker")
    for each in (envs, reference):
        each.reset(seed=3)
    actions = np.random.default_rng(0)
    while "nothing else was tried" in envs.stats()["placement"]:
        chosen = actions.integers(0, 2, len(cpus))
        for mine, theirs in zip(envs.step(chosen)[:4], reference.step(chosen)[:4], strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert re.fullmatch(
        r"(the caller's CPU|\d+ CPUs?): a step took \d+ us there, and with .* \d+ us", envs.stats()["placement"]
    )
    assert all(len(os.sched_getaffinity(pid)) == 1 for pid in pids(envs))
    assert os.sched_getaffinity(0) == cpus
    for each in (envs, reference):
        each.close()
    left_alone = shoal.make_vec(CounterEnv, 2, num_workers=2, worker=shoal.WorkerOptions(affinity="none"))
    assert left_alone.stats()["placement"] == "where the kernel puts the workers"
    left_alone.close()
    assert "placement" not in reference.stats()


def test_workers_are_not_confined_when_cpus_are_left_over_or_threads_need_them() -> None:
    cpus = os.sched_getaffinity(0)
    one_too_few = shoal.make_vec(CounterEnv, len(cpus) + 1, num_workers=len(cpus) + 1)
    threads = shoal.make_vec(CounterEnv, len(cpus), num_workers=len(cpus), worker=shoal.WorkerOptions(threads=2))
    for envs in (one_too_few, threads):
        assert all(os.sched_getaffinity(pid) == cpus for pid in pids(envs))
        envs.close()


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_workers_have_short_time_slices_and_the_caller_keeps_its_own(start_method: str) -> None:
    before = slice_ns()
    release = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    if before == 0 or release < (6, 12):
        pytest.skip("this kernel has no time slices of threads, or does not tell")
    with shoal.make_vec([SliceEnv] * 2, num_workers=2, context=start_method) as envs:
        _, infos = envs.reset(seed=0)
        assert list(infos["slice"]) == [100_000] * 2
    assert slice_ns() == before
