#include "moe/comm/gloo/detail/failure_detector.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <sstream>
#include <unistd.h>
#include <utility>

#include "moe/base/log.h"
#include "moe/base/threads.h"

namespace moe::gloo {
namespace {

constexpr const char* kFailure = "failure";  // key of the run's failure, set by the first rank that finds one
constexpr const char* kLeft = "left";
constexpr int kFailedCode = 4;
constexpr double kLeavingIntervalS = 0.02;

std::string heartbeat_key(int rank) { return fmt::format("beat/{}", rank); }

/// A rank's heartbeat: the number sent so far, and the rank that it waits for (-1: none; FailureDetector::kConnecting:
/// the members of a new group).
struct Heartbeat {
  uint64_t count = 0;
  int waits_for = -1;
};

Heartbeat parse(const std::string& text) {
  Heartbeat beat;
  std::istringstream(text) >> beat.count >> beat.waits_for;
  return beat;
}

FailureDetector::Failure silence_failure(int rank, double timeout_s) {
  return {fmt::format("rank {} has not answered for {:.1f} s", rank, timeout_s), rank};
}

FailureDetector::Failure parse_failure(const std::string& text) {
  const size_t space = text.find(' ');
  return {text.substr(space + 1), std::stoi(text.substr(0, space))};
}

}  // namespace

void FailureDetector::announce(store::Store& store, int rank) { store.set(heartbeat_key(rank), "0 -1"); }

FailureDetector::FailureDetector(std::shared_ptr<store::Store> store, Rank self)
    : store_(std::move(store)), self_(std::move(self)), interval_s_(std::min(0.5, self_.timeout_s / 10)) {
  for (int rank = 0; rank < (self_.rank == 0 ? self_.ranks : 1); ++rank)
    if (rank != self_.rank) peers_.push_back({rank, store::Liveness(self_.timeout_s)});
  try {
    thread_ = start_thread("detector", [this] { serve(); });
  } catch (const RankFailure& error) {  // the others would wait for our heartbeats
    store_->set_first(kFailure, fmt::format("{} rank {} failed: {}", self_.rank, self_.rank, error.what()));
    throw;
  }
}

FailureDetector::~FailureDetector() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FailureDetector::fail(const std::string& reason) {
  suspect({reason}, 0);
  verdict();
}

void FailureDetector::suspect(Failure failure, double patience_s) {
  {
    const std::lock_guard lock(mutex_);
    if (reason_) return;
    const double due_s = now_s() + patience_s;
    if (!suspicion_ || due_s < suspicion_->due_s) suspicion_ = {std::move(failure), due_s};
  }
  changed_.notify_all();
}

bool FailureDetector::failed() const {
  const std::lock_guard lock(mutex_);
  return reason_.has_value();
}

std::string FailureDetector::verdict() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reason_.has_value(); });
  return *reason_;
}

void FailureDetector::serve() {
  while (!done(now_s())) {
    try {
      tick();
    } catch (const std::exception& error) {  // the store is lost, and with it the process that serves it
      end({error.what()});
    }
    pause();
  }
  try {
    store_->set(heartbeat_key(self_.rank), kLeft);
  } catch (const store::StoreLost&) {  // no store is left to tell the others
  }
}

/// Returns whether this rank may leave. Rank 0 leaves last, so that the others can read the reason.
bool FailureDetector::done(double now) {
  const std::lock_guard lock(mutex_);
  if (leaving_ && self_.rank != 0) return true;
  const bool all_left = std::ranges::all_of(peers_, &PeerState::left);
  if (!reason_) return leaving_ && all_left;
  if (leaving_ && (all_left || now > ended_s_ + kGraceS)) return true;
  if (now > ended_s_ + kGraceS) end_process(*reason_);
  return false;
}

void FailureDetector::tick() {
  send_heartbeat();
  if (failed()) {
    if (self_.rank == 0) listen();
    return;
  }
  if (store_->check({kFailure})) return end(parse_failure(store_->get(kFailure)));
  std::optional<Failure> failure;
  {
    const std::lock_guard lock(mutex_);
    if (suspicion_ && now_s() >= suspicion_->due_s) failure = suspicion_->failure;
  }
  if (failure) return conclude(check_failure(*failure));
  listen();
  for (const PeerState& other : peers_)
    if (!other.left && other.liveness.timed_out()) return conclude(silence_failure(other.rank, self_.timeout_s));
  if (const auto stall = overdue()) conclude(*stall);
}

// Reports a wait only after it has lasted for some time, since others draw conclusions from it.
void FailureDetector::send_heartbeat() {
  int waits_for = -1;
  for (const Stall& stall : stalls_)
    if (stall.liveness.silent_s() > 2 * interval_s_) waits_for = stall.peer;
  store_->set(heartbeat_key(self_.rank), fmt::format("{} {}", ++beats_, waits_for));
}

std::vector<std::string> FailureDetector::read_heartbeats(const std::vector<int>& ranks) {
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(heartbeat_key(rank));
  return store_->get_all(keys);
}

