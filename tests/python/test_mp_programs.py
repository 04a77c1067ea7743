"""Programs that use shoal.multiprocessing, run as users run them: their main script, their variables, their end."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def program(tmp_path: Path, text: str, *arguments: str, **variables: str) -> str:
    """Runs a script; returns what it printed."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(text))
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, script, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_script_without_a_guard_is_not_run_again(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import sys
        import shoal.multiprocessing as mp
        print("script", flush=True)
        class Point:
            def __init__(self, x): self.x = x
        def double(point, out): out.send(Point(2 * point.x))
        reader, writer = mp.Pipe()
        process = mp.get_context(sys.argv[1]).Process(target=double, args=(Point(4), writer))
        process.start()
        answer = reader.recv()
        process.join()
        print(answer.x, type(answer) is Point, process.exitcode)
        """,
        method,
    )
    assert printed.split("\n") == ["script", "8 True 0", ""]


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_name_of_main_that_did_not_travel_runs_the_script_once(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import pickle, sys
        import shoal.multiprocessing as mp
        class Point:
            pass
        def load(data): print(type(pickle.loads(data)).__name__, flush=True)
        if __name__ == "__main__":
            process = mp.get_context(sys.argv[1]).Process(target=print, args=("nothing",))
            process.start(); process.join()
            process = mp.get_context(sys.argv[1]).Process(target=eval, args=("__import__('pickle').loads(data)", {"data": pickle.dumps(Point())}))
            process.start(); process.join()
            print(process.exitcode)
        else:
            print("again", __name__, flush=True)
        """,
        method,
    )
    assert printed.split("\n") == ["nothing", "again __mp_main__", "0", ""]


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_script_without_a_guard_that_has_to_run_again_is_an_error_and_no_recursion(
    method: str, tmp_path: Path
) -> None:
    printed = program(
        tmp_path,
        """
        import pickle, sys
        import shoal.multiprocessing as mp
        class Point:
            pass
        sys.stderr = sys.stdout
        process = mp.get_context(sys.argv[1]).Process(
            target=eval, args=("__import__('pickle').loads(data)", {"data": pickle.dumps(Point())}))
        process.start(); process.join()
        print(process.exitcode)
        """,
        method,
    )
    assert printed.count("worker processes were about to be started while") == 1, printed
    assert printed.endswith("\n1\n")


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_the_error_of_a_script_that_ran_again_says_why_it_had_to(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import sys, threading
        import shoal.multiprocessing as mp
        real = threading.Lock()
        def h():
            with real:
                pass
        sys.stderr = sys.stdout
        process = mp.get_context(sys.argv[1]).Process(target=h)
        process.start(); process.join()
        print(process.exitcode)
        """,
        method,
    )
    why = "'h', which is defined there and could not be sent (target.<global>.real: cannot pickle '_thread.lock' object): "
    assert printed.count(why) == 1, printed
    assert printed.endswith("\n1\n")


EVERY_METHOD = pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])


@EVERY_METHOD
@pytest.mark.parametrize("workers", ["Pool(1, begin, ('it',))", "Executor(1, ctx, begin, ('it',))"])
def test_tasks_see_what_the_initializer_has_set(workers: str, method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        f"""
        import sys
        from concurrent.futures import ProcessPoolExecutor as Executor
        import shoal.multiprocessing as mp
        name = None
        kept = {{}}
        class Kept: value = None
        def begin(value):
            global name
            name = kept["value"] = Kept.value = task.value = value
        def task(x): return x, name, kept.get("value"), Kept.value, task.value
        def other(x): return x, name, Kept.value
        if __name__ == "__main__":
            ctx = mp.get_context(sys.argv[1])
            Pool = ctx.Pool
            with {workers} as workers:
                print(*workers.map(task, [1]))
                print(*workers.map(other, [2]))
            print(name, kept, Kept.value, hasattr(task, "value"))
        """,
        method,
    )
    assert printed.split("\n") == ["(1, 'it', 'it', 'it', 'it')", "(2, 'it', 'it')", "None {} None False", ""]


@EVERY_METHOD
def test_tasks_see_what_other_tasks_have_set(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import functools, sys
        import shoal.multiprocessing as mp
        count = 0
        def add(_, by=1):
            global count
            count += by
            return count
        def look(_): return count, add(None)
        class Adder:
            def __init__(self, by): self.by = by
            def __call__(self, _): return add(None, self.by)
        if __name__ == "__main__":
            with mp.get_context(sys.argv[1]).Pool(1) as pool:
                print(pool.map(add, [0, 0]), pool.map(look, [0]), pool.map(lambda _: count, [0]), count)
                print(pool.map(functools.partial(add, by=10), [0]), pool.map(Adder(100), [0]), pool.map(add, [0]))
        """,
        method,
    )
    assert printed == "[1, 2] [(2, 3)] [3] 0\n[13] [113] [114]\n"


