#include <unistd.h>

#include <mutex>
#include <utility>

#include "shoal/os/process/making_process.h"
#include "shoal/process/boot/spawn_program.h"
#include "shoal/process/boot/wire.h"
#include "shoal/process/launch/launchers.h"
#include "shoal/process/supervise/worker_handle.h"

namespace shoal::process {
namespace {

class SpawnLauncher final : public Launcher {
 public:
  explicit SpawnLauncher(LaunchOptions options)
      : options_(std::move(options)),
        environment_(clean_environment(current_environment(), options_.threads, options_.hide_gpu,
                                       options_.environment)),
        supervisor_(std::make_shared<Supervisor>(options_.relay_output, options_.on_worker_end)) {}

  ~SpawnLauncher() override {
    if (!maker_.is_this()) os::abandon(std::move(supervisor_));
  }

  std::vector<std::unique_ptr<WorkerProcess>> start(std::vector<WorkerSpec> specs,
                                                    std::function<void(int)> on_exit,
                                                    const Greet& greet) override {
    maker_.require("this launcher");
    require_descriptors(StartMethod::kSpawn, specs.size());
    const std::lock_guard lock(mutex_);
    std::vector<std::unique_ptr<WorkerProcess>> handles;
    // Spawned one after the other; the programs then start up side by side.
    for (WorkerSpec& spec : specs) {
      handles.push_back(start_one(std::move(spec), static_cast<int>(handles.size()), on_exit));
      if (greet) greet(*handles.back());
    }
    return handles;
  }

  StartMethod method() const noexcept override { return StartMethod::kSpawn; }
  int zygote_pid() const noexcept override { return -1; }

 private:
  std::unique_ptr<WorkerProcess> start_one(WorkerSpec spec, int position,
                                           const std::function<void(int)>& on_exit) {
    const wire::Start start{.index = spec.index,
                            .first_env = spec.first_env,
                            .num_envs = spec.num_envs,
                            .name = spec.name,
                            .entry = spec.entry,
                            .payload = std::exchange(spec.payload, {})};
    auto record = std::make_shared<WorkerRecord>(std::move(spec), position, on_exit);
    auto [ours, theirs] = os::SeqPacket::pair();
    auto [control, program_control] = os::SeqPacket::pair();
    ProgramOutput output = ProgramOutput::create(options_.plain);
    supervisor_->loop().call([&] {
      SpawnedProgram program =
          spawn_program(options_.interpreter, environment_, program_control.fd(),
                        output.fd(STDOUT_FILENO), output.fd(STDERR_FILENO));
      record->set_running(program.pid, std::move(program.pidfd));
      if (options_.plain) {
        supervisor_->adopt(record);
      } else {
        supervisor_->adopt(record, std::move(output.output.read_end),
                           std::move(output.errors.read_end));
      }
      supervisor_->watch_child(record, !options_.plain);
    });
    auto handle = std::make_unique<WorkerHandle>(supervisor_, record, Channel(std::move(ours)));
    send_request(control, start, theirs);
    return handle;
  }

  void send_request(os::SeqPacket& control, const wire::Start& start,
                    const os::SeqPacket& channel) {
    const wire::Setup setup{.zygote = false,
                            .hide_gpu = options_.hide_gpu,
                            .plain = options_.plain,
                            .threads = options_.threads,
                            .parent_pid = ::getpid(),
                            .preload = options_.preload,
                            .bootstrap = options_.bootstrap,
                            .line = {}};
    // kClosed: it has ended already; its exit status will say how.
    static_cast<void>(control.send(wire::encode(setup)));
    const int fd = channel.fd();
    static_cast<void>(control.send(wire::encode(start, 0), {&fd, 1}));
  }

  const os::MakingProcess maker_;
  const LaunchOptions options_;
  const Environment environment_;
  std::shared_ptr<Supervisor> supervisor_;
  std::mutex mutex_;
};

}  // namespace

std::unique_ptr<Launcher> make_spawn_launcher(LaunchOptions options) {
  return std::make_unique<SpawnLauncher>(std::move(options));
}

}  // namespace shoal::process
