#include "moe/cost/slowdown.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "moe/base/check.h"

namespace moe {

GroupNetworks networks_of(const Groups& groups) {
  GroupNetworks networks{};
  for (size_t kind = 0; kind < networks.size(); ++kind) networks[kind] = groups[kind].network;
  return networks;
}

Resource resource_of(const Task& task, const Lane& lane, const GroupNetworks& networks) {
  if (task.group == GroupKind::none) return lane.kind == LaneKind::compute ? Resource::compute : Resource::none;
  switch (networks[static_cast<size_t>(task.group)]) {
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
    resources.push_back(
        static_cast<int>(resource_of(task, plan.structure->lanes[static_cast<size_t>(task.lane)], networks)));
  return resources;
}

Slowdown::Slowdown(const Contention& c)
    : factors_{{{1, c.compute_by_inter, c.compute_by_intra},
                {c.inter_by_compute, 1, c.inter_by_intra},
                {c.intra_by_compute, c.intra_by_inter, 1}}} {
  for (const auto& row : factors_)
    for (const double factor : row)
      require<BadInput>(factor >= 1 && factor < std::numeric_limits<double>::infinity(),
                        "contention: found {}, expected a factor >= 1", factor);
}

double Slowdown::operator()(std::span<const int> running, int resource) const {
  const auto slowed = static_cast<size_t>(resource);
  if (slowed >= kSlowed) return 1;
  const bool shared = static_cast<Resource>(resource) != Resource::compute;
  double slowdown = shared ? std::max(1.0, static_cast<double>(running[slowed])) : 1.0;
  for (size_t by = 0; by < kSlowed; ++by)
    if (by != slowed) slowdown *= std::pow(factors_[slowed][by], static_cast<double>(running[by]));
  return slowdown;
}

SlowdownTable::SlowdownTable(const Contention& contention, size_t most)
    : step_{1, static_cast<uint32_t>(most + 1), static_cast<uint32_t>((most + 1) * (most + 1)), 0} {
  const Slowdown slowdown(contention);
  const size_t base = most + 1;
  rows_.resize(base * base * base);
  for (size_t running = 0; running < rows_.size(); ++running) {
    const std::array<int, kSlowed> tasks{static_cast<int>(running % base), static_cast<int>(running / base % base),
                                         static_cast<int>(running / base / base)};
    for (size_t slowed = 0; slowed < kResources; ++slowed)
      rows_[running][slowed] = slowdown(tasks, static_cast<int>(slowed));
  }
}

bool slows_itself(const Plan& plan, const Contention& contention) {
  const auto shares = [](const Lane& lane) { return lane.kind == LaneKind::gradient; };
  return !contention.none() || std::ranges::any_of(plan.structure->lanes, shares);
}

}  // namespace moe