@EVERY_METHOD
def test_tasks_see_what_the_program_has_changed_since(method: str, tmp_path: Path) -> None:
    """As in a notebook, where a cell is changed and run again while the pool lives."""
    printed = program(
        tmp_path,
        """
        import sys
        import numpy as np
        import shoal.multiprocessing as mp
        limit = 1
        own = "program's"
        settings = {"rate": 1}
        array = np.zeros(3)
        steps = {}
        def step(x): return x + 1
        steps["step"] = step
        def task(x, more=0):
            global own
            own = "worker's"
            return step(x) + more, limit, settings["rate"], int(array[0]), steps["step"] is step
        def whose(_): return own
        if __name__ == "__main__":
            with mp.get_context(sys.argv[1]).Pool(1) as pool:
                print(*pool.map(task, [1]))
                first = step
                def step(x): return x + 2
                task.__defaults__ = (5,)
                limit, own, settings["rate"], array[:], steps["step"] = 2, "changed", 2, 2, step
                print(*pool.map(task, [1]), *pool.map(whose, [1]))
                step = steps["step"] = first
                print(*pool.map(task, [1]))
        """,
        method,
    )
    assert printed.split("\n") == ["(2, 1, 1, 0, True)", "(8, 2, 2, 2, True) worker's", "(7, 2, 2, 2, True)", ""]


@EVERY_METHOD
def test_functions_and_what_they_refer_to_stay_together(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import sys
        import shoal.multiprocessing as mp
        MISSING = object()
        class Node:
            kinds = {}
            def __init_subclass__(cls): Node.kinds[cls.__name__] = cls
        class Leaf(Node): pass
        def main(x): return x + 1
        def plus(x, default=MISSING): return main(x), default is MISSING, Node.kinds["Leaf"] is Leaf
        def first(x): return MISSING is None, Node.kinds["Leaf"] is Leaf
        def begin(): global begun; begun = True
        if __name__ == "__main__":
            with mp.get_context(sys.argv[1]).Pool(1, begin) as pool:
                print(pool.map(first, [0]), pool.map(plus, [0]), pool.map(first, [0]))
        """,
        method,
    )
    assert printed == "[(False, True)] [(1, True, True)] [(False, True)]\n"


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_script_that_runs_again_knows_what_the_initializer_has_set(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import sys
        import shoal.multiprocessing as mp
        name = None
        def begin(value):
            global name
            name = value
        def task(_): return name, cached()
        class Cached:
            def __call__(self):
                self.value = getattr(self, "value", name)
                return self.value
            def __reduce__(self): return "cached"  # by name
        cached = Cached()
        if __name__ == "__main__":
            with mp.get_context(sys.argv[1]).Pool(1, begin, ("it",)) as pool:
                print(pool.map(lambda _: name, [0]), pool.map(task, [0]), pool.map(begin, ["other"]), pool.map(task, [0]))
        """,
        method,
    )
    assert printed == "['it'] [('it', 'it')] [None] [('other', 'it')]\n"


