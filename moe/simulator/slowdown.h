#pragma once
// How tasks that run at once on a rank slow each other down: the one rule of the replay and of the emulated
// cluster.
//
// A running task's remaining time, alpha included, passes at 1 / product of the factors of the other tasks that run on
// its rank just then; queued tasks do not count. Which factor is decided by what a task uses, not by its lane: a
// collective uses its group's network, so that a `comm` lane is inter or intra by turns; a task without a group uses
// `compute` on the compute lane and the device's memory (`copy`) on any other. Where n tasks are on the same network at
// once, each has 1/n of it, on top of the factors. When a task begins beside a running one, each of the two that the
// profile gives a stall has that much more left.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "moe/base/enum_array.h"
#include "moe/prices/profile.h"

namespace moe {

Resource resource_of(GroupKind group, LaneKind lane, const GroupNetworks& networks);
Resource resource_of(const Task& task, const Lane& lane, const GroupNetworks& networks);
/// Returns the resource of each task, as a number.
std::vector<int> resources_of(const Plan& plan);

class Slowdown {
 public:
  /// Throws BadInput for a factor below 1 or a stall below 0.
  explicit Slowdown(const Contention& contention);
  /// Returns how many times as long a task on `resource` takes while running[r] tasks, itself included, use resource r.
  double operator()(std::span<const int> running, int resource) const;
  /// Returns how many seconds of a task on `of` pass in one while `running`, itself included, run at once;
  /// `resource_of`: of one of these.
  template <class Running, class ResourceOf>
  double rate(const Running& running, ResourceOf resource_of, Resource of) const {
    EnumArray<Resource, int, kResources> count{};
    for (const auto& each : running) ++count[std::invoke(resource_of, each)];
    return 1 / (*this)(count, static_cast<int>(of));
  }
  /// Returns the seconds that a task on `resource` loses when it and one on `by` begin to run side by side.
  double stall_s(int resource, int by) const;
  bool stalls() const { return stalls_; }

 private:
  EnumArray<Resource, EnumArray<Resource, double, kSlowed>, kSlowed> factors_{}, stall_s_{};  // [slowed][by]
  bool stalls_ = false;
};

/// Returns how many tasks of a stage can use each resource at once: as many as there are lanes that ever use it.
EnumArray<Resource, uint32_t, kSlowed> most_at_once(const Structure& structure, const GroupNetworks& networks);

/// A Slowdown as a table: a row for every way in which up to `most` tasks of each resource can run at once.
class SlowdownTable {
 public:
  SlowdownTable(const Contention& contention, const EnumArray<Resource, uint32_t, kSlowed>& most);
  /// Returns what a task of that resource adds to `running`.
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

/// Returns whether tasks of the plan slow each other: there are factors, or lanes that share a network.
bool slows_itself(const Plan& plan, const Contention& contention);

}  // namespace moe
