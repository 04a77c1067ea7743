// shoal._core.process: launchers, workers, and the program that a fresh interpreter becomes.
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "bytes.h"
#include "exceptions.h"
#include "shoal/ipc/heap/heap.h"
#include "shoal/os/error.h"
#include "shoal/os/memory/memory_use.h"
#include "shoal/os/process/no_new_processes.h"
#include "shoal/process/boot/environment.h"
#include "shoal/process/identity/welcome.h"
#include "shoal/process/launch/program.h"
#include "shoal/process/launch/worker_main.h"
#include "shoal/process/launcher.h"
#include "shoal/process/self/fork_hazards.h"
#include "shoal/process/self/gpu_use.h"
#include "shoal/process/self/own_thread.h"
#include "shoal/process/supervise/parent_watch.h"
#include "shoal/process/supervise/stack_dump.h"
#include "shoal/process/worker_died.h"
#include "shoal/process/zygote/zygotes.h"
#include "shoal/vector/worker_program/native_worker.h"
#include "shoal/vector/worker_program/pool_worker.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

void send(process::Channel& channel, const nb::bytes& message, std::optional<double> timeout,
          const std::vector<int>& fds = {}) {
  auto outcome = os::SendOutcome::kTimedOut;
  interruptible(timeout, [&](os::Deadline until) {
    outcome = channel.send(view(message), fds, until);
    return outcome != os::SendOutcome::kTimedOut;
  });
  if (outcome == os::SendOutcome::kTimedOut)
    throw TimedOut("the other process took no message in time");
  if (outcome == os::SendOutcome::kClosed)
    throw SystemError("send a message to the other process", EPIPE);
}

/// None: the other end is closed.
std::optional<nb::bytes> recv(process::Channel& channel, const std::string& from,
                              std::optional<double> timeout) {
  os::Message message;
  auto outcome = os::RecvOutcome::kTimedOut;
  interruptible(timeout, [&](os::Deadline until) {
    outcome = channel.recv(message, until);
    return outcome != os::RecvOutcome::kTimedOut;
  });
  if (outcome == os::RecvOutcome::kTimedOut)
    throw TimedOut("no message came from " + from + " in time");
  if (outcome == os::RecvOutcome::kClosed) return std::nullopt;
  if (auto report = process::ErrorReport::decode(message.bytes)) {
    throw process::RemoteError(from, std::move(*report));
  }
  return to_bytes(message.bytes);
}

/// None: the other end is closed. The caller owns the descriptors.
std::optional<std::pair<nb::bytes, std::vector<int>>> recv_with_fds(
    process::WorkerContext& context) {
  os::Message message;
  auto outcome = os::RecvOutcome::kTimedOut;
  {
    const nb::gil_scoped_release unlocked;
    outcome = context.channel.recv(message);
  }
  if (outcome != os::RecvOutcome::kMessage) return std::nullopt;
  std::vector<int> fds;
  for (os::Fd& fd : message.fds) fds.push_back(fd.release());
  return std::pair(to_bytes(message.bytes), std::move(fds));
}

using SharedCallable = std::shared_ptr<nb::callable>;

/// A Python function that C++ code may copy and drop without the GIL.
SharedCallable shared(nb::callable function) {
  return {new nb::callable(std::move(function)), [](nb::callable* last) {
            if (!nb::is_alive())
              return;  // the interpreter has gone first, and the function with it
            const nb::gil_scoped_acquire gil;
            delete last;
          }};
}

/// What a worker does when its parent knows how it ended.
void finish() noexcept {
  try {
    nb::module_::import_("shoal.process._worker").attr("finish")();
  } catch (...) {
    std::fprintf(stderr, "%s\n", report_current_exception().describe().c_str());
  }
}

/// What an entry table runs for "python": `run(context) -> exit code`, with the GIL.
process::Entry python_entry(SharedCallable run) {
  return [run = std::move(run)](process::WorkerContext& context) {
    const nb::gil_scoped_acquire gil;
    int code = 1;
    try {
      code = nb::cast<int>((*run)(nb::cast(&context, nb::rv_policy::reference)));
    } catch (...) {
      const process::ErrorReport report = report_current_exception();
      if (context.channel.send(report.encode()) != os::SendOutcome::kSent) {
        std::fprintf(stderr, "%s\n", report.describe().c_str());
      }
    }
    finish();
    return code;
  };
}

