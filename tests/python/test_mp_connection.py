"""shoal.multiprocessing's Pipe, Connection and wait()."""

from __future__ import annotations

import array
import multiprocessing
import os
import pickle
import select
import threading
from multiprocessing import BufferTooShort
from multiprocessing import connection as cpython_connection

import pytest

from shoal.errors import Error
from shoal.multiprocessing import connection
from shoal.multiprocessing.connection import Connection, Pipe, wait
from shoal.multiprocessing.queues import Queue

FOREVER = 60.0
fork = multiprocessing.get_context("fork")


pytestmark = pytest.mark.usefixtures("balanced_heap")


def test_objects_and_bytes_both_ways() -> None:
    a, b = Pipe()
    a.send([1, None, {"x": 2.5}])
    b.send("back")
    assert b.recv() == [1, None, {"x": 2.5}] and a.recv() == "back"
    a.send_bytes(b"0123456789", 2, 5)
    a.send_bytes(array.array("i", [1, 2]))
    a.send_bytes(b"x" * 2**20)
    assert b.recv_bytes() == b"23456"
    assert b.recv_bytes() == array.array("i", [1, 2]).tobytes()
    assert len(b.recv_bytes()) == 2**20


def test_a_pipe_of_one_direction() -> None:
    reader, writer = Pipe(duplex=False)
    assert (reader.readable, reader.writable, writer.readable, writer.writable) == (True, False, False, True)
    writer.send(1)
    assert reader.recv() == 1
    with pytest.raises(OSError, match="read-only"):
        reader.send(2)
    with pytest.raises(OSError, match="read-only"):
        reader.send_bytes(b"2")
    for call in (writer.recv, writer.recv_bytes, writer.poll):
        with pytest.raises(OSError, match="write-only"):
            call()


def test_bytes_and_objects_mix_as_pickles() -> None:
    a, b = Pipe()
    a.send((1, 2))
    assert pickle.loads(b.recv_bytes()) == (1, 2)
    a.send_bytes(pickle.dumps([3]))
    assert b.recv() == [3]


def test_receiving_into_a_buffer() -> None:
    a, b = Pipe()
    buffer = bytearray(10)
    a.send_bytes(b"abc")
    assert b.recv_bytes_into(buffer, 2) == 3 and buffer == b"\0\0abc" + bytes(5)
    numbers = array.array("i", [0] * 4)
    a.send_bytes(array.array("i", [7]))
    assert b.recv_bytes_into(numbers, 2 * numbers.itemsize) == numbers.itemsize and list(numbers) == [0, 0, 7, 0]
    a.send_bytes(b"too long a message")
    with pytest.raises(BufferTooShort) as caught:
        b.recv_bytes_into(buffer)
    assert caught.value.args == (b"too long a message",)
    with pytest.raises(ValueError, match="negative offset"):
        b.recv_bytes_into(buffer, -1)
    with pytest.raises(ValueError, match="offset too large"):
        b.recv_bytes_into(buffer, 11)


def test_a_message_longer_than_allowed() -> None:
    reader, writer = Pipe(duplex=False)
    with pytest.raises(ValueError, match="negative maxlength"):
        reader.recv_bytes(-1)
    writer.send_bytes(b"12345")
    assert reader.recv_bytes(5) == b"12345"
    writer.send_bytes(b"123456")
    with pytest.raises(OSError, match="bad message length"):
        reader.recv_bytes(5)
    assert reader.closed


@pytest.mark.parametrize("arguments", [(b"abc", -1), (b"abc", 4), (b"abc", 0, -1), (b"abc", 1, 3)])
def test_wrong_arguments_of_send_bytes(arguments: tuple) -> None:
    with pytest.raises(ValueError):
        Pipe()[0].send_bytes(*arguments)


def test_the_end_of_the_other_end() -> None:
    a, b = Pipe()
    a.send("last")
    a.close()
    a.close()
    assert a.closed and not b.closed
    assert b.poll() and b.recv() == "last"
    assert b.poll(FOREVER)
    for call in (b.recv, b.recv_bytes):
        with pytest.raises(EOFError):
            call()
    with pytest.raises(BrokenPipeError):
        b.send(1)
    for call in (a.recv, a.poll, a.fileno, lambda: a.send(1), lambda: a.send_bytes(b"")):
        with pytest.raises(OSError, match="closed"):
            call()


def test_a_close_ends_a_wait_in_another_thread() -> None:
    a, b = Pipe()
    ended = threading.Event()

    def receive() -> None:
        with pytest.raises(EOFError):
            b.recv()
        ended.set()

    thread = threading.Thread(target=receive)
    thread.start()
    a.close()
    assert ended.wait(FOREVER)
    thread.join()


def test_poll() -> None:
    a, b = Pipe()
    assert not b.poll() and not b.poll(0.01) and not b.poll(-1)
    a.send(1)
    assert b.poll() and b.poll(None) and b.poll(FOREVER)
    assert b.recv() == 1 and not b.poll()


