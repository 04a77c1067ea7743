"""The model service in Python: what is asked and answered, and how it fails."""

from __future__ import annotations

import copy
import math
import pickle
import re
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
import shoal.multiprocessing as mp
from served_models import MODELS, batch_size, double, linear, picky, pid
from shoal._learn import RunDirectory
from shoal.errors import DeadlineExceeded, ModelError, OverCapacity
from shoal.ipc.pickling import PicklingError
from shoal.serve.client import ServiceModel

pytestmark = pytest.mark.keeps_processes


@pytest.fixture(scope="module", params=["auto", "thread"])
def service(request: pytest.FixtureRequest) -> Iterator[shoal.ModelService]:
    with shoal.ModelService(MODELS, max_batch=8, context=request.param) as service:
        yield service


def tenfold(x: Any) -> Any:
    """Writes to its rows, and then fails on a negative one."""
    x *= 10
    return picky(x) - 1


def limit_of_files(x: np.ndarray) -> np.ndarray:
    return np.full(len(x), resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def answers(model: ServiceModel, *rows: float) -> list[float | None]:
    """To a batch of these rows; None for one that the model failed on."""
    made: list[float | None] = []
    for reply in [model.submit(float(row)) for row in rows]:
        try:
            made.append(float(reply.result()))
        except ModelError:
            made.append(None)
    return made


class TestAnswers:
    def test_a_row_in_a_row_out(self, service: shoal.ModelService) -> None:
        answer = service.model("double")(np.arange(6.0).reshape(2, 3))
        np.testing.assert_array_equal(answer, 2 * np.arange(6.0).reshape(2, 3))
        assert answer.dtype == np.float64

    def test_a_batch_larger_than_max_batch(self, service: shoal.ModelService) -> None:
        rows = np.arange(40, dtype=np.int32).reshape(20, 2)
        np.testing.assert_array_equal(service.model("double").batch(rows), rows * 2)

    def test_rows_of_other_shapes_and_dtypes(self, service: shoal.ModelService) -> None:
        model = service.model("double")
        for row in (np.float32(2), np.zeros(0), np.arange(5, dtype=np.uint8), [1, 2], 3):
            answer = model(row)
            np.testing.assert_array_equal(answer, np.asarray(row) * 2)
            assert answer.dtype == np.asarray(row).dtype

    def test_arrays_that_are_not_contiguous(self, service: shoal.ModelService) -> None:
        rows = np.arange(12.0).reshape(3, 4)
        np.testing.assert_array_equal(service.model("double")(rows.T), 2 * rows.T)

    def test_threads_have_connections_of_their_own(self, service: shoal.ModelService) -> None:
        model = service.model("double")
        wrong: list[Any] = []

        def ask(first: int) -> None:
            wrong.extend(i for i in range(first, first + 100) if model(float(i)) != 2 * i)

        threads = [threading.Thread(target=ask, args=(1000 * t,)) for t in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_a_handle_can_be_pickled(self, service: shoal.ModelService) -> None:
        model = pickle.loads(pickle.dumps(service.model("double")))
        assert isinstance(model, ServiceModel)
        assert model(2) == 4

    def test_statistics(self, service: shoal.ModelService) -> None:
        before = service.stats()["double"]
        service.model("double").batch(np.zeros((16, 3)))
        after = service.stats()["double"]
        assert after["rows"] - before["rows"] == 16
        assert after["latency"]["count"] == after["rows"]
        assert 0 < after["latency"]["p50"] <= after["latency"]["p99"] <= after["latency"]["max"]
        assert after["padding_waste"] == 0


class TestStructures:
    def test_tuples_and_dicts_in_and_out(self) -> None:
        def both(pair: Any, scale: Any, named: Any) -> Any:
            left, right = pair
            return {"sum": (left + right) * scale[:, None], "parts": (named["a"], [left, right])}

        left, right = np.arange(3.0), np.ones(3)
        with shoal.ModelService({"both": both}, context="thread") as service:
            answer = service.model("both")(
                (left, right), scale=np.float64(2), named={"a": np.arange(4, dtype=np.int16)}
            )
        np.testing.assert_array_equal(answer["sum"], [2.0, 4.0, 6.0])
        assert list(answer) == ["sum", "parts"]
        a, parts = answer["parts"]
        np.testing.assert_array_equal(a, np.arange(4))
        assert isinstance(parts, list)
        np.testing.assert_array_equal(parts[0], left)

    def test_an_answer_whose_keys_come_in_another_order(self) -> None:
        def turning(x: np.ndarray) -> dict[str, Any]:
            pair = {"score": x, "risk": (-x, {"a": x + 1, "b": x + 2})}
            if x[0] < 0:
                pair["risk"] = (-x, {"b": x + 2, "a": x + 1})
                pair = {"risk": pair["risk"], "score": pair["score"]}
            return pair

        with shoal.ModelService({"turning": turning}, context="thread") as service:
            model = service.model("turning")
            for row in (5.0, -5.0, 5.0):
                answer = {"score": row, "risk": (-row, {"a": row + 1, "b": row + 2})}
                assert model(row) == answer
                assert model.submit(row).result() == answer

    def test_an_answer_that_is_nested_otherwise_than_the_first_is_the_models_error(self) -> None:
        x = np.ones(1)
        answers = [{"a": x, "b": x}, {"a": x, "c": x}, (x, x), [x, x], {"a": {"b": x}, "b": x}, {"a": x, "b": x}]
        first, *others, last = answers
        queue = iter([first, first, *others, last])  # the first row of a kind is asked twice
        with shoal.ModelService({"odd": lambda x: next(queue)}, context="thread") as service:
            model = service.model("odd")
            assert model(0.0) == {"a": 1, "b": 1}
            for found in (
                r"a dict of \{'a': an array, 'c': an array\}",
                r"a tuple of \(an array, an array\)",
                r"a list of \(an array, an array\)",
                r"a dict of \{'a': a dict of \{'b': an array\}, 'b': an array\}",
            ):
                wanted = r"a dict of \{'a': an array, 'b': an array\}"
                with pytest.raises(ModelError, match=f"answer is {found}, where its first .* was {wanted}"):
                    model(0.0)
            assert model(0.0) == {"a": 1, "b": 1}

    def test_a_function_that_needs_keywords_is_a_model(self) -> None:
        def keywords(*, image: Any, scale: Any) -> Any:
            return image * scale

        def anything(**named: Any) -> Any:
            return sum(named.values())

        def made(scale: float = 2.0, *, more: float = 3.0) -> Any:
            return lambda image: image * scale * more

        models = {"keywords": keywords, "anything": anything, "made": made}
        with shoal.ModelService(models, context="thread") as service:
            assert service.model("keywords")(image=2.0, scale=3.0) == 6
            assert service.model("anything")(image=2.0, scale=3.0) == 5
            assert service.model("made")(image=2.0) == 12


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


FAILURES = {
    1: ValueError("caf\udce9"),
    2: Mute(),
    3: ValueError("the picture is too small\nsee the manual, page 3"),
    4: ValueError("é" * 10_000),
    5: KeyError(),
}


def failing(x: Any) -> Any:
    if int(x[0]) in FAILURES:
        raise FAILURES[int(x[0])]
    return x


class TestFailures:
    @pytest.mark.parametrize(
        ("row", "message"),
        [
            (1, r"ValueError: caf\udce9"),
            (2, "Mute: <str() of the exception raised RuntimeError>"),
            (3, "ValueError: the picture is too small\nsee the manual, page 3"),
            (5, "KeyError"),
        ],
    )
    def test_the_whole_text_of_a_failure_is_told_of_any_row(self, row: int, message: str) -> None:
        shoal.serve.use({"failing": failing})
        try:
            with shoal.ModelService({"failing": failing}) as service:
                model = service.model("failing")
                for other in (0, 0.0):  # the latter as the first of its kind
                    if isinstance(other, int):
                        assert model(other) == 0
                    with pytest.raises(ModelError) as caught:
                        model(type(other)(row))
                    assert str(caught.value) == message
                    assert "in failing" in caught.value.traceback
                assert model(0) == 0
            with pytest.raises(ModelError) as caught:
                shoal.worker().model("failing")(row)
            assert str(caught.value) == message
        finally:
            shoal.serve.use(None)

    def test_a_long_text_is_cut_between_two_characters(self) -> None:
        with shoal.ModelService({"failing": failing}) as service:
            model = service.model("failing")
            assert model(0) == 0
            with pytest.raises(ModelError, match="^ValueError: é+$") as caught:
                model(4)
            assert caught.value.traceback.endswith("é")

    def test_a_poisoned_row_fails_alone(self, service: shoal.ModelService) -> None:
        model = service.model("picky")
        replies = [model.submit(float(x)) for x in (1, -1, 2)]
        assert replies[0].result() == 2
        assert replies[2].result() == 3
        with pytest.raises(ModelError, match="ValueError: a negative row") as caught:
            replies[1].result()
        assert "served_models.py" in caught.value.traceback

    @pytest.mark.parametrize("context", ["auto", "thread"])
    def test_a_model_that_writes_to_its_rows_and_fails_is_asked_again_for_what_was_sent(self, context: str) -> None:
        with shoal.ModelService({"tenfold": tenfold}, max_delay=3600.0, context=context) as service:
            model = service.model("tenfold")
            assert model(7.0) == 70
            for _ in range(2):
                assert answers(model, 1, -1, 2) == [10, None, 20]

    def test_numpy_writes_to_no_row_before_it_is_known_whether_a_model_fails(self) -> None:
        with shoal.ModelService({"tenfold": tenfold}, max_delay=3600.0) as service:
            model = service.model("tenfold")
            assert model(0.0) == 0  # it has written to this example what was there
            assert answers(model, 1, -1, 2) == [10, None, 20]
            assert answers(model, 1, 3, 2) == [10, 30, 20]

    def test_a_module_that_writes_to_its_rows_and_fails_is_asked_again_for_what_was_sent(self) -> None:
        torch = pytest.importorskip("torch")

        class Tenfold(torch.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, x: Any) -> Any:
                return tenfold(x)

        with shoal.ModelService({"tenfold": Tenfold()}, max_delay=3600.0, context="thread") as service:
            model = service.model("tenfold")
            assert model(7.0) == 70
            for _ in range(2):
                assert answers(model, 1, -1, 2) == [10, None, 20]

    def test_rows_are_copied_only_for_a_model_that_may_spoil_them(self) -> None:
        def owned(x: np.ndarray) -> np.ndarray:
            return picky(x) * 0 + x.flags.owndata

        with shoal.ModelService({"owned": owned}, max_delay=3600.0) as service:
            model = service.model("owned")
            model(0.0)
            assert answers(model, 1, 2) == [0, 0]
            assert answers(model, 1, -1) == [1, None]
            assert answers(model, 1, 2) == [1, 1]

    def test_a_model_that_fails_on_the_first_row(self, service: shoal.ModelService) -> None:
        with pytest.raises(ModelError, match="ValueError: a negative row") as caught:
            service.model("picky")(np.full(7, -1.0))
        assert "in picky" in caught.value.traceback
        assert service.model("picky")(np.zeros(7)).sum() == 7

    def test_an_unknown_model_is_named(self, service: shoal.ModelService) -> None:
        with pytest.raises(ValueError, match="no model 'other'; it has double, pid"):
            service.model("other")

    def test_rows_of_objects_are_refused(self, service: shoal.ModelService) -> None:
        with pytest.raises(ValueError, match="object"):
            service.model("double")(np.array([object()]))

    def test_the_deadline_of_a_request(self) -> None:
        gate, entered = threading.Event(), threading.Event()

        def slow(x: np.ndarray) -> np.ndarray:
            if (x == 1).any():
                entered.set()
                gate.wait(60)
            return x

        with shoal.ModelService({"slow": slow}, context="thread", max_batch=2) as service:
            model = service.model("slow")
            model(0)
            running = model.submit(1)
            assert entered.wait(60)
            with pytest.raises(DeadlineExceeded) as caught:
                model(2, timeout=0.01)
            assert isinstance(caught.value, TimeoutError)
            waiting = [model.submit(3)]  # beside the one whose deadline has passed
            with pytest.raises(OverCapacity):
                model.submit(4, wait=False)
            gate.set()
            assert running.result() == 1
            assert waiting[0].result() == 3
            assert service.stats()["slow"]["expired_rows"] + service.stats()["slow"]["dropped_rows"] == 1

    def test_a_model_whose_answer_changes_its_shape(self) -> None:
        shapes = iter([(1, 2), (1, 3)])
        with shoal.ModelService({"odd": lambda x: np.zeros(next(shapes))}, context="thread") as service:
            with pytest.raises(
                ModelError, match=r"float64\[3\] a row, where its first answer to such rows was float64\[2\]"
            ):
                service.model("odd")(0)

    def test_an_answer_without_rows(self) -> None:
        with shoal.ModelService({"sum": lambda x: x.sum()}, context="thread") as service:
            with pytest.raises(ModelError, match="the first dimension of an answer is the rows"):
                service.model("sum")(np.zeros(3))

    def test_an_answer_that_cannot_cross_is_the_models_error(self) -> None:
        models = {"objects": lambda x: np.full(len(x), None), "double": double}
        with shoal.ModelService(models, context="thread") as service:
            for _ in range(2):
                with pytest.raises(ModelError, match='the element type "object" is not one of'):
                    service.model("objects")(1.0)
            assert service.model("double")(1.0) == 2

    def test_an_answer_of_too_few_rows_after_good_ones(self) -> None:
        answers = iter([np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((0, 2)), np.zeros((0, 2))])
        with shoal.ModelService({"few": lambda x: next(answers)}, context="thread") as service:
            assert service.model("few")(0).shape == (2,)
            with pytest.raises(ModelError, match=r"a batch of 1 rows with an array of shape \(0, 2\)"):
                service.model("few")(0)

    def test_more_arrays_in_a_call_or_an_answer_than_there_may_be(self) -> None:
        with shoal.ModelService(
            {"many": lambda x: dict.fromkeys(range(300), x), "double": double}, context="thread"
        ) as service:
            kept = service.model("double").submit(1.0)
            with pytest.raises(
                ModelError, match="answer to a row has 300 arrays, and a model service takes 256 at most"
            ):
                service.model("many")(1.0)
            with pytest.raises(
                ValueError, match="a row of a call has 300 arrays, and a model service takes 256 at most"
            ):
                service.model("double")(dict.fromkeys(range(300), 1.0))
            assert kept.result() == 2

    def test_a_batch_of_more_rows_than_may_be_in_flight(self) -> None:
        with shoal.ModelService({"double": double}, context="thread") as service:
            assert service.model("double").batch(np.zeros(4096)).shape == (4096,)
            with pytest.raises(OverCapacity, match="5000 rows .* 4096 may be: make several calls of fewer rows"):
                service.model("double").batch(np.zeros(5000))

    def test_a_server_has_as_many_descriptors_as_it_may(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        try:
            with shoal.ModelService({"limit": limit_of_files}) as service:
                assert service.model("limit")(0.0) == wanted
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def test_rows_too_large_for_the_memory_name_the_remedy(self) -> None:
        with shoal.ModelService({"double": double}, context="thread", max_batch=2**20) as service:
            with pytest.raises(ModelError, match="a smaller max_batch of a model service"):
                service.model("double")(np.zeros(2**22, np.uint8))

    def test_a_service_is_not_pickled_and_says_what_is(self, service: shoal.ModelService) -> None:
        for copies in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match=r"send service\.model\(name\)"):
                copies(service)

    def test_a_service_that_is_sent_to_a_process_says_what_is(self, service: shoal.ModelService) -> None:
        text = (
            r"a ModelService belongs to the process that made it, and cannot be pickled: send service\.model\(name\), [^.]*"
            r"WorkerOptions\(models=service\)$"
        )
        with pytest.raises(PicklingError, match=rf"^args\[0\]: {text}"):
            mp.Process(target=print, args=(service,)).start()
        with pytest.raises(PicklingError, match=rf"^env\.<closure>\.service: {text}"):
            shoal.make_vec(lambda: service, 1, num_workers=1)

    def test_an_error_whose_text_is_no_utf8_is_told_all_the_same(self) -> None:
        with pytest.raises(ValueError, match=r"/caf\\xe9 holds no run"):
            RunDirectory(b"/proc/none/caf\xe9", True)

    def test_a_timeout_that_is_no_number(self) -> None:
        with shoal.ModelService({"double": double}, context="thread") as service:
            with pytest.raises(ValueError, match="not nan"):
                service.model("double")(1.0, timeout=math.nan)
            with pytest.raises(TypeError, match="timeout= takes seconds or None, got '1'"):
                service.model("double")(1.0, timeout="1")
            assert service.model("double")(1.0) == 2.0

    def test_a_model_that_cannot_be_loaded(self) -> None:
        def broken() -> Any:
            raise OSError("no weights")

        with pytest.raises(OSError, match="no weights"):
            shoal.ModelService({"broken": broken})

    def test_arguments_are_checked_before_anything_starts(self) -> None:
        with pytest.raises(TypeError, match="'a' is to be a torch.nn.Module"):
            shoal.ModelService({"a": 3})
        with pytest.raises(FileNotFoundError, match=r"none\.pt"):
            shoal.ModelService({"a": "none.pt"})
        for wrong in ({"max_batch": 0}, {"max_delay": -1}, {"instances": True}, {"context": "x"}, {"on_fault": "drop"}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                shoal.ModelService({"a": double}, **wrong)
        with pytest.raises(TypeError, match="models"):
            shoal.make_vec("CartPole-v1", 2, worker=shoal.WorkerOptions(models=3), backend="process")

    @pytest.mark.parametrize(
        ("wrong", "error", "takes"),
        [
            ({"max_batch": 2**40}, ValueError, r"an int from 1 to 2\*\*20, got"),
            ({"max_batch": 2**20 + 1}, ValueError, r"an int from 1 to 2\*\*20, got"),
            ({"max_batch": 8.0}, ValueError, "an int from 1"),
            ({"instances": 2**33}, ValueError, r"an int from 1 to 2\*\*16, got"),
            ({"threads": "two"}, ValueError, r"an int from 1 to 2\*\*16, got 'two'"),
            ({"threads": 0}, ValueError, "an int from 1"),
            ({"keep_versions": "1"}, ValueError, "an int of 0 or more, got '1'"),
            ({"max_delay": "3"}, ValueError, "seconds, 0 or more and less than 1e6, got '3'"),
            ({"max_delay": 1e6}, ValueError, "seconds, 0 or more and less than 1e6, got 1000000.0"),
            ({"timeout": "3"}, ValueError, "None or a positive number of seconds, got '3'"),
            ({"timeout": math.nan}, ValueError, "None or a positive number of seconds, got nan"),
            ({"start_timeout": "3"}, ValueError, "a positive number of seconds, got '3'"),
            ({"start_timeout": True}, ValueError, "a positive number of seconds, got True"),
            ({"buckets": 3}, ValueError, "None or sizes from 1 to max_batch=4, got 3"),
            ({"buckets": [4.0]}, ValueError, "sizes from 1 to max_batch=4, got 4.0"),
            ({"buckets": [8]}, ValueError, "sizes from 1 to max_batch=4, got 8"),
            ({"buckets": [1, "2"]}, ValueError, "sizes from 1 to max_batch=4, got '2'"),
            ({"preload": "json"}, TypeError, "a sequence of module names, got the str 'json'"),
            ({"preload": [3]}, TypeError, r"a sequence of module names, got \[3\]"),
            ({"listen": "127.0.0.1:0", "secret": 3}, TypeError, "a str, got a int"),
        ],
    )
    def test_a_wrong_argument_is_named_with_what_it_takes(
        self, wrong: dict[str, Any], error: type[Exception], takes: str
    ) -> None:
        with pytest.raises(error, match=rf"ModelService\({list(wrong)[-1]}=…\) takes {takes}"):
            shoal.ModelService({"a": double}, **{"max_batch": 4, **wrong})

    def test_a_number_of_numpy_is_one(self) -> None:
        asked = {"max_batch": np.int64(2), "timeout": np.float32(60), "buckets": np.array([1])}
        with shoal.ModelService({"n": batch_size}, context="thread", **asked) as service:
            assert service.model("n").batch(np.zeros(2)).tolist() == [2, 2]


class TestBatches:
    def test_buckets_pad_with_the_first_row(self) -> None:
        with shoal.ModelService(
            {"n": batch_size, "picky": picky}, max_batch=8, buckets=[4], context="thread"
        ) as service:
            assert service.model("n")(1.0) == 4
            np.testing.assert_array_equal(service.model("picky").batch(np.arange(3.0)), [1, 2, 3])
            stats = service.stats()["n"]
            assert stats["padded_rows"] == 3
            assert stats["padding_waste"] == 0.75

    def test_max_delay_waits_for_the_quorum(self) -> None:
        with shoal.ModelService({"n": batch_size}, max_delay=3600.0, context="thread") as service:
            assert service.model("n")(1.0) == 1  # all clients, one, wait

    def test_several_instances_share_the_clients(self) -> None:
        with shoal.ModelService({"pid": pid}, instances=2) as service:
            pids = set()

            def ask() -> None:
                pids.add(int(service.model("pid")(0)))

            for _ in range(2):
                thread = threading.Thread(target=ask)
                thread.start()
                thread.join()
            assert len(pids) == 2


class TestTorch:
    def test_modules_are_called_with_tensors(self) -> None:
        torch = pytest.importorskip("torch")
        with shoal.ModelService({"made": linear, "given": torch.nn.Flatten()}) as service:
            answer = service.model("made")(np.arange(3, dtype=np.float32))
            np.testing.assert_array_equal(answer, [3, 3])
            assert answer.dtype == np.float32
            np.testing.assert_array_equal(service.model("given")(np.zeros((2, 3), np.uint8)), np.zeros(6))

    def test_torchscript_files(self, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch")
        path = tmp_path / "model.pt"
        with pytest.deprecated_call():
            torch.jit.trace(linear(), torch.zeros(1, 3)).save(str(path))
        with shoal.ModelService({"file": path}) as service:
            np.testing.assert_array_equal(service.model("file")(np.ones(3, np.float32)), [3, 3])

    def test_what_torch_export_wrote_is_served_as_it_is(self, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch")
        path = tmp_path / "model.pt2"
        rows = ({0: torch.export.Dim("rows", max=64)},)
        exported = torch.export.export(linear().eval(), (torch.zeros(3, 3),), dynamic_shapes=rows)
        torch.export.save(exported, path)

        def load() -> Any:
            return torch.export.load(path).module()

        with pytest.raises(NotImplementedError):
            load().eval()
        with shoal.ModelService({"made": load}) as service:
            model = service.model("made")
            np.testing.assert_array_equal(model(np.ones(3, np.float32)), [3, 3])
            np.testing.assert_array_equal(model.batch(np.ones((4, 3), np.float32)), np.full((4, 2), 3))
            version = service.update("made", {name: 2 * value for name, value in linear().state_dict().items()})
            np.testing.assert_array_equal(model(np.ones(3, np.float32)), [6, 6])
            assert model.version == version
        with shoal.ModelService({"given": load()}, context="thread") as service:
            np.testing.assert_array_equal(service.model("given")(np.ones(3, np.float32)), [3, 3])

    def test_what_is_beside_a_part_that_cannot_be_switched_is_in_eval_mode(self) -> None:
        torch = pytest.importorskip("torch")
        exported = torch.export.export(torch.nn.Tanh(), (torch.zeros(1, 100),)).module()
        before, inside, after = (
            torch.nn.Dropout(),
            torch.nn.Sequential(exported, torch.nn.Dropout()),
            torch.nn.Dropout(),
        )
        net = torch.nn.Sequential(before, inside, after)  # all of them in train mode
        with shoal.ModelService({"net": net}, context="thread") as service:
            assert service.model("net")(np.ones(100, np.float32)).all()
        assert not any(module.training for module in (net, before, inside, inside[1], after))

    @pytest.mark.filterwarnings("ignore:torch.quantize:UserWarning")
    def test_tensors_that_numpy_cannot_look_at_are_refused_with_the_remedy(self) -> None:
        torch = pytest.importorskip("torch")
        plain = torch.ones(3)
        shoal.serve.use({"double": double})
        try:
            with shoal.ModelService({"double": double}, context="thread") as service:
                for model in (service.model("double"), shoal.worker().model("double")):
                    for given, what, remedy in (
                        (plain.clone().requires_grad_(), "requires a gradient", "detach()"),
                        (plain.bfloat16(), "is of torch.bfloat16, which NumPy has not", "float()"),
                        (plain.to_sparse(), "has the layout torch.sparse_coo", "to_dense()"),
                        (torch.quantize_per_tensor(plain, 1.0, 0, torch.qint8), "is quantized", "dequantize()"),
                        (
                            plain.bfloat16().requires_grad_(),
                            "requires a gradient and is of torch.bfloat16, which NumPy has not",
                            "detach().float()",
                        ),
                    ):
                        message = f"the model 'double' takes .* a tensor that {what}: give tensor.{re.escape(remedy)}$"
                        for call in (model, model.batch, model.submit):
                            with pytest.raises(TypeError, match=message):
                                call(given)
                    np.testing.assert_array_equal(model(plain), [2, 2, 2])
                    with pytest.raises(TypeError, match="requires a gradient: give"):
                        model({"x": (plain, plain.clone().requires_grad_())})
        finally:
            shoal.serve.use(None)


class TestLocal:
    def test_errors_are_those_of_a_service(self) -> None:
        shoal.serve.use({"picky": picky})
        try:
            model = shoal.worker().model("picky")
            with pytest.raises(ModelError, match="ValueError: a negative row"):
                model(-1.0)
            np.testing.assert_array_equal(model.batch(np.zeros((2, 2))), np.ones((2, 2)))
            assert model.gather([model.submit(1.0)]) == [2.0]
            with pytest.raises(ValueError, match="no model 'other'"):
                shoal.worker().model("other")
        finally:
            shoal.serve.use(None)
