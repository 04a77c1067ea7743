#include "shoal/trace/chrome_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string_view>

#include "shoal/os/error.h"

namespace shoal::trace {
namespace {

constexpr std::size_t kFlushBytes = std::size_t{1} << 16;

std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (byte < 0x20 || byte >= 0x7f) {
      result += fmt::format("\\u{:04x}", byte);
    } else {
      result += c;
    }
  }
  return result + '"';
}

class EventFile {
 public:
  explicit EventFile(const std::string& path)
      : path_(path), file_(std::fopen(path.c_str(), "w"), &std::fclose) {
    if (!file_) throw SystemError(fmt::format("write {}", path));
    text_.append(std::string_view("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n"));
  }

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    if (!std::exchange(first_, false)) text_.append(std::string_view(",\n"));
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    if (text_.size() >= kFlushBytes) flush();
  }

  void end() {
    text_.append(std::string_view("\n]}\n"));
    flush();
    if (std::fclose(file_.release()) != 0) fail();
  }

 private:
  void flush() {
    if (std::fwrite(text_.data(), 1, text_.size(), file_.get()) != text_.size()) fail();
    text_.clear();
  }
  [[noreturn]] void fail() const { throw SystemError(fmt::format("write {}", path_)); }

  const std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  fmt::memory_buffer text_;
  bool first_ = true;
};

double microseconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-3; }

void write_event(EventFile& file, pid_t pid, const Event& event, std::uint64_t origin_ns) {
  const std::uint64_t end_ns = event.start_ns + event.duration_ns;
  if (end_ns <= origin_ns) return;
  const double from = microseconds(std::max(event.start_ns, origin_ns) - origin_ns);
  const double to = microseconds(end_ns - origin_ns);
  const char* const name = name_of(event.span);
  const char* const category = category_of(event.span);
  const char* const what = argument_of(event.span);
  if (!overlaps(event.span)) {
    file.line(
        R"({{"name":"{}","cat":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"{}":{}}}}})",
        name, category, pid, event.thread, from, to - from, what, event.arg);
    return;
  }
  // Told apart by their start: two that overlap do not begin in the same nanosecond of one thread.
  const auto id = fmt::format("{:x}.{:x}", event.thread, event.start_ns);
  file.line(
      R"({{"name":"{}","cat":"{}","ph":"b","id":"{}","pid":{},"tid":{},"ts":{:.3f},"args":{{"{}":{}}}}})",
      name, category, id, pid, event.thread, from, what, event.arg);
  file.line(R"({{"name":"{}","cat":"{}","ph":"e","id":"{}","pid":{},"tid":{},"ts":{:.3f}}})", name,
            category, id, pid, event.thread, to);
}

}  // namespace

void write_chrome_json(const std::string& path, std::span<const CapturedProcess> processes,
                       std::uint64_t origin_ns) {
  EventFile file(path);
  for (const CapturedProcess& process : processes) {
    file.line(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":{}}}}})", process.pid,
              json_string(process.name));
    for (const auto& [thread, name] : process.threads) {
      file.line(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
                process.pid, thread, json_string(name));
    }
    for (const Event& event : process.events) write_event(file, process.pid, event, origin_ns);
  }
  file.end();
}

}  // namespace shoal::trace
