#pragma once
// The verb `simulate`: one layer, or a model, under chosen schedules on a profile; timeline, lane loads, bounds.
#include <string>
#include <vector>

#include "tuner/chosen_model.h"

namespace moe {

struct SimulateOptions {
  Selection selection;
  ModelFlags model;                 // with a model or several layers: a whole model
  std::string partition = "exact";  // of its gradients
  bool json = false;
  std::string trace;           // file for a Perfetto timeline; empty: none
  std::string out;             // records; empty: none
  bool sweep_degrees = false;  // one record a degree too; needs `out`
  std::vector<std::string> argv;
};

int run_simulate(const SimulateOptions& options);

}  // namespace moe
