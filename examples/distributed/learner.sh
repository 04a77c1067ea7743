#!/bin/sh
# A learner that steps no training environments itself: collector.sh on other machines does, at any time.
# SHOAL_GROUP_SECRET is the same text on all of them, which nobody else knows.
: "${SHOAL_GROUP_SECRET:?the same text on all}"
exec shoal train CartPole-v1 --algorithm appo --listen "0.0.0.0:${PORT:-7000}" "$@"
