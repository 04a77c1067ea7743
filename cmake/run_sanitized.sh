#!/bin/sh
# Runs a program that was built with a sanitizer: run_sanitized.sh PROGRAM ARGUMENT…
#
# ThreadSanitizer of older compilers stops with "unexpected memory mapping" where the kernel randomises addresses by more
# bits than it knows (vm.mmap_rnd_bits above 28), so the program starts without randomisation where that is allowed.
# Tests fork processes of several threads on purpose, and the children start threads (die_after_fork). Options given from
# outside come last and win.
export TSAN_OPTIONS="halt_on_error=1 die_after_fork=0 second_deadlock_stack=1 ${TSAN_OPTIONS}"
export ASAN_OPTIONS="detect_stack_use_after_return=1 strict_string_checks=1 ${ASAN_OPTIONS}"
export UBSAN_OPTIONS="print_stacktrace=1 ${UBSAN_OPTIONS}"
if setarch -R true 2>/dev/null; then
  exec setarch -R "$@"
fi
exec "$@"
