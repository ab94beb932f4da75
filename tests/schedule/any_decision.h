#pragma once
// Schedules and decisions for tests that take them all.
#include <vector>

#include "moe/schedule/schedule.h"

namespace moe::any_decision {

/// Returns whether the schedule has plans of its own, and its flow a meaning on this shape.
bool fits(const Schedule& schedule, const LayerCase& shape);
/// Returns the schedules that fit.
std::vector<const Schedule*> fitting(const LayerCase& shape);
/// Returns any decision that the schedule has: degrees up to `most`, split, gaps, sizes and lane order.
Decision any_decision(const Schedule& schedule, const LayerCase& shape, uint64_t seed, int most = 12);

}  // namespace moe::any_decision
