#!/bin/sh
# Two ranks on this machine, without any launcher.
exec shoal train CartPole-v1 --nproc 2 --set shards=2 "$@"
