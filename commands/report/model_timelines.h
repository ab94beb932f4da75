#pragma once
// Timelines of a model's plans: planned again from their records, for the page to draw as they are.
#include <set>
#include <string>
#include <vector>

#include "commands/report/record_tables.h"
#include "moe/base/json.h"
#include "moe/prices/profile.h"

namespace moe::report {

/// Tasks of a drawn plan, at most; of a longer plan one stage is drawn.
inline constexpr size_t kMostDrawnTasks = 20000;

/// Returns whether parameters are of several layers, micro-batches or stages: a replay is of one layer, once.
bool is_stack(const Fields& parameters);

/// Returns the plans of a stack of layers as {"row", "tasks"}: of the fastest three schedules that take different
/// times, and of tutel and ds-moe. Adds to `notes` what could not be drawn, and plans that take another time than their
/// record says, which then was decided or priced by what the record does not hold.
Json model_timelines(const RecordTables& tables, size_t layer, const Profile& profile, bool nearest,
                     std::set<std::string>& notes);

}  // namespace moe::report
