#pragma once
// How tasks that run at once on a rank slow each other down: the one rule of the replay and of the emulated cluster.
//
// A running task's remaining time, alpha included, passes at 1 / product of the factors of the other tasks that run on
// its rank just then; queued tasks do not count. Which factor is decided by what a task uses, not by its lane: a
// collective uses its group's network, so that a `comm` lane is inter or intra by turns; a task without a group uses
// `compute` on the compute lane, and nothing that slows or is slowed elsewhere (`copy`). Where n tasks are on the same
// network at once, each has 1/n of it, on top of the factors.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "moe/cost/profile.h"

namespace moe {

/// What a task uses; the last is neither slowed nor slows.
enum class Resource : uint8_t { compute, inter, intra, none };
inline constexpr int kResources = 4;
inline constexpr size_t kSlowed = kResources - 1;

/// By GroupKind.
using GroupNetworks = std::array<Network, kGroupKinds>;
GroupNetworks networks_of(const Groups& groups);

Resource resource_of(const Task& task, const Lane& lane, const GroupNetworks& networks);
/// By task id, as numbers.
std::vector<int> resources_of(const Plan& plan);

class Slowdown {
 public:
  /// Throws BadInput for a factor below 1.
  explicit Slowdown(const Contention& contention);
  /// How many times as long a task that uses `resource` takes while running[r] tasks, itself included, use resource r.
  double operator()(std::span<const int> running, int resource) const;

 private:
  std::array<std::array<double, kSlowed>, kSlowed> factors_;  // [slowed][by]
};

/// The same, looked up: one row for every way in which up to `most` tasks can run at once.
class SlowdownTable {
 public:
  SlowdownTable(const Contention& contention, size_t most);
  /// What runs is the sum of its tasks' steps.
  uint32_t step(Resource resource) const { return step_[static_cast<size_t>(resource)]; }
  double operator()(uint32_t running, Resource resource) const { return rows_[running][static_cast<size_t>(resource)]; }

 private:
  std::array<uint32_t, kResources> step_;
  std::vector<std::array<double, kResources>> rows_;
};

/// Whether any tasks of the plan do: there are factors, or lanes that share a network.
bool slows_itself(const Plan& plan, const Contention& contention);

}  // namespace moe
