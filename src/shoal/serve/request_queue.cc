#include "shoal/serve/request_queue.h"

#include <fmt/format.h>

#include <utility>

#include "shoal/shm/layout.h"

namespace shoal::serve {
namespace {

constexpr std::uint32_t kMagic = 0x55455551;  // "QUEU"
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kMaxBuffers = 1024;
constexpr std::uint32_t kMaxRows = 1u << 20;

struct Offsets {
  std::vector<std::size_t> heads, cells, leaves;
  std::size_t bytes = 0;
};

Offsets offsets_of(const RowSpec& inputs, RequestQueue::Layout layout) {
  shm::LayoutBuilder builder;
  Offsets offsets;
  builder.add<RequestQueueHeader>();
  for (std::uint32_t b = 0; b < layout.buffers; ++b) {
    offsets.heads.push_back(builder.add<BufferHeader>());
    offsets.cells.push_back(builder.add<RowCell>(layout.max_rows));
  }
  for (const shm::TensorSpec& leaf : inputs) {
    const std::size_t rows = std::size_t{layout.buffers} * layout.max_rows;
    offsets.leaves.push_back(builder.add_bytes(rows * leaf.bytes(), 4096));
  }
  offsets.bytes = builder.bytes(4096);
  return offsets;
}

}  // namespace

RequestQueue::RequestQueue(shm::Arena arena, RequestKind kind, Layout layout)
    : arena_(std::move(arena)),
      kind_(std::move(kind)),
      layout_(layout),
      header_(arena_.at<RequestQueueHeader>(0)) {
  const Offsets offsets = offsets_of(kind_.inputs, layout);
  for (const std::size_t at : offsets.heads) heads_.push_back(arena_.at<BufferHeader>(at));
  for (const std::size_t at : offsets.cells) {
    cells_.push_back(arena_.at<RowCell>(at, layout.max_rows));
  }
  for (std::size_t i = 0; i < kind_.inputs.size(); ++i) {
    leaves_.push_back(arena_.base() + offsets.leaves[i]);
    leaf_bytes_.push_back(kind_.inputs[i].bytes());
  }
}

std::unique_ptr<RequestQueue> RequestQueue::create(std::uint32_t id, RequestKind kind,
                                                   Layout layout, bool tells_when_waiting) {
  if (layout.max_rows < 1 || layout.max_rows > kMaxRows || layout.buffers < 1 ||
      layout.buffers > kMaxBuffers) {
    throw InvalidArgument(
        fmt::format("a batch has 1 to {} rows, not {}", kMaxRows, layout.max_rows));
  }
  shm::Arena arena = shm::Arena::create("shoal-serve-queue", offsets_of(kind.inputs, layout).bytes);
  std::unique_ptr<RequestQueue> queue(new RequestQueue(std::move(arena), std::move(kind), layout));
  queue->header_->magic = kMagic;
  queue->header_->version = kVersion;
  queue->header_->id = id;
  queue->header_->buffers = layout.buffers;
  queue->header_->max_rows = layout.max_rows;
  queue->header_->tells_when_waiting = tells_when_waiting ? 1 : 0;
  for (std::uint32_t b = 0; b < layout.buffers; ++b) queue->claims(b).close();
  return queue;
}

std::unique_ptr<RequestQueue> RequestQueue::attach(os::Fd fd, RequestKind kind) {
  shm::Arena arena = shm::Arena::attach(std::move(fd));
  const auto* header =
      arena.size() < sizeof(RequestQueueHeader) ? nullptr : arena.at<RequestQueueHeader>(0);
  if (header == nullptr || header->magic != kMagic || header->version != kVersion) {
    throw Error("this is no queue of a model service, or one of another version of Shoal");
  }
  const Layout layout{header->buffers, header->max_rows};
  if (layout.buffers > kMaxBuffers || layout.max_rows > kMaxRows ||
      offsets_of(kind.inputs, layout).bytes > arena.size()) {
    throw Error(fmt::format("a queue of the model service is not one for rows of {}",
                            describe(kind.inputs)));
  }
  arena.close_fd();
  return std::unique_ptr<RequestQueue>(new RequestQueue(std::move(arena), std::move(kind), layout));
}

}  // namespace shoal::serve
