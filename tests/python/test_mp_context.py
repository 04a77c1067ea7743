"""shoal.multiprocessing: contexts, Process objects, and what a started process has."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import multiprocessing.pool
import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Callable
from multiprocessing import connection
from pathlib import Path
from typing import Any

import pytest

import shoal.multiprocessing as mp
from shoal.ipc.pickling import PicklingError

METHODS = ["forkserver", "spawn", pytest.param("fork", marks=pytest.mark.own_process)]
FRESH = ["forkserver", "spawn"]


def run(ctx: Any, target: Callable[..., Any], *args: Any) -> int:
    process = ctx.Process(target=target, args=args)
    process.start()
    process.join(60)
    assert not process.is_alive()
    code = process.exitcode
    process.close()
    return code


def ask(ctx: Any, question: Callable[[], Any]) -> Any:
    """What `question` returns in a new process."""
    reader, writer = ctx.Pipe(duplex=False)
    with reader, writer:
        process = ctx.Process(target=lambda out: out.send(question()), args=(writer,))
        process.start()
        writer.close()
        answer = reader.recv()
        process.join()
        return answer


@pytest.mark.parametrize("method", METHODS)
def test_lambdas_closures_and_local_classes_run_in_a_process(method: str) -> None:
    class Local:
        def __call__(self) -> int:
            return 5

    five = Local()
    assert ask(mp.get_context(method), lambda: (five(), os.getpid() != 0)) == (5, True)


@pytest.mark.parametrize("method", METHODS)
def test_exit_codes_are_cpythons(method: str) -> None:
    ctx = mp.get_context(method)
    assert run(ctx, int) == 0
    assert run(ctx, sys.exit, 7) == 7
    assert run(ctx, sys.exit, None) == 0
    assert run(ctx, sys.exit, "a text") == 1
    assert run(ctx, os._exit, 300) == 44
    assert run(ctx, int, "no number") == 1
    assert run(ctx, lambda: os.kill(os.getpid(), signal.SIGKILL)) == -signal.SIGKILL


@pytest.mark.parametrize("method", METHODS)
def test_terminate_and_kill_end_a_process_and_the_sentinel_tells(method: str) -> None:
    ctx = mp.get_context(method)
    for end, code in (("terminate", -signal.SIGTERM), ("kill", -signal.SIGKILL)):
        process = ctx.Process(target=time.sleep, args=(100,))
        process.start()
        assert not connection.wait([process.sentinel], timeout=0)
        assert process.is_alive() and process.exitcode is None
        with pytest.raises(ValueError, match="still running"):
            process.close()
        getattr(process, end)()
        assert connection.wait([process.sentinel], timeout=30) == [process.sentinel]
        assert process.exitcode == code
        process.join()
        process.close()


@pytest.mark.parametrize("method", METHODS)
def test_a_traceback_goes_to_the_stderr_of_now(method: str, capfd: pytest.CaptureFixture[str]) -> None:
    ctx = mp.get_context(method)
    assert run(ctx, lambda: print("to stdout")) == 0
    assert run(ctx, lambda: [][3]) == 1
    out, err = capfd.readouterr()
    assert out == "to stdout\n"
    assert "IndexError: list index out of range" in err and err.startswith("Process ")


@pytest.mark.parametrize("method", METHODS)
def test_a_process_knows_its_name_and_its_parent(method: str) -> None:
    ctx = mp.get_context(method)
    reader, writer = ctx.Pipe()

    def tell(out: Any) -> None:
        me, parent = mp.current_process(), mp.parent_process()
        out.send((me.name, me.daemon, bytes(me.authkey), parent.pid, parent.is_alive()))

    process = ctx.Process(target=tell, args=(writer,), name="Ada", daemon=True)
    process.start()
    assert process in mp.active_children()
    assert reader.recv() == ("Ada", True, bytes(mp.current_process().authkey), os.getpid(), True)
    process.join()
    assert process not in mp.active_children()


@pytest.mark.parametrize("method", METHODS)
def test_a_name_may_be_any_text(method: str) -> None:
    ctx = mp.get_context(method)
    reader, writer = ctx.Pipe(duplex=False)
    process = ctx.Process(target=lambda out: out.send(mp.current_process().name), args=(writer,), name="\udcff")
    process.start()
    assert reader.recv() == "\udcff"
    process.join()


@pytest.mark.parametrize("method", METHODS)
def test_ctrl_c_reaches_a_process(method: str) -> None:
    ctx = mp.get_context(method)
    assert ask(ctx, lambda: signal.getsignal(signal.SIGINT) is signal.default_int_handler)


def test_ctrl_c_right_after_start_ends_a_spawned_process(capfd: pytest.CaptureFixture[str]) -> None:
    process = mp.get_context("spawn").Process(target=time.sleep, args=(1000,))
    process.start()
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    code = process.exitcode
    process.kill()
    process.join()
    assert code == 1 and "KeyboardInterrupt" in capfd.readouterr().err


@pytest.mark.parametrize("method", METHODS)
def test_an_ignored_ctrl_c_is_ignored_in_processes(method: str) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        seen = ask(
            mp.get_context(method),
            lambda: (signal.getsignal(signal.SIGINT) is signal.SIG_IGN, signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == (True, set())


@pytest.mark.parametrize("method", METHODS)
def test_settings_of_now_are_inherited(method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ctx = mp.get_context(method)
    run(ctx, int)  # whatever is started ahead of time has the old ones
    monkeypatch.setenv("SHOAL_TEST_SETTING", method)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["program", "--flag"])
    seen = ask(
        ctx,
        lambda: (os.environ["SHOAL_TEST_SETTING"], os.environ["OMP_NUM_THREADS"], os.getcwd(), __import__("sys").argv),
    )
    assert seen == (method, "3", str(tmp_path), ["program", "--flag"])


@pytest.mark.parametrize("method", METHODS)
def test_options_of_a_context(method: str) -> None:
    ctx = mp.get_context(method, threads=2, gpu=False, env={"SHOAL_TEST_OPTION": "on"})
    assert ctx is mp.get_context(method, threads=2, gpu=False, env={"SHOAL_TEST_OPTION": "on"})
    names = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "SHOAL_TEST_OPTION")
    assert ask(ctx, lambda: [os.environ.get(name) for name in names]) == ["2", "", "on"]
    assert ask(mp.get_context(method), lambda: os.environ.get("SHOAL_TEST_OPTION")) is None


@pytest.mark.parametrize("method", METHODS)
def test_processes_may_start_processes(method: str) -> None:
    def nested() -> int:
        return run(mp.get_context(method), sys.exit, 9)

    assert ask(mp.get_context(method), nested) == 9


@pytest.mark.parametrize("method", METHODS)
def test_daemons_may_not_start_processes(method: str) -> None:
    def nested() -> None:
        try:
            run(mp.get_context("spawn"), int)
        except AssertionError as error:
            assert "daemonic processes are not allowed to have children" in str(error)
            sys.exit(5)

    process = mp.get_context(method).Process(target=nested, daemon=True)
    process.start()
    process.join(60)
    assert process.exitcode == 5


@pytest.mark.parametrize("method", FRESH)
def test_what_cannot_be_pickled_is_named_before_anything_starts(method: str) -> None:
    with socket.socket() as plain:
        config = {"connection": plain.detach() and (i for i in range(3))}
    ctx = mp.get_context(method)
    with pytest.raises(PicklingError, match=r"args\[0\]\['connection'\]: cannot pickle 'generator' object"):
        ctx.Process(target=print, args=(config,)).start()
    with pytest.raises(PicklingError, match=r"target\.<closure>\.config\['connection'\]"):
        ctx.Process(target=lambda: config).start()


@pytest.mark.parametrize("method", FRESH)
def test_a_process_whose_arguments_cannot_be_unpickled_says_why(method: str, capfd: pytest.CaptureFixture[str]) -> None:
    class Refuses:
        def __reduce__(self) -> Any:
            return int, ("no number",)

    assert run(mp.get_context(method), print, Refuses()) == 1
    assert "ValueError: invalid literal for int()" in capfd.readouterr().err


@pytest.mark.parametrize("method", FRESH)
def test_many_descriptors_go_with_a_process(method: str) -> None:
    ctx = mp.get_context(method)
    pipes = [ctx.Pipe(duplex=False) for _ in range(150)]

    def answer(writers: list[Any]) -> None:
        for i, writer in enumerate(writers):
            writer.send(i)

    assert run(ctx, answer, [writer for _, writer in pipes]) == 0
    assert [reader.recv() for reader, _ in pipes] == list(range(150))
    for ends in pipes:
        for end in ends:
            end.close()


def test_get_context_knows_its_methods() -> None:
    assert mp.get_all_start_methods() == ["forkserver", "spawn", "fork"]
    assert mp.get_context("auto") is mp.get_context("forkserver") is mp.get_context()
    assert isinstance(mp.get_context("spawn"), multiprocessing.context.BaseContext)
    assert pickle.loads(pickle.dumps(mp.get_context("spawn", threads=1))) is mp.get_context("spawn", threads=1)
    with pytest.raises(ValueError, match="cannot find context for 'thread'; there are 'auto', 'forkserver'"):
        mp.get_context("thread")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"speed": 3}, TypeError, r"get_context\(\) has no argument 'speed'; there are method, threads, gpu, "),
        ({"thread": 1}, TypeError, r"get_context\(\) has no argument 'thread'\. Did you mean 'threads'\?"),
        ({"gpu": "maybe"}, ValueError, r"get_context\(gpu=…\) takes 'own' or True, 'none' or False, got 'maybe'"),
        ({"gpu": 1}, ValueError, r"get_context\(gpu=…\) takes"),
        (
            {"preload": "numpy"},
            TypeError,
            r"get_context\(preload=…\) takes a sequence.*the str 'numpy': write \['numpy'\]",
        ),
        ({"preload": 3}, TypeError, r"get_context\(preload=…\) takes a sequence of module names, got 3"),
        ({"env": 3}, TypeError, r"get_context\(env=…\) takes a dict from names to values, got 3"),
        ({"allow_unsafe_fork": "yes"}, TypeError, r"get_context\(allow_unsafe_fork=…\) takes True or False, got 'yes'"),
    ],
)
def test_an_option_that_a_context_has_not_is_refused(options: dict[str, Any], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        mp.get_context("spawn", **options)


def test_gpus_are_hidden_by_the_words_of_worker_options() -> None:
    assert mp.get_context(gpu="none") is mp.get_context(gpu=False) is not mp.get_context()
    assert mp.get_context(gpu="own") is mp.get_context()


def test_a_context_prints_as_the_call_that_makes_it() -> None:
    ctx = mp.get_context("spawn", threads=2, env={"MODE": "fast"})
    assert repr(ctx) == "shoal.multiprocessing.get_context('spawn', threads=2, env={'MODE': 'fast'})"
    assert eval(repr(ctx).removeprefix("shoal.multiprocessing."), {"get_context": mp.get_context}) is ctx


def test_a_second_set_start_method_names_the_first() -> None:
    from shoal.multiprocessing.context import DefaultContext
    from shoal.process.default_method import DefaultMethod

    default = DefaultContext(DefaultMethod())
    assert default.get_start_method(allow_none=True) is None
    assert default.get_start_method() == "forkserver"
    default.set_start_method("spawn")  # reading it has not fixed it
    with pytest.raises(
        RuntimeError, match=r"already been set: start method 'spawn', set at .*test_mp_context\.py, line"
    ):
        default.set_start_method("fork")
    default.set_start_method("fork", force=True)
    assert default.get_start_method() == "fork"
    assert multiprocessing.get_start_method(allow_none=True) in (None, "fork")  # CPython's is nobody's business here


def test_a_preload_that_fails_is_told_by_start() -> None:
    mp.set_forkserver_preload(["shoal_no_such_module"])
    try:
        with pytest.raises(RuntimeError, match="shoal_no_such_module"):
            mp.get_context("forkserver").Process(target=int).start()
    finally:
        mp.set_forkserver_preload([])
    assert run(mp.get_context("forkserver"), int) == 0


@pytest.mark.own_process
def test_fork_is_refused_where_native_threads_run() -> None:
    import threading

    import torch

    import shoal

    assert run(mp.get_context("fork"), int) == 0
    threading.Thread(target=time.sleep, args=(0.0,)).start()
    torch.set_num_threads(4)
    torch.ones(600, 600) @ torch.ones(600, 600)
    (torch.ones(400, 400, 40).sin() + 1).sum()  # OpenMP's threads
    with pytest.raises(shoal.ForkRefused, match="other threads? (is|are) alive"):
        mp.get_context("fork").Process(target=int).start()
    assert run(mp.get_context("fork", allow_unsafe_fork=True), int) == 0


@pytest.mark.parametrize("method", METHODS)
def test_executors_take_our_contexts(method: str) -> None:
    ctx = mp.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=ctx) as executor:
        assert list(executor.map(abs, [-1, -2, -3], timeout=60)) == [1, 2, 3]


@pytest.mark.parametrize("method", METHODS)
def test_cpythons_pool_takes_our_contexts(method: str) -> None:
    with multiprocessing.pool.Pool(2, context=mp.get_context(method)) as pool:
        assert pool.map(abs, [-1, -2, -3]) == [1, 2, 3]
        pool.close()
        pool.join()


@pytest.mark.parametrize("method", METHODS)
def test_the_end_of_a_process_ends_its_pipe(method: str) -> None:
    ctx = mp.get_context(method)
    reader, writer = ctx.Pipe(duplex=False)
    process = ctx.Process(target=lambda out: out.send(1), args=(writer,))
    process.start()
    writer.close()
    assert reader.recv() == 1
    with pytest.raises(EOFError):  # nobody has asked for the exit code yet
        reader.recv()
    process.join()


def test_a_context_shares_arrays_and_tensors() -> None:
    ctx = mp.get_context("spawn")
    array = ctx.SharedArray((2,), "int64")
    ask(ctx, lambda: array.fill(3))
    assert array.tolist() == [3, 3]
    torch = pytest.importorskip("torch")
    tensor, module = ctx.SharedTensor(torch.zeros(2)), ctx.share_module(torch.nn.Linear(1, 1))
    ask(ctx, lambda: (tensor.fill_(4), module.bias.data.fill_(5), None)[-1])
    assert tensor.tolist() == [4, 4] and module.bias.item() == 5


@pytest.mark.parametrize("method", METHODS)
def test_a_context_starts_processes_of_its_own_method_with_its_options(method: str) -> None:
    ctx = mp.get_context(method, env={"FROM_CONTEXT": "yes"})
    queue = ctx.Queue()

    def tell(index: int, word: str) -> None:
        parent = os.getppid() == mp.parent_process().pid
        queue.put((index, word, os.environ["FROM_CONTEXT"], mp.get_start_method(), parent))

    ctx.start_processes(tell, ("a",), nprocs=2)
    assert sorted(queue.get() for _ in range(2)) == [(i, "a", "yes", method, method != "forkserver") for i in (0, 1)]
    ctx.spawn(tell, ("b",))
    assert queue.get() == (0, "b", "yes", "spawn", True)
    ctx.start_processes(tell, ("c",), start_method="spawn")
    assert queue.get() == (0, "c", "yes", "spawn", True)


def _tell_of_the_parents_end(sender: Any) -> None:
    parent = mp.parent_process()
    sender.send(parent.is_alive())
    parent.join(60)
    sender.send(parent.is_alive())


def _start_one_that_tells(sender: Any) -> None:
    mp.Process(target=_tell_of_the_parents_end, args=(sender,)).start()
    time.sleep(600)


def test_a_process_notices_that_its_parent_was_killed() -> None:
    """The end of each thread of the parent was taken for a launcher's wish to end its workers."""
    for _ in range(20):
        receiver, sender = mp.Pipe(duplex=False)
        process = mp.Process(target=_start_one_that_tells, args=(sender,))
        process.start()
        assert receiver.poll(60) and receiver.recv()
        process.terminate()
        process.join()
        assert receiver.poll(60) and not receiver.recv()