void FailureDetector::listen() {
  std::vector<int> ranks;
  for (const PeerState& other : peers_) ranks.push_back(other.rank);
  const auto heard = read_heartbeats(ranks);
  for (size_t i = 0; i < heard.size(); ++i) {
    peers_[i].left = peers_[i].left || heard[i] == kLeft;
    peers_[i].liveness.note(parse(heard[i]).count);
  }
}

/// Returns the failure because of which an operation of this rank has timed out; nullopt if no operation has.
std::optional<FailureDetector::Failure> FailureDetector::overdue() {
  const std::vector<Wait> waits = self_.waits();
  std::erase_if(stalls_, [&](const Stall& stall) {
    return std::ranges::none_of(waits, [&](const Wait& wait) { return wait.group == stall.group; });
  });
  for (const Wait& wait : waits) {
    auto stall = std::ranges::find(stalls_, wait.group, &Stall::group);
    if (stall == stalls_.end())
      stall = stalls_.insert(stall, {wait.group, wait.peer, store::Liveness(self_.timeout_s)});
    stall->peer = wait.peer;
    stall->liveness.note(wait.progress);
    if (wait.peer != kConnecting && stall->liveness.timed_out()) return failure_of_peer(wait.peer);
  }
  return std::nullopt;
}

/// Checks whether a rank that seems dead still sends heartbeats: another program can break the connection of two living
/// ranks.
FailureDetector::Failure FailureDetector::check_failure(const Failure& failure) {
  if (failure.gone < 0 || failure.gone == self_.rank) return failure;
  const std::vector<std::string> before = read_heartbeats({failure.gone});
  send_heartbeat();
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * interval_s_));
  const std::vector<std::string> after = read_heartbeats({failure.gone});
  if (after.front() == kLeft || parse(after.front()).count == parse(before.front()).count) return failure;
  return {
      fmt::format("a connection between rank {} and rank {} broke, and both run: another program may have reached "
                  "its port",
                  self_.rank, failure.gone)};
}

/// Follows the waits from `peer` to the rank that it waits for, and so on, to a rank that is dead or waits for no
/// other.
FailureDetector::Failure FailureDetector::failure_of_peer(int peer) {
  std::vector<int> all(self_.ranks);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  const auto before = read_heartbeats(all);
  send_heartbeat();
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * interval_s_));
  const auto after = read_heartbeats(all);
  std::vector<bool> passed(all.size(), false);
  passed[self_.rank] = true;
  for (int at = self_.rank;;) {
    if (passed[peer])
      return {fmt::format("rank {} and rank {} wait for each other in different operations or sizes", at, peer)};
    if (after[peer] == kLeft) return {fmt::format("rank {} has left the run", peer)};
    const Heartbeat beat = parse(after[peer]);
    const bool alive = beat.count != parse(before[peer]).count;
    if (!alive) return silence_failure(peer, self_.timeout_s);
    if (beat.waits_for == kConnecting) return idle(before, after);
    if (beat.waits_for < 0) return {silence_failure(peer, self_.timeout_s).reason};
    passed[peer] = true;
    at = std::exchange(peer, beat.waits_for);
  }
}

/// Finds, from the heartbeats of two moments, a rank that is dead or else one that waits for no other: it is the one
/// that the ranks that still connect wait for.
FailureDetector::Failure FailureDetector::idle(const std::vector<std::string>& before,
                                               const std::vector<std::string>& after) const {
  std::optional<Failure> waits_for_nobody;
  for (size_t rank = 0; rank < after.size(); ++rank) {
    if (static_cast<int>(rank) == self_.rank || after[rank] == kLeft) continue;
    const Heartbeat beat = parse(after[rank]);
    Failure found = silence_failure(static_cast<int>(rank), self_.timeout_s);
    if (beat.count == parse(before[rank]).count) return found;
    if (beat.waits_for == -1 && !waits_for_nobody) waits_for_nobody = {found.reason};
  }
  return waits_for_nobody.value_or(Failure{fmt::format("ranks can't connect within {:.1f} s", self_.timeout_s)});
}

/// Announces the failure to all ranks, unless another rank announced one first; ends this rank with the failure that
/// was first.
void FailureDetector::conclude(const Failure& failure) {
  end(parse_failure(store_->set_first(kFailure, fmt::format("{} {}", failure.gone, failure.reason))));
}

void FailureDetector::end(const Failure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (reason_) return;
    reason_ = failure.reason;
    ended_s_ = now_s();
    if (leaving_) end_process(failure.reason);
  }
  changed_.notify_all();
  for (PeerState& other : peers_) other.left = other.left || other.rank == failure.gone;
  self_.abort();
}

void FailureDetector::end_process(const std::string& reason) {
  if (!self_.ends_process) return;
  log_error(self_.line(reason));
  _exit(kFailedCode);
}

/// Sleeps until the next heartbeat is due or a caller wakes the thread.
void FailureDetector::pause() {
  std::unique_lock lock(mutex_);
  const bool was_leaving = leaving_;
  const auto due = [&] { return suspicion_ && !reason_ && now_s() >= suspicion_->due_s; };
  const std::chrono::duration<double> until(leaving_ ? kLeavingIntervalS : interval_s_);
  changed_.wait_for(lock, until, [&] { return leaving_ != was_leaving || due(); });
}

}  // namespace moe::gloo
