#pragma once
// The layers that a page replays, and the schedules of each.
#include "commands/report/record_tables.h"

namespace moe::report {

/// Returns indices of at most `count` layers, of the runs for which `chosen` is true: spread evenly over those that
/// ran, then over those that were planned. Each layer has a successful schedule whose plan did not come from a file,
/// and is not a stack of layers.
std::vector<size_t> picked_layers(const RecordTables& tables, const std::vector<bool>& chosen, size_t count);

struct PickedRows {
  std::vector<size_t> rows;
  bool by_plans = false;  // ranked by planned times, whose rounding of rows may differ from the run's
};

/// Returns the rows of the three fastest schedules, and of tutel and ds-moe. Times are measured ones if all rows
/// have them, else planned ones if all have them, else predicted ones. Rows whose plan came from a file are left
/// out.
PickedRows picked_rows(const RecordTables& tables, size_t layer);

}  // namespace moe::report
