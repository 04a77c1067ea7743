"""What torch's tensors are on the other side of a message."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import warnings

import numpy as np
import pytest

import shoal.multiprocessing.reduction as reduction
from mp_peer import Peer, peer
from shoal._core import ipc

torch = pytest.importorskip("torch")

from shoal.multiprocessing import tensors  # noqa: E402


@pytest.fixture(scope="module")
def other():
    with peer() as made:
        yield made


# Peers of the module's other tests go on living.
pytestmark = pytest.mark.keeps_processes


def same_process(obj):
    data, blocks = reduction.dumps(obj)
    loaded = reduction.loads(data)
    del blocks
    return loaded


def echo(obj):
    return obj


_kept = {}


def keep(name, obj):
    _kept[name] = obj


def kept(name):
    return _kept[name]


def forget(name):
    del _kept[name]


def fill(tensor, value):
    with torch.no_grad():
        tensor.fill_(value)


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


# --- what a tensor is ------------------------------------------------------------------------------------------------


def attributes(t):
    return (
        type(t).__name__,
        t.dtype,
        tuple(t.shape),
        t.stride() if t.layout is torch.strided and not t.is_nested else None,
        t.storage_offset() if t.layout is torch.strided and not t.is_nested else None,
        t.requires_grad,
        t.is_leaf,
        t.grad is None,
        t.is_conj(),
        t.is_neg(),
        str(t.device),
        str(t.layout),
    )


DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
]


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(other: Peer, dtype):
    t = torch.tensor([0, 1, 1, 0]).to(dtype)
    seen = other(attributes, t)
    assert seen == attributes(t)
    back = other(echo, t)
    assert back.dtype is dtype and torch.equal(back.view(torch.uint8), t.view(torch.uint8))


def interesting_tensors():
    base = torch.arange(24.0).reshape(2, 3, 4)
    yield "scalar", torch.tensor(3.5)
    yield "transposed", base.transpose(0, 2)
    yield "offset", base[1, 1:]
    yield "strided", base[:, ::2, 1::2]
    yield "expanded", torch.ones(1).expand(5)
    yield "empty", torch.empty(0)
    yield "empty with a shape", torch.empty(3, 0, 2, dtype=torch.int32)
    yield "no element of a storage", base[0:0]
    yield "leaf", torch.ones(2, requires_grad=True)
    yield "conjugate", torch.tensor([1 + 2j, 3j]).conj()
    yield "negative", torch.tensor([1 + 2j, 3j]).conj().imag
    yield "channels last", torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", [name for name, _ in interesting_tensors()])
def test_forms(other: Peer, name):
    t = dict(interesting_tensors())[name]
    back = other(echo, t)
    assert other(attributes, t) == attributes(t) == attributes(back)
    assert torch.equal(back, t)


def test_a_gradient_is_not_sent(other: Peer):
    t = torch.ones(2, requires_grad=True)
    t.grad = torch.ones(2)
    assert other(attributes, t) == (
        "Tensor",
        torch.float32,
        (2,),
        (1,),
        0,
        True,
        True,
        True,
        False,
        False,
        "cpu",
        "torch.strided",
    )


def test_parameters_stay_parameters(other: Peer):
    for parameter in (
        torch.nn.Parameter(torch.ones(2)),
        torch.nn.Parameter(torch.ones(2), requires_grad=False),
        torch.nn.Parameter(torch.arange(3), requires_grad=False),
    ):
        back = other(echo, parameter)
        assert type(back) is torch.nn.Parameter and back.requires_grad == parameter.requires_grad
        assert back.data_ptr() == parameter.data_ptr()


def test_a_tensor_that_is_no_leaf_is_refused_where_it_is_sent():
    t = torch.ones(2, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor which requires_grad"):
        reduction.dumps({"a": [t]})
    reduction.dumps(t.detach())


def test_hooks_are_not_sent_and_that_is_said(other: Peer):
    t = torch.ones(2, requires_grad=True)
    t.register_hook(lambda grad: grad)
    with pytest.warns(UserWarning, match="backward hook .* will not be serialized"):
        assert other(attributes, t)[0] == "Tensor"


def test_meta_tensors_cross(other: Peer):
    t = torch.empty(3, 4, device="meta", dtype=torch.int8)[1:]
    assert other(attributes, t) == attributes(t) == attributes(other(echo, t))


@pytest.mark.filterwarnings("ignore:torch.quantize")
def test_quantized_tensors_cross(other: Peer):
    t = torch.quantize_per_tensor(torch.tensor([1.0, 2.5]), 0.5, 3, torch.quint8)
    back = other(echo, t)
    assert back.q_scale() == 0.5 and back.q_zero_point() == 3 and torch.equal(back, t)
    channels = torch.quantize_per_channel(
        torch.rand(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.qint8
    )
    assert torch.equal(other(echo, channels).dequantize(), channels.dequantize())


SPARSE = ["to_sparse_coo", "to_sparse_csr", "to_sparse_csc", "to_sparse_bsr", "to_sparse_bsc"]


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("convert", SPARSE)
def test_sparse_tensors_cross_and_share_their_values(other: Peer, convert):
    dense = torch.tensor([[0.0, 2, 0, 0], [3, 0, 0, 1], [0, 0, 0, 0], [0, 0, 4, 0]])
    t = getattr(dense, convert)(*([(2, 2)] if "bs" in convert else []))
    back = other(echo, t)
    assert back.layout is t.layout and torch.equal(back.to_dense(), t.to_dense())
    values = back._values() if t.layout is torch.sparse_coo else back.values()
    original = t._values() if t.layout is torch.sparse_coo else t.values()
    assert values.data_ptr() == original.data_ptr()


def test_a_sparse_leaf_stays_one(other: Peer):
    t = torch.eye(2).to_sparse_coo().requires_grad_()
    assert other(attributes, t)[5:7] == (True, True)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors_cross(other: Peer, layout):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        t = torch.nested.nested_tensor([torch.arange(2.0), torch.arange(3.0)], layout=layout)
        back = other(echo, t)
    assert back.is_nested and back.layout is layout
    assert [part.tolist() for part in back.unbind()] == [[0, 1], [0, 1, 2]]


class Labelled(torch.Tensor):
    """A subclass, with an attribute of its own."""


def label_of(t):
    return type(t).__name__, t.label, t.tolist()


def test_subclasses_cross_with_their_attributes(other: Peer):
    t = torch.ones(2).as_subclass(Labelled)
    t.label = "mine"
    assert other(label_of, t) == ("Labelled", "mine", [1, 1])
    back = other(echo, t)
    assert back.data_ptr() == t.data_ptr()


def test_modules_and_trees_cross(other: Peer):
    module = torch.nn.Linear(3, 2)
    back = other(echo, {"module": module, "list": [torch.ones(1), (torch.zeros(2), "text")], 5: None})
    assert torch.equal(back["module"].weight, module.weight)
    assert back["module"].weight.data_ptr() == module.weight.data_ptr()
    assert back["list"][1][1] == "text"


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


def test_an_array_that_was_made_of_a_tensor_stays_readable():
    t = torch.arange(1000.0)
    array = t.numpy()
    tensors.share_memory_(t)
    del t
    gc.collect()
    torch.zeros(1000)
    assert array.sum() == 499500


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


# --- the life of blocks ----------------------------------------------------------------------------------------------


def blocks_here():
    gc.collect()
    return ipc.stats()["blocks"]


def test_blocks_go_with_their_last_holder(other: Peer):
    other(echo, None)
    before = blocks_here()
    t = torch.ones(5)
    other(keep, "t", t)
    del t
    assert blocks_here() == before + 1
    other(forget, "t")
    other(echo, None)
    assert blocks_here() == before
    assert ipc.check() == []


def test_memory_is_flat_over_many_sends():
    before = ipc.stats()
    for i in range(100_000):
        data, blocks = reduction.dumps((i, torch.empty(64)))
        received = reduction.loads(data)
    del data, blocks, received
    after = ipc.stats()
    assert after["blocks"] == before["blocks"]
    assert after["used_bytes"] + after["cached_bytes"] <= before["used_bytes"] + before["cached_bytes"] + (1 << 20)
    assert ipc.check() == []


def test_a_hundred_thousand_tensors_live_at_once():
    before = blocks_here()
    descriptors = len(os.listdir("/proc/self/fd"))
    many = [tensors.share_memory_(torch.empty(2)) for _ in range(100_000)]
    assert ipc.stats()["blocks"] == before + 100_000
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1
    assert same_process(many[77_777]).data_ptr() == many[77_777].data_ptr()
    many.clear()
    assert blocks_here() == before


def test_a_killed_holder_gives_everything_back():
    before = blocks_here()
    t = torch.ones(7)
    with peer() as victim:
        victim(keep, "mine", t)
        held = victim(torch.ones, 1000)
        os.kill(victim.process.pid, signal.SIGKILL)
        victim.process.wait(timeout=60)
        assert ipc.sweep() >= 1
        assert held.sum() == 1000 and t.sum() == 7
        del t, held
        assert blocks_here() == before
        assert ipc.check() == []


def test_a_message_of_another_family_is_refused_with_the_reason():
    data, blocks = reduction.dumps(torch.ones(3))
    at = data.index(ipc.heap_id().to_bytes(8, "little"))
    forged = data[:at] + (ipc.heap_id() ^ 1).to_bytes(8, "little") + data[at + 8 :]
    with pytest.raises(Exception, match="another family"):
        reduction.loads(forged)
    del blocks


def test_a_message_whose_block_is_gone_is_refused():
    data, blocks = reduction.dumps(torch.ones(3))
    blocks.clear()
    gc.collect()
    other = torch.ones(3)
    tensors.share_memory_(other)
    with pytest.raises(Exception, match="block"):
        reduction.loads(data)


# --- NumPy -----------------------------------------------------------------------------------------------------------


def test_a_tensor_of_a_shared_array_shares_it(other: Peer):
    from shoal.multiprocessing.arrays import SharedArray

    array = SharedArray((4,), "float32")
    t = torch.from_numpy(array)
    assert tensors.is_shared(t)
    other(fill, t[1:], 6)
    assert array.tolist() == [0, 6, 6, 6]


def test_an_array_of_a_shared_tensor_shares_it(other: Peer):
    t = tensors.SharedTensor(torch.zeros(4))
    other(np.ndarray.fill, t.numpy()[2:], 8)
    assert t.tolist() == [0, 0, 8, 8]


def test_the_package_shows_all_of_it():
    import shoal
    import shoal.multiprocessing as mp
    from shoal.multiprocessing import arrays

    assert shoal.share_module is mp.share_module is tensors.share_module
    assert mp.SharedArray is arrays.SharedArray
    assert all(getattr(mp, name) is getattr(tensors, name) for name in tensors.__all__)
