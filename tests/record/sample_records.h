#pragma once
// Records for tests.
#include <fmt/format.h>

#include "moe/record/record.h"

namespace moe {

/// Returns a case with every field set.
inline CaseRecord sample_case(int number) {
  CaseRecord record;
  record.key = fmt::format("case-{}", number);
  record.parameters = {{"op", "alltoall"}, {"ranks", 8}, {"bytes", int64_t{1} << 40}, {"f", 1.2}, {"drops", false}};
  record.schedule = "fsmoe";
  record.degree_forward = 4;
  record.degree_backward = 2;
  record.backend = "local";
  record.emulated = true;
  record.dilation = 100;
  record.samples = {{"forward_s", {{0.1, 0.25}, {1.0 / 3, 2e-9}}}, {"backward_s", {{0.5, 4.0}}}};
  record.summary = {{"median_s", 0.1 + number}, {"iterations", 2}};
  record.prediction = {{"forward_s", 0.2}, {"note", "expected routing"}};
  record.bound_s = 0.05;
  record.timeline = {{"forward attention of layer 0", "attention", "forward", "compute", 0, 0, 1, 0, 0.1},
                     {"backward dispatch 2/4 of layer 0", "dispatch", "backward", "inter", 0, 1, 4, 0.1, 1.0 / 3}};
  record.measured_timeline = {3,
                              true,
                              {{"attention", "forward", "compute", 0, 1, 0, 0.125, 0, 0.1},
                               {"dispatch", "backward", "inter", 1, 4, 0.125, 0.5, 0.1, 1.0 / 3}}};
  record.answer = {{"WHY", {"compute works 86 %", "of the time"}, {}},
                   {"SET IT", {}, {{"framework", "r_f"}, {"tutel", "3"}}}};
  return record;
}

/// Returns cases as a sweep of one layer leaves them: one refused, the others with some values alike.
inline CaseGroup sample_group(int number) {
  CaseGroup group{{{"layer", fmt::format("L{}", number)}, {"batch", 4}, {"f", 1.2}, {"drops", false}}, {}};
  for (int i = 0; i < 4; ++i) {
    CaseRecord& record = group.cases.emplace_back();
    record.key = fmt::format("plan/L{}/s{}", number, i);
    record.schedule = fmt::format("s{}", i);
    record.backend = "none";
    if (i == 2) {
      record.status = CaseStatus::unsupported;
      record.reason = "does not divide";
      continue;
    }
    record.degree_forward = i + 1;
    record.degree_backward = 3;
    record.prediction = {{"total_s", 1.0 / (3 + i + number)}, {"bytes", int64_t{7}}, {"whole_s", 2.0}, {"a.b", i}};
    record.bound_s = 0.125 * (i + 1);
  }
  return group;
}

/// Returns the group's cases as they are read back.
inline std::vector<CaseRecord> cases_of(CaseGroup group) {
  for (CaseRecord& record : group.cases) record.parameters = group.parameters;
  return group.cases;
}

/// Returns what a run is asked for, by a flag.
inline RunInputs asking(const std::string& flag) { return {{{"moetune", "tune"}, {flag}}, {}, {}}; }

inline bool same(const CaseRecord& a, const CaseRecord& b) {
  return a.key == b.key && a.status == b.status && a.reason == b.reason && a.parameters == b.parameters &&
         a.schedule == b.schedule && a.degree_forward == b.degree_forward && a.degree_backward == b.degree_backward &&
         a.backend == b.backend && a.emulated == b.emulated && a.dilation == b.dilation && a.samples == b.samples &&
         a.summary == b.summary && a.prediction == b.prediction && a.bound_s == b.bound_s && a.timeline == b.timeline &&
         a.measured_timeline == b.measured_timeline && a.answer == b.answer;
}

}  // namespace moe
