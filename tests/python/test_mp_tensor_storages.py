"""How torch's storages come to lie in the heap and go again, in each of the ways that releases of torch need."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal.multiprocessing.reduction as reduction
from shoal._core import ipc
from shoal._core import tensors as core
from shoal.errors import Error

torch = pytest.importorskip("torch")

from shoal.ipc import immovable, tensors  # noqa: E402


def blocks() -> int:
    gc.collect()
    return ipc.stats()["blocks"]


def same_process(obj: Any) -> Any:
    data, held = reduction.dumps(obj)
    made = reduction.loads(data)
    del held
    return made


# --- what comes twice --------------------------------------------------------------------------------------------------


def test_what_comes_again_is_another_tensor_of_one_storage() -> None:
    t = torch.arange(6.0).reshape(2, 3)
    first = same_process(t)
    second = same_process(t)
    assert first is not second and first.untyped_storage()._cdata == second.untyped_storage()._cdata
    first.unsqueeze_(0).mul_(2)
    assert second.shape == (2, 3) and second.tolist() == t.tolist() == [[0, 2, 4], [6, 8, 10]]
    first.resize_(2)  # within the storage
    assert same_process(t).shape == (2, 3)
    assert second._version == 0 and second._base is None and second.is_leaf
    again = same_process(t[1])
    assert again.tolist() == [6, 8, 10] and again.storage_offset() == 3
    assert same_process(t.view(torch.int32)).dtype is torch.int32


def test_what_a_remembered_tensor_has_become_does_not_matter() -> None:
    t = torch.arange(4.0)
    data, held = reduction.dumps(t)
    first = reduction.loads(data)
    for change in (
        lambda: setattr(first, "data", torch.zeros(4)),
        lambda: first.set_(torch.ones(4)),
        lambda: first.requires_grad_(True),
    ):
        change()
        made = reduction.loads(data)
        assert made.tolist() == [0, 1, 2, 3] and made.data_ptr() == t.data_ptr() and not made.requires_grad
    del held


def test_a_tensor_that_came_in_inference_mode_says_nothing_of_others() -> None:
    t = torch.arange(4.0)
    data, held = reduction.dumps(t)
    with torch.inference_mode():
        kept = [reduction.loads(data) for _ in range(3)]
    made = reduction.loads(data)
    assert not made.is_inference() and made.data_ptr() == kept[0].data_ptr()
    made.requires_grad_().square().sum().backward()
    assert made.grad.tolist() == [0, 2, 4, 6]
    del held


def test_conjugate_and_negative_views_are_not_mixed_up_with_plain_ones() -> None:
    z = torch.tensor([1 + 2j, 3 - 4j])
    plain, conjugate = same_process(z), same_process(z.conj())
    assert not plain.is_conj() and conjugate.is_conj()
    assert torch.equal(same_process(z), z) and torch.equal(same_process(z.conj()), z.conj())
    assert conjugate.data_ptr() == z.data_ptr()
    negative = same_process(z.conj().imag)
    assert negative.is_neg() and negative.tolist() == [-2, 4] and same_process(z.imag).tolist() == [2, -4]


def test_threads_that_receive_one_message_at_once_have_one_storage() -> None:
    for _ in range(20):
        data, held = reduction.dumps(torch.ones(64, 64)[1:])
        barrier, made = threading.Barrier(4), []

        def receive(data: bytes = data, barrier: Any = barrier, made: list[Any] = made) -> None:
            barrier.wait(60)
            made.append(reduction.loads(data))

        threads = [threading.Thread(target=receive) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len({t.untyped_storage()._cdata for t in made}) == 1 and len(made) == 4
        del held


# --- when it goes ------------------------------------------------------------------------------------------------------


class _Managed(ctypes.Structure):
    """Of DLPack: a tensor (48 bytes) that somebody else keeps."""

    _fields_ = (("tensor", ctypes.c_byte * 48), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


def kept_by_cpp(t: Any) -> Any:
    """What, when called, has C++ let go of the tensor, without the GIL."""
    capsule = torch.utils.dlpack.to_dlpack(t)
    pointer, rename = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_SetName
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
    address = pointer(capsule, b"dltensor")
    rename(capsule, b"used_dltensor")
    deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_Managed.from_address(address).deleter)  # gives the GIL away
    return lambda: deleter(address)


@pytest.mark.parametrize("received", [False, True], ids=["moved", "received"])
@pytest.mark.parametrize("in_thread", [False, True], ids=["here", "in a thread"])
def test_memory_goes_with_the_last_view_also_without_the_gil(received: bool, in_thread: bool) -> None:
    before = blocks()
    t = tensors.share_memory_(torch.arange(500.0))
    if received:
        data, held = reduction.dumps(t)
        del t
        t = reduction.loads(data)
        held.clear()
    view = t[7:9]
    let_go = kept_by_cpp(view)
    del t, view
    assert blocks() == before + 1, "C++ keeps a view"
    if in_thread:
        thread = threading.Thread(target=let_go)
        thread.start()
        thread.join(60)
    else:
        let_go()
    assert blocks() == before
    assert ipc.check() == []


def test_the_bytes_that_an_array_looks_at_go_with_the_storage() -> None:
    """torch frees the memory of a tensor that an array was made of when both are gone; so is it here."""
    t = torch.arange(1000.0)
    array = t.numpy()
    old = torch.from_numpy(array)
    tensors.share_memory_(t)
    assert old.sum() == array.sum() == 499500 and t.data_ptr() != old.data_ptr()
    before = blocks()
    del t, array, old
    assert blocks() == before - 1


# --- ways to move a storage ----------------------------------------------------------------------------------------------

LIE = (
    "said = torch.UntypedStorage.nbytes\n"
    "torch.UntypedStorage.nbytes = lambda self: said(self) + 1\n"
    "from shoal._core import tensors\n"
    "tensors.exchange_kind()\n"
    "torch.UntypedStorage.nbytes = said\n"
)
PREPARE = {
    "words": "",
    "torch": "version, torch.__version__ = torch.__version__, type(torch.__version__)('99.0')\n"
    "from shoal._core import tensors\ntensors.exchange_kind()\ntorch.__version__ = version\n",
    "none": f"torch.UntypedStorage._swap_data_ptr_ = None\n{LIE}",
    "none that can be proved": LIE,
}
"""What a process does first, so that storages are moved in that way: by torch in a release that is not known here; not at all
where the words of storages say something else than torch."""


def run_in_way(way: str, function: Any) -> None:
    """Calls a function of this module in a process of its own."""
    program = (
        f"import sys, torch\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n{PREPARE[way]}"
        f"import {Path(__file__).stem} as tests\ntests.is_of_way({way.partition(' ')[0]!r})\ntests.{function.__name__}()"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=100)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def is_of_way(way: str) -> None:
    if way == "torch" and not hasattr(torch.UntypedStorage, "_swap_data_ptr_"):
        print(f"torch {torch.__version__} has no function for it")
        sys.exit(77)
    if way == "words" and torch.__version__ >= "2.16":
        print(f"torch {torch.__version__} is newer than those whose words are known")
        sys.exit(77)
    assert core.exchange_kind() == way


def move_in_place() -> None:
    before = blocks()
    base = torch.arange(12.0)
    view, cdata, parameter = base[3:], base.untyped_storage()._cdata, torch.nn.Parameter(base[:3])
    back = same_process(view)
    assert base.untyped_storage()._cdata == back.untyped_storage()._cdata == cdata
    back.fill_(5)
    assert base.tolist() == [0, 1, 2] + [5] * 9 and view.data_ptr() == back.data_ptr() and parameter[1] == 1
    assert tensors.is_shared(parameter) and not base.untyped_storage().resizable()
    assert blocks() == before + 1
    del base, view, parameter, back
    assert blocks() == before


def move_many() -> None:
    """Each gives its old memory back, and the new one: neither grows."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    for _ in range(200):
        same_process(torch.ones(1 << 16))
    before, memory = blocks(), resident()
    for _ in range(2000):  # half a gigabyte
        same_process(torch.ones(1 << 16))
    assert blocks() == before and resident() < memory + (64 << 20)


