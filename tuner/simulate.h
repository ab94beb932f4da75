#pragma once
// The verb `simulate`: one layer, or a model, under chosen schedules on a profile; timeline, lane loads, bounds.
#include <map>
#include <string>
#include <vector>

#include "moe/base/check.h"
#include "moe/record/record.h"
#include "tuner/chosen_model.h"
#include "tuner/noise_report.h"

namespace moe {

struct SimulateOptions {
  Selection selection;
  ModelFlags model;                 // with a model or several layers: a whole model
  std::string partition = "exact";  // of its gradients
  NoiseFlags noise;                 // replays on all ranks beside the even one
  bool json = false;
  std::string trace;           // file for a Perfetto timeline; empty: none
  std::string out;             // records; empty: none
  bool sweep_degrees = false;  // one record a degree too; needs `out`
  Asked asked;
};

/// Schedules that a case or a profile does not allow, by reason.
class Refused {
 public:
  void add(const Schedule& schedule, const Unsupported& error);
  /// One line a reason on stderr. Throws Unsupported with the first where nothing else is left to show.
  void report(bool nothing_left) const;

 private:
  std::map<std::string, std::string> by_reason_;
};

int run_simulate(const SimulateOptions& options);

}  // namespace moe
