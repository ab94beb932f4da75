#pragma once
// The rule by which tasks that run at the same time on a rank slow each other. Replays and the emulated cluster share
// it.
//
// The rate of a running task, alpha included, is 1 / (product of the factors of all other tasks that run on its rank at
// that time); queued tasks do not count. Factors depend on the resources of the tasks, not on their lanes: a collective
// uses its group's network, so a `comm` lane uses inter and intra in turn; a task without a group uses `compute` on the
// compute lane and the device's memory (`copy`) on any other lane. In addition, n tasks that use the same network at
// the same time each get 1/n of it. When a task begins while another one runs, each of the two takes longer by the
// profile's stall for this pair.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "moe/base/enum_array.h"
#include "moe/prices/profile.h"

namespace moe {

Resource resource_of(GroupKind group, LaneKind lane, const GroupNetworks& networks);
Resource resource_of(const Task& task, const Lane& lane, const GroupNetworks& networks);
/// Returns the resource of each task, as the number of the enumerator.
std::vector<int> resources_of(const Plan& plan);

class Slowdown {
 public:
  /// Throws BadInput for a factor below 1 or a stall below 0.
  explicit Slowdown(const Contention& contention);
  /// Returns the factor by which a task on `resource` is slowed while running[r] tasks, itself included, use each
  /// resource r.
  double operator()(std::span<const int> running, int resource) const;
  /// Returns the rate of a task on resource `of` while the tasks `running`, itself included, run: seconds of its
  /// uncontended time per second. `resource_of` returns the resource of an element of `running`.
  template <class Running, class ResourceOf>
  double rate(const Running& running, ResourceOf resource_of, Resource of) const {
    EnumArray<Resource, int, kResources> count{};
    for (const auto& each : running) ++count[std::invoke(resource_of, each)];
    return 1 / (*this)(count, static_cast<int>(of));
  }
  /// Returns the seconds that a task on `resource` loses when it and a task on `by` begin to overlap.
  double stall_s(int resource, int by) const;
  bool stalls() const { return stalls_; }

 private:
  EnumArray<Resource, EnumArray<Resource, double, kContendedResources>, kContendedResources> factors_{},
      stall_s_{};  // [slowed][by]
  bool stalls_ = false;
};

/// Returns, for each resource, the largest number of a stage's tasks that can use it at the same time: the number of
/// lanes with tasks on it.
EnumArray<Resource, uint32_t, kContendedResources> max_at_once(const Structure& structure,
                                                               const GroupNetworks& networks);

/// A Slowdown as a table, with a row for every combination of numbers of running tasks per resource, up to `most`.
class SlowdownTable {
 public:
  SlowdownTable(const Contention& contention, const EnumArray<Resource, uint32_t, kContendedResources>& most);
  /// Returns the amount by which a running task of that resource increases the row index `running`.
  uint32_t step(Resource resource) const { return step_[resource]; }
  double operator()(uint32_t running, Resource resource) const { return rows_[running][resource]; }
  bool stalls() const { return slowdown_.stalls(); }
  double stall_s(Resource resource, Resource by) const {
    return slowdown_.stall_s(static_cast<int>(resource), static_cast<int>(by));
  }

 private:
  Slowdown slowdown_;
  EnumArray<Resource, uint32_t, kResources> step_{};
  std::vector<EnumArray<Resource, double, kResources>> rows_;
};

/// Returns whether tasks of the plan slow each other, by factors or because lanes share a network.
bool slows_itself(const Plan& plan, const Contention& contention);

}  // namespace moe
