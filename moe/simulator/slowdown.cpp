#include "moe/simulator/slowdown.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "moe/base/check.h"
#include "moe/base/enum_array.h"

namespace moe {

Resource resource_of(const Task& task, const Lane& lane, const GroupNetworks& networks) {
  return resource_of(task.group, lane.kind, networks);
}

Resource resource_of(GroupKind group, LaneKind lane, const GroupNetworks& networks) {
  if (lane == LaneKind::receive) return Resource::none;  // its send uses the network
  // Profiles have no contention for these.
  if (lane == LaneKind::host || lane == LaneKind::host_link) return Resource::none;
  if (group == GroupKind::none) return lane == LaneKind::compute ? Resource::compute : Resource::copy;
  switch (networks[group]) {
    case Network::inter:
      return Resource::inter;
    case Network::intra:
      return Resource::intra;
    case Network::none:
      break;
  }
  return Resource::none;
}

std::vector<int> resources_of(const Plan& plan) {
  const GroupNetworks networks = networks_of(plan.groups);
  std::vector<int> resources;
  for (const Task& task : plan.tasks())
    resources.push_back(static_cast<int>(resource_of(task, plan.structure->lanes[task.lane], networks)));
  return resources;
}

Slowdown::Slowdown(const Contention& contention) : stall_s_(contention.stall_s) {
  constexpr double kEndless = std::numeric_limits<double>::infinity();
  for (auto& row : factors_) row.fill(1);
  for (const ContentionPair& pair : contention_pairs()) {
    const double factor = contention.*pair.factor, stall_s = pair.stall_s(contention);
    require<BadInput>(factor >= 1 && factor < kEndless, "contention: {}: found {}, expected a factor >= 1", pair.key(),
                      factor);
    require<BadInput>(stall_s >= 0 && stall_s < kEndless, "contention: {}: found {}, expected seconds >= 0",
                      pair.stall_key(), stall_s);
    factors_[pair.slowed][pair.by] = factor;
    stalls_ |= stall_s > 0;
  }
}

double Slowdown::stall_s(int resource, int by) const {
  const auto slowed = static_cast<size_t>(resource), other = static_cast<size_t>(by);
  return slowed < kContendedResources && other < kContendedResources ? stall_s_[slowed][other] : 0;
}

double Slowdown::operator()(std::span<const int> running, int resource) const {
  const auto slowed = static_cast<size_t>(resource);
  if (slowed >= kContendedResources) return 1;
  const auto used = static_cast<Resource>(resource);
  const bool shared = used == Resource::inter || used == Resource::intra;
  double slowdown = shared ? std::max(1.0, static_cast<double>(running[slowed])) : 1.0;
  for (size_t by = 0; by < kContendedResources; ++by)
    if (by != slowed) slowdown *= std::pow(factors_[slowed][by], static_cast<double>(running[by]));
  return slowdown;
}

EnumArray<Resource, uint32_t, kContendedResources> max_at_once(const Structure& structure,
                                                               const GroupNetworks& networks) {
  std::map<int, EnumArray<Resource, uint32_t, kResources>> users;  // for each stage
  EnumArray<Resource, uint32_t, kContendedResources> most{};
  for (const Lane& lane : structure.lanes) {
    EnumArray<Resource, bool, kResources> used{};
    for (const int id : lane.queue) used[resource_of(structure.tasks[id], lane, networks)] = true;
    auto& of_stage = users[lane.stage];
    for (size_t r = 0; r < kContendedResources; ++r) most[r] = std::max(most[r], of_stage[r] += used[r]);
  }
  return most;
}

SlowdownTable::SlowdownTable(const Contention& contention,
                             const EnumArray<Resource, uint32_t, kContendedResources>& most)
    : slowdown_(contention) {
  uint32_t states = 1;
  for (size_t r = 0; r < kContendedResources; ++r) {
    step_[r] = states;
    states *= most[r] + 1;
  }
  rows_.resize(states);
  for (uint32_t state = 0; state < states; ++state) {
    std::array<int, kContendedResources> running{};
    for (size_t r = 0; r < kContendedResources; ++r) running[r] = static_cast<int>(state / step_[r] % (most[r] + 1));
    for (int slowed = 0; slowed < kResources; ++slowed) rows_[state][slowed] = slowdown_(running, slowed);
  }
}

bool slows_itself(const Plan& plan, const Contention& contention) {
  const auto shares = [](const Lane& lane) { return lane.kind == LaneKind::gradient; };
  return !contention.none() || std::ranges::any_of(plan.structure->lanes, shares);
}

}  // namespace moe
