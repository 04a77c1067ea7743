#include "vector/batch_io.h"

#include <fmt/format.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "bytes.h"
#include "numpy_api.h"
#include "shoal/os/error.h"
#include "shoal/trace/ticks.h"
#include "shoal/vector/async/async_local_vector_env.h"
#include "shoal/vector/local/serial_vector_env.h"
#include "waiting.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

nb::object vector_of(shm::DType dtype, const void* data, std::size_t count) {
  nb::object array = new_array({dtype, {static_cast<std::int64_t>(count)}});
  std::memcpy(array_data(array), data, count * shm::itemsize(dtype));
  return array;
}

/// Less is copied in a fraction of a microsecond.
constexpr std::size_t kLargeBytes = 16 * 1024;

/// Of a batch's observations and actions, without what has no arrays.
std::size_t bytes_of(const vector::VectorEnv& envs) {
  std::size_t row = 0;
  for (const env::Space* space : {&envs.single_observation_space(), &envs.single_action_space()}) {
    if (env::first_opaque(*space) != nullptr) continue;
    for (const env::Leaf& leaf : env::leaves(*space)) row += leaf.spec.bytes();
  }
  return row * static_cast<std::size_t>(envs.num_envs());
}

/// Keeps lent observations and their memory as they are for as long as it lives.
nb::object keeper_of(std::shared_ptr<vector::VectorEnv> envs, std::shared_ptr<const void> lease) {
  using Kept = std::pair<std::shared_ptr<vector::VectorEnv>, std::shared_ptr<const void>>;
  return nb::capsule(new Kept(std::move(envs), std::move(lease)),
                     [](void* kept) noexcept { delete static_cast<Kept*>(kept); });
}

}  // namespace

bool any_flag(std::span<const std::uint8_t> flags) {
  return !flags.empty() && std::memchr(flags.data(), 1, flags.size()) != nullptr;
}

bool any_not_zero(std::span<const std::uint8_t> values) {
  return std::ranges::any_of(values, [](std::uint8_t value) { return value != 0; });
}

PyStepper* local_stepper(vector::VectorEnv& envs) {
  if (auto* async = dynamic_cast<vector::AsyncLocalVectorEnv*>(&envs)) {
    return async->is_closed() ? nullptr : dynamic_cast<PyStepper*>(&async->stepper(0));
  }
  auto* serial = dynamic_cast<vector::SerialVectorEnv*>(&envs);
  if (serial == nullptr) return nullptr;
  try {
    return dynamic_cast<PyStepper*>(&serial->stepper(0));
  } catch (const InvalidArgument&) {  // closed: it has none
    return nullptr;
  }
}

BatchIo::BatchIo(std::shared_ptr<vector::VectorEnv> envs, nb::handle observation_space,
                 nb::handle action_space, bool copy, bool exact, bool episode_statistics)
    : envs_(std::move(envs)),
      is_local_(local_stepper(*envs_) != nullptr),
      observations_(observation_space),
      actions_(action_space),
      call_(is_local_),
      is_large_(observations_.objects() + actions_.objects() != 0 ||
                bytes_of(*envs_) >= kLargeBytes),
      copy_(copy),
      exact_(exact),
      episode_statistics_(episode_statistics) {
  if (is_local_) return;
  observed_ = ObjectRows(observations_.objects(), envs_->num_envs());
  finals_ = ObjectRows(exact_ ? 1 : observations_.objects(), envs_->num_envs());
  sent_ = ObjectRows(actions_.objects(), envs_->num_envs());
}

void BatchIo::reset_async(nb::handle seeds, nb::handle mask) {
  std::vector<std::optional<std::uint64_t>> values;
  if (!seeds.is_none()) {
    for (nb::handle seed : seeds) {
      values.emplace_back();
      if (!seed.is_none()) values.back() = nb::cast<std::uint64_t>(seed);
    }
  }
  std::span<const std::uint8_t> selected;
  if (!mask.is_none()) {
    selected = {static_cast<const std::uint8_t*>(array_data(mask)),
                static_cast<std::size_t>(envs_->num_envs())};
  }
  call_.begin([&] { envs_->reset_async(values, selected); });
}

