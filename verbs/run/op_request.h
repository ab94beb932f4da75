#pragma once
// What is measured on a target, and whether that prices the plans of layers.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "moe/measure/ops/op_bench.h"
#include "verbs/run/layer_job.h"

namespace moe::verbs {

struct OpRequest {
  measure::OpSettings settings;
  measure::OpSizes sizes;
  std::vector<std::string> modules = {};  // of the registries, on a target that is not emulated
  std::vector<std::pair<Network, measure::RankGroup>> sums =
      {};                              // over which allreduces are timed too, on no emulation
  std::set<std::string> without = {};  // series (op_cases.h) that are not timed alone
  std::set<Op> only = {};              // empty: all of them, and how lanes slow each other
};

/// Returns the cases that a request times on a target, without those that its GPUs have no memory for. Throws BadInput
/// where there is none of an op that it asks for.
std::vector<measure::OpCase> cases_of(const Target& target, const OpRequest& request);

/// Returns the groups over which the stages of layers sum gradients, which profiled layers do not have: they are of one
/// stage.
std::vector<std::pair<Network, measure::RankGroup>> groups_of_stages(const std::vector<LayerJob>& layers);

/// Throws Unsupported, saying why, where no schedule of any layer can be planned or priced by what the request and the
/// tasks of `profiled_layers` leave.
void require_prices(const Target& target, const OpRequest& request, const std::vector<LayerJob>& layers,
                    const std::vector<LayerJob>& profiled_layers);

}  // namespace moe::verbs
