#pragma once
// The layers that a page replays, and the schedules of each.
#include "commands/report/record_tables.h"

namespace moe::report {

/// Returns indices of at most `count` layers of the runs for which `chosen` is true: spread evenly over those that ran,
/// then over those that were planned. Each has a schedule that went well and whose plan came from no file, and is no
/// stack of layers.
std::vector<size_t> picked_layers(const RecordTables& tables, const std::vector<bool>& chosen, size_t count);

struct PickedRows {
  std::vector<size_t> rows;
  bool by_plans = false;  // ranked by what was planned, whose rounding of rows may be none of a run's
};

/// Returns rows of the three schedules that take least, by the times that were measured where all were, else by those
/// that were planned where all were, else by those that were predicted; and of tutel and ds-moe. Rows whose plan came
/// from a file are left out.
PickedRows picked_rows(const RecordTables& tables, size_t layer);

}  // namespace moe::report
