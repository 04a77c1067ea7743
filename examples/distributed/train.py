"""Trains CartPole-v1 on all the ranks that a launcher has started, or that `--nproc` starts. The same program in each of these:

    python train.py --nproc 2
    torchrun --standalone --nproc-per-node 2 train.py
    mpirun -n 2 python train.py
    srun -n 2 python train.py               (slurm.sbatch)

Only rank 0 has a result: it evaluates, and writes the run's folder.
"""

from __future__ import annotations

import argparse

import shoal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nproc", type=int, help="processes that this one starts; none: those of the launcher")
    parser.add_argument("--total-steps", type=int, default=100_000)
    parser.add_argument("--run-dir", default="distributed-run")
    options = parser.parse_args()
    with shoal.learn.Trainer(
        "CartPole-v1",
        nproc=options.nproc,
        seed=1,
        total_steps=options.total_steps,
        run_dir=options.run_dir,
        num_workers=0,
        shards=2,  # the same policy on 1 and 2 ranks
    ) as trainer:
        trainer.start()
        trainer.wait()
        if trainer.rank == 0:
            result = trainer.result()
            print(f"{result.ending} after {result.steps:,} steps: mean return {result.mean_return:.1f}")


if __name__ == "__main__":
    main()
