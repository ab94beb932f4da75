#pragma once
// Records that belong to no op: how lanes slow each other, how they overlap, and what handing over between them costs.
#include <vector>

#include "moe/measure/ops/op_bench.h"
#include "moe/record/writer.h"
#include "verbs/run/target.h"

namespace moe::verbs {

/// Adds slowdowns, overlaps (lane_bench.h) and the overhead of a target that was not measured before: those that
/// `writer` has, else measured now. Every process of the target calls it, with the same cases; the leading one writes.
void add_lane_records(const Target& target, RecordWriter& writer, const std::vector<measure::OpCase>& cases,
                      const measure::OpSettings& settings, std::vector<CaseRecord>& records);

}  // namespace moe::verbs
