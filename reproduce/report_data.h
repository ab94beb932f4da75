#pragma once
// A report for programs: JSON, and records that plots are drawn from.
#include <vector>

#include "moe/base/json.h"
#include "moe/record/record.h"
#include "reproduce/report.h"

namespace moe::reproduce {

/// Returns {table, title, source, figures[] = {comparison, labels..., convention, quantity, paper, ours, difference},
/// ...}.
Json to_json(const Report& report);

/// Returns one record a figure, key "reproduce/TABLE/...": parameters say what and under which convention; `prediction`
/// has our number, `summary` the paper's, under the quantity's name. A figure without ours is `unsupported`.
std::vector<CaseRecord> records_of(const Report& report);

}  // namespace moe::reproduce
