#pragma once
// The benchmark of serving: the ranks of a machine serve batches under several variants in turns, verified first, then
// timed.
#include <functional>
#include <string>
#include <vector>

#include "moe/layer/served_layers.h"
#include "moe/measure/core_probe.h"
#include "moe/measure/layers/proxy.h"

namespace moe::measure {

struct ServeBenchSettings {
  LayerCase shape;       // case of the served layer or, if emulated, of small tensors with as many tokens
  bool emulated = true;  // tasks are paced by the prices of the Serving object
  int list_length = 2, max_experts = 4;
  uint64_t seed = 1;
  double timeout_s = 60;
  BenchRanks ranks = {};  // all processes must pass the same batches
  std::function<void(double share)> progress = {};
};

/// The results of a variant's batches; seconds are divided by the dilation.
struct ServedBatches {
  ServingResult result;                      // as Serving::run() returns it, but measured
  std::vector<std::vector<double>> batch_s;  // [batch][rank]
  Dilation dilation;
  int64_t overruns = 0, paced_tasks = 0;
  int repeats = 0;  // number of times that batches were discarded because too many tasks overran
  /// Returns the share of paced tasks that overran.
  double overrun_share() const {
    return paced_tasks > 0 ? static_cast<double>(overruns) / static_cast<double>(paced_tasks) : 0;
  }
};

/// Returns the case that emulates a layer: small tensors, the same ranks and experts, `tokens` tokens per rank.
LayerCase served_proxy(const LayerCase& nominal, int64_t tokens);

/// Serves every batch of a trace under each variant, in turns. Before that, each variant serves the first batch; throws
/// WrongResult unless its outputs equal those of experts that never move, bit for bit. If the share of overruns of a
/// variant exceeds kOverrunLimit (layer_bench.h), it is served again, at most twice, each time at twice the dilation;
/// the attempt with the fewest overruns is its result. Results are the same on every process. Throws RankFailure if a
/// rank fails.
std::vector<ServedBatches> serve_batches(Serving& serving, const std::vector<const ServingVariant*>& variants,
                                         const RoutingTrace& trace, const PathProfile& paths,
                                         const ServeBenchSettings& settings);

}  // namespace moe::measure
