#include "moe/comm/gloo/detail/mesh.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <sched.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <unistd.h>
#include <vector>

namespace moe::gloo {
namespace {

using Works = std::vector<std::pair<c10::intrusive_ptr<c10d::Work>, int>>;  // pending transfers and their peers

// Bytes of a piece. Long messages are sent in pieces so that progress shows on a slow network too.
constexpr int64_t kPiece = 8 << 20;
// Waits never time out, since the failure detector decides when to give up. If a wait of Gloo's timed out, it would
// close all connections, and the peers would take us for the rank that failed.
constexpr auto kForever = std::chrono::hours(24 * 365);

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

/// Adapts our store to c10d's interface for Gloo's connection phase. Other threads may use our store at the same time,
/// and waits end when the run fails.
class Keys final : public c10d::Store {
 public:
  explicit Keys(Rendezvous rendezvous) : rendezvous_(std::move(rendezvous)) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return c10::make_intrusive<Keys>(rendezvous_); }
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    rendezvous_store().set(full(key), {value.begin(), value.end()});
  }
  std::vector<uint8_t> get(const std::string& key) override {
    wait({key}, milliseconds(rendezvous_.timeout_s));
    const std::string value = rendezvous_store().get(full(key));
    return {value.begin(), value.end()};
  }
  int64_t add(const std::string& key, int64_t value) override { return rendezvous_store().add(full(key), value); }
  bool check(const std::vector<std::string>& keys) override { return rendezvous_store().check(full(keys)); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, milliseconds(rendezvous_.timeout_s)); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    const auto missing =
        rendezvous_store().wait(full(keys), static_cast<double>(timeout.count()) / 1e3, rendezvous_.stop);
    require<RankFailure>(!missing, "timed out after {} ms waiting for the address of a rank", timeout.count());
  }
  bool deleteKey(const std::string&) override { return false; }
  int64_t getNumKeys() override { return 0; }

 private:
  store::Store& rendezvous_store() const { return *rendezvous_.store; }
  std::string full(const std::string& key) const { return rendezvous_.name + "/" + key; }
  std::vector<std::string> full(const std::vector<std::string>& keys) const {
    std::vector<std::string> all;
    for (const auto& key : keys) all.push_back(full(key));
    return all;
  }

  const Rendezvous rendezvous_;
};

/// A scope in which threads that the caller starts get the policy SCHED_BATCH, so that they preempt no thread when they
/// wake, and all cores of the process. Gloo's thread spins on a connection's lock while our thread holds it to send. On
/// a shared core it would preempt our thread and spin until its time slice ends: operations of 0.1 ms took 1 to 4 ms
/// (two processes, a core each). On this rank's share of the cores alone, it would wait for other lanes' senders.
class Unhurried {
 public:
  Unhurried() {
    sched_getaffinity(0, sizeof cores_, &cores_);
    cpu_set_t all;
    if (sched_getaffinity(getpid(), sizeof all, &all) == 0)
      sched_setaffinity(0, sizeof all, &all);  // the cores of the main thread
    set(SCHED_BATCH);
  }
  ~Unhurried() {
    set(policy_);
    sched_setaffinity(0, sizeof cores_, &cores_);
  }
  Unhurried(const Unhurried&) = delete;
  Unhurried& operator=(const Unhurried&) = delete;

 private:
  void set(int policy) const {
    if (policy_ != SCHED_OTHER) return;  // the user chose another policy
    const sched_param no_priority{};
    sched_setscheduler(0, policy, &no_priority);
  }

  const int policy_ = sched_getscheduler(0);  // policy of the calling thread
  cpu_set_t cores_{};
};

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

Mesh::Mesh(const Rendezvous& rendezvous, const Member& member) : impl_(std::make_unique<Impl>()) {
  auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(rendezvous.timeout_s));
  options->threads = 0;  // threads of Gloo's collectives; the device has its own for sends and receives
  {
    const Unhurried while_its_thread_starts;
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(member.address));
  }
  impl_->group = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<Keys>(rendezvous), member.rank,
                                                             member.size, std::move(options));
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
  } catch (const std::exception&) {  // posting to a closed connection throws
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

}  // namespace moe::gloo
