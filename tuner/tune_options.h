#pragma once
// What `tune` is asked for.
#include <optional>
#include <string>

#include "moe/device/kind.h"
#include "moe/record/record.h"
#include "verbs/selection.h"

namespace moe {

struct TuneOptions {
  Selection selection;
  bool verify = true;  // measure, fit and verify by real runs; else plan on the profile as it stands
  std::optional<int> measured_layers = 6;  // to run for real; none: every layer of the grid
  int strategy_layers = 12;       // planned: on which the papers' strategies are compared with the exact search
  bool measure_degrees = false;   // with every layer: which degrees are best by measurement
  std::optional<int> iterations;  // none: 5, of every layer 3
  uint64_t seed = 1;
  double timeout_s = 60;
  DeviceKind device = DeviceKind::cpu;  // of the ranks
  std::string out;                      // records; empty: results/tune-CLUSTER.jsonl
  std::string trace;                    // timeline of one verified layer; empty: beside the records
  bool json = false;
  Asked asked;
};

}  // namespace moe
