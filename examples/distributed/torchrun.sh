#!/bin/sh
# On each of two machines; NODE_RANK is 0 on the first, whose name is MASTER_ADDR, and 1 on the second.
# SHOAL_GROUP_SECRET is the same text on both, which nobody else knows. A rank that is lost ends all, which are started
# again, up to three times, and go on from the run's last checkpoint, which lies on the first machine.
: "${MASTER_ADDR:?the name of the first machine}" "${NODE_RANK:?0 on it, 1 on the second}" "${SHOAL_GROUP_SECRET:?the same text on both}"
torchrun --nnodes 2 --node-rank "$NODE_RANK" --nproc-per-node "${NPROC:-2}" \
  --master-addr "$MASTER_ADDR" --master-port "${MASTER_PORT:-29500}" \
  --max-restarts 3 --no-python shoal train CartPole-v1 --run-dir run --continue "$@"
