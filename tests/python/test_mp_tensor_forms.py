"""What a tensor is on the other side of a message: its type, form and flags."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

import shoal.multiprocessing as mp
import shoal.multiprocessing.reduction as reduction
from mp_peer import Peer, peer
from shoal._core import ipc

torch = pytest.importorskip("torch")

from mp_calls import echo  # noqa: E402


@pytest.fixture(scope="module")
def other():
    with peer() as made:
        yield made


# Peers of the module's other tests go on living.
pytestmark = pytest.mark.keeps_processes


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


def through_a_queue(obj):
    queue = mp.SimpleQueue()
    queue.put(obj)
    return queue.get()


def test_small_trees_with_tensors_and_arrays_cross_a_queue():
    shared, array = torch.arange(6.0).reshape(2, 3), np.arange(5)
    tree = {"row": (shared, array), "view": [shared[1], 3], "parameter": torch.nn.Parameter(torch.ones(2)), 0: None}
    other = through_a_queue(tree)
    assert list(other) == list(tree)
    assert type(other["parameter"]) is torch.nn.Parameter
    assert other["row"][0].data_ptr() == shared.data_ptr()
    assert other["view"][0].data_ptr() == shared[1].data_ptr()
    np.testing.assert_array_equal(other["row"][1], array)


def test_an_empty_tensor_in_torchs_own_shared_memory_crosses():
    empty = torch.empty(0, 3).share_memory_()
    assert through_a_queue(empty).shape == through_a_queue({"held": (empty, object)})["held"][0].shape == (0, 3)


def test_what_is_in_a_queue_s_tree_twice_is_one_object_there():
    tensor, array, inner = torch.ones(2), np.ones(2), [1]
    first, second, *arrays, one, two = through_a_queue([tensor, tensor, array, array, inner, inner])
    assert first is second and arrays[0] is arrays[1] and one is two


@pytest.mark.parametrize("count", [64, 65, 200])
def test_many_arrays_in_one_tree_cross_a_queue(count):
    other = through_a_queue([np.full(100, i) for i in range(count)])
    assert [int(array[0]) for array in other] == list(range(count))


def test_nothing_stays_of_a_tree_that_takes_the_long_way_after_all():
    before = ipc.stats()["blocks"]
    other = through_a_queue([np.ones(4096), torch.ones(4096), np.ones(30_000, np.uint8), "x" * 40_000])
    assert [len(part) for part in other] == [4096, 4096, 30_000, 40_000]
    del other
    assert ipc.stats()["blocks"] == before


def test_a_message_with_a_tensor_is_a_pickle_to_who_reads_bytes():
    reader, writer = mp.Pipe(duplex=False)
    writer.send([torch.arange(3), np.arange(3)])
    tensor, array = pickle.loads(reader.recv_bytes())
    assert tensor.tolist() == array.tolist() == [0, 1, 2]
