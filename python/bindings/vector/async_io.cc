#include "vector/async_io.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>
#include <utility>

#include "bytes.h"
#include "numpy_api.h"
#include "shoal/os/error.h"
#include "shoal/shm/layout.h"
#include "shoal/vector/native/engine_request.h"
#include "vector/batch_io.h"
#include "vector/deep_copy.h"
#include "waiting.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

template <class T>
nb::object copy_of(shm::DType dtype, std::span<const T> values) {
  nb::object array = new_array({dtype, {static_cast<std::int64_t>(values.size())}});
  std::memcpy(array_data(array), values.data(), values.size() * sizeof(T));
  return array;
}

template <class T>
nb::object view_of(shm::DType dtype, std::span<const T> values, nb::handle owner) {
  auto* data = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(values.data()));
  return array_view({data, static_cast<std::int64_t>(values.size()), {dtype, {}}}, owner, true);
}

nb::object keeper_of(std::shared_ptr<const void> lease) {
  using Kept = std::shared_ptr<const void>;
  return nb::capsule(new Kept(std::move(lease)),
                     [](void* kept) noexcept { delete static_cast<Kept*>(kept); });
}

vector::AsyncVectorEnv& async_env(vector::VectorEnv& envs) {
  auto* async = dynamic_cast<vector::AsyncVectorEnv*>(&envs);
  if (async == nullptr) throw InvalidArgument("these environments are stepped all together");
  return *async;
}

}  // namespace

AsyncIo::AsyncIo(const std::shared_ptr<vector::VectorEnv>& envs, nb::handle observation_space,
                 nb::handle action_space, bool episode_statistics)
    : owner_(envs),
      envs_(async_env(*envs)),
      observations_(observation_space),
      actions_(action_space),
      call_(local_stepper(envs_) != nullptr),
      episode_statistics_(episode_statistics) {
  ensure_numpy();
  const std::int64_t n = envs_.num_envs();
  observed_ = ObjectRows(observations_.objects(), envs_.num_envs());
  finals_ = ObjectRows(observations_.objects(), envs_.num_envs());
  shm::LayoutBuilder layout;
  std::vector<std::size_t> offsets;
  for (const shm::TensorView& leaf : envs_.actions()) {
    offsets.push_back(layout.add_bytes(static_cast<std::size_t>(n) * leaf.row_bytes()));
  }
  const std::string name = "shoal actions";
  if (layout.bytes() > 0)
    staging_ = os::Mapping::map(os::Memfd::create(name, layout.bytes(os::page_size())), name);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    staged_.push_back({staging_.data() + offsets[i], n, envs_.actions()[i].row});
  }
  std::vector<std::int64_t> all(static_cast<std::size_t>(n));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  all_ids_ = copy_of<std::int64_t>(shm::DType::kI64, all);
  env_ids_ = all_ids_;
}

void AsyncIo::take_ids(nb::handle ids) {
  nb::object array = nb::borrow(ids);
  if (ids.is_none()) array = env_ids_;
  if (!PyArray_Check(array.ptr()) ||
      PyArray_TYPE(reinterpret_cast<PyArrayObject*>(array.ptr())) != NPY_INT64) {
    // Whatever holds integers and nothing else: an empty list has no type, and a mask is none.
    array = nb::steal(PyArray_FromAny(array.ptr(), nullptr, 0, 0, 0, nullptr));
    if (!array) throw nb::python_error();
    auto* given = reinterpret_cast<PyArrayObject*>(array.ptr());
    const bool integers = PyArray_ISINTEGER(given) || PyArray_SIZE(given) == 0;
    if (!integers) {
      throw nb::type_error("send(): env_ids must be integers, the numbers of the environments");
    }
    array = nb::steal(PyArray_FromAny(array.ptr(), PyArray_DescrFromType(NPY_INT64), 0, 0,
                                      NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST, nullptr));
    if (!array) throw nb::python_error();
  }
  auto* values = reinterpret_cast<PyArrayObject*>(array.ptr());
  if (PyArray_NDIM(values) != 1) {
    throw InvalidArgument(
        fmt::format("send(): env_ids must have one dimension, got {}", PyArray_NDIM(values)));
  }
  ids_.resize(static_cast<std::size_t>(PyArray_DIM(values, 0)));
  if (PyArray_ISCARRAY_RO(values)) {
    if (!ids_.empty())
      std::memcpy(ids_.data(), PyArray_DATA(values), ids_.size() * sizeof(ids_[0]));
    return;
  }
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    ids_[i] = *static_cast<std::int64_t*>(PyArray_GETPTR1(values, static_cast<npy_intp>(i)));
  }
}