@EVERY_METHOD
def test_what_cannot_travel_by_value_goes_by_its_name(method: str, tmp_path: Path) -> None:
    """As in CPython's processes: the process runs the script for it."""
    printed = program(
        tmp_path,
        """
        import ctypes, sys, threading
        import shoal.multiprocessing as mp
        lock = threading.Lock()
        library = ctypes.CDLL(None)
        pool = None
        class Single:
            lock = threading.Lock()
            def __init__(self, x): self.x = x
            def __eq__(self, other): return type(other) is Single and self.x == other.x
        class Search:
            def __init__(self, n): self.n = n
            def score(self, x): return x * self.n
            def run(self): return pool.map(self.score, [1, 2])  # the pool cannot be sent: a NotImplementedError
        def locked(x):
            with lock: return Single(library.abs(-x.x) + 1)
        def serve(inbox, pipe, outbox):
            outbox.put(locked(inbox.get()))
            outbox.put(locked(pipe.recv()))
        if __name__ == "__main__":
            ctx = mp.get_context(sys.argv[1])
            inbox, outbox, (reader, writer) = ctx.Queue(), ctx.Queue(), ctx.Pipe(duplex=False)
            process = ctx.Process(target=serve, args=(inbox, reader, outbox))
            process.start()
            inbox.put(Single(1)); writer.send(Single(2))
            print(outbox.get(timeout=60) == Single(2), outbox.get(timeout=60) == Single(3))
            process.join()
            with ctx.Pool(1) as pool:
                print(pool.map(locked, [Single(1)]) == [Single(2)], Search(3).run())
        """,
        method,
    )
    assert printed == "True True\nTrue [3, 6]\n"


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_threads_that_need_the_script_wait_for_one_run(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import sys, threading, time
        import shoal.multiprocessing as mp
        if __name__ == "__mp_main__":
            print("again", flush=True)
            time.sleep(0.5)  # in which the other thread asks
        class First: lock = threading.Lock()
        class Second: lock = threading.Lock()
        def serve(queues, outbox):
            threads = [threading.Thread(target=lambda queue=each: outbox.put(type(queue.get()).__name__)) for each in queues]
            [each.start() for each in threads]; [each.join() for each in threads]
        if __name__ == "__main__":
            ctx = mp.get_context(sys.argv[1])
            queues, outbox = [ctx.Queue(), ctx.Queue()], ctx.Queue()
            process = ctx.Process(target=serve, args=(queues, outbox))
            process.start()
            queues[0].put(First()); queues[1].put(Second())
            print(*sorted(outbox.get(timeout=60) for _ in range(2)))
            process.join()
        """,
        method,
    )
    assert printed == "again\nFirst Second\n"


@EVERY_METHOD
def test_functions_by_name_and_by_value_are_of_one_program(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import sys, threading
        import shoal.multiprocessing as mp
        lock = threading.Lock()
        value, table = None, {}
        class Item: pass
        def begin(): set_locked("begun"); table["key"] = 1
        def set_locked(new):
            global value
            with lock: value = new
        def set_value(new):
            global value
            value = new
        def look(item): return value, table.get("key"), isinstance(item, Item)
        def look_locked(item):
            with lock: return look(item)
        if __name__ == "__main__":
            ctx = mp.get_context(sys.argv[1])
            with ctx.Pool(1, begin) as pool:
                for change in None, set_locked, set_value:
                    if change: pool.apply(change, (change.__name__,))
                    print(*(pool.apply(each, (Item(),)) for each in (look, look_locked)))
            with ctx.Pool(1) as pool:
                print(*(pool.apply(each, (Item(),)) for each in (look, look_locked)))
        """,
        method,
    )
    assert printed.split("\n") == [
        "('begun', 1, True) ('begun', 1, True)",
        "('set_locked', 1, True) ('set_locked', 1, True)",
        "('set_value', 1, True) ('set_value', 1, True)",
        "(None, None, True) (None, None, True)",
        "",
    ]


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_what_cannot_be_sent_at_all_runs_no_script(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import sys, threading
        import shoal.multiprocessing as mp
        print("script", flush=True)
        def helper(): pass
        def task(_): return helper, threading.Lock()
        with mp.get_context(sys.argv[1]).Pool(1) as pool:
            try: pool.map(task, [0])
            except Exception as error: print(type(error).__name__, "_thread.lock" in str(error))
            lock = threading.Lock()
            try: pool.map(lambda _: lock, [0])
            except Exception as error: print(str(error).partition(":")[0])
        """,
        method,
    )
    assert printed == "script\nMaybeEncodingError True\nfunc.<global>.lock\n"


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
@pytest.mark.parametrize("way", ["path", "module"])
def test_pools_of_the_standard_library_in_a_process_find_the_script(way: str, method: str, tmp_path: Path) -> None:
    """A library's own processes, such as a DataLoader's."""
    text = """
import multiprocessing, pickle, sys
from concurrent.futures import ProcessPoolExecutor
import shoal.multiprocessing as mp
class Unsent: pass
def square(x): return x * x
def work(data):
    print(sys.argv[2] == "module" or __import__("__main__").__file__ == __file__, flush=True)
    for method in "spawn", "forkserver", "fork":
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool: print(*pool.map(square, [2, 3]), flush=True)
    print(type(pickle.loads(data)).__name__, flush=True)
if __name__ == "__main__":
    process = mp.get_context(sys.argv[1]).Process(target=work, args=(pickle.dumps(Unsent()),))
    process.start(); process.join()
    print(process.exitcode)
"""
    script = tmp_path / "a_script.py"
    script.write_text(text)
    how = [str(script)] if way == "path" else ["-m", "a_script"]
    done = subprocess.run([sys.executable, *how, method, way], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n4 9\n4 9\n4 9\nUnsent\n0\n", done.stdout + done.stderr


@EVERY_METHOD
def test_an_executor_has_one_class_of_a_name(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import sys
        from concurrent.futures import ProcessPoolExecutor
        import shoal.multiprocessing as mp
        class Base: pass
        class Derived(Base): pass
        def begin(): Base()
        def task(_): return issubclass(Derived, Base)
        if __name__ == "__main__":
            with ProcessPoolExecutor(1, mp_context=mp.get_context(sys.argv[1]), initializer=begin) as workers:
                print(*workers.map(task, [0]))
        """,
        method,
    )
    assert printed == "True\n"


