#pragma once
// The verb `memory`: what a layer or a model takes on one rank, by each count of activations, and whether it fits.
#include <optional>
#include <string>

#include "moe/plan/memory.h"
#include "verbs/chosen_model.h"

namespace moe::planner {

struct MemoryOptions {
  verbs::Selection selection;  // cluster and layer; its flags go over the model's layer
  verbs::ModelFlags model;
  std::optional<double> memory_gib;  // of a rank; empty: the profile's
  bool parm = false;                 // count Parm's layers that fit
  bool json = false;
};

int run_memory(const MemoryOptions& options);

}  // namespace moe::planner
