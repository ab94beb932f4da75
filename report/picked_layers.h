#pragma once
// The layers that a page replays, and the schedules of each.
#include "report/record_tables.h"

namespace moe::report {

/// Returns indices of at most `count` layers, spread evenly over those that ran, or where none did over all. A layer
/// without a schedule that went well is none.
std::vector<size_t> picked_layers(const Tables& tables, size_t count);

/// Returns rows of the three schedules that take least, by the times that were measured where all were, else by
/// those that were planned, and of tutel and ds-moe.
std::vector<size_t> picked_rows(const Tables& tables, size_t layer);

}  // namespace moe::report
