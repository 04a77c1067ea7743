#!/bin/sh
# Four ranks on the hosts that HOSTS names, such as "n1:2,n2:2", rank 0 on the first.
# MPI does not say where rank 0 is, so MASTER_ADDR does.
: "${HOSTS:?such as n1:2,n2:2}"
MASTER_ADDR=${HOSTS%%[:,]*}
SHOAL_GROUP_SECRET=${SHOAL_GROUP_SECRET:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')}
export MASTER_ADDR SHOAL_GROUP_SECRET
exec mpirun -n "${RANKS:-4}" --host "$HOSTS" -x MASTER_ADDR -x SHOAL_GROUP_SECRET \
  shoal train CartPole-v1 --run-dir run "$@"