// One action an id, in the order of the ids.
void AsyncIo::stage(nb::handle actions) {
  if (ids_.size() > static_cast<std::size_t>(envs_.num_envs())) {
    throw InvalidArgument(
        fmt::format("send(): {} env_ids for {} environments", ids_.size(), envs_.num_envs()));
  }
  for (shm::TensorView& leaf : staged_) leaf.rows = static_cast<std::int64_t>(ids_.size());
  if (actions_.objects() != 0)
    sent_ = ObjectRows(actions_.objects(), static_cast<int>(ids_.size()));
  try {
    actions_.store_batch(actions.ptr(), staged_, &sent_);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(
        fmt::format("send(): actions that do not fit, one for each env_id: {}", error.what()));
  }
}

// Actions without arrays go to the environments in this process as they are, to others pickled.
void AsyncIo::hand_over_objects() {
  if (actions_.objects() == 0) return;
  if (PyStepper* stepper = local_stepper(envs_)) {
    for (std::size_t i = 0; i < ids_.size(); ++i)
      stepper->actions().set_row(static_cast<int>(ids_[i]), sent_.row(static_cast<int>(i)));
    return;
  }
  const nb::object dumps = nb::module_::import_("shoal.ipc.cloudpickling").attr("dumps");
  std::vector<std::vector<std::byte>> messages;  // all before the first is left: one may fail
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const nb::object action = dumps(sent_.row(static_cast<int>(i)));
    const auto bytes =
        nb::cast<nb::bytes>(dumps(nb::make_tuple("set_action", nb::make_tuple(ids_[i], action))));
    const auto* data = static_cast<const std::byte*>(bytes.data());
    messages.emplace_back(data, data + bytes.size());
  }
  for (std::size_t i = 0; i < ids_.size(); ++i)
    envs_.tell_with_step(static_cast<std::size_t>(ids_[i]), std::move(messages[i]));
}

// From the staging to the environments' own rows, which nobody reads now.
void AsyncIo::spread() noexcept {
  for (std::size_t leaf = 0; leaf < staged_.size(); ++leaf) {
    const shm::TensorView& to = envs_.actions()[leaf];
    const std::size_t bytes = to.row_bytes();
    const std::byte* from = staged_[leaf].data;
    if (bytes == sizeof(std::int64_t)) {
      for (const std::int64_t id : ids_) {
        std::memcpy(to.data + id * sizeof(std::int64_t), from, sizeof(std::int64_t));
        from += sizeof(std::int64_t);
      }
      continue;
    }
    for (const std::int64_t id : ids_) {
      std::memcpy(to.data + static_cast<std::size_t>(id) * bytes, from, bytes);
      from += bytes;
    }
  }
}

void AsyncIo::send(nb::handle actions, nb::handle ids) {
  take_ids(ids);
  envs_.require_sendable(ids_);
  stage(actions);
  hand_over_objects();
  spread();
  const nb::gil_scoped_release unlocked;
  envs_.send(ids_);
}

AsyncIo::Seeds AsyncIo::seeds_of(nb::handle seeds, nb::handle mask) const {
  Seeds all;
  if (!seeds.is_none()) {
    for (nb::handle seed : seeds) {
      all.values.emplace_back();
      if (!seed.is_none()) all.values.back() = nb::cast<std::uint64_t>(seed);
    }
  }
  if (!mask.is_none()) {
    all.mask = {static_cast<const std::uint8_t*>(array_data(mask)),
                static_cast<std::size_t>(envs_.num_envs())};
  }
  return all;
}

