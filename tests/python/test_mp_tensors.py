"""Tensors that several processes see."""

from __future__ import annotations

import gc
import pickle
import warnings

import numpy as np
import pytest

from mp_peer import Peer, peer
from shoal._core import ipc
from shoal.errors import Error

torch = pytest.importorskip("torch")

from mp_calls import echo, fill, forget, keep, kept, same_process  # noqa: E402
from shoal.ipc import tensors  # noqa: E402


@pytest.fixture(scope="module")
def other():
    with peer() as made:
        yield made


# Peers of the module's other tests go on living.
pytestmark = pytest.mark.keeps_processes


# --- sharing ---------------------------------------------------------------------------------------------------------


def test_both_sides_write_to_one_storage(other: Peer):
    t = torch.zeros(4)
    other(keep, "t", t)
    t[0] = 7
    assert other(torch.Tensor.tolist, t) == [7, 0, 0, 0]
    other(fill, t, 3)
    assert t.tolist() == [3, 3, 3, 3]
    t += 1
    assert other(kept, "t").tolist() == [4, 4, 4, 4]
    other(forget, "t")


def test_a_tensor_moves_in_place(other: Peer):
    t = torch.arange(6.0)
    view, storage = t[2:4], t.untyped_storage()
    identity = t.untyped_storage()._cdata
    assert not tensors.is_shared(t)
    other(fill, t, 1)
    assert tensors.is_shared(t) and tensors.is_shared(view) and tensors.is_shared(storage)
    assert t.untyped_storage()._cdata == identity
    assert view.tolist() == [1, 1]


def test_what_comes_back_is_the_storage_that_went(other: Peer):
    t = torch.arange(6.0)
    back = other(echo, t)
    assert back.data_ptr() == t.data_ptr()
    assert back.untyped_storage()._cdata == t.untyped_storage()._cdata
    assert same_process(t).untyped_storage()._cdata == t.untyped_storage()._cdata


def how_they_alias(storage, whole, row, column):
    whole.fill_(0)
    row.fill_(1)
    column += 1
    cdata = {part.untyped_storage()._cdata for part in (whole, row, column)} | {storage._cdata}
    return len(cdata), whole.tolist()


def test_views_of_one_storage_alias_in_one_message_and_over_several(other: Peer):
    t = torch.ones(3, 3)
    parts = (t.untyped_storage(), t, t[2], t[:, 1])
    expected = [[0, 1, 0], [0, 1, 0], [1, 2, 1]]
    assert other(how_they_alias, *parts) == (1, expected)
    assert t.tolist() == expected
    other(keep, "whole", t)
    other(keep, "row", t[1])
    other(fill, t[1], 9)
    assert other(kept, "row").tolist() == [9, 9, 9] and other(kept, "whole")[1].tolist() == [9, 9, 9]
    other(forget, "whole")
    other(forget, "row")


def are_identical(pair):
    return pair[0] is pair[1]


def test_a_tensor_that_is_twice_in_a_message_is_one_there(other: Peer):
    t = torch.ones(2)
    assert other(are_identical, [t, t])


def test_typed_storages_cross(other: Peer):
    t = torch.arange(4, dtype=torch.int16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        back = other(echo, t.storage())
    assert isinstance(back, torch.storage.TypedStorage) and back.dtype is torch.int16
    assert back._untyped_storage._cdata == t.untyped_storage()._cdata


def test_received_tensors_are_forwarded_and_outlive_who_made_them(other: Peer):
    with peer() as first:
        t = first(torch.arange, 5)
    assert first.process.poll() is not None
    gc.collect()
    assert other(torch.Tensor.tolist, t) == [0, 1, 2, 3, 4]
    other(keep, "t", t)
    del t
    assert other(kept, "t").sum() == 10
    other(forget, "t")


def test_a_buffer_that_is_sent_again_is_not_copied(other: Peer):
    t = torch.zeros(1 << 20)
    other(keep, "buffer", t)
    blocks, address = ipc.stats()["blocks"], t.data_ptr()
    for i in range(20):
        t = other(echo, t)
        assert t.data_ptr() == address
        assert ipc.stats()["blocks"] == blocks, i
    other(forget, "buffer")


# --- moving in place -------------------------------------------------------------------------------------------------


def test_share_memory_is_idempotent_and_returns_what_it_was_given():
    t = torch.ones(3)
    assert tensors.share_memory_(t) is t
    address = t.data_ptr()
    assert tensors.share_memory_(t).data_ptr() == address and tensors.is_shared(t)
    assert tensors.share_memory_(torch.empty(0)).numel() == 0
    with pytest.raises(ValueError, match="CPU"):
        tensors.share_memory_(torch.empty(2, device="meta"))
    with pytest.raises(TypeError, match="list"):
        tensors.share_memory_([1, 2])


def test_shared_tensor_takes_tensors_and_data():
    t = torch.zeros(10)
    assert tensors.SharedTensor(t) is t and tensors.is_shared(t)
    made = tensors.SharedTensor([[1, 2], [3, 4]], dtype=torch.float64)
    assert made.dtype is torch.float64 and tensors.is_shared(made)


def test_shared_tensor_takes_the_options_of_both():
    for data in ([1.0, 2.0], torch.tensor([1.0, 2.0])):
        tensor = tensors.SharedTensor(data, dtype=torch.float64, requires_grad=True)
        assert tensor.requires_grad and tensor.dtype is torch.float64 and tensors.is_shared(tensor)
    assert tensors.SharedTensor(torch.zeros(2, requires_grad=True), device="cpu").requires_grad


def test_nothing_is_shared_of_a_tensor_without_elements():
    module = torch.nn.Module()
    module.empty, module.full = torch.nn.Parameter(torch.ones(0)), torch.nn.Parameter(torch.ones(3))
    assert not all(tensors.is_shared(parameter) for parameter in module.parameters())
    tensors.share_module(module)
    assert all(tensors.is_shared(parameter) for parameter in module.parameters())


def test_a_mapped_file_is_refused_with_what_can_be_sent(other: Peer, tmp_path):
    (tmp_path / "numbers").write_bytes(bytes(16))
    tensor = torch.from_file(str(tmp_path / "numbers"), shared=True, size=4)
    with pytest.raises(Error, match=r"send tensor\.clone\(\)"):
        other(echo, tensor)


def test_share_module_moves_parameters_and_buffers_and_keeps_ties(other: Peer):
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))
    module[2].weight = module[0].weight
    parameters = list(module.parameters())
    assert tensors.share_module(module) is module
    assert all(a is b for a, b in zip(parameters, module.parameters(), strict=True))
    assert all(map(tensors.is_shared, [*module.parameters(), *module.buffers()]))
    there = other(echo, module)
    assert there[2].weight.data_ptr() == there[0].weight.data_ptr() == module[0].weight.data_ptr()
    other(fill, module[1].running_mean, 5)
    assert module[1].running_mean.tolist() == [5, 5, 5]
    module(torch.rand(4, 3)).sum().backward()
    assert not tensors.is_shared(module[0].weight.grad)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter -= 0.1 * parameter.grad
    assert tensors.is_shared(module[0].weight)


