#include "shoal/env/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "shoal/env/classic/built_ins.h"
#include "shoal/env/edit_distance.h"
#include "shoal/env/frame_stack.h"
#include "shoal/env/json_text.h"
#include "shoal/env/keywords.h"
#include "shoal/env/plugin.h"
#include "shoal/env/segmented/built_in.h"
#include "shoal/os/error.h"

namespace shoal::env {
namespace {

struct Entry {
  EnvSpec spec;
  BatchFactory factory;
};

struct Registry {
  Registry() {
    for (auto& [spec, factory] : classic::built_ins()) add(std::move(spec), std::move(factory));
    auto [spec, factory] = segmented::built_in();
    add(std::move(spec), std::move(factory));
  }

  void add(EnvSpec spec, BatchFactory factory) {
    std::string id = spec.id;
    entries.emplace(std::move(id), Entry{std::move(spec), std::move(factory)});
  }

  std::mutex mutex;
  std::map<std::string, Entry, std::less<>> entries;  // guarded by mutex
};

/// The one list of ids of this process. Never destroyed: plug-ins may register while the program
/// ends.
Registry& registry() {
  static Registry* const the = new Registry;
  return *the;
}

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::string_view without_namespace(std::string_view id) { return id.substr(id.find('/') + 1); }

/// The registered ids that the writer of `id` may have meant, letter case aside, best first; none
/// where none is near.
std::vector<std::string> nearest(std::string_view id, const std::vector<std::string>& ids) {
  const std::string given = in_lower_case(id);
  const std::size_t near = std::max<std::size_t>(2, without_namespace(id).size() / 3);
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const std::string& known : ids) {
    const std::string there = in_lower_case(known);
    const std::size_t bare =
        edit_distance(without_namespace(given), without_namespace(there), near);
    ranked.emplace_back(std::min(bare, edit_distance(given, there, near)), known);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> names;
  for (const auto& [far, known] : ranked) {
    if (far <= near && names.size() < 3) names.push_back(known);
  }
  return names;
}

Entry find_entry(std::string_view id) {
  load_plugins_of_environment();
  Registry& all = registry();
  std::vector<std::string> ids;
  {
    const std::lock_guard lock(all.mutex);
    if (const auto found = all.entries.find(id); found != all.entries.end()) return found->second;
    for (const auto& [known, entry] : all.entries) ids.push_back(known);
  }
  const auto close = nearest(id, ids);
  throw InvalidArgument(
      close.empty() ? fmt::format("no native environment is called \"{}\"; there are: {}", id,
                                  fmt::join(ids, ", "))
                    : fmt::format("no native environment is called \"{}\"; did you mean {}?", id,
                                  fmt::join(close, " or ")));
}

nlohmann::json parse_args(std::string_view args) {
  if (nests_too_deep(args)) {
    throw InvalidArgument(
        fmt::format("environment arguments nest more than {} deep", kMaxJsonDepth));
  }
  try {
    return nlohmann::json::parse(args.empty() ? "{}" : args);
  } catch (const nlohmann::json::exception& error) {  // or a number beyond all that there are
    throw InvalidArgument(fmt::format("environment arguments are not JSON: {}", error.what()));
  }
}

/// "name" or "namespace/name", both of letters, digits and some signs.
bool is_an_id(std::string_view id) {
  constexpr std::size_t kMostBytes = 1000;
  const auto is_name = [](std::string_view name) {
    return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
    });
  };
  const std::size_t slash = id.find('/');
  if (id.size() > kMostBytes) return false;
  return slash == std::string_view::npos
             ? is_name(id)
             : is_name(id.substr(0, slash)) && is_name(id.substr(slash + 1));
}

/// Takes "max_episode_steps" out of `args`.
int episode_limit(nlohmann::json& args, int default_limit) {
  if (!args.is_object()) return default_limit;
  const auto found = args.find("max_episode_steps");
  if (found == args.end()) return default_limit;
  const nlohmann::json value = *found;
  args.erase(found);
  if (value.is_null()) return default_limit;
  if (value == -1) return 0;
  if (value.is_number_integer() && value > 0 && value <= std::numeric_limits<int>::max())
    return value.get<int>();
  throw InvalidArgument(
      fmt::format("max_episode_steps must be a positive integer, -1 for no limit, or null for the "
                  "environment's own, not {}",
                  value.dump()));
}

