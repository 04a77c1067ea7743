#!/bin/sh
# On each machine that has CPUs to give to the learner of learner.sh. It waits for the learner, also where that is started again.
: "${LEARNER:?the name of the machine of learner.sh}" "${SHOAL_GROUP_SECRET:?the same text on all}"
exec shoal collect "$LEARNER:${PORT:-7000}" --wait 600 "$@"