@EVERY_METHOD
def test_what_a_worker_sends_back_changes_nothing_of_the_program(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import sys
        import shoal.multiprocessing as mp
        name = "program's"
        class Kind:
            count = 0
            def tell(self): return name
        class Wrong(Exception):
            def tell(self): return name
        def tell(): return name, extra
        def task(_):
            global name, extra
            name = extra = "worker's"
            Kind.count += 1
            return tell, Kind()
        def fail(_): raise Wrong
        def look(_): return name, Wrong().tell(), Kind.count
        if __name__ == "__main__":
            with mp.get_context(sys.argv[1]).Pool(1) as pool:
                [(back, kind)] = pool.map(task, [0])
                try: pool.map(fail, [0])
                except Wrong as error: print(error.tell())
                print(pool.map(look, [0]))
            print(back(), kind.tell(), Kind().tell(), Kind.count, type(kind) is Kind)
            name = "changed"
            print(name, "extra" in globals(), back is tell, kind.tell())
        """,
        method,
    )
    assert printed.split("\n") == [
        "program's",
        '[("worker\'s", "worker\'s", 1)]',
        "(\"worker's\", \"worker's\") program's program's 0 True",
        "changed False False changed",
        "",
    ]


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_launcher_variables_are_hidden_but_not_the_programs_own(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import os, sys
        import shoal.multiprocessing as mp
        os.environ["MASTER_ADDR"] = "localhost"; os.environ["WORLD_SIZE"] = "7"
        names = ("RANK", "OMPI_COMM_WORLD_RANK", "WORLD_SIZE", "MASTER_ADDR")
        def show(): print(*map(os.environ.get, names), flush=True)
        for depth in range(2):
            process = mp.get_context(sys.argv[1]).Process(target=show)
            process.start(); process.join()
        """,
        method,
        RANK="3",
        OMPI_COMM_WORLD_RANK="3",
        WORLD_SIZE="4",
    )
    assert printed == "None None 7 localhost\n" * 2


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_non_daemons_are_joined_at_exit_and_daemons_ended(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import sys, time
        import shoal.multiprocessing as mp
        def late(out):
            out.recv()
            print("joined", flush=True)
        ctx = mp.get_context(sys.argv[1])
        reader, writer = ctx.Pipe()
        ctx.Process(target=late, args=(reader,)).start()
        ctx.Process(target=time.sleep, args=(1000,), daemon=True).start()
        writer.send(1)
        """,
        method,
    )
    assert printed == "joined\n"


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_processes_end_after_a_killed_parent(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import os, signal, sys, time
        import shoal.multiprocessing as mp
        def parent_dies(out, method):
            child = mp.get_context(method).Process(target=time.sleep, args=(1000,))
            child.start()
            out.send(child.pid)
            time.sleep(1000)
        ctx = mp.get_context(sys.argv[1])
        reader, writer = ctx.Pipe()
        process = ctx.Process(target=parent_dies, args=(writer, sys.argv[1]))
        process.start()
        grandchild = os.pidfd_open(reader.recv())
        process.kill(); process.join()
        print(mp.connection.wait([grandchild], timeout=30) == [grandchild])
        """,
        method,
    )
    assert printed == "True\n"


@EVERY_METHOD
@pytest.mark.parametrize("own_file", [True, False])
def test_a_program_without_standard_streams_prints_into_nothing(own_file: bool, method: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import os, sys
            stdin = open(os.devnull)
            if {own_file}: own = open(sys.argv[2], "w")  # its descriptor is 1
            import shoal.multiprocessing as mp
            def task():
                print("printed", flush=True)
                if not {own_file}: os.write(1, b"written")
            if __name__ == "__main__":
                ctx = mp.get_context(sys.argv[1])
                queue = ctx.Queue()
                process = ctx.Process(target=task)
                process.start()
                process.join()
                queue.put("through the heap")
                with open(sys.argv[3], "w") as file:
                    print(process.exitcode, queue.get(timeout=30), os.get_inheritable(2), file=file)
            """
        )
    )
    own, told = tmp_path / "own", tmp_path / "told"
    own.touch()
    command = [sys.executable, script, method, own, told]
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]
    assert subprocess.run(closed, timeout=60).returncode == 0
    assert told.read_text() == "0 through the heap True\n"
    assert own.read_text() == ""


def test_a_fork_whose_end_nobody_collects_starts(tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import contextlib, os, signal
        import shoal.multiprocessing as mp
        def wait_for_its_end():
            with contextlib.suppress(ChildProcessError): os.waitpid(-1, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.register_at_fork(after_in_parent=wait_for_its_end)
        ctx = mp.get_context("fork")
        queue = ctx.Queue()
        process = ctx.Process(target=queue.put, args=("ran",))
        process.start()
        process.join()
        print(queue.get(timeout=30))
        """,
    )
    assert printed == "ran\n"
