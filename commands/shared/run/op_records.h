#pragma once
// Measures a target's ops and records their times: the first part of `microbench` and of `tune`.
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "commands/shared/run/layer_run.h"
#include "moe/measure/ops/op_bench.h"
#include "moe/prices/fit.h"
#include "moe/record/writer.h"

namespace moe::commands {

/// The ops to measure on a target.
struct OpRequest {
  measure::OpSettings settings;
  measure::OpSizes sizes;
  std::vector<std::string> modules = {};  // modules of the registries to time; ignored on an emulated target
  /// Groups over which allreduces are timed too; ignored on an emulated target.
  std::vector<std::pair<Network, measure::RankGroup>> sums = {};
  bool host_copies = false;                // copies between host and device are timed too
  std::set<std::string> without = {};      // series (op_cases.h) that are not timed alone
  std::set<Op> only = {};                  // ops to time; empty, without dispatchers: all, and the lanes' contention
  std::set<std::string> dispatchers = {};  // dispatchers whose alltoall over all ranks is timed too
  /// Returns whether the request measures everything that prices the plans of layers.
  bool has_all() const { return only.empty() && dispatchers.empty(); }
};

/// Returns the cases that a request times on a target, without those that exceed the memory of its GPUs. Throws
/// BadInput if an op of the request has no case.
std::vector<measure::OpCase> cases_of(const Target& target, const OpRequest& request);

/// Returns the groups over which the stages of layers sum gradients. Profiled layers have one stage, so they do not
/// time these sums.
std::vector<std::pair<Network, measure::RankGroup>> groups_of_stages(const std::vector<LayerJob>& layers);

/// Throws Unsupported with the reason if no schedule of any layer can be planned and priced with the measurements of
/// the request and of the tasks of `profiled_layers`.
void require_prices(const Target& target, const OpRequest& request, const std::vector<LayerJob>& layers,
                    const std::vector<LayerJob>& profiled_layers);

/// Largest number of repeated measurements of a case whose time is far from the fitted line of its series (fit.h:
/// set_aside), or whose series has no good fit. Both happen on a busy machine.
inline constexpr int kMaxRepeats = 2;

/// Returns the keys of the cases of one series to measure again, given all of its records so far: the cases that the
/// fit sets aside, or all cases if the fit is not good although it sets few aside. Omits cases that were repeated
/// kMaxRepeats times. Empty if the series has only one size, or if a result was wrong.
std::vector<std::string> cases_to_repeat(const std::vector<CaseRecord>& of_series);

/// Returns the record of a case. A wrong result has status `wrong` and no samples.
CaseRecord record_of(const measure::OpCase& c, const measure::OpResult& result, const Target& target);

/// Returns the records of all cases of the request (cases_of); if it has_all(), also those of lanes (add_lane_records).
/// Cases that `writer` has are not measured again. A repeated case (cases_to_repeat) has a record of each attempt, KEY,
/// KEY/again/1 and so on, of which the best is returned (fit.h). Every process of the target has to call it, and all
/// get the same records. Only the leading process uses `writer` and `progress`, which it calls with the share of the
/// work done, in [0, 1].
std::vector<CaseRecord> measure_ops(const Target& target, RecordWriter& writer, const OpRequest& request,
                                    const std::function<void(double share)>& progress);

/// Measures the target and fits a profile. Unless the target is emulated, it first measures the tasks of the layers
/// that profiled() picks (task_records.h); collectives that these have at several sizes are not timed alone. Throws
/// Unsupported, before it measures, if the measurements could not price a plan of any layer.
FittedProfile measure_and_fit(const Target& target, RecordWriter& writer, OpRequest request,
                              const std::vector<LayerJob>& layers, const std::function<void(double share)>& progress);

/// Calls measure_and_fit, shows its progress and warnings about weak rows on stderr, and returns the profile.
Profile measured_profile(const Target& target, RecordWriter& writer, const OpRequest& request,
                         const std::vector<LayerJob>& layers);

}  // namespace moe::commands