def move_what_an_array_looks_at() -> None:
    t = torch.arange(1000.0)
    array = t.numpy()
    tensors.share_memory_(t)
    assert not t.untyped_storage().resizable()
    t.zero_()
    del t
    gc.collect()
    torch.full((1000,), 3.0)
    assert array.sum() == 499500


def move() -> None:
    move_in_place()
    move_many()
    move_what_an_array_looks_at()


@pytest.mark.parametrize("way", ["words", "torch"])
def test_storages_are_moved_in_each_way(way: str) -> None:
    run_in_way(way, move)


def caught(function: Any) -> tuple[Any, list[str]]:
    """The result, and the warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = function()
    return result, [str(warning.message) for warning in found]


def immovable_alone() -> None:
    """A tensor that has its storage alone is set on one in the heap: nothing is copied twice, nothing said."""
    for t in (torch.arange(4.0), torch.nn.Parameter(torch.arange(4.0)), torch.arange(4.0).requires_grad_()):
        back, said = caught(lambda t=t: same_process(t))
        assert not said and tensors.is_shared(t) and back.data_ptr() == t.data_ptr() and type(back) is type(t)
        assert back.requires_grad == t.requires_grad and t.is_leaf
        with torch.no_grad():
            back.fill_(9)
        assert t.tolist() == [9] * 4
    assert tensors.is_shared(tensors.share_memory_(torch.ones(2, 3)))
    module = tensors.share_module(torch.nn.Linear(2, 2))
    assert all(map(tensors.is_shared, module.parameters()))


def immovable_among_others() -> None:
    """What others look at, too, is copied, and that is said."""
    for make in (lambda base: base[1:], lambda base: base.view(2, 2).t(), lambda base: torch.nn.Parameter(base[1:])):
        base = torch.arange(4.0)
        t = make(base)
        back, said = caught(lambda t=t: same_process([t]))
        assert len(said) == 1 and "sent as a copy" in said[0] and torch.__version__ in said[0]
        assert type(back[0]) is type(t) and torch.equal(back[0], t) and back[0].stride() == t.stride()
        assert not tensors.is_shared(t) and back[0].requires_grad == t.requires_grad
    z = torch.tensor([1 + 2j, 3j])
    back, said = caught(lambda: same_process(z.conj()))
    assert said and torch.equal(back, z.conj())
    storage = torch.arange(4.0).untyped_storage()
    back, said = caught(lambda: same_process(storage))
    assert said and back.tolist() == storage.tolist() and not tensors.is_shared(storage)


def immovable_with_an_array() -> None:
    t = torch.arange(1000.0)
    array = t.numpy()
    back, said = caught(lambda: same_process(t))
    assert said and back.tolist() == t.tolist() and array.sum() == 499500


def immovable_is_an_error_that_says_what_to_do() -> None:
    base = torch.arange(4.0)
    for part in (base[1:], base.untyped_storage()):
        with pytest.raises(Error, match=r"cannot be moved in place.*share tensor\.clone\(\)"):
            tensors.share_memory_(part)
    assert tensors.is_shared(tensors.share_memory_(base[1:].clone()))


def not_moved_at_all() -> None:
    assert not immovable.is_in_the_way(torch.ones(2).to_sparse())
    immovable_alone()
    immovable_among_others()
    immovable_with_an_array()
    immovable_is_an_error_that_says_what_to_do()
    assert same_process(torch.empty(0, 3)).shape == (0, 3)


@pytest.mark.parametrize("way", ["none", "none that can be proved"])
def test_storages_that_cannot_be_moved_are_set_or_copied(way: str) -> None:
    """Neither by words that are others than is known, nor by a function that does not do what it is for."""
    run_in_way(way, not_moved_at_all)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = blocks()
    yield
    assert blocks() == before and ipc.check() == []
