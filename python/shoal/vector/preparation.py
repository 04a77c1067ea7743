"""What happens in a worker before its environments are built: `config=`, `setup=`, the first seeds."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.identity.gpus import lease_gpu
from shoal.process._importing import importing
from shoal.process._nested import forbid_processes
from shoal.vector import registrations

if TYPE_CHECKING:
    from shoal.identity import Worker
    from shoal.ipc.sharing import Parcel
    from shoal.vector.options import WorkerOptions

__all__ = ["Preparation", "check_setup", "config_of", "prepare", "prepare_here"]

Setup = Callable[[], Any]


class Preparation(NamedTuple):
    """On its way to the workers.

    Attributes:
        config: of shoal.identity.snapshots.take(), or None.
        setup: pickled, or as it is for a forked worker, or None.
        seeds: of the environments, or None.
        registrations: of registrations.take(), or None.
        models: shoal.identity.models.Models, pickled, or as they are for a forked worker, or None.
        gpus: of which the worker leases one, for gpu="lease".
        nested: whether the worker may start processes.
    """

    config: bytes | None = None
    setup: bytes | Setup | None = None
    seeds: Sequence[int | None] | None = None
    models: bytes | Any = None
    registrations: bytes | None = None
    gpus: Sequence[str] = ()
    nested: bool = True

    def of(self, lo: int, hi: int) -> Preparation:
        """That of the worker of environments lo to hi - 1."""
        return self._replace(seeds=None if self.seeds is None else self.seeds[lo:hi])

    def register(self) -> None:
        """In the worker: it knows the ids that the caller has registered."""
        if self.registrations is not None:
            registrations.restore(self.registrations)

    def carry_out(self, worker: Worker) -> None:
        """In the worker: it has its GPU, its own things get their state, it knows its seeds, and setup has run."""
        become_as_asked(self.gpus, self.nested)
        self.register()
        with importing(f"worker {worker.index} imported what config= and setup= need"):
            if self.config is not None:
                from shoal.identity import snapshots

                worker.config = snapshots.restore(self.config)
            setup = pickle.loads(self.setup) if isinstance(self.setup, bytes) else self.setup
            worker.models = pickle.loads(self.models) if isinstance(self.models, bytes) else self.models
        set_seeds(worker, self.seeds)
        run_setup(setup, worker)


def become_as_asked(gpus: Sequence[str], nested: bool) -> None:
    """What a worker does to itself first. A second time changes nothing."""
    if gpus:
        lease_gpu(gpus)
    if not nested:
        forbid_processes()


def prepare(
    config: Any,
    setup: Setup | None,
    seeds: Sequence[int | None] | None,
    context: str,
    options: WorkerOptions,
    parcel: Parcel | None = None,
) -> Preparation:
    """Snapshots and pickles, before any process starts; what is shared goes along in `parcel`.

    Raises:
        TypeError: for a setup that cannot be called, and for what workers can have no own of.
        PicklingError: naming the part that cannot be pickled.
    """
    from shoal.identity import snapshots
    from shoal.ipc.pickling import PicklingError, dumps

    def pack(what: Any, name: str) -> Any:
        try:
            return None if what is None else dumps(what, name, parcel=parcel)
        except PicklingError:
            if context != "fork":
                raise
            return what  # a forked worker inherits it

    check_setup(setup)
    found = find_models(options)
    taken = None if config is None else snapshots.take(config, parcel)
    return Preparation(
        config=taken,
        setup=pack(setup, "setup"),
        seeds=seeds,
        models=pack(found, "models"),
        registrations=None if context == "fork" else registrations.take(),
        gpus=options.gpus(),
        nested=options.nested,
    )


def find_models(options: WorkerOptions) -> Any:
    """Raises TypeError for what are no models."""
    if options.models is None:
        return None
    from shoal.serve.models import models_from

    return models_from(options.models, "WorkerOptions(models=…)", options.model_device)


def prepare_here(
    config: Any, setup: Setup | None, seeds: Sequence[int | None] | None, worker: Worker, options: WorkerOptions
) -> None:
    """For environments of this process: what `config` lists is as it is already."""
    if config is not None:
        from shoal.identity import snapshots

        worker.config = snapshots.things(config)
    worker.models = find_models(options)
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
