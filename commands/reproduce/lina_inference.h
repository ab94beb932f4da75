#pragma once
// Lina's inference results (ATC'23, sections 5 and 7.3) beside our numbers.
#include <map>
#include <string>
#include <tuple>

#include "commands/reproduce/assume.h"
#include "moe/serve/serving.h"

namespace moe::reproduce {

struct InferenceRun {
  std::string model;
  int experts = 16;  // as many as GPUs
  int length = 3;    // length of the paths on which estimates are based
  int layers = 0;    // 0: the model's number
  auto key() const { return std::tuple(model, experts, length, layers); }
};

/// The times of a model's batches under each variant, and the properties of its synthetic routing.
struct InferenceResult {
  TraceStatistics routing;
  int layers = 0;
  std::map<std::string, ServingResult, std::less<>> variants;
};

/// Returns the profile of that many GPUs: the assumed AlltoAll rows, attention with the assumed time of a dense part,
/// and experts by the printed share of AlltoAll in a layer.
Profile inference_profile(const InferenceRun& run, const Assumptions& assumed);
/// Returns the layer of a run: one expert per token and per GPU, 4 GPUs per node.
LayerCase inference_case(const InferenceRun& run, const Assumptions& assumed);

/// Serves synthetic batches under all variants; for a path length that the paper does not use, only under `ideal` and
/// `lina-serve`; for a given number of layers, only under `uniform`.
InferenceResult served(const InferenceRun& run, const Assumptions& assumed);

}  // namespace moe::reproduce
