"""Programs written for torch.multiprocessing: DataLoader on our contexts, and tensors that torch's own share_memory_() moved."""

from __future__ import annotations

from typing import Any

import pytest

import shoal.multiprocessing as mp
from shoal.errors import Error
from shoal.ipc.pickling import PicklingError

torch = pytest.importorskip("torch")

METHODS = ["forkserver", "spawn", pytest.param("fork", marks=pytest.mark.own_process)]


class Squares(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> Any:
        if i < 0:
            raise ValueError(f"no square of {i}")
        return torch.tensor(i * i), {"row": torch.full((2000,), i)}


def epoch(loader: Any) -> list[int]:
    seen = []
    for squares, more in loader:
        assert more["row"].shape == (len(squares), 2000)
        assert (more["row"] ** 2 == squares[:, None]).all()
        seen += squares.tolist()
    return seen


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("persistent", [False, True])
def test_a_data_loader_has_its_workers_of_a_context(method: str, persistent: bool) -> None:
    loader = torch.utils.data.DataLoader(
        Squares(),
        batch_size=3,
        num_workers=2,
        multiprocessing_context=mp.get_context(method),
        persistent_workers=persistent,
    )
    for _ in range(2):
        assert epoch(loader) == [i * i for i in range(10)]
    if loader._iterator is not None:
        loader._iterator._shutdown_workers()


def test_a_data_loader_without_workers_needs_no_context() -> None:
    assert epoch(torch.utils.data.DataLoader(Squares(), batch_size=3, num_workers=0)) == [i * i for i in range(10)]


def test_what_a_data_loaders_worker_raises_comes_with_its_traceback() -> None:
    loader = torch.utils.data.DataLoader(
        Squares(), sampler=[-1], num_workers=1, multiprocessing_context=mp.get_context("forkserver")
    )
    batches = iter(loader)
    with pytest.raises(ValueError, match=r"(?s)worker process 0.*__getitem__.*no square of -1"):
        next(batches)
    batches._shutdown_workers()


# --- torch's own shared memory


@pytest.mark.parametrize("method", METHODS)
def test_what_torch_has_shared_is_shared_with_a_new_process(method: str) -> None:
    tensor = torch.zeros(3).share_memory_()
    module = torch.nn.Linear(2, 2).share_memory()

    def change() -> None:
        tensor.fill_(5)
        module.weight.data.fill_(6)

    process = mp.get_context(method).Process(target=change)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert tensor.tolist() == [5, 5, 5] and module.weight.tolist() == [[6, 6], [6, 6]]


@pytest.mark.parametrize("method", METHODS)
def test_what_torch_has_shared_goes_through_a_queue_while_its_sender_lives(method: str) -> None:
    ctx = mp.get_context(method)
    there, back = ctx.Queue(), ctx.Queue()

    def change() -> None:
        there.get().fill_(5)
        back.put(None)

    process = ctx.Process(target=change)
    process.start()
    tensor = torch.zeros(3).share_memory_()
    there.put(tensor)
    back.get(timeout=60)
    process.join()
    assert tensor.tolist() == [5, 5, 5]


def test_what_torch_has_shared_and_whose_sender_is_gone_is_an_error_that_says_so() -> None:
    queue = mp.Queue()
    process = mp.Process(target=lambda: queue.put(torch.zeros(3).share_memory_()))
    process.start()
    process.join()
    with pytest.raises(Error, match=f"came from process {process.pid}, which has to live"):
        queue.get(timeout=60)
    queue.put(1)
    assert queue.get(timeout=60) == 1


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_is_refused_with_the_way_that_there_is() -> None:
    """Torch says it in an error of its own (RuntimeError), which names neither the part nor a remedy."""
    scripted = torch.jit.script(torch.nn.Linear(2, 2))
    way = r"cannot pickle 'RecursiveScriptModule' object .* torch\.jit\.save\(\)"
    with pytest.raises(PicklingError, match=r"^object\['net'\]: " + way):
        mp.Queue().put({"net": scripted})
    with pytest.raises(PicklingError, match=r"^args\[0\]: " + way):
        mp.Process(target=print, args=(scripted,)).start()
    with mp.Pool(1) as pool, pytest.raises(PicklingError, match=r"^args\[0\]\[0\]: " + way):
        pool.apply(print, (scripted,))
