#include "shoal/serve/hall.h"

#include <fmt/format.h>

#include <cstring>
#include <set>

#include "shoal/os/clock.h"

namespace shoal::serve {
namespace {

constexpr std::uint32_t kMagic = 0x4c414853;  // "SHAL"
constexpr std::size_t kMaxModels = 256;

}  // namespace

Hall Hall::create(std::span<const std::string> models) {
  if (models.empty() || models.size() > kMaxModels) {
    throw InvalidArgument(
        fmt::format("a model service has 1 to {} models, not {}", kMaxModels, models.size()));
  }
  std::set<std::string_view> seen;
  for (const std::string& name : models) {
    if (name.empty() || name.size() > ModelStatistics::kMaxNameBytes ||
        name.find('\0') != std::string::npos || !seen.insert(name).second) {
      throw InvalidArgument(
          fmt::format("'{}' cannot name a model: a name has 1 to {} bytes, and each model its own",
                      name, ModelStatistics::kMaxNameBytes));
    }
  }
  Hall hall;
  hall.arena_ = shm::Arena::create("shoal-serve-hall",
                                   sizeof(HallHeader) + models.size() * sizeof(ModelStatistics));
  hall.header_ = hall.arena_.at<HallHeader>(0);
  hall.header_->magic = kMagic;
  hall.header_->version = kHallVersion;
  hall.header_->models = static_cast<std::uint32_t>(models.size());
  hall.header_->started_ns = os::now_ns();
  hall.models_ = {hall.arena_.at<ModelStatistics>(sizeof(HallHeader), models.size()),
                  models.size()};
  for (std::size_t i = 0; i < models.size(); ++i) {
    std::memcpy(hall.models_[i].name, models[i].data(), models[i].size());
  }
  return hall;
}

Hall Hall::attach(os::Fd fd) {
  Hall hall;
  hall.arena_ = shm::Arena::attach(std::move(fd));
  if (hall.arena_.size() < sizeof(HallHeader)) throw Error("this is no hall of a model service");
  hall.header_ = hall.arena_.at<HallHeader>(0);
  const std::size_t models = hall.header_->models;
  if (hall.header_->magic != kMagic || hall.header_->version != kHallVersion ||
      models > kMaxModels ||
      hall.arena_.size() < sizeof(HallHeader) + models * sizeof(ModelStatistics)) {
    throw Error("this is no hall of a model service, or one of another version of Shoal");
  }
  hall.models_ = {hall.arena_.at<ModelStatistics>(sizeof(HallHeader), models), models};
  return hall;
}

}  // namespace shoal::serve