/// What an entry table runs for "process": an object of shoal.multiprocessing's Process.
int run_process(process::WorkerContext& context) {
  const nb::gil_scoped_acquire gil;
  try {
    const nb::module_ module = nb::module_::import_("shoal.multiprocessing.child");
    return nb::cast<int>(module.attr("run_process")(nb::cast(&context, nb::rv_policy::reference)));
  } catch (...) {
    std::fprintf(stderr, "%s\n", report_current_exception().describe().c_str());
    return 1;
  }
}

process::EntryTable entries(nb::callable run) {
  process::EntryTable table;
  table.add("python", python_entry(shared(std::move(run))));
  table.add("process", &run_process);
  table.add(std::string(vector::kNativePoolEntry), &vector::native_pool_entry);
  return table;
}

/// For a process whose only thread holds the GIL: a zygote.
process::ForkHooks zygote_hooks(nb::callable run) {
  return {.before_fork = &PyOS_BeforeFork,
          .after_fork_parent = &PyOS_AfterFork_Parent,
          .after_fork_child = &PyOS_AfterFork_Child,
          .entries = entries(std::move(run))};
}

/// For a process where start() runs without the GIL.
std::shared_ptr<const process::ForkHooks> fork_hooks(nb::callable run) {
  auto gil = std::make_shared<PyGILState_STATE>();
  return std::make_shared<process::ForkHooks>(
      process::ForkHooks{.before_fork =
                             [gil] {
                               *gil = PyGILState_Ensure();
                               PyOS_BeforeFork();
                             },
                         .after_fork_parent =
                             [gil] {
                               PyOS_AfterFork_Parent();
                               PyGILState_Release(*gil);
                             },
                         .after_fork_child = &PyOS_AfterFork_Child,
                         .entries = entries(std::move(run))});
}

std::shared_ptr<process::Launcher> create_launcher(
    const std::string& method, std::vector<std::string> interpreter,
    std::vector<std::string> preload, process::Environment environment, int threads, bool hide_gpu,
    double start_timeout, bool allow_unsafe_fork, bool relay_output, bool ahead, bool plain,
    std::shared_ptr<process::Zygotes> zygotes, const nb::bytes& bootstrap, nb::callable run) {
  process::LaunchOptions options;
  options.method = process::start_method_from_name(method);
  options.interpreter = std::move(interpreter);
  options.preload = std::move(preload);
  options.environment = std::move(environment);
  options.threads = threads;
  options.hide_gpu = hide_gpu;
  options.start_timeout = milliseconds(start_timeout);
  options.allow_unsafe_fork = allow_unsafe_fork;
  options.relay_output = relay_output;
  options.ahead = ahead;
  options.plain = plain;
  options.zygotes = std::move(zygotes);
  options.bootstrap = to_vector(bootstrap);
  options.fork_hooks = fork_hooks(std::move(run));
  options.on_worker_end = &ipc::Heap::process_ended;
  const nb::gil_scoped_release unlocked;
  return process::Launcher::create(std::move(options));
}

std::shared_ptr<process::Launcher> create_native_launcher(const std::string& method,
                                                          process::Environment environment,
                                                          int threads, bool hide_gpu,
                                                          double start_timeout) {
  process::LaunchOptions options;
  options.method = process::start_method_from_name(method);
  options.interpreter = process::native_interpreter();
  options.environment = std::move(environment);
  options.threads = threads;
  options.hide_gpu = hide_gpu;
  options.start_timeout = milliseconds(start_timeout);
  const nb::gil_scoped_release unlocked;
  return process::Launcher::create(std::move(options));
}

