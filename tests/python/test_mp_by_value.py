"""What a script defines arrives whole in its processes, though they do not run it: enums, classes with slots, caches."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.multiprocessing.queues import SimpleQueue
from test_mp_programs import EVERY_METHOD, program

FRESH = pytest.mark.parametrize("method", ["forkserver", "spawn"])


@EVERY_METHOD
def test_members_of_an_enum_have_what_their_class_has_set_on_them(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import enum, sys
        import shoal.multiprocessing as mp
        class Planet(enum.Enum):
            EARTH = (5.0, 2.0)
            MARS = (1.0, 1.0)
            def __init__(self, mass, radius): self.density = mass / radius
        class Labelled(enum.Enum):
            def __new__(cls, label):
                member = object.__new__(cls)
                member._value_ = len(cls.__members__)
                member.label = label
                return member
            def __init__(self, label): self.twice = 2 * label
        class Letter(Labelled):
            A = "a"
            B = "b"
        class Code(bytes, enum.Enum):
            def __new__(cls, number, label):
                member = bytes.__new__(cls, [number])
                member._value_ = number
                member.label = label
                return member
            X = (7, "x")
        Letter.A.other, Letter.A.kind = Letter.B, Letter
        def task(planet):
            return (planet.density, planet is Planet.EARTH, Letter.B.label, Letter.B.twice, Letter.B.value,
                    Letter.A.other is Letter.B, Letter.A.kind is Letter, bytes(Code.X), Code.X.label, Code(7) is Code.X)
        def count(member): member.count = getattr(member, "count", 0) + 1; return member.count
        if __name__ == "__main__":
            with mp.get_context(sys.argv[1]).Pool(1) as pool:
                print(*pool.apply(task, (Planet.EARTH,)))
                print(pool.apply(lambda: Planet.MARS) is Planet.MARS, [pool.apply(count, (Letter.A,)) for _ in range(2)])
        """,
        method,
    )
    assert printed == "2.5 True b bb 1 True True b'\\x07' x True\nTrue [1, 2]\n"


@EVERY_METHOD
def test_enums_have_their_aliases_data_and_metaclass(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import datetime, enum, sys
        import shoal.multiprocessing as mp
        class Color(enum.Enum):
            RED = 1
            CRIMSON = 1
        class Access(enum.IntFlag):
            R, W = 4, 2
            RW = R | W
        class Pair(tuple, enum.Enum): A = (1, 2)
        class Day(datetime.date, enum.Enum): NEW_YEAR = (2020, 1, 1)
        class Meta(enum.EnumMeta):
            def first(cls): return next(iter(cls))
        class Mode(str, enum.Enum, metaclass=Meta):
            FAST = "fast"
        def task():
            return (Color["CRIMSON"] is Color.RED, list(Color.__members__), Access.RW is Access(6), int(~Access.R & Access.RW),
                    Pair.A[1], Day.NEW_YEAR.year, Mode.first() is Mode.FAST, Mode.FAST + "er")
        if __name__ == "__main__":
            with mp.get_context(sys.argv[1]).Pool(1) as pool: print(pool.apply(task) == task(), pool.apply(task))
        """,
        method,
    )
    assert printed == "True (True, ['RED', 'CRIMSON'], True, 2, 2, 2020, True, 'faster')\n"


@EVERY_METHOD
def test_classes_with_slots_have_them_and_come_back(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import dataclasses, sys
        import shoal.multiprocessing as mp
        class Base:
            __slots__ = ("a", "__hidden")
            def __init__(self): self.a = self.__hidden = 1
            def hidden(self): return self.__hidden
        class Derived(Base):
            __slots__ = "b"
            def __init__(self): super().__init__(); self.b = 2
        class Open(Base): pass
        class Both:
            __slots__ = {"a": "documented", "__dict__": "", "__weakref__": ""}
            def __init__(self): self.a = self.more = 3
        @dataclasses.dataclass(slots=True)
        class Data: a: int = 4
        @dataclasses.dataclass(frozen=True, slots=True)
        class Frozen: a: int = 5
        kinds = [Base, Derived, Open, Both, Data, Frozen]
        def make(index): return kinds[index]()
        def look(instance): return instance.a, hasattr(instance, "__dict__"), type(instance).__slots__
        def hidden(): return Derived().hidden(), Derived().b
        if __name__ == "__main__":
            with mp.get_context(sys.argv[1]).Pool(1) as pool:
                back = pool.map(make, range(len(kinds)))
                print([type(each) is kind and look(each) == look(kind()) for each, kind in zip(back, kinds)])
                print([pool.apply(look, (kind(),)) == look(kind()) for kind in kinds], pool.apply(hidden))
        """,
        method,
    )
    assert printed == f"{[True] * 6}\n{[True] * 6} (1, 2)\n"


