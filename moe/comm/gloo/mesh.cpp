#include "moe/comm/gloo/mesh.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

namespace moe {
namespace {

using Works = std::vector<std::pair<c10::intrusive_ptr<c10d::Work>, int>>;  // and the peer

// Long messages go in pieces, so that a slow network shows progress.
constexpr int64_t kPiece = 8 << 20;
// Longer than any run: when to give up, the watch decides. A wait of Gloo's own that ends closes all connections, and
// the peers would take us for the one that failed.
constexpr auto kForever = std::chrono::hours(24 * 365);

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

// Messages of another operation or size never match, so ranks that disagree wait instead of reading wrong bytes.
int tag_of(int kind, int64_t bytes) {
  const uint64_t mixed = (static_cast<uint64_t>(bytes) * 16 + static_cast<uint64_t>(kind)) * 0x9E3779B97F4A7C15u;
  return static_cast<int>(mixed >> 33);
}

}  // namespace

struct Mesh::Impl {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
  std::mutex mutex;
  Works works;           // changed under mutex
  bool aborted = false;  // guarded by mutex
  std::atomic<uint64_t> count{0};
  std::atomic<int> peer{-1};

  bool post(std::span<const Message> messages, int kind);
  Result wait();
};

Mesh::Mesh(const StoreAddress& store, const std::string& name, const Member& member, double timeout_s)
    : impl_(std::make_unique<Impl>()) {
  c10d::TCPStoreOptions store_options;
  store_options.port = static_cast<uint16_t>(store.port);
  store_options.waitWorkers = false;
  store_options.timeout = milliseconds(timeout_s);
  // A connection of its own: two threads may make meshes at once, and a wait would block the other's.
  auto keys =
      c10::make_intrusive<c10d::PrefixStore>(name, c10::make_intrusive<c10d::TCPStore>(store.host, store_options));
  auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(timeout_s));
  options->threads = 0;  // they serve Gloo's collectives; sends and receives are the device's
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(member.address));
  impl_->group =
      c10::make_intrusive<c10d::ProcessGroupGloo>(std::move(keys), member.rank, member.size, std::move(options));
}

Mesh::~Mesh() = default;

bool Mesh::Impl::post(std::span<const Message> messages, int kind) {
  std::vector<at::Tensor> tensor(1);
  const std::lock_guard lock(mutex);
  if (aborted) return false;
  for (const Message& message : messages) {
    const int tag = tag_of(kind, message.bytes);
    peer = message.peer;
    for (int64_t at = 0; at < message.bytes; at += kPiece) {
      const int64_t bytes = std::min(kPiece, message.bytes - at);
      tensor[0] = at::from_blob(static_cast<std::byte*>(message.data) + at, {bytes}, at::kByte);
      works.emplace_back(message.send ? group->send(tensor, message.peer, tag) : group->recv(tensor, message.peer, tag),
                         message.peer);
    }
  }
  return true;
}

Mesh::Result Mesh::Impl::wait() {
  for (const auto& [work, from_or_to] : works) {
    peer = from_or_to;
    try {
      if (!work->wait(kForever)) return {End::aborted, from_or_to};
    } catch (const std::exception&) {
      return {End::closed, from_or_to};
    }
    ++count;
  }
  return {};
}

Mesh::Result Mesh::exchange(std::span<const Message> messages, int kind) {
  ++impl_->count;
  Result result;
  try {
    result = impl_->post(messages, kind) ? impl_->wait() : Result{End::aborted};
  } catch (const std::exception&) {  // posting to a closed connection
    result = {End::closed, impl_->peer};
  }
  impl_->peer = -1;
  const std::lock_guard lock(impl_->mutex);
  if (impl_->aborted) result.end = End::aborted;
  impl_->works.clear();
  return result;
}

Progress Mesh::progress() const { return {impl_->count, impl_->peer}; }

void Mesh::abort() {
  const std::lock_guard lock(impl_->mutex);
  impl_->aborted = true;
  for (const auto& [work, peer] : impl_->works) work->abort();
}

}  // namespace moe
