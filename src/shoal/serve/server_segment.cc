#include "shoal/serve/server_segment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <set>

#include "shoal/os/clock.h"

namespace shoal::serve {
namespace {

constexpr std::uint32_t kMagic = 0x4c414853;  // "SHAL"
constexpr std::size_t kMaxModels = 256;

}  // namespace

ServerSegment ServerSegment::create(std::span<const std::string> models) {
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
  ServerSegment segment;
  segment.arena_ = shm::Arena::create(
      "shoal-serve-server", sizeof(ServerSegmentHeader) + models.size() * sizeof(ModelStatistics));
  segment.header_ = segment.arena_.at<ServerSegmentHeader>(0);
  segment.header_->magic = kMagic;
  segment.header_->version = kServerSegmentVersion;
  segment.header_->models = static_cast<std::uint32_t>(models.size());
  segment.header_->started_ns = os::now_ns();
  segment.header_->pid = static_cast<std::uint32_t>(::getpid());
  segment.models_ = {segment.arena_.at<ModelStatistics>(sizeof(ServerSegmentHeader), models.size()),
                     models.size()};
  for (std::size_t i = 0; i < models.size(); ++i) {
    std::memcpy(segment.models_[i].name, models[i].data(), models[i].size());
  }
  return segment;
}

ServerSegment ServerSegment::attach(os::Fd fd) {
  ServerSegment segment;
  segment.arena_ = shm::Arena::attach(std::move(fd));
  if (segment.arena_.size() < sizeof(ServerSegmentHeader))
    throw Error("this is no segment of a model service");
  segment.header_ = segment.arena_.at<ServerSegmentHeader>(0);
  const std::size_t models = segment.header_->models;
  if (segment.header_->magic != kMagic || segment.header_->version != kServerSegmentVersion ||
      models > kMaxModels ||
      segment.arena_.size() < sizeof(ServerSegmentHeader) + models * sizeof(ModelStatistics)) {
    throw Error("this is no segment of a model service, or one of another version of Shoal");
  }
  segment.models_ = {segment.arena_.at<ModelStatistics>(sizeof(ServerSegmentHeader), models),
                     models};
  return segment;
}

}  // namespace shoal::serve