void BatchIo::step_async(nb::handle actions) {
  store(actions);
  step_stored();
}

void BatchIo::step_stored() {
  call_.begin([&] { envs_->step_async(); });
}

void BatchIo::store(nb::handle actions) {
  const trace::TickScope scope(trace::Span::kCopy, static_cast<std::uint64_t>(envs_->num_envs()),
                               is_large_);
  PyStepper* stepper = actions_.objects() != 0 ? local() : nullptr;
  try {
    actions_.store_batch(actions.ptr(), envs_->actions(), stepper ? &stepper->actions() : &sent_);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("step(): actions that do not fit: {}", error.what()));
  }
}

nb::object BatchIo::store_actions(nb::handle actions) {
  store(actions);
  nb::list rows;
  for (int row = 0; row < envs_->num_envs(); ++row) rows.append(sent_.row(row));
  return rows;
}

nb::list BatchIo::samples_of(nb::handle actions, int count) const {
  std::vector<std::vector<std::byte>> rooms;
  std::vector<shm::TensorView> leaves;
  for (const shm::TensorView& leaf : envs_->actions()) {
    rooms.emplace_back(static_cast<std::size_t>(count) * leaf.row_bytes());
    leaves.push_back({rooms.back().data(), count, leaf.row});
  }
  ObjectRows objects(actions_.objects(), count);
  actions_.store_batch(actions.ptr(), leaves, &objects);
  nb::list samples;
  for (int row = 0; row < count; ++row) samples.append(actions_.load(leaves, row, &objects, row));
  return samples;
}

nb::object BatchIo::reset_wait(std::optional<double> timeout) {
  last_ = wait(timeout);
  return nb::make_tuple(observations(), extra() & kOfResets);
}

nb::object BatchIo::step_wait(std::optional<double> timeout) {
  last_ = wait(timeout);
  return nb::make_tuple(observations(),
                        vector_of(shm::DType::kF64, last_.reward.data(), last_.reward.size()),
                        flags(last_.terminated), flags(last_.truncated), extra());
}

vector::Batch BatchIo::wait(std::optional<double> timeout) {
  if (call_.is_kept()) return last_;
  vector::Batch batch;
  call_.end([&] { batch = envs_->wait(nanoseconds(timeout)); });
  if ((observations_.objects() != 0 || exact_) && !is_local_) take_objects();
  call_.keep();
  return batch;
}

/// Observations without arrays come with the infos.
void BatchIo::take_objects() {
  if (nb::len(entries_) != 0) entries_ = nb::list();
  for (nb::handle message : messages()) {
    entries_.attr("extend")(message[0]);
    for (nb::handle pair : message[1]) observed_.set_row(nb::cast<int>(pair[0]), pair[1]);
    for (nb::handle pair : message[2]) finals_.set_row(nb::cast<int>(pair[0]), pair[1]);
  }
}

const ObjectRows* BatchIo::observed() const {
  if (observations_.objects() == 0) return nullptr;
  const PyStepper* stepper = local();
  return stepper == nullptr ? &observed_ : &stepper->observed();
}

int BatchIo::extra() const {
  int extra = kNothing;
  if (any_flag(last_.has_final)) extra |= kFinal;
  if (any_not_zero(last_.fault)) extra |= kFault;
  if (episode_statistics_ && (any_not_zero(last_.terminated) || any_not_zero(last_.truncated)))
    extra |= kEpisodes;
  if (const PyStepper* stepper = local()) return stepper->has_infos() ? extra | kInfos : extra;
  if (observations_.objects() != 0 || exact_)
    return nb::len(entries_) != 0 ? extra | kInfos : extra;
  for (int worker = 0; worker < envs_->num_workers(); ++worker) {
    if (!envs_->info(worker).empty()) return extra | kInfos;
  }
  return extra;
}

