"""What happens in a worker before its environments are built: `config=`, `setup=`, the first seeds."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.identity.gpus import lease_gpu
from shoal.process._importing import importing

if TYPE_CHECKING:
    from shoal.identity import Worker
    from shoal.process.sharing import Parcel

__all__ = ["Preparation", "check_setup", "config_of", "prepare", "prepare_here"]

Setup = Callable[[], Any]


class Preparation(NamedTuple):
    """On its way to the workers.

    Attributes:
        config: of shoal.identity.snapshots.take(), or None.
        setup: pickled, or as it is for a forked worker, or None.
        seeds: of the environments, or None.
        models: shoal.serve.models.Models, pickled, or as they are for a forked worker, or None.
        gpus: of which the worker leases one, for gpu="lease".
    """

    config: bytes | None = None
    setup: bytes | Setup | None = None
    seeds: Sequence[int | None] | None = None
    models: bytes | Any = None
    gpus: Sequence[str] = ()

    def of(self, lo: int, hi: int) -> Preparation:
        """That of the worker of environments lo to hi - 1."""
        return self._replace(seeds=None if self.seeds is None else self.seeds[lo:hi])

    def carry_out(self, worker: Worker) -> None:
        """In the worker: it has its GPU, its own things get their state, it knows its seeds, and setup has run."""
        if self.gpus:
            lease_gpu(self.gpus)
        with importing(f"worker {worker.index} imported what config= and setup= need"):
            if self.config is not None:
                from shoal.identity import snapshots

                worker.config = snapshots.restore(self.config)
            setup = pickle.loads(self.setup) if isinstance(self.setup, bytes) else self.setup
            worker.models = pickle.loads(self.models) if isinstance(self.models, bytes) else self.models
        set_seeds(worker, self.seeds)
        run_setup(setup, worker)


def prepare(
    config: Any,
    setup: Setup | None,
    seeds: Sequence[int | None] | None,
    context: str,
    models: Any = None,
    gpus: Sequence[str] = (),
    parcel: Parcel | None = None,
) -> Preparation:
    """Snapshots and pickles, before any process starts; what is shared goes along in `parcel`.

    Raises:
        TypeError: for a setup that cannot be called, and for what workers can have no own of.
        PicklingError: naming the part that cannot be pickled.
    """
    from shoal.identity import snapshots
    from shoal.process.pickling import PicklingError, dumps

    def pack(what: Any, name: str) -> Any:
        try:
            return None if what is None else dumps(what, name, parcel=parcel)
        except PicklingError:
            if context != "fork":
                raise
            return what  # a forked worker inherits it

    check_setup(setup)
    found = find_models(models)
    taken = None if config is None else snapshots.take(config, parcel)
    return Preparation(taken, pack(setup, "setup"), seeds, pack(found, "models"), gpus)


def find_models(models: Any) -> Any:
    """Raises TypeError for what are no models."""
    if models is None:
        return None
    from shoal.serve.models import models_from

    return models_from(models, "WorkerOptions(models=…)")


def prepare_here(
    config: Any, setup: Setup | None, seeds: Sequence[int | None] | None, worker: Worker, models: Any = None
) -> None:
    """For environments of this process: what `config` lists is as it is already."""
    if config is not None:
        from shoal.identity import snapshots

        worker.config = snapshots.things(config)
    worker.models = find_models(models)
    set_seeds(worker, seeds)
    check_setup(setup)
    run_setup(setup, worker)


def check_setup(setup: Any) -> None:
    if setup is not None and not callable(setup):
        raise TypeError(f"make_vec(setup=…) takes a function without arguments, got {setup!r}")


def run_setup(setup: Setup | None, worker: Worker) -> None:
    if setup is None:
        return
    try:
        worker.context = setup()
    except BaseException as error:
        if hasattr(error, "add_note"):
            error.add_note(f"make_vec(setup=…): of worker {worker.index}, before its environments were built")
        raise


def set_seeds(worker: Worker, seeds: Sequence[int | None] | None) -> None:
    if seeds is None:
        return
    for env, seed in zip(worker.env_indices, seeds, strict=True):
        worker.set_seed(env, seed)


def config_of(config: Any, options_config: Any) -> Any:
    """The one of make_vec and WorkerOptions that is given."""
    if config is not None and options_config is not None:
        raise ValueError("config= is given twice, to make_vec() and to WorkerOptions(); give it to one of them")
    return options_config if config is None else config