std::vector<std::unique_ptr<process::WorkerProcess>> start(process::Launcher& launcher,
                                                           const std::vector<nb::bytes>& payloads,
                                                           const std::string& name,
                                                           const std::vector<int>& numbers) {
  await_ready(launcher);
  std::vector<process::WorkerSpec> specs;
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    process::WorkerSpec spec;
    spec.index = numbers.at(i);
    spec.name = fmt::format("{} {}", name, spec.index);
    spec.entry = "python";
    spec.payload = to_vector(payloads[i]);
    specs.push_back(std::move(spec));
  }
  const nb::gil_scoped_release unlocked;
  const auto shared_state = process::SharedState::create();
  const int count = static_cast<int>(payloads.size());
  return launcher.start(std::move(specs), {}, [&](process::WorkerProcess& worker) {
    process::send_welcome(worker, *shared_state, count);
  });
}

/// One worker of a plain launcher: it runs `payload` as "process" and is sent `fds` first. When it
/// has ended, the eventfd `sentinel` becomes readable; it stays open until the worker is destroyed.
std::unique_ptr<process::WorkerProcess> start_process(process::Launcher& launcher,
                                                      const std::string& name,
                                                      const nb::bytes& payload,
                                                      const std::vector<int>& fds, int sentinel) {
  await_ready(launcher);
  constexpr std::size_t kFdsAMessage = 64;
  process::WorkerSpec spec;
  spec.name = name;
  spec.entry = "process";
  spec.payload = to_vector(payload);
  std::vector<process::WorkerSpec> specs;
  specs.push_back(std::move(spec));
  const nb::gil_scoped_release unlocked;
  auto workers = launcher.start(
      std::move(specs),
      [sentinel](int) {
        const std::uint64_t one = 1;
        static_cast<void>(::write(sentinel, &one, sizeof one) + 0);
      },
      [&](process::WorkerProcess& worker) {
        for (std::size_t at = 0; at < fds.size(); at += kFdsAMessage) {
          const std::size_t count = std::min(kFdsAMessage, fds.size() - at);
          const std::byte more{at + count < fds.size()};
          if (worker.channel().send({&more, 1}, std::span(fds).subspan(at, count)) !=
              os::SendOutcome::kSent) {
            return;  // it has ended, which its exit code tells
          }
        }
      });
  return std::move(workers.front());
}

std::optional<int> exitcode(std::optional<process::ExitStatus> status) {
  if (!status || !status->known) return std::nullopt;
  return status->signal != 0 ? -status->signal : status->code;
}

bool join(process::WorkerProcess& worker, std::optional<double> timeout) {
  return interruptible(timeout, [&](os::Deadline until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(os::time_left(until));
    return worker.join(left).has_value();
  });
}

void bind_context(nb::module_& module) {
  using process::WorkerContext;
  nb::class_<WorkerContext>(module, "WorkerContext", "What a worker is given.")
      .def_ro("name", &WorkerContext::name)
      .def_ro("index", &WorkerContext::index)
      .def_ro("first_env", &WorkerContext::first_env)
      .def_ro("num_envs", &WorkerContext::num_envs)
      .def_ro("hide_gpu", &WorkerContext::hide_gpu)
      .def_prop_ro("payload",
                   [](const WorkerContext& context) { return to_bytes(context.payload); })
      .def(
          "send",
          [](WorkerContext& context, const nb::bytes& message, std::optional<double> timeout) {
            send(context.channel, message, timeout);
          },
          "message"_a, "timeout"_a = nb::none(), "Sends bytes to the parent.")
      .def("recv_with_fds", &recv_with_fds,
           "Bytes and descriptors from the parent, which are the caller's then; None when it wants "
           "this worker to end.")
      .def("close", [](WorkerContext& context) { context.channel.close(); })
      .def(
          "recv",
          [](WorkerContext& context, std::optional<double> timeout) {
            return recv(context.channel, "the parent", timeout);
          },
          "timeout"_a = nb::none(),
          "Bytes from the parent; None when it wants this worker to end.");
}

process::Zygotes::Limits zygote_limits(int idle, double seconds) {
  return {.idle = idle, .idle_time = milliseconds(seconds)};
}

