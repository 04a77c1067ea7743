"""Messages: what may be in them, and what NumPy's arrays are on the other side."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import shoal.multiprocessing.reduction as reduction
from mp_peer import Peer, peer
from shoal._core import ipc
from shoal.ipc.arrays import SharedArray
from shoal.multiprocessing.queues import SimpleQueue


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


# --- objects ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "obj",
    [
        None,
        True,
        5,
        1 << 100,
        2.5,
        "text",
        b"bytes",
        [1, [2]],
        (1,),
        {"a": {"b"}},
        range(3),
        np.float32(2),
        np.dtype("f4"),
    ],
    ids=repr,
)
def test_plain_objects_cross(obj):
    back = same_process(obj)
    assert back == obj and type(back) is type(obj)


def test_trees_of_builtins_are_written_as_pickle_writes_them():
    same = [1, 2]
    tree = {
        "numbers": [0, 255, 256, -1, 2**31 - 1, 2**31, -(2**31), -(2**63), 2**63 - 1, 1e300, float("inf")],
        "texts": ["", "ä", "x" * 255, "x" * 256, b"", b"\0" * 300],
        5: (None, True, False, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], {}),
        "twice": [same, same, {"again": same}],
    }
    data = ipc.pickle_tree(tree, [])
    back = pickle.loads(data)
    assert back == tree and pickle.dumps(back) == pickle.dumps(tree)
    assert back["twice"][0] is back["twice"][1] is back["twice"][2]["again"]
    assert list(back) == list(tree)


def through_a_queue(obj):
    queue = SimpleQueue()
    queue.put(obj)
    return queue.get()


@pytest.mark.parametrize("through", [same_process, through_a_queue])
def test_what_is_twice_in_a_tree_is_one_object_again(through):
    inner, array, mapping = [1], np.zeros(3), {"a": None}
    shared = [inner, inner, array]
    back = through((shared, {"again": [shared, array, mapping]}, mapping, (array, inner)))
    assert back[0][0] is back[0][1] is back[3][1] and back[0][0] == [1]
    assert back[1]["again"][0] is back[0] and back[1]["again"][2] is back[2]
    assert back[0][2] is back[1]["again"][1] is back[3][0]


@pytest.mark.parametrize("bits", [7, 8, 15, 16, 31, 32, 63])
def test_numbers_of_one_type_cross_at_their_bounds(bits):
    top = 2**bits - 1
    for few in ([top, 0, -1, -top - 1], (top, 1, 2, 3), [0, 0, 0, -top - 1], [float(top), -0.0, 1e-300, 2.0]):
        numbers = few * 8
        back = through_a_queue(numbers)
        assert back == numbers and type(back) is type(numbers)
        assert [type(number) for number in back] == [type(number) for number in numbers]
    assert str(through_a_queue([0.0, -0.0] * 10)) == str([0.0, -0.0] * 10)
    mixed = [1, True, 2.0, top, None] * 5
    assert list(map(repr, through_a_queue(mixed))) == list(map(repr, mixed))
    assert through_a_queue([2**63, 1, 2, 3] * 8) == [2**63, 1, 2, 3] * 8


def test_sizes_around_a_byte_cross():
    for size in (0, 1, 3, 4, 254, 255, 256, 70_000):
        tree = ["x" * size, b"x" * size, tuple(range(size)), ["a"] * size, dict.fromkeys(range(min(size, 1000)))]
        assert through_a_queue(tree) == tree


def test_bytes_that_are_no_tree_are_an_error():
    for data in (b"", b"abc", b"\4\0\0\0", b"\5\0\0\0?", b"\6\0\0\0l\5", b"\5\0\0\0NN", b"\xff\0\0\0N"):
        with pytest.raises(ValueError):
            ipc.decode_tree(data)
    for tree in (b"l\1" * 1_000_000 + b"N", b"m" * 1_000_000 + b"N", b"r\7\0\0\0"):
        with pytest.raises(ValueError, match=r"nested too deep|no plain object"):
            ipc.decode_tree((4 + len(tree)).to_bytes(4, "little") + tree)


@pytest.mark.parametrize("obj", [2**63, "\ud800", {1, 2}, [range(2)], 1j], ids=repr)
def test_what_is_no_tree_of_builtins_is_left_to_cloudpickle(obj):
    assert ipc.pickle_tree([obj], []) is None
    assert same_process([obj]) == [obj]


def test_cyclic_deep_and_large_trees_cross():
    cycle = [1]
    cycle.append(cycle)
    back = same_process(cycle)
    assert back[1] is back
    deep = []
    for _ in range(100):
        deep = [deep]
    assert same_process(deep) == deep
    assert same_process(list(range(20_000)))[-1] == 19_999


def test_an_array_that_is_twice_in_a_message_is_one_there():
    array = np.zeros(3)
    first, second = same_process((array, array))
    assert first is second


def test_lambdas_closures_and_local_classes_cross(other: Peer):
    n = 5

    class Local:
        value = n

    assert other(lambda x: x + n, 2) == 7
    assert other(echo, Local)().value == 5
    assert other(lambda: Local().value) == 5


def test_exceptions_come_back(other: Peer):
    with pytest.raises(ZeroDivisionError):
        other(lambda: 1 / 0)


def test_what_cannot_be_pickled_is_named_by_its_path():
    with pytest.raises(reduction.PicklingError, match="cannot pickle '_thread.lock' object") as caught:
        reduction.dumps({"config": [1, {"lock": threading.Lock()}]})
    assert caught.value.path == "object['config'][1]['lock']"
    assert isinstance(caught.value, TypeError)


class Registered:
    def __init__(self, text):
        self.text = text

    def __reduce__(self):
        raise AssertionError("the registered function is asked instead")


def test_reducers_that_are_registered_anywhere_hold():
    from multiprocessing.reduction import ForkingPickler

    ForkingPickler.register(Registered, lambda obj: (str, (obj.text,)))
    try:
        assert same_process([Registered("a")]) == ["a"]
    finally:
        del ForkingPickler._extra_reducers[Registered]
    reduction.register(Registered, lambda obj: (str, (obj.text * 2,)))
    try:
        assert same_process(Registered("a")) == "aa"
    finally:
        del ForkingPickler._extra_reducers[Registered]


def test_the_functions_of_multiprocessing_reduction_are_here():
    from multiprocessing import reduction as theirs

    assert reduction.ForkingPickler is theirs.ForkingPickler and reduction.DupFd is theirs.DupFd


def test_a_message_without_arrays_imports_neither_numpy_nor_torch():
    code = """
