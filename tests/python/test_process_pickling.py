"""Unpicklable parts are named by where they are, before any process starts."""

from __future__ import annotations

import functools
import pickle
import socket
import threading
from typing import Any

import pytest

from shoal.ipc.pickling import PicklingError, dumps
from shoal.ipc.sharing import Parcel


class Config:
    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


class Slotted:
    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = threading.Lock()


class FakeEnv:
    observation_space = None

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def reset(self) -> None: ...

    def step(self) -> None: ...


def path_of(obj: Any, name: str = "factory") -> str:
    with pytest.raises(PicklingError) as caught:
        dumps(obj, name)
    error = caught.value
    assert str(error).startswith(f"{error.path}: cannot pickle")
    return error.path


def closure_over(value: Any) -> Any:
    cfg = value
    return lambda: cfg


def test_what_can_be_pickled_comes_back() -> None:
    offset = 3

    class Local:
        def __call__(self, number: int) -> int:
            return number + offset

    assert pickle.loads(dumps(Local()))(4) == 7
    assert pickle.loads(dumps(lambda number: number * offset))(4) == 12


def test_a_part_of_a_closure() -> None:
    with socket.socket() as sock:
        assert path_of(closure_over(Config(sock=sock))) == "factory.<closure>.cfg.sock"


def test_a_part_of_a_container() -> None:
    lock = threading.Lock()
    assert path_of({"a": 1, "b": [0, (1, lock)]}) == "factory['b'][1][1]"


def test_a_default_argument() -> None:
    lock = threading.Lock()

    def factory(first: int = 1, gate: Any = lock, *, other: Any = None) -> None: ...

    assert path_of(factory) == "factory.<default 1>"


def test_a_global_of_a_local_function() -> None:
    source = "import threading\nlock = threading.Lock()\ndef factory():\n    return [lock for _ in range(3)]\n"
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(source, namespace)
    assert path_of(namespace["factory"]) == "factory.<global>.lock"


def test_an_argument_of_a_partial() -> None:
    assert path_of(functools.partial(print, threading.Lock())) == "factory.args[0]"
    assert path_of(functools.partial(print, sep=threading.Lock())) == "factory.keywords['sep']"


def test_a_bound_method() -> None:
    config = Config(lock=threading.Lock())
    config.method = dumps.__get__(config)
    del config.method
    method = type("Local", (Config,), {"make": lambda self: None})(lock=threading.Lock()).make
    assert path_of(method) == "factory.__self__.lock"


def test_a_slot() -> None:
    assert path_of(Slotted()) == "factory.lock"


def test_something_deep_in_the_middle() -> None:
    deep = Config(level=[Config(inner={"key": Config(thread=threading.Lock())})])
    assert path_of(deep, "env[2]") == "env[2].level[0].inner['key'].thread"


def test_a_cycle_ends() -> None:
    config = Config(lock=threading.Lock())
    config.self = config
    config.list = [config]
    assert path_of(config) == "factory.lock"


def test_the_message_says_what_to_do() -> None:
    with pytest.raises(PicklingError, match=r"cannot pickle '_thread.lock' object.*inside the function"):
        dumps(closure_over(threading.Lock()))


def test_an_environment_where_a_factory_is_needed() -> None:
    with pytest.raises(PicklingError, match=r"lambda: FakeEnv\(…\)"):
        dumps(FakeEnv())


def test_a_pickling_error_is_both_a_type_error_and_a_pickling_error() -> None:
    assert issubclass(PicklingError, TypeError) and issubclass(PicklingError, pickle.PicklingError)


# Advice that fits


class Dummy:
    """Stands for torch.Tensor where there is no GPU."""

    is_cuda, device = True, "cuda:0"


Dummy.__module__ = "torch"


def message_of(obj: Any, **kwargs: Any) -> str:
    with pytest.raises(PicklingError) as caught:
        dumps(obj, "env", **kwargs)
    return str(caught.value)


def test_a_base_class_that_travels_by_value() -> None:
    class Base:
        lock = threading.Lock()

    class Derived(Base):
        pass

    assert path_of(Derived) == "factory.<base Base>.lock"