void AsyncIo::send_reset(nb::handle seeds, nb::handle mask) {
  const Seeds all = seeds_of(seeds, mask);
  const nb::gil_scoped_release unlocked;
  envs_.send_reset(all.values, all.mask);
}

void AsyncIo::tell_with_reset(const std::vector<std::int64_t>& ids,
                              const std::vector<nb::bytes>& messages) {
  std::vector<std::vector<std::byte>> told;
  for (const nb::bytes& message : messages) {
    const auto* data = static_cast<const std::byte*>(message.data());
    told.emplace_back(data, data + message.size());
  }
  envs_.tell_with_reset(ids, std::move(told));
}

void AsyncIo::set_reset_options(const std::vector<std::int64_t>& ids, const std::string& options) {
  const nb::gil_scoped_release unlocked;
  if (!options.empty() && options != checked_options_) {
    vector::check_reset_options(envs_, options);
    checked_options_ = options;
  }
  vector::tell_reset_options(envs_, ids, options);
}

void AsyncIo::reset_async(nb::handle seeds, nb::handle mask) {
  const Seeds all = seeds_of(seeds, mask);
  call_.begin([&] { envs_.reset_async(all.values, all.mask); });
}

void AsyncIo::step_async(nb::handle actions) {
  ids_.resize(static_cast<std::size_t>(envs_.num_envs()));
  std::iota(ids_.begin(), ids_.end(), std::int64_t{0});
  envs_.require_idle("step");
  stage(actions);
  hand_over_objects();
  spread();
  call_.begin([&] { envs_.step_async(); });
}

nb::object AsyncIo::recv(std::optional<double> timeout, std::optional<nb::list> kept) {
  vector::Arrivals arrivals;
  {
    const nb::gil_scoped_release unlocked;
    arrivals = envs_.recv(nanoseconds(timeout));
  }
  const nb::object keeper = keeper_of(std::exchange(arrivals.lease, {}));
  last_ = std::move(arrivals);
  const vector::Batch& batch = last_.batch;
  if (has_objects()) last_ids_.assign(last_.env_ids.begin(), last_.env_ids.end());
  if (observations_.objects() != 0) take_objects();
  const ObjectRows objects = observed_of(last_ids_);
  const int extra = this->extra();
  // Of their own: the block may be the next one's when its arrays are gone.
  has_final_.assign(batch.has_final.begin(), batch.has_final.end());
  fault_.assign(batch.fault.begin(), batch.fault.end());
  env_ids_ = view_of(shm::DType::kI64, last_.env_ids, keeper);
  nb::object result =
      nb::make_tuple(observations_.view_batch(batch.obs, keeper, &objects),
                     view_of(shm::DType::kF64, batch.reward, keeper),
                     view_of(shm::DType::kBool, batch.terminated, keeper),
                     view_of(shm::DType::kBool, batch.truncated, keeper), env_ids_, extra);
  if (kept) kept->append(result);
  return result;
}

void AsyncIo::discard(std::optional<double> timeout) {
  const nb::gil_scoped_release unlocked;
  envs_.discard(nanoseconds(timeout));
}

vector::Batch AsyncIo::wait(std::optional<double> timeout) {
  if (call_.is_kept()) return last_.batch;
  call_.end([&] {
    last_ = {};
    last_.batch = envs_.wait(nanoseconds(timeout));
  });
  last_.infos = envs_.home_infos();
  if (observations_.objects() != 0) {
    last_ids_.resize(static_cast<std::size_t>(envs_.num_envs()));
    std::iota(last_ids_.begin(), last_ids_.end(), std::int64_t{0});
    take_objects();
  }
  env_ids_ = all_ids_;
  has_final_.assign(last_.batch.has_final.begin(), last_.batch.has_final.end());
  fault_.assign(last_.batch.fault.begin(), last_.batch.fault.end());
  call_.keep();
  return last_.batch;
}

