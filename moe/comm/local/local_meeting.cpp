#include "moe/comm/local/local_meeting.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <utility>

namespace moe {

LocalMeeting::LocalMeeting(std::vector<int> names, double timeout_s)
    : names_(std::move(names)),
      timeout_s_(timeout_s),
      marks_(names_.size()),
      here_(names_.size(), false),
      offers_(names_.size(), nullptr) {}

LocalMeeting::Turn LocalMeeting::meet(int member, const LocalOffer& offer) {
  const uint64_t meeting = arrive(member, offer);
  const auto opened = [&] { return opened_.load(std::memory_order_acquire) >= meeting; };
  const auto over = [&] { return opened() || failed_.load(std::memory_order_acquire); };
  if (!bell_.wait_until(over, now_s() + timeout_s_)) give_up(offer, meeting);
  if (!opened()) fail(member, offer);
  return turn_;
}

uint64_t LocalMeeting::arrive(int member, const LocalOffer& offer) {
  const auto index = static_cast<size_t>(member);
  uint64_t meeting = 0;
  {
    const std::lock_guard lock(mutex_);
    if (failed_.load(std::memory_order_relaxed)) fail(member, offer);
    meeting = opened_.load(std::memory_order_relaxed) + 1;
    if (here_[index]) {
      set_failed(fmt::format("rank {} came to {} before its last operation was over: each stream needs a communicator",
                             names_[index], describe(offer)));
    } else {
      here_[index] = true;
      offers_[index] = &offer;
      if (++arrived_ < names_.size()) return meeting;
      arrived_ = 0;
      open();
    }
  }
  bell_.ring();
  return meeting;
}

void LocalMeeting::open() {
  std::string wrong = disagreement(offers_, names_);
  if (!wrong.empty()) return set_failed(std::move(wrong));
  double began_s = 0, at_least_s = 0;
  std::vector<Pacer::Use> uses;
  for (const LocalOffer* each : offers_) {
    began_s = std::max(began_s, each->began_s);
    at_least_s = std::max(at_least_s, each->pace.at_least_s);
    uses.push_back({each->pace.rank, each->pace.resource});
  }
  turn_ = {.meeting = opened_.load(std::memory_order_relaxed) + 1};
  if (Pacer* pacer = offers_.front()->pace.pacer; pacer && at_least_s > 0)
    turn_.running = pacer->start(std::move(uses), at_least_s);
  else if (at_least_s > 0)
    turn_.ends_s = began_s + at_least_s;
  opened_.fetch_add(1, std::memory_order_release);
}

void LocalMeeting::give_up(const LocalOffer& offer, uint64_t meeting) {
  {
    const std::lock_guard lock(mutex_);
    // The last one may have come, or another given up, since we looked.
    if (opened_.load(std::memory_order_relaxed) >= meeting || failed_.load(std::memory_order_relaxed)) return;
    std::vector<int> missing;
    for (size_t i = 0; i < names_.size(); ++i)
      if (!here_[i]) missing.push_back(names_[i]);
    set_failed(fmt::format("waited {} s in {} for rank{} {}", timeout_s_, describe(offer),
                           missing.size() == 1 ? "" : "s", fmt::join(missing, ", ")));
  }
  bell_.ring();
}

void LocalMeeting::set_failed(std::string reason) {
  reason_ = std::move(reason);
  failed_.store(true, std::memory_order_release);
}

void LocalMeeting::fail(int member, const LocalOffer& offer) const {
  if (!aborted_) throw RankFailure(reason_);
  throw LocalAborted(fmt::format("rank {} in {}: {}", names_[static_cast<size_t>(member)], describe(offer), reason_));
}

void LocalMeeting::depart() {
  {
    const std::lock_guard lock(mutex_);
    if (++departed_ < names_.size()) return;
    departed_ = 0;
    std::fill(here_.begin(), here_.end(), false);
    turn_.running.reset();
    closed_.fetch_add(1, std::memory_order_release);
  }
  bell_.ring();
}

void LocalMeeting::leave(const Turn& turn) {
  bell_.wait_until([&] { return closed_.load(std::memory_order_acquire) >= turn.meeting; });
}

void LocalMeeting::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_.load(std::memory_order_relaxed)) return;
    aborted_ = true;
    set_failed(reason);
  }
  bell_.ring();
}

}  // namespace moe