import sys
from shoal.multiprocessing import reduction
data, blocks = reduction.dumps([1, {"a": (None, "b")}, len])
assert reduction.loads(data)[1] == {"a": (None, "b")} and blocks == []
print({"numpy", "torch"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "set()", done.stderr


# --- arrays ----------------------------------------------------------------------------------------------------------


def arrays():
    rng = np.random.default_rng(0)
    big = rng.random((40, 30))
    yield "small", np.arange(3)
    yield "scalar", np.array(2.5)
    yield "empty", np.empty((0, 3), "u1")
    yield "large", big
    yield "fortran", np.asfortranarray(big)
    yield "strided", big[::2, ::-3]
    yield "bool", big > 0.5
    yield "half", big.astype("f2")
    yield "complex", big.astype("c16")
    yield "swapped", big.astype(">f8")
    yield "text", np.array(["a", "long text"] * 500)
    yield "dates", np.arange("2000-01", "2200-01", dtype="M8[M]")
    yield "structured", np.zeros(500, [("a", "i4"), ("b", "f8", 3)])
    yield "objects", np.array([{"a": 1}, None, [2]], object)
    yield "read-only", np.broadcast_to(np.arange(4.0), (300, 4))


@pytest.mark.parametrize("name", [name for name, _ in arrays()])
def test_arrays_cross_with_their_values_and_types(other: Peer, name):
    array = dict(arrays())[name]
    back = other(echo, array)
    assert type(back) is np.ndarray and back.dtype == array.dtype and back.shape == array.shape
    assert np.array_equal(back, array)
    if name == "fortran":
        assert back.flags.f_contiguous and not back.flags.c_contiguous
    if name not in ("read-only",):
        assert back.flags.writeable
        back[...] = back


def test_the_array_that_is_sent_stays_the_sender_s_own(other: Peer):
    array = np.zeros(10_000)
    other(np.ndarray.fill, array, 1)
    assert not array.any() and not ipc.is_shared_array(array)


def test_a_shared_array_is_one_on_both_sides(other: Peer):
    array = SharedArray((2, 3), "i8")
    assert array.tolist() == [[0, 0, 0], [0, 0, 0]]
    other(np.ndarray.fill, array[1], 7)
    assert array.tolist() == [[0, 0, 0], [7, 7, 7]]
    other(np.ndarray.fill, array[::-1, ::2][1], 5)
    assert array.tolist() == [[5, 0, 5], [7, 7, 7]]


def test_a_shared_array_comes_back_without_a_copy(other: Peer):
    array = SharedArray(np.arange(5000.0))
    back = other(echo, array)
    assert back.__array_interface__["data"] == array.__array_interface__["data"]
    again = other(echo, back[1:])
    assert again.__array_interface__["data"][0] == array.__array_interface__["data"][0] + 8


@pytest.mark.parametrize("view", [lambda array: array, lambda array: array[::2][1:], lambda array: array.view("i8").T])
def test_an_array_that_came_by_value_is_the_receivers_own_when_it_is_sent_on(other: Peer, view):
    received = other(np.ones, 5000)
    other(np.ndarray.fill, view(received), 2)
    assert (received == 1).all() and not ipc.is_shared_array(received)
    again = other(echo, view(received))
    again.fill(3)
    assert (received == 1).all()


def test_shared_arrays_are_made_of_shapes_and_of_values():
    assert SharedArray(4, "u1").shape == (4,)
    assert SharedArray([1, 2]).tolist() == [1, 2]
    assert SharedArray(np.ones((2, 2)), "f4").dtype == np.float32
    assert SharedArray((2,), [("a", "i4")])["a"].tolist() == [0, 0]
    assert SharedArray((0, 2), "f8").size == 0
    assert SharedArray(np.int64(3), "f4").tolist() == [0, 0, 0]
    assert SharedArray((np.int32(2), 3), "f4").shape == (2, 3)
    for kind in ("U5", "S5", "V5", "M8[s]"):
        assert SharedArray((3,), kind).tolist() == np.zeros(3, kind).tolist()
    for shape in (-1, (2, -1), (2**62, 8), (-5,)):
        with pytest.raises(ValueError, match="no array has the shape"):
            SharedArray(shape, "f4")
    assert SharedArray(np.array(3)).shape == ()
    with pytest.raises(TypeError, match="Python objects"):
        SharedArray([{}, None])


def test_a_read_only_view_of_a_shared_array_is_read_only_there(other: Peer):
    view = SharedArray((4,), "f8")[:]
    view.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        other(np.ndarray.fill, view, 1)


def test_views_keep_the_block_of_a_shared_array():
    gc.collect()
    before = ipc.stats()["blocks"]
    array = SharedArray((1000,), "f8")
    view = array[10:20]
    del array
    assert ipc.stats()["blocks"] == before + 1 and view.sum() == 0
    del view
    assert ipc.stats()["blocks"] == before


@pytest.mark.parametrize("cut", [0, 10, 39, 41, -1])
def test_damaged_messages_are_refused(cut):
    packed = ipc.pack_array(SharedArray((3, 3), "f8"), [])
    with pytest.raises(ValueError, match="describe no array"):
        ipc.unpack_array(packed[:cut])
