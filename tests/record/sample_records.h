#pragma once
// Records for tests.
#include <fmt/format.h>

#include "moe/record/record.h"

namespace moe {

/// A case with every field set.
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
  return record;
}

inline bool same(const CaseRecord& a, const CaseRecord& b) {
  return a.key == b.key && a.status == b.status && a.reason == b.reason && a.parameters == b.parameters &&
         a.schedule == b.schedule && a.degree_forward == b.degree_forward && a.degree_backward == b.degree_backward &&
         a.backend == b.backend && a.emulated == b.emulated && a.dilation == b.dilation && a.samples == b.samples &&
         a.summary == b.summary && a.prediction == b.prediction && a.bound_s == b.bound_s && a.timeline == b.timeline;
}

}  // namespace moe
