// Runs a target where libFuzzer is not at hand, by libFuzzer's flags:
//
//   fuzz_NAME [FLAG…] [FOLDER or FILE of inputs]…
//
//   -runs=N                inputs that are made out of the given ones; 0: none, -1 (default): no end
//   -seed=N                of the random numbers (default: 1)
//   -max_total_time=N      seconds; SIGINT and SIGTERM end it as well, with its figures
//   -timeout=N             seconds that an input may take (default: 10)
//   -max_len=N             bytes of an input (default: 4096)
//   -dict=FILE             words that inputs may have, see read_words()
//   -artifact_prefix=PATH  where an input goes that fails (default: ./)
//   -keep=FOLDER           gets the inputs that reached something new (libFuzzer: the first folder)
//
// Where the build counts what is reached (SHOAL_FUZZ), an input that reaches something new is one more
// to make others out of. It ends by one line of figures, or, at the first finding, with another status
// than 0: a crash, what a sanitizer finds, an exception that is none of ours, a hang, a leak of memory
// or of descriptors.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "coverage.h"
#include "input.h"
#include "mutator.h"
#include "watchdog.h"

extern "C" {
__attribute__((weak)) int __lsan_do_recoverable_leak_check();
__attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*,
                                                                             std::size_t),
                                                                    void (*)(const volatile void*));
}

namespace shoal::fuzz {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t told_to_stop = 0;

constexpr std::size_t kMostLeakChecks = 200;  // each looks at all memory
constexpr std::uint64_t kRunsPerLook = 4096;  // between looks at memory and descriptors
constexpr std::size_t kMostDescriptors = 16;  // that a target may open once and keep
constexpr long kMostMemoryKiB = 2L << 20;

struct Options {
  std::int64_t runs = -1;
  std::uint64_t seed = 1;
  std::int64_t max_total_time = 0;
  std::int64_t timeout = 10;
  std::size_t max_len = 4096;
  std::string dict;
  std::string artifact_prefix = "./";
  std::string keep;
  std::vector<std::string> inputs;
};

[[noreturn]] void wrong_use(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with('-')) {
      options.inputs.emplace_back(argument);
      continue;
    }
    const std::size_t equals = argument.find('=');
    if (equals == std::string_view::npos)
      wrong_use("a flag without a value: " + std::string(argument));
    const std::string_view name = argument.substr(1, equals - 1);
    const std::string value(argument.substr(equals + 1));
    if (name == "dict") {
      options.dict = value;
    } else if (name == "artifact_prefix") {
      options.artifact_prefix = value;
    } else if (name == "keep") {
      options.keep = value;
    } else {
      char* end = nullptr;
      const long long number = std::strtoll(value.c_str(), &end, 10);
      if (value.empty() || *end != '\0') wrong_use("not a number: " + std::string(argument));
      if (name == "runs") {
        options.runs = number;
      } else if (name == "seed") {
        options.seed = static_cast<std::uint64_t>(number);
      } else if (name == "max_total_time") {
        options.max_total_time = number;
      } else if (name == "timeout") {
        options.timeout = number;
      } else if (name == "max_len") {
        options.max_len = static_cast<std::size_t>(std::max(1LL, number));
      } else {
        wrong_use("there is no flag -" + std::string(name));
      }
    }
  }
  return options;
}