def test_an_environment_in_a_closure_is_named_as_such() -> None:
    message = message_of(closure_over(FakeEnv()))
    assert "env.<closure>.cfg is an environment, a FakeEnv that exists already" in message
    assert "write FakeEnv(…) inside the function" in message


def test_generators_and_connections_of_processes_have_advice_of_their_own() -> None:
    import multiprocessing

    assert "Call the function that makes the generator inside" in message_of(closure_over(number for number in ()))
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        message = message_of(closure_over(ours))
    assert message.startswith("env.<closure>.cfg: cannot pickle 'Connection' object: its descriptor")
    assert "shoal.worker().counter(name)" in message


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_started_process_among_the_attributes_is_to_be_kept_out(method: str) -> None:
    import shoal.multiprocessing as mp

    class Boss:
        def __init__(self) -> None:
            self.processes: list[Any] = []

        def work(self) -> None:
            pass

    boss = Boss()
    boss.processes.append(mp.get_context(method).Process(target=int))
    boss.processes[0].start()
    with pytest.raises(PicklingError) as caught:
        mp.get_context("forkserver").Process(target=boss.work).start()
    boss.processes[0].join()
    boss.processes[0].close()
    message = str(caught.value)
    assert message.startswith("target.__self__.processes[0]: cannot pickle ")
    assert "keep it out of the object that is sent, in a local list" in message and "__getstate__" in message


def test_a_tensor_on_a_gpu_is_refused_for_workers_that_see_none() -> None:
    message = message_of(closure_over(Config(weights=[Dummy()])), gpu=False)
    assert message.startswith(
        "env.<closure>.cfg.weights[0]: cannot pickle a Dummy on cuda:0 for a worker that sees no GPU"
    )
    assert "Move it to the CPU first" in message and 'gpu="own"' in message
    assert pickle.loads(dumps(lambda: 3, gpu=False))() == 3


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_torchscript_within_is_named_and_goes_by_a_file() -> None:
    torch = pytest.importorskip("torch")

    @torch.jit.script
    def double(numbers: torch.Tensor) -> torch.Tensor:
        return numbers * 2

    script = torch.jit.script(torch.nn.Linear(2, 2))
    traced = torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2))
    for module, where in (
        (script, ""),
        (traced, ""),
        (double, ""),
        (Config(net=script), ".net"),
        (torch.nn.Sequential(torch.nn.Tanh(), script), "._modules['1']"),
    ):
        message = message_of(closure_over(module))
        assert message.startswith(f"env.<closure>.cfg{where}: cannot pickle ")
        assert "torch.jit.save()" in message and "torch.jit.load(path)" in message and "CPU" not in message


def test_an_exported_module_is_named_and_goes_by_a_file() -> None:
    torch = pytest.importorskip("torch")
    module = torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(3, 2),)).module()
    message = message_of(closure_over(torch.nn.Sequential(torch.nn.Tanh(), module)))
    assert message.startswith("env.<closure>.cfg._modules['1']: cannot pickle ")
    assert "torch.export.save()" in message and "torch.export.load(path).module()" in message


def test_a_tensor_that_is_no_leaf_is_to_be_detached() -> None:
    torch = pytest.importorskip("torch")
    import shoal

    weight = shoal.share_module(torch.nn.Linear(2, 2)).weight
    parcel = Parcel()
    message = message_of(closure_over({"sight": [weight.view(4)]}), parcel=parcel)
    assert message.startswith("env.<closure>.cfg['sight'][0]: cannot pickle 'Tensor' object (RuntimeError: ")
    assert message.endswith("Give tensor.detach(), which has the values alone.")
    dumps(closure_over(weight.view(4).detach()), parcel=parcel)


def test_what_else_of_torch_cannot_be_pickled_is_made_by_the_worker() -> None:
    class Handle(Dummy):
        is_cuda = False

        def __reduce__(self) -> Any:
            raise TypeError("cannot pickle 'Handle' object")

    Handle.__module__ = "torch"
    assert "Make the Handle inside the function" in message_of([Handle()])
