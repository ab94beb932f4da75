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
  int length = 3;    // of the paths that estimates look back
  int layers = 0;    // 0: the model's
  auto key() const { return std::tuple(model, experts, length, layers); }
};

/// What a model's batches took under each variant, and what its synthetic routing looks like.
struct InferenceResult {
  TraceStatistics routing;
  int layers = 0;
  std::map<std::string, ServingResult, std::less<>> variants;
};

/// Returns the profile of that many GPUs: the assumed AlltoAll rows, attention that takes the assumed time of a dense
/// part, and experts by the printed share of AlltoAll in a layer.
Profile inference_profile(const InferenceRun& run, const Assumptions& assumed);
/// Returns the layer of a run: one expert a token and a GPU, 4 GPUs a node.
LayerCase inference_case(const InferenceRun& run, const Assumptions& assumed);

/// Serves synthetic batches under all variants; with other paths than the paper has, under `ideal` and `lina-serve`;
/// where layers are given, under `uniform` alone.
InferenceResult served(const InferenceRun& run, const Assumptions& assumed);

}  // namespace moe::reproduce
