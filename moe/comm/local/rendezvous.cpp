#include "moe/comm/local/detail/rendezvous.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <utility>

namespace moe::local {

Rendezvous::Rendezvous(std::vector<int> names, double timeout_s)
    : names_(std::move(names)),
      timeout_s_(timeout_s),
      marks_(names_.size()),
      has_arrived_(names_.size(), false),
      operations_(names_.size(), nullptr) {}

Rendezvous::Turn Rendezvous::meet(int member, const Operation& operation) {
  const uint64_t round = arrive(member, operation);
  const auto opened = [&] { return opened_.load(std::memory_order_acquire) >= round; };
  const auto over = [&] { return opened() || failed_.load(std::memory_order_acquire); };
  if (!bell_.wait_until(over, now_s() + timeout_s_)) give_up(operation, round);
  if (!opened()) fail(member, operation);
  return turn_;
}

uint64_t Rendezvous::arrive(int member, const Operation& operation) {
  uint64_t round = 0;
  {
    const std::lock_guard lock(mutex_);
    if (failed_.load(std::memory_order_relaxed)) fail(member, operation);
    round = opened_.load(std::memory_order_relaxed) + 1;
    if (has_arrived_[member]) {
      set_failed(fmt::format("rank {} came to {} before its last operation was over: each stream needs a communicator",
                             names_[member], describe(operation)));
    } else {
      has_arrived_[member] = true;
      operations_[member] = &operation;
      if (++arrived_ < names_.size()) return round;
      arrived_ = 0;
      open();
    }
  }
  bell_.ring();
  return round;
}

void Rendezvous::open() {
  std::string wrong = disagreement(operations_, names_);
  if (!wrong.empty()) return set_failed(std::move(wrong));
  double began_s = 0, at_least_s = 0;
  bool paced = true;
  std::vector<Pacer::Use> uses;
  for (const Operation* operation : operations_) {
    began_s = std::max(began_s, operation->began_s);
    paced &= operation->paced;
    at_least_s = std::max(at_least_s, operation->pace.at_least_s);
    uses.push_back({operation->pace.rank, operation->pace.resource});
  }
  turn_ = {.round = opened_.load(std::memory_order_relaxed) + 1, .began_s = began_s, .paced = paced};
  if (Pacer* pacer = operations_.front()->pace.pacer; pacer && at_least_s > 0)
    turn_.running = pacer->start(std::move(uses), at_least_s);
  else if (at_least_s > 0)
    turn_.ends_s = began_s + at_least_s;
  opened_.fetch_add(1, std::memory_order_release);
}

void Rendezvous::give_up(const Operation& operation, uint64_t round) {
  {
    const std::lock_guard lock(mutex_);
    // Meanwhile the last member may have arrived, or another may have given up.
    if (opened_.load(std::memory_order_relaxed) >= round || failed_.load(std::memory_order_relaxed)) return;
    std::vector<int> missing;
    for (size_t i = 0; i < names_.size(); ++i)
      if (!has_arrived_[i]) missing.push_back(names_[i]);
    set_failed(fmt::format("waited {} s in {} for rank{} {}", timeout_s_, describe(operation),
                           missing.size() == 1 ? "" : "s", fmt::join(missing, ", ")));
  }
  bell_.ring();
}

void Rendezvous::set_failed(std::string reason) {
  reason_ = std::move(reason);
  failed_.store(true, std::memory_order_release);
}

void Rendezvous::fail(int member, const Operation& operation) const {
  if (!aborted_) throw RankFailure(reason_);
  throw Aborted(fmt::format("rank {} in {}: {}", names_[member], describe(operation), reason_));
}

void Rendezvous::depart() {
  {
    const std::lock_guard lock(mutex_);
    if (++departed_ < names_.size()) return;
    departed_ = 0;
    std::fill(has_arrived_.begin(), has_arrived_.end(), false);
    turn_.running.reset();
    closed_.fetch_add(1, std::memory_order_release);
  }
  bell_.ring();
}

void Rendezvous::leave(const Turn& turn) {
  bell_.wait_until([&] { return closed_.load(std::memory_order_acquire) >= turn.round; });
}

void Rendezvous::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_.load(std::memory_order_relaxed)) return;
    aborted_ = true;
    set_failed(reason);
  }
  bell_.ring();
}

}  // namespace moe::local