Bytes read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) wrong_use("cannot read " + path.string());
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// In the order of their names.
std::vector<fs::path> files_of(const std::vector<std::string>& inputs) {
  std::vector<fs::path> files;
  for (const std::string& input : inputs) {
    if (!fs::is_directory(input)) {
      files.emplace_back(input);
      continue;
    }
    std::vector<fs::path> inside;
    for (const auto& entry : fs::recursive_directory_iterator(input)) {
      if (entry.is_regular_file()) inside.push_back(entry.path());
    }
    std::ranges::sort(inside);
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

std::size_t open_descriptors() {
  const fs::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

long memory_kib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Of the thread that runs the inputs.
thread_local std::int64_t blocks_held = 0;

class Driver {
 public:
  explicit Driver(Options options)
      : options_(std::move(options)),
        watchdog_(options_.artifact_prefix, std::chrono::seconds(options_.timeout)),
        mutator_(options_.seed, options_.max_len,
                 options_.dict.empty() ? std::vector<Bytes>() : read_words(options_.dict)) {
    if (__sanitizer_install_malloc_and_free_hooks != nullptr) {
      __sanitizer_install_malloc_and_free_hooks(
          [](const volatile void*, std::size_t) { ++blocks_held; },
          [](const volatile void* block) {
            if (block != nullptr) --blocks_held;
          });
    }
  }

  int run() {
    for (Bytes& seed : seeds()) add(std::move(seed));
    for (const fs::path& file : files_of(options_.inputs)) add(read(file));
    if (corpus_.empty()) add({});
    descriptors_ = open_descriptors();
    const std::size_t given = corpus_.size();
    start_ = Clock::now();
    std::uint64_t made = 0;
    while (options_.runs < 0 || made < static_cast<std::uint64_t>(options_.runs)) {
      if (is_late()) break;
      const std::size_t parent = pick();
      run_one(corpus_[parent].bytes);  // for its comparisons
      for (int children = 8; children > 0; --children) {
        if (options_.runs >= 0 && made >= static_cast<std::uint64_t>(options_.runs)) break;
        Bytes fresh = mutator_.change(corpus_[parent].bytes, corpus_[pick()].bytes, comparisons_);
        ++made;
        if (run_one(fresh)) keep(std::move(fresh));
      }
    }
    look_for_leaks();
    tell(given, made);
    return 0;
  }

 private:
  struct Entry {
    Bytes bytes;
  };

  bool is_late() const {
    if (told_to_stop != 0) return true;
    return options_.max_total_time > 0 &&
           Clock::now() - start_ >= std::chrono::seconds(options_.max_total_time);
  }

  /// The newest are tried more often than the others.
  std::size_t pick() {
    const std::size_t count = corpus_.size();
    if (mutator_.below(3) != 0) return mutator_.below(count);
    const std::size_t newest = std::min<std::size_t>(count, 32);
    return count - 1 - mutator_.below(newest);
  }

  void add(Bytes input) {
    run_one(input);
    corpus_.push_back({std::move(input)});
  }

  void keep(Bytes input) {
    if (!options_.keep.empty()) {
      char name[64];
      std::snprintf(name, sizeof name, "%06zu", corpus_.size());
      std::ofstream(fs::path(options_.keep) / name, std::ios::binary)
          .write(reinterpret_cast<const char*>(input.data()),
                 static_cast<std::streamsize>(input.size()));
    }
    corpus_.push_back({std::move(input)});
  }

  /// Whether it reached something new.
  bool run_one(const Bytes& input) {
    const auto start = Clock::now();
    const std::int64_t held = call(input);
    const auto comparisons = Coverage::comparisons();
    comparisons_.assign(comparisons.begin(), comparisons.end());
    const bool fresh = Coverage::is_new();
    slowest_ = std::max(slowest_, Clock::now() - start);
    ++runs_;
    if (held > 0) suspect(input);
    if (runs_ % kRunsPerLook == 0) look_around(input);
    return fresh;
  }

  /// Returns how many blocks of memory it has taken and not given back.
  std::int64_t call(const Bytes& input) {
    // A copy of just its size: a sanitizer sees a read beyond.
    const Bytes exact(input.begin(), input.end());
    watchdog_.begin(exact);
    Coverage::begin();
    const std::int64_t before = blocks_held;
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(exact.data()), exact.size());
    const std::int64_t held = blocks_held - before;
    watchdog_.end();
    return held;
  }

  /// The input kept memory. Where it does so again it may leak, or another thread gives it back.
  void suspect(const Bytes& input) {
    if (__lsan_do_recoverable_leak_check == nullptr || leak_checks_ >= kMostLeakChecks) return;
    if (call(input) <= 0 || call(input) <= 0) return;
    ++leak_checks_;
    if (__lsan_do_recoverable_leak_check() == 0) return;
    watchdog_.begin(input);
    watchdog_.fail("leak");
  }

  void look_for_leaks() {
    if (__lsan_do_recoverable_leak_check == nullptr || __lsan_do_recoverable_leak_check() == 0)
      return;
    std::fprintf(stderr, "memory was leaked by some of the inputs\n");
    std::exit(77);
  }

  void look_around(const Bytes& input) {
    const bool leaks = open_descriptors() > descriptors_ + kMostDescriptors;
    const bool grows = memory_kib() > kMostMemoryKiB;
    if (!leaks && !grows) return;
    std::fprintf(stderr,
                 "%zu descriptors are open, and there were %zu; %ld MiB of memory are used\n",
                 open_descriptors(), descriptors_, memory_kib() / 1024);
    watchdog_.begin(input);
    watchdog_.fail(leaks ? "descriptors" : "memory");
  }

  void tell(std::size_t given, std::uint64_t made) const {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    std::printf(
        "%llu inputs made of %zu, %.0f a second; %zu places reached, %zu inputs kept, slowest "
        "%.0f ms, %ld MiB; nothing found\n",
        static_cast<unsigned long long>(made), given,
        static_cast<double>(made) / std::max(seconds, 1e-6), Coverage::places(),
        corpus_.size() - given, std::chrono::duration<double, std::milli>(slowest_).count(),
        memory_kib() / 1024);
  }

  const Options options_;
  Watchdog watchdog_;
  Mutator mutator_;
  std::vector<Entry> corpus_;
  std::vector<Comparison> comparisons_;
  std::uint64_t runs_ = 0;
  std::size_t leak_checks_ = 0;
  std::size_t descriptors_ = 0;
  Clock::time_point start_{};
  Clock::duration slowest_{};
};

}  // namespace
}  // namespace shoal::fuzz

int main(int argc, char** argv) {
  for (const int number : {SIGINT, SIGTERM})
    std::signal(number, [](int) { shoal::fuzz::told_to_stop = 1; });
  return shoal::fuzz::Driver(shoal::fuzz::parse(argc, argv)).run();
}