@EVERY_METHOD
def test_named_tuples_of_typing_travel(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import sys, typing
        import shoal.multiprocessing as mp
        class Point(typing.NamedTuple):
            x: int
            y: int = 2
            def area(self): return self.x * self.y
        class Derived(Point): pass
        def local():
            class Local(typing.NamedTuple): a: int
            return Local
        def back(x): return Point(x)
        def annotated(point: Point) -> int: return point.area()
        def put(queue): queue.put(Point(5))
        if __name__ == "__main__":
            ctx = mp.get_context(sys.argv[1])
            with ctx.Pool(1) as pool:
                print(pool.apply(back, (3,)) == Point(3), type(pool.apply(back, (3,))) is Point)
                print(pool.apply(annotated, (Point(4),)), pool.apply(Derived.area, (Derived(2, 3),)))
                print(pool.apply(lambda local: local.a, (local()(6),)))
            queue = ctx.Queue()
            process = ctx.Process(target=put, args=(queue,))
            process.start()
            process.join()
            print(process.exitcode, queue.get(timeout=30))
        """,
        method,
    )
    assert printed == "True True\n8 6\n6\n0 Point(x=5, y=2)\n"


@FRESH
@pytest.mark.parametrize("guard", [True, False])
def test_caches_of_functools_travel_and_run_no_script(guard: bool, method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        f"""
        import functools, sys
        import shoal.multiprocessing as mp
        print("script", flush=True)
        offset = 0
        class Data:
            @functools.cached_property
            def number(self): return 3
        @functools.lru_cache(maxsize=100)
        def fib(n):
            "of Fibonacci"
            return n if n < 2 else fib(n - 1) + fib(n - 2)
        fib.unit = "rabbits"
        @functools.cache
        def shifted(x): return x + offset
        def begin():
            global offset
            offset = 10
        def task(_): return Data().number, fib(30), fib.__doc__, fib.unit, fib.cache_parameters()["maxsize"], shifted(1)
        if {guard} <= (__name__ == "__main__"):
            with mp.get_context(sys.argv[1]).Pool(1, begin) as pool:
                print(pool.map(task, [0]), pool.map(fib, [10]), pool.map(shifted, [2]), pool.apply(fib.cache_info).misses)
                print(type(pool.apply(Data)) is Data)
        """,
        method,
    )
    assert printed == "script\n[(3, 832040, 'of Fibonacci', 'rabbits', 100, 11)] [55] [12] 0\nTrue\n"


def test_a_cached_function_that_is_called_keeps_its_cache(tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import functools, os
        import shoal.multiprocessing as mp
        @functools.cache
        def count(x): calls.append(x); return len(calls)
        calls = []
        if __name__ == "__main__":
            with mp.Pool(1) as pool: print(*(pool.apply(count, (x,)) for x in (0, 0, 1, 0)))
        """,
    )
    assert printed == "1 1 2 1\n"


@FRESH
def test_a_program_from_stdin_has_caches_and_is_told_at_once_of_what_needs_a_script(method: str) -> None:
    text = f"""
import functools, threading
import shoal.multiprocessing as mp
lock = threading.Lock()
@functools.cache
def double(x): return 2 * x
def locked():
    with lock: pass
try: mp.SimpleQueue().put(locked)
except TypeError as error: print(str(error)[:24])
with mp.get_context("{method}").Pool(1) as pool: print(pool.map(double, [3]), pool.map(lambda x: double(x), [4]))
"""
    done = subprocess.run([sys.executable, "-"], input=text, capture_output=True, text=True, timeout=60)
    assert done.stdout == "object.<global>.lock: ca\n[6] [8]\n", done.stderr


def test_arrays_of_ctypes_are_refused_where_they_are_put() -> None:
    queue = SimpleQueue()
    with pytest.raises(TypeError, match="c_int_Array_3', an array type of ctypes"):
        queue.put((ctypes.c_int * 3)())
    assert queue.empty()
