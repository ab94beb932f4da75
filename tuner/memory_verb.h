#pragma once
// The verb `memory`: what a layer or a model takes on one rank, by each count of activations, and whether it fits.
#include <optional>
#include <string>

#include "moe/plan/memory.h"
#include "moe/search/selection.h"

namespace moe {

struct MemoryOptions {
  Selection selection;               // cluster and layer; its flags go over the model's layer
  std::string model;                 // NAME or FILE; empty: the layer
  std::optional<int> layers;         // empty: the model's, or 1
  int micro_batches = 1;             // of selection's batch each
  int zero = 0;                      // stage
  std::string recompute = "none";    // none | selective | full
  std::string pipeline = "gpipe";    // gpipe | 1f1b
  std::optional<double> memory_gib;  // of a rank; empty: the profile's
  bool parm = false;                 // count Parm's layers that fit
  bool json = false;
};

int run_memory(const MemoryOptions& options);

}  // namespace moe