def test_share_module_takes_modules_alone_and_says_so():
    for given, name in ((3, "an object of type int"), ([torch.ones(1)], "an object of type list")):
        with pytest.raises(
            TypeError, match=rf"^share_module\(\) takes a torch.nn.Module, not {name}\. A tensor is shared"
        ):
            tensors.share_module(given)
    with pytest.raises(TypeError, match="not the class Linear"):
        tensors.share_module(torch.nn.Linear)
    with pytest.raises(TypeError, match=r"Tensor\. .*share_memory_\(\)"):
        tensors.share_module(torch.ones(1))


def test_an_array_that_was_made_of_a_tensor_stays_readable():
    t = torch.arange(1000.0)
    array = t.numpy()
    tensors.share_memory_(t)
    del t
    gc.collect()
    torch.zeros(1000)
    assert array.sum() == 499500


def test_views_of_torch_follow_a_move_and_those_of_numpy_and_dlpack_do_not():
    t, of = torch.zeros(4), np.zeros(4, np.float32)
    made_of = torch.from_numpy(of)
    views = [t[1:], t.view(2, 2), t.detach(), t.data, torch.as_tensor(t), torch.nn.Parameter(t)]
    arrays, by_dlpack = [t.numpy(), np.asarray(t)], [np.from_dlpack(t), torch.from_dlpack(t)]
    old = t.data_ptr()
    same_process(t)
    same_process(made_of)
    assert t.data_ptr() != old and not t.is_shared() and tensors.is_shared(t)
    t.fill_(5)
    made_of.fill_(5)
    assert all((view == 5).all() for view in views)
    assert not any(array.any() for array in [*arrays, of])
    arrays[0].fill(7)
    assert (t == 5).all()
    # Their bytes are given back, unless an array looks at them as well: they are not to be read.
    assert by_dlpack[0].__array_interface__["data"][0] == by_dlpack[1].data_ptr() == old
    for now in (t.numpy(), np.from_dlpack(t), torch.from_dlpack(t)):
        assert (now == 5).all()


def test_shared_storage_has_a_fixed_size():
    t = tensors.share_memory_(torch.ones(2))
    with pytest.raises(RuntimeError, match="resiz"):
        t.resize_(1000)


def test_what_torch_has_shared_already_stays_shared_by_it(other: Peer):
    t = torch.zeros(3).share_memory_()
    assert t.is_shared() and tensors.is_shared(t)
    address = t.data_ptr()
    other(fill, t, 4)
    assert t.tolist() == [4, 4, 4] and t.data_ptr() == address
    assert other(torch.Tensor.is_shared, t)
    assert tensors.share_memory_(t).is_shared() and t.data_ptr() == address, "others look at it there"


def test_torch_shares_in_its_own_way_what_lies_in_the_heap():
    t = tensors.share_memory_(torch.ones(2))
    assert not t.is_shared()
    t.share_memory_()
    assert t.is_shared() and t.tolist() == [1, 1]


def test_stock_pickles_of_torch_are_as_they_were():
    t = tensors.share_memory_(torch.arange(3.0))
    copy = pickle.loads(pickle.dumps(t))
    assert copy.tolist() == [0, 1, 2] and not tensors.is_shared(copy)
    from multiprocessing.reduction import ForkingPickler

    assert ForkingPickler._extra_reducers[torch.Tensor].__module__ == "torch.multiprocessing.reductions"


def test_sharing_strategies_are_those_of_torch_and_ours():
    assert tensors.get_all_sharing_strategies() == {"heap", "file_descriptor", "file_system"}
    assert tensors.get_sharing_strategy() == "heap"
    tensors.set_sharing_strategy("file_system")
    try:
        assert tensors.get_sharing_strategy() == "file_system"
        assert tensors.is_shared(same_process(torch.ones(2)))
    finally:
        tensors.set_sharing_strategy("heap")
    with pytest.raises(ValueError, match="file_descriptor"):
        tensors.set_sharing_strategy("none")


def test_the_package_shows_all_of_it():
    import shoal
    import shoal.multiprocessing as mp
    from shoal.ipc import arrays

    assert shoal.share_module is mp.share_module is tensors.share_module
    assert mp.SharedArray is arrays.SharedArray
    assert all(getattr(mp, name) is getattr(tensors, name) for name in tensors.__all__)