def test_with_closes() -> None:
    with Pipe()[0] as a:
        assert isinstance(a, Connection)
    assert a.closed


def test_a_connection_crosses_a_connection_and_is_held_meanwhile() -> None:
    a, b = Pipe()
    c, d = Pipe()
    a.send(c)
    c.close()
    d.send("through")
    assert not d.poll()
    received = b.recv()
    assert received.recv() == "through"
    received.close()
    with pytest.raises(EOFError):
        d.recv()


def test_wait_finds_those_that_are_ready() -> None:
    a, b = Pipe()
    c, d = Pipe()
    r, w = os.pipe()
    queue = Queue()
    assert wait([b, d, r], 0) == [] and wait([b, d, r], 0.01) == []
    a.send(1)
    assert wait([b, d, r, queue._reader]) == [b]
    os.write(w, b"x")
    queue.put(1)
    found = wait([d, b, r])
    assert set(map(id, found)) == {id(b), id(r)}
    b.recv()
    c.close()
    assert wait([b, d]) == [d]
    os.close(r), os.close(w)


def test_wait_needs_no_descriptor_of_a_queue() -> None:
    queue, carrier = Queue(), Queue()
    for _ in range(17):
        carrier.put(queue)
    *others, last = [carrier.get() for _ in range(17)]
    for other in others:
        other.fileno()
    with pytest.raises(Error, match="16 processes wait for the descriptor"):
        last.fileno()
    assert wait([last], 0.02) == []
    queue.put(1)
    assert wait([last]) == [last]
    del others, other
    assert isinstance(last.fileno(), int)  # those that are gone have left their places


def test_other_selectors_find_them_too() -> None:
    a, b = Pipe()
    assert cpython_connection.wait([b], 0) == []
    a.send(1)
    a.send(2)
    assert cpython_connection.wait([b], FOREVER) == [b]
    b.recv()
    assert cpython_connection.wait([b], FOREVER) == [b]
    b.recv()
    assert cpython_connection.wait([b], 0) == []
    a.close()
    assert select.select([b.fileno()], [], [], FOREVER)[0]


def test_what_is_not_ours_is_cpythons() -> None:
    assert connection.Listener is cpython_connection.Listener and connection.Client is cpython_connection.Client
    with pytest.raises(AttributeError, match="nothing"):
        connection.nothing  # noqa: B018


@pytest.mark.own_process
def test_an_echo_in_another_process() -> None:
    a, b = Pipe()

    def echo() -> None:
        a.close()
        while (obj := b.recv()) is not None:
            b.send(obj)

    child = fork.Process(target=echo)
    child.start()
    b.close()
    for obj in (1, "x" * 10_000, [None, b"y" * 2**20], {"k": (1, 2)}):
        a.send(obj)
        assert a.recv() == obj
    a.send(None)
    with pytest.raises(EOFError):
        a.recv()
    child.join()


@pytest.mark.own_process
def test_the_death_of_the_other_end_is_its_end() -> None:
    a, b = Pipe()

    def die() -> None:
        a.close()
        b.send("ready")
        b.recv()

    child = fork.Process(target=die)
    child.start()
    b.close()
    assert a.recv() == "ready"
    child.kill()
    with pytest.raises(EOFError):
        a.recv()
    assert wait([a], FOREVER) == [a]
    with pytest.raises(BrokenPipeError):
        a.send(1)
    child.join()


@pytest.mark.own_process
def test_what_was_sent_before_a_death_arrives() -> None:
    a, b = Pipe()

    def send_and_die() -> None:
        for i in range(100):
            b.send((i, b"x" * (i * 100)))
        os.kill(os.getpid(), 9)

    child = fork.Process(target=send_and_die)
    child.start()
    b.close()
    child.join()
    assert [a.recv()[0] for _ in range(100)] == list(range(100))
    with pytest.raises(EOFError):
        a.recv()


# --- those who poll descriptors by themselves


@pytest.mark.parametrize("look", ["connection.wait", "select"])
def test_a_killed_end_is_seen_by_those_who_poll_by_themselves(look: str) -> None:
    a, b = Pipe()
    reader, writer = os.pipe()  # as a sentinel beside it, which does not tell
    peer = fork.Process(target=os.read, args=(reader, 1))
    peer.start()
    b.close()
    fds = [a, reader]
    a.fileno()
    os.kill(peer.pid, 9)
    if look == "select":
        poll = select.poll()
        for each in fds:
            poll.register(each, select.POLLIN)
        assert [fd for fd, _ in poll.poll(FOREVER * 1000)] == [a.fileno()]
    else:
        assert cpython_connection.wait(fds, FOREVER) == [a]
    with pytest.raises(EOFError):
        a.recv()
    a.close()
    peer.join()
    os.close(reader)
    os.close(writer)


def test_the_thread_that_looks_for_killed_ends_goes_with_what_it_looks_at() -> None:
    a, b = Pipe()
    a.fileno()
    assert connection._watch._runs
    a.close()
    b.close()
    end = threading.Event()
    while connection._watch._runs:
        end.wait(0.01)
