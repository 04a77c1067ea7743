// What becomes of an input that crashes the program, or never comes to its end.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace shoal::fuzz {

/// From now on a crash, by a signal, an exception that nobody catches or a sanitizer, writes the
/// input under way to `folder` and says where. So does an input that takes longer than `timeout`,
/// which then ends the program with the stack of the thread that is in it.
///
/// Threads: made and used by the thread that runs the inputs.
class Watchdog {
 public:
  Watchdog(std::string folder, std::chrono::seconds timeout);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// The input must live until end().
  void begin(std::span<const std::byte> input) noexcept;
  void end() noexcept;
  /// Ends the program because of the input under way.
  [[noreturn]] void fail(const char* what);

 private:
  class Clock;
  std::unique_ptr<Clock> clock_;
};

}  // namespace shoal::fuzz