nb::list list_zygotes(const process::Zygotes& zygotes) {
  const os::Deadline now = os::Clock::now();
  const auto seconds_since = [now](os::Deadline then) {
    return std::chrono::duration<double>(now - then).count();
  };
  nb::list all;
  for (const process::Zygotes::Entry& zygote : zygotes.list()) {
    nb::dict entry;
    entry["pid"] = zygote.pid;
    entry["age"] = seconds_since(zygote.started);
    entry["idle"] = zygote.use.idle_since
                        ? nb::object(nb::float_(seconds_since(*zygote.use.idle_since)))
                        : nb::object(nb::none());
    entry["workers"] = zygote.use.workers;
    entry["memory"] = os::memory_use(zygote.pid).own_bytes;
    entry["preload"] = nb::cast(zygote.preload);
    all.append(entry);
  }
  return all;
}

void bind_zygotes(nb::module_& module) {
  using process::Zygotes;
  nb::class_<Zygotes>(
      module, "Zygotes",
      "The zygotes of the launchers that are given this; see src/shoal/process/zygote/zygotes.h.")
      .def(
          "__init__",
          [](Zygotes* self, int idle, double seconds) {
            new (self) Zygotes(zygote_limits(idle, seconds));
          },
          "idle"_a, "seconds"_a)
      .def(
          "set_limits",
          [](Zygotes& zygotes, int idle, double seconds) {
            zygotes.set_limits(zygote_limits(idle, seconds));
          },
          "idle"_a, "seconds"_a)
      .def_prop_ro(
          "limits",
          [](const Zygotes& zygotes) {
            const Zygotes::Limits limits = zygotes.limits();
            return std::pair(limits.idle, std::chrono::duration<double>(limits.idle_time).count());
          },
          "How many idle ones stay, and for how many seconds.")
      .def("list", &list_zygotes, "Those that live, a dict each: see shoal.process.zygotes().");
}

void bind_worker(nb::module_& module) {
  using process::WorkerProcess;
  nb::class_<WorkerProcess>(
      module, "WorkerProcess",
      "A worker, seen from its parent. Deleting it kills the process if it still runs.")
      .def_prop_ro("pid", &WorkerProcess::pid)
      .def_prop_ro("name", &WorkerProcess::name)
      .def_prop_ro("is_alive", [](const WorkerProcess& worker) { return !worker.exit_status(); })
      .def_prop_ro(
          "exitcode", [](const WorkerProcess& worker) { return exitcode(worker.exit_status()); },
          "The exit code, or minus the number of the signal that killed it; None while it runs, or "
          "when unknown.")
      .def_prop_ro(
          "ended_with",
          [](const WorkerProcess& worker) -> std::optional<std::string> {
            const auto status = worker.exit_status();
            return status ? std::optional(status->describe()) : std::nullopt;
          },
          "In words: 'exit code 1', 'signal 9 (SIGKILL)', 'its zygote (pid 7), which …'; None "
          "while "
          "it runs.")
      .def("join", &join, "timeout"_a = nb::none(),
           "Waits until it has ended; returns whether it has.")
      .def("kill", &WorkerProcess::kill, "signal"_a = SIGKILL)
      .def_prop_ro(
          "log_tail", [](const WorkerProcess& worker) { return foreign_texts(worker.log_tail()); },
          "Its last lines of output.")
      .def(
          "send",
          [](WorkerProcess& worker, const nb::bytes& message, std::optional<double> timeout) {
            send(worker.channel(), message, timeout);
          },
          "message"_a, "timeout"_a = nb::none())
      .def(
          "recv",
          [](WorkerProcess& worker, std::optional<double> timeout) {
            return recv(worker.channel(), worker.name(), timeout);
          },
          "timeout"_a = nb::none(),
          "Bytes from the worker; None when it has closed its end. Raises what the worker reports.")
      .def(
          "raise_died",
          [](WorkerProcess& worker) {
            throw process::WorkerDied(process::DeathCertificate::of(worker));
          },
          "Raises WorkerDied with all that is known about its end.");
}

