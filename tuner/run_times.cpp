#include "tuner/run_times.h"

namespace moe::tuner {

bool was_timed(const CaseRecord& record) { return record.summary.has("total_s"); }
bool ran_well(const CaseRecord& record) { return record.status == CaseStatus::ok && was_timed(record); }
double predicted_s(const CaseRecord& record) { return record.prediction.number("total_s", record.key); }
double run_s(const CaseRecord& record) { return record.summary.number("total_s", record.key); }
double error_of(const CaseRecord& record) { return run_s(record) / predicted_s(record) - 1; }

double core_slowdown(const CaseRecord& record) {
  return record.summary.has("core_slowdown") ? record.summary.number("core_slowdown", record.key) : 1;
}

}  // namespace moe::tuner
