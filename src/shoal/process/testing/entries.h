// For tests: what the workers of the tests run, whichever way they are started.
#pragma once

#include <string>
#include <vector>

#include "shoal/process/launcher.h"

namespace shoal::process::testing {

/// "echo": sends back every message until the channel closes, then exits with 0.
/// "exit", "signal": ends with the exit code or by the signal that the payload names.
/// "throw": throws InvalidArgument with the payload as its text.
/// "print": writes each line of the payload to stdout ("o…") or stderr ("e…"), then exits with 0.
/// "write": writes as many bytes to stdout, in lines of 100, as the payload says; then exits with
/// 0. "describe": sends what it knows of itself as lines: name, index, first_env, num_envs, then
/// echoes. "getenv": sends the value of the variable that the payload names, or "unset".
/// "descriptors": sends its open descriptors, one line each.
/// "hold": holds as many bytes of memory by a descriptor as the payload says, and does as "sleep".
/// "sleep": sends "ready" and waits for signals for ever, without looking at its channel.
EntryTable entries();

/// A worker that runs `entry` with `payload`.
WorkerSpec spec(std::string entry, const std::string& payload = "");

/// Options for `method` with the test's own worker program (SHOAL_TEST_WORKER).
LaunchOptions options(StartMethod method);

/// One message as text; "closed" or "timed out" where none comes.
std::string recv_text(Channel& channel);
void send_text(Channel& channel, const std::string& text);

}  // namespace shoal::process::testing
