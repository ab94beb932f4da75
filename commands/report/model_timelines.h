#pragma once
// Timelines of a model's plans, which are planned again from their records so that the page can draw them.
#include <set>
#include <string>
#include <vector>

#include "commands/report/record_tables.h"
#include "moe/base/json.h"
#include "moe/prices/profile.h"

namespace moe::report {

/// Most tasks of a drawn plan; of a longer plan, only one stage is drawn.
inline constexpr size_t kMaxDrawnTasks = 20000;

/// Returns whether the parameters have several layers, micro-batches or stages; a replay is of a single layer.
bool is_stack(const Fields& parameters);

/// Returns plans of a stack of layers as {"row", "tasks"}: of the three fastest schedules with different times, and of
/// tutel and ds-moe. Adds to `notes` the plans that could not be drawn, and those whose time differs from their
/// record's because the record lacks a decision or a price.
Json model_timelines(const RecordTables& tables, size_t layer, const Profile& profile, bool nearest,
                     std::set<std::string>& notes);

}  // namespace moe::report
