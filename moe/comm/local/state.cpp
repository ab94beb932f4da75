#include "moe/comm/local/detail/state.h"

#include <numeric>

namespace moe::local {
namespace {

std::vector<int> all_of(int ranks) {
  std::vector<int> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

Rendezvous& Group::pair(int from, int to) {
  const std::lock_guard lock(mutex_);
  const std::vector<int> names{ranks[from], ranks[to]};
  const auto [found, made] = pairs_.try_emplace({from, to}, names, timeout);
  if (made && !reason_.empty()) found->second.abort(reason_);
  return found->second;
}

void Group::abort(const std::string& reason) {
  operations.abort(reason);
  splits.abort(reason);
  const std::lock_guard lock(mutex_);
  reason_ = reason;
  for (auto& [ends, meeting] : pairs_) meeting.abort(reason);
}

State::State(int ranks, double timeout)
    : timeout_s(timeout), topology({1, ranks, {}, {}, 0}), world(make_group(all_of(ranks))) {}

std::shared_ptr<Group> State::make_group(std::vector<int> world_ranks) {
  auto group = std::make_shared<Group>(std::move(world_ranks), timeout_s);
  const std::lock_guard lock(mutex);
  std::erase_if(groups, [](const auto& known) { return known.expired(); });
  groups.push_back(group);
  if (!reason.empty()) group->abort(reason);
  return group;
}

void State::abort(const std::string& why) {
  const std::lock_guard lock(mutex);
  if (!reason.empty()) return;
  reason = why;
  for (const auto& known : groups)
    if (const auto group = known.lock()) group->abort(reason);
}

}  // namespace moe::local
