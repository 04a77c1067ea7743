#include "shoal/learn/run/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/file.h>
#include <unistd.h>

#include <string_view>
#include <utility>

#include "shoal/env/json_text.h"
#include "shoal/learn/checkpoint/checkpoint.h"
#include "shoal/learn/checkpoint/durable_file.h"
#include "shoal/os/clock.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFormat = "shoal.run";
constexpr int kVersion = 1;

int open_or_throw(const fs::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (fd < 0) throw SystemError("open " + path.string());
  return fd;
}

/// The lines of a progress file up to `step`; a last line cut short by a crash is dropped.
std::string lines_until(const fs::path& path, std::int64_t step) {
  const auto bytes = read_file(path);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::string kept;
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) break;
    const auto line = text.substr(0, end + 1);
    const auto record = env::parse_json(line);
    const auto its = record.is_object() ? record.value("step", json()) : json();
    if (its.is_number() && its <= step) kept += line;
    text.remove_prefix(line.size());
  }
  return kept;
}

/// What a run left that was killed before it had a checkpoint to go on from: none of it is the new run's.
void remove_remains(const fs::path& directory) {
  try {
    static_cast<void>(read_run_config(directory));
  } catch (const CorruptFile&) {
    return;  // no run was here
  }
  std::error_code error;  // what cannot be removed is replaced, or stays
  for (const auto& entry : fs::directory_iterator(directory / "checkpoints", error)) {
    if (entry.path().filename().string().starts_with("best")) fs::remove_all(entry.path(), error);
  }
  fs::remove(directory / "result.json", error);
}

/// A new run would replace it.
void refuse_others_files(const fs::path& directory) {
  if (!fs::exists(directory / "config.json")) return;
  try {
    static_cast<void>(read_run_config(directory));
  } catch (const CorruptFile&) {
    throw InvalidArgument(
        fmt::format("{} has a config.json that no run has written: choose another directory",
                    directory.string()));
  }
}

/// Of who only looks whether somebody trains (`shoal stat`) and shares the lock for a moment.
constexpr std::chrono::seconds kLook{1};

/// False where another process trains.
bool take(int lock_fd) {
  const os::Deadline deadline = os::deadline_after(kLook);
  while (::flock(lock_fd, LOCK_EX | LOCK_NB) != 0) {
    if (os::Clock::now() >= deadline || ::flock(lock_fd, LOCK_SH | LOCK_NB) != 0) return false;
    ::flock(lock_fd, LOCK_UN);
    ::sched_yield();
  }
  return true;
}

}  // namespace

RunDirectory::RunDirectory(fs::path path, Mode mode) : path_(std::move(path)) {
  if (mode == Mode::kResume && !fs::exists(find_directory(last())))
    throw InvalidArgument(
        fmt::format("{} holds no run to resume: there is no {}", path_.string(), last().string()));
  if (mode == Mode::kNew && fs::exists(find_directory(last())))
    throw InvalidArgument(fmt::format(
        "{} already holds a run: go on with it by resume=True, or choose another directory",
        path_.string()));
  if (mode == Mode::kNew) refuse_others_files(path_);
  make_directories(path_);
  lock_fd_ = open_or_throw(path_ / "lock", O_RDWR | O_CREAT);
  if (!take(lock_fd_)) {
    ::close(lock_fd_);
    throw InvalidState(fmt::format(
        "another process is training in {}: name another directory, or wait for its end",
        path_.string()));
  }
  if (mode == Mode::kNew) remove_remains(path_);
}

RunDirectory::~RunDirectory() { release(); }

void RunDirectory::release() noexcept {
  // The lock is of all who have the descriptor: a forked child would keep it. The copy in such a child lets go of nothing.
  if (lock_fd_ >= 0 && maker_.is_this()) static_cast<void>(::flock(lock_fd_, LOCK_UN));
  for (int* fd : {&progress_fd_, &lock_fd_})
    if (*fd >= 0) ::close(std::exchange(*fd, -1));
}

void RunDirectory::write_config(json config) const {
  config["format"] = kFormat;
  config["version"] = kVersion;
  replace_file(path_ / "config.json", config.dump(1) + "\n");
}

void RunDirectory::write_result(const json& result) const {
  replace_file(path_ / "result.json", result.dump(1) + "\n");
}

void RunDirectory::start_progress(std::int64_t step) {
  const auto path = path_ / "progress.jsonl";
  replace_file(path, step > 0 && fs::exists(path) ? lines_until(path, step) : std::string());
  if (progress_fd_ >= 0) ::close(progress_fd_);
  progress_fd_ = open_or_throw(path, O_WRONLY | O_APPEND);
}

void RunDirectory::append_progress(const ScalarRecord& record) {
  nlohmann::ordered_json line = {{"step", record.step}, {"seconds", record.seconds}};
  for (const auto& [name, value] : record.values) line[name] = value;
  const auto text = line.dump() + "\n";
  if (::write(progress_fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw SystemError("append to " + (path_ / "progress.jsonl").string());
}

json read_run_config(const fs::path& run_directory) {
  const auto path = run_directory / "config.json";
  if (!fs::exists(path))
    throw CorruptFile(fmt::format("{} is not the directory of a run: it has no config.json",
                                  run_directory.string()));
  const auto bytes = read_file(path);
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  auto config = env::parse_json({text, bytes.size()});
  if (!config.is_object() || config.value("format", json()) != kFormat)
    throw CorruptFile(fmt::format("{} was not written by Shoal", path.string()));
  if (config.value("version", json()) != kVersion)
    throw CorruptFile(
        fmt::format("{} has another version than this Shoal reads ({})", path.string(), kVersion));
  return config;
}

}  // namespace shoal::learn
