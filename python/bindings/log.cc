// shoal._core.log: the lines of the C++ parts, brought to Python's logging.
//
// Whoever logs leaves its line in a list, without the GIL. A thread that lives only while there are
// lines asks for the GIL and hands them to shoal.logs.deliver().
#include "shoal/os/log.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "bindings.h"
#include "shoal/os/process/signals.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

/// A flood goes on to stderr.
constexpr std::size_t kMaxWaitingLines = 1000;

struct OwnedLine {
  os::LogLevel level;
  std::string source, text, who;
  int pid;
};

struct Deliveries {
  std::mutex mutex;
  std::condition_variable over;
  std::deque<OwnedLine> lines;
  bool under_way = false;  // a thread delivers, and will see a line that is added

  static Deliveries& all() {
    static auto* instance = [] {
      ::pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); },
                       [] {
                         all().lines.clear();  // the parent delivers them
                         all().under_way = false;
                         all().mutex.unlock();
                       });
      return new Deliveries;
    }();
    return *instance;
  }
};

/// With the GIL. False: Python's logging does nothing with it.
bool deliver(const OwnedLine& line) {
  try {
    return nb::cast<bool>(nb::module_::import_("shoal.logs")
                              .attr("deliver")(std::string(os::name_of(line.level)), line.source,
                                               line.text, line.who, line.pid));
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("a log line of Shoal");
    return false;
  }
}

/// With the GIL.
void deliver_all() {
  Deliveries& all = Deliveries::all();
  for (;;) {
    OwnedLine line;
    {
      const std::lock_guard lock(all.mutex);
      if (all.lines.empty()) return;
      line = std::move(all.lines.front());
      all.lines.pop_front();
    }
    const bool is_written = line.who.empty() && os::stderr_is_asked_for();
    if (!deliver(line) && !is_written) {
      os::write_log_to_stderr({line.level, line.source, line.text, line.who, line.pid});
    }
  }
}

/// What the thread does. It is over only once it has let go of the GIL for good.
void deliver_until_none_is_left() {
  Deliveries& all = Deliveries::all();
  for (;;) {
    {
      const nb::gil_scoped_acquire gil;
      deliver_all();
    }
    const std::lock_guard lock(all.mutex);
    if (all.lines.empty()) {
      all.under_way = false;
      all.over.notify_all();
      return;
    }
  }
}

bool take(const os::LogLine& line) noexcept {
  if (Py_IsInitialized() == 0) return false;
  try {
    Deliveries& all = Deliveries::all();
    const std::lock_guard lock(all.mutex);
    if (all.lines.size() >= kMaxWaitingLines) return false;
    all.lines.push_back({line.level, std::string(line.source), std::string(line.text),
                         std::string(line.who), line.pid});
    if (all.under_way) return true;
    try {
      const os::BlockSignals block = os::BlockSignals::all();
      std::thread(deliver_until_none_is_left).detach();
      all.under_way = true;
      return true;
    } catch (...) {  // no more threads: this line goes to stderr
      all.lines.pop_back();
      return false;
    }
  } catch (...) {
    return false;
  }
}

/// At exit, and in workers, whose parent brings their lines to its own logging. Python ends threads
/// that want the GIL after this, in whatever they do: the one that delivers must be over.
void to_stderr() {
  os::set_log_taker(nullptr);
  const nb::gil_scoped_release unlocked;
  Deliveries& all = Deliveries::all();
  std::unique_lock lock(all.mutex);
  all.over.wait(lock, [&] { return !all.under_way; });
}

}  // namespace

void bind_log(nb::module_& parent) {
  nb::module_ module = parent.def_submodule("log", "The log lines of the C++ parts.");
  module.def(
      "write",
      [](const std::string& level, const std::string& source, const std::string& text) {
        const nb::gil_scoped_release unlocked;
        os::log(os::log_level_from(level.c_str()), source, "{}", text);
      },
      nb::arg("level"), nb::arg("source"), nb::arg("text"), "As the C++ parts do.");
  module.def("to_stderr", &to_stderr,
             "From now on they go to stderr; those that wait for Python's logging are delivered.");
  static_cast<void>(Deliveries::all());
  os::set_log_taker(&take);
  nb::module_::import_("atexit").attr("register")(module.attr("to_stderr"));
}

}  // namespace shoal::python