nb::object BatchIo::infos() const {
  if (PyStepper* stepper = local()) return stepper->infos();
  if (observations_.objects() != 0 || exact_) return entries_;
  nb::list entries;
  for (nb::handle message : messages()) entries.attr("extend")(message[0]);
  return entries;
}

/// What the workers' faces encoded, decoded (py_stepper.h).
nb::list BatchIo::messages() const {
  nb::object loads;
  nb::list messages;
  for (int worker = 0; worker < envs_->num_workers(); ++worker) {
    const auto info = envs_->info(worker);
    if (info.empty()) continue;
    if (!loads) loads = nb::module_::import_("pickle").attr("loads");
    messages.append(loads(to_bytes(info)));
  }
  return messages;
}

nb::object episodes_of(const vector::Batch& batch) {
  const std::size_t n = batch.reward.size();
  const shm::TensorSpec counts{shm::DType::kI64, {static_cast<std::int64_t>(n)}};
  const shm::TensorSpec numbers{shm::DType::kF64, counts.shape};
  nb::object returns = new_array(numbers), lengths = new_array(counts),
             seconds = new_array(numbers);
  nb::object mask = new_array({shm::DType::kBool, counts.shape});
  for (std::size_t i = 0; i < n; ++i) {
    const bool ended = (batch.terminated[i] | batch.truncated[i]) != 0 && batch.fault[i] == 0;
    static_cast<double*>(array_data(returns))[i] = ended ? batch.episode_return[i] : 0;
    static_cast<std::int64_t*>(array_data(lengths))[i] = ended ? batch.episode_length[i] : 0;
    static_cast<double*>(array_data(seconds))[i] = ended ? batch.episode_seconds[i] : 0;
    static_cast<bool*>(array_data(mask))[i] = ended;
  }
  return nb::make_tuple(returns, lengths, seconds, mask);
}

nb::object BatchIo::episodes() const { return episodes_of(last_); }

nb::object BatchIo::final_observation(int row) const {
  const PyStepper* stepper = local();
  const ObjectRows& objects = stepper ? stepper->finals() : finals_;
  if (exact_) return nb::borrow(objects.get(0, row));
  return observations_.load(last_.final_obs, row, &objects, row);
}

nb::object BatchIo::observations() {
  const trace::TickScope scope(trace::Span::kCopy, static_cast<std::uint64_t>(envs_->num_envs()),
                               is_large_);
  const ObjectRows* objects = observed();
  if (copy_) {
    ObjectRows own;
    if (objects != nullptr) own = objects->deep_copied();
    auto lease = envs_->lease_obs();
    if (!lease) return observations_.load_batch(last_.obs, &own);
    return observations_.view_batch(last_.obs, keeper_of(envs_, std::move(lease)), &own);
  }
  if (objects != nullptr) return observations_.view_batch(last_.obs, nb::cast(envs_), objects);
  if (!live_views_) live_views_ = observations_.view_batch(last_.obs, nb::cast(envs_));
  return live_views_;
}

int BatchIo::traverse(visitproc visit, void* arg) const {
  const nb::handle envs = nb::find(envs_);
  Py_VISIT(envs.ptr());
  Py_VISIT(live_views_.ptr());
  Py_VISIT(entries_.ptr());
  for (const ObjectRows* rows : {&observed_, &finals_, &sent_}) {
    if (const int stop = rows->traverse(visit, arg)) return stop;
  }
  return 0;
}

nb::object BatchIo::fault() const {
  return vector_of(shm::DType::kU8, last_.fault.data(), last_.fault.size());
}

nb::object BatchIo::flags(std::span<const std::uint8_t> values) {
  return vector_of(shm::DType::kBool, values.data(), values.size());
}

}  // namespace shoal::python