/// Takes "episode_statistics", "frame_stack" and "reward_clip" out of `args`.
EpisodeOptions take_episode_options(nlohmann::json& args) {
  EpisodeOptions options;
  if (!args.is_object()) return options;
  const auto take = [&args](const char* name) {
    const auto found = args.find(name);
    nlohmann::json value = found == args.end() ? nlohmann::json() : *found;
    args.erase(name);
    return value;
  };
  if (const auto value = take("episode_statistics"); !value.is_null()) {
    if (!value.is_boolean()) {
      throw InvalidArgument(
          fmt::format("episode_statistics must be true or false, not {}", value.dump()));
    }
    options.statistics = value.get<bool>();
  }
  if (const auto value = take("frame_stack"); !value.is_null()) {
    if (!value.is_number_integer() || value < 1 || value > 1'000'000) {
      throw InvalidArgument(
          fmt::format("frame_stack must be a positive integer, not {}", value.dump()));
    }
    options.frame_stack = value.get<int>();
  }
  if (const auto value = take("reward_clip"); !value.is_null()) {
    if (!value.is_array() || value.size() != 2 || !value[0].is_number() || !value[1].is_number() ||
        value[0] > value[1]) {
      throw InvalidArgument(fmt::format(
          "reward_clip must be two numbers, the lower bound first, not {}", value.dump()));
    }
    options.reward_clip = {value[0].get<double>(), value[1].get<double>()};
  }
  return options;
}

/// register_env(), which may throw.
void add(EnvSpec spec, BatchFactory factory) {
  if (!is_an_id(spec.id)) {
    throw InvalidArgument(fmt::format(
        "\"{}\" cannot be an environment's id: write \"name-v0\" or \"namespace/name-v0\"",
        spec.id));
  }
  if (spec.max_episode_steps < 0) {
    throw InvalidArgument(
        fmt::format("max_episode_steps of {} is {}: it must be positive, or 0 for no limit",
                    spec.id, spec.max_episode_steps));
  }
  if (!factory) throw InvalidArgument(fmt::format("{} has no factory", spec.id));
  Registry& all = registry();
  const std::string id = spec.id;
  const std::lock_guard lock(all.mutex);
  if (!all.entries.emplace(id, Entry{std::move(spec), std::move(factory)}).second) {
    throw InvalidArgument(fmt::format("an environment is already registered as \"{}\"", id));
  }
}

/// Throws InvalidArgument unless `batch` is what its factory was asked for.
void check_made(const BatchEnv* batch, int count) {
  if (batch == nullptr) throw InvalidArgument("its factory returned nullptr, not environments");
  if (batch->count() != count) {
    throw InvalidArgument(fmt::format("its factory returned {} environments, {} were asked for",
                                      batch->count(), count));
  }
  check_native("observation", batch->observation_space());
  check_native("action", batch->action_space());
}

}  // namespace

void register_env(EnvSpec spec, BatchFactory factory) {
  const std::string id = spec.id;
  internal::registering(id, [&] { add(std::move(spec), std::move(factory)); });
}

void internal::unregister_env(std::string_view id) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.entries.find(id); found != all.entries.end()) all.entries.erase(found);
}

BatchFactory internal::factory_of_batches(
    std::function<std::unique_ptr<BatchEnv>(int count, int max_episode_steps)> make) {
  return [make = std::move(make)](int count, int max_episode_steps, const nlohmann::json& args) {
    Keywords(args).expect_no_more();
    return make(count, max_episode_steps);
  };
}

BatchFactory internal::factory_of_envs(std::function<std::unique_ptr<Env>()> make_one) {
  return factory_of_batches([make_one = std::move(make_one)](int count, int max_episode_steps) {
    return batch_of_envs(count, max_episode_steps, make_one);
  });
}

std::vector<EnvSpec> registered_envs() {
  load_plugins_of_environment();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<EnvSpec> specs;
  for (const auto& [id, entry] : all.entries) specs.push_back(entry.spec);
  return specs;
}

bool is_registered(std::string_view id) {
  load_plugins_of_environment();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.entries.find(id) != all.entries.end();
}

EnvSpec find_env(std::string_view id) { return find_entry(id).spec; }

std::unique_ptr<BatchEnv> make_batch(std::string_view id, int count, std::string_view args) {
  const Entry entry = find_entry(id);
  try {
    if (count < 1)
      throw InvalidArgument(fmt::format("a batch needs at least one environment, not {}", count));
    nlohmann::json keywords = parse_args(args);
    const int limit = episode_limit(keywords, entry.spec.max_episode_steps);
    const EpisodeOptions options = take_episode_options(keywords);
    std::unique_ptr<BatchEnv> batch = entry.factory(count, limit, keywords);
    check_made(batch.get(), count);
    if (options.frame_stack > 0) batch = stack_frames(std::move(batch), options.frame_stack);
    batch->set_episode_options(options);
    return batch;
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", id, error.what()));
  }
}

}  // namespace shoal::env