nb::object AsyncIo::reset_wait(std::optional<double> timeout) {
  const vector::Batch batch = wait(timeout);
  std::fill(has_final_.begin(), has_final_.end(), std::uint8_t{0});
  const ObjectRows objects = observed_of(last_ids_);
  return nb::make_tuple(observations_.load_batch(batch.obs, &objects),
                        extra() & BatchIo::kOfResets);
}

nb::object AsyncIo::step_wait(std::optional<double> timeout) {
  const vector::Batch batch = wait(timeout);
  const ObjectRows objects = observed_of(last_ids_);
  return nb::make_tuple(observations_.load_batch(batch.obs, &objects),
                        copy_of(shm::DType::kF64, batch.reward), flags(batch.terminated),
                        flags(batch.truncated), extra());
}

int AsyncIo::extra() const {
  const bool infos = observations_.objects() != 0 ? nb::len(decoded_) != 0 : !last_.infos.empty();
  int extra = infos ? BatchIo::kInfos : BatchIo::kNothing;
  if (any_flag(last_.batch.has_final)) extra |= BatchIo::kFinal;
  if (any_not_zero(last_.batch.fault)) extra |= BatchIo::kFault;
  const bool ended = any_not_zero(last_.batch.terminated) || any_not_zero(last_.batch.truncated);
  if (episode_statistics_ && ended) extra |= BatchIo::kEpisodes;
  return extra;
}

nb::object AsyncIo::episodes() const { return episodes_of(last_.batch); }

// Observations without arrays come with the infos (py_stepper.h).
void AsyncIo::take_objects() {
  decoded_ = nb::list();
  const nb::object loads = nb::module_::import_("pickle").attr("loads");
  for (const vector::Arrivals::Info& info : last_.infos) {
    if (info.bytes.empty()) continue;
    const nb::object message = loads(to_bytes(info.bytes));
    const nb::object entries = message[0];
    if (nb::len(entries) != 0) decoded_.append(nb::make_tuple(info.slot, message));
    for (nb::handle pair : message[1]) observed_.set_row(nb::cast<int>(pair[0]), pair[1]);
    for (nb::handle pair : message[2]) finals_.set_row(nb::cast<int>(pair[0]), pair[1]);
  }
}

// The caller's own copies, a row an id.
ObjectRows AsyncIo::observed_of(std::span<const std::int64_t> ids) const {
  ObjectRows rows(observations_.objects(), static_cast<int>(ids.size()));
  if (observations_.objects() == 0) return rows;
  for (std::size_t i = 0; i < ids.size(); ++i)
    rows.set_row(static_cast<int>(i), deep_copy(observed_.row(static_cast<int>(ids[i]))));
  return rows;
}

nb::object AsyncIo::infos() const {
  if (observations_.objects() != 0) return decoded_;
  nb::list messages;
  for (const vector::Arrivals::Info& info : last_.infos) {
    messages.append(nb::make_tuple(info.slot, to_bytes(info.bytes)));
  }
  return messages;
}

nb::object AsyncIo::final_observation(int slot) const {
  const int env = observations_.objects() == 0
                      ? 0
                      : static_cast<int>(last_ids_[static_cast<std::size_t>(slot)]);
  return observations_.load(last_.batch.final_obs, slot, &finals_, env);
}

nb::object AsyncIo::has_final() const { return flags(has_final_); }

nb::object AsyncIo::fault() const { return copy_of<std::uint8_t>(shm::DType::kU8, fault_); }

nb::object AsyncIo::flags(std::span<const std::uint8_t> values) const {
  return copy_of(shm::DType::kBool, values);
}

void AsyncIo::environments_changed() {
  if (PyStepper* stepper = local_stepper(envs_)) stepper->face_has_changed();
}

int AsyncIo::traverse(visitproc visit, void* arg) const {
  const nb::handle envs = nb::find(owner_);
  Py_VISIT(envs.ptr());
  Py_VISIT(env_ids_.ptr());
  Py_VISIT(decoded_.ptr());
  for (const ObjectRows* rows : {&observed_, &finals_, &sent_}) {
    if (const int stop = rows->traverse(visit, arg)) return stop;
  }
  return 0;
}

}  // namespace shoal::python
