#pragma once
// Records of runs whose times are made up, so that each figure is known.
#include <string>
#include <vector>

#include "moe/base/statistics.h"
#include "moe/record/record.h"

namespace moe::tuner {

inline CaseRecord run(const std::string& schedule, double predicted_s, double measured_s, int degree_backward = 1) {
  CaseRecord record;
  record.key = record.schedule = schedule;
  record.degree_forward = 1;
  record.degree_backward = degree_backward;
  record.prediction.set("total_s", predicted_s);
  record.summary.set("total_s", measured_s);
  return record;
}

/// Returns a run with passes of one rank; the measured time is their median.
inline CaseRecord run_of_passes(const std::string& schedule, double predicted_s, const std::vector<double>& passes) {
  CaseRecord record = run(schedule, predicted_s, median(passes));
  record.samples = {{"total_s", {}}};
  for (const double seconds : passes) record.samples.front().values.push_back({seconds});
  return record;
}

inline CaseRecord failed(CaseRecord record, CaseStatus status, const std::string& reason) {
  record.status = status;
  record.reason = reason;
  return record;
}

}  // namespace moe::tuner