void bind_program(nb::module_& module) {
  using process::Program;
  nb::class_<Program>(module, "Program", "A fresh interpreter that a launcher started.")
      .def_static("attach", &Program::attach)
      .def_prop_ro("zygote", [](const Program& program) { return program.setup().zygote; })
      .def_prop_ro("plain", [](const Program& program) { return program.setup().plain; })
      .def_prop_ro("preload", [](const Program& program) { return program.setup().preload; })
      .def_prop_ro("bootstrap",
                   [](const Program& program) { return to_bytes(program.setup().bootstrap); })
      .def(
          "run",
          [](Program& program, nb::callable run) {
            return program.run(zygote_hooks(std::move(run)));
          },
          "run"_a)
      .def(
          "fail",
          [](Program& program, const std::string& type, const std::string& message,
             const std::string& traceback, const nb::bytes& exception) {
            process::ErrorReport report;
            report.type = type;
            report.message = message;
            report.traceback = traceback;
            report.extra = to_vector(exception);
            return program.fail(report);
          },
          "type"_a, "message"_a, "traceback"_a, "exception"_a);
}

}  // namespace

void bind_process(nb::module_& parent) {
  nb::module_ module = parent.def_submodule("process");
  bind_context(module);
  bind_worker(module);
  bind_program(module);
  bind_zygotes(module);
  nb::class_<process::Launcher>(module, "Launcher")
      .def_prop_ro("method",
                   [](const process::Launcher& launcher) {
                     return std::string(process::name(launcher.method()));
                   })
      .def_prop_ro("zygote_pid", &process::Launcher::zygote_pid)
      .def(
          "begin",
          [](process::Launcher& launcher, std::vector<std::string> preload,
             const nb::bytes& bootstrap) {
            launcher.begin(std::move(preload), to_vector(bootstrap));
          },
          "preload"_a, "bootstrap"_a)
      .def("start", &start, "payloads"_a, "name"_a, "numbers"_a,
           "One worker for each payload, called \"NAME NUMBER\".")
      .def("start_process", &start_process, "name"_a, "payload"_a, "fds"_a, "sentinel"_a,
           "Starts one worker of a plain launcher, which runs shoal.multiprocessing's `payload` "
           "with "
           "these descriptors; `sentinel` is an eventfd, open for as long as the worker is held, "
           "that becomes readable when it has ended.");
  module.def("create_launcher", &create_launcher, nb::kw_only(), "method"_a, "interpreter"_a,
             "preload"_a, "environment"_a, "threads"_a, "hide_gpu"_a, "start_timeout"_a,
             "allow_unsafe_fork"_a, "relay_output"_a, "ahead"_a, "plain"_a = false, "zygotes"_a,
             "bootstrap"_a, "run"_a);
  module.def("create_native_launcher", &create_native_launcher, nb::kw_only(), "method"_a,
             "environment"_a, "threads"_a, "hide_gpu"_a, "start_timeout"_a,
             "One whose workers are shoal-worker, a program without Python.");
  module.def("forbid_new_processes", &os::forbid_new_processes,
             "From here on the kernel refuses this process every new one, for good.");
  module.def("new_processes_forbidden", &os::new_processes_forbidden);
  module.def("fork_hazards", &process::fork_hazards, "threads"_a = true,
             "Why forking this process is unsafe, one sentence each; empty when nothing is known "
             "against it.");
  module.def("foreign_threads", &process::foreign_threads,
             "The threads that are neither the caller's nor Shoal's, \"id (name)\" each.");
  module.def("is_launcher_variable", &process::is_launcher_variable, "name"_a,
             "Whether the variable tells a process its place in a group (torchrun, MPI, Slurm).");
  module.def("worker_variables", &process::worker_settings, "threads"_a, "hide_gpu"_a,
             "environment"_a, "The variables that workers get on top of their caller's.");
  module.def("interrupt_after_parent", &process::interrupt_after_parent,
             "From here on the death of this process's parent is a Ctrl-C, too, at once.");
  module.def(
      "end_after_parent",
      [](int parent) { process::end_after_parent(parent, process::kParentGrace); }, "parent"_a,
      "The kernel ends this process some seconds after the process `parent`, its parent.");
  module.def(
      "keep_freed_memory", &os::keep_freed_memory,
      "What this process frees stays its own: large arrays come and go without page faults.");
  module.def("install_stack_dump", [] { return process::install_stack_dump(false); });
  module.def("stack_signal", &process::stack_signal);
  module.def("gpu_in_use", &process::gpu_in_use,
             "What shows that this process uses a GPU; None when it is free of GPUs.");
}

}  // namespace shoal::python
