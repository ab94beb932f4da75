#pragma once
// Measures a target's ops into records: the first part of `microbench` and of `tune`.
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

/// The most repetitions of a case whose time is off its series' line (fit.h: set_aside), or whose series has no sound
/// line. Both happen on a busy machine.
inline constexpr int kMostRepeats = 2;

/// Returns the cases of one series to measure again, given all records of it so far: those that its fit sets aside; all
/// of them where there is no line, or a weak one with few samples aside. None where there is but one size, a result was
/// wrong, or a case was measured kMostRepeats times more already.
std::vector<std::string> to_repeat(const std::vector<CaseRecord>& of_series);

/// Returns what a case leaves: wrong results without samples.
CaseRecord record_of(const measure::OpCase& c, const measure::OpResult& result, const Target& target);

/// Returns every case of the target and of `modules` (module_cases), those that `writer` has already taken from there;
/// of a target that is to be measured also how lanes slow each other (lane_bench.h) and what handing over between them
/// costs. A wrong result is a record with status `wrong` and no samples. A case that is measured again (to_repeat)
/// leaves a record of each time, KEY/again/1 and so on; the best attempt is returned (fit.h). Every process of the
/// target calls it, all get the same. The leading process alone uses `writer` and `progress`, which is told the share
/// of the work done, in [0, 1].
std::vector<CaseRecord> measure_ops(const Target& target, RecordWriter& writer, const OpRequest& request,
                                    const std::function<void(double share)>& progress);

/// Measures the target and fits it. On a target that is not emulated the tasks of `layers`, as profiled() picks them,
/// come first (task_records.h): a collective that they have at several sizes is not timed alone too. Throws Unsupported
/// before anything is measured where what is measured can't price a plan of any layer.
FittedProfile measure_and_fit(const Target& target, RecordWriter& writer, OpRequest request,
                              const std::vector<LayerJob>& layers, const std::function<void(double share)>& progress);

/// Measures and fits likewise, says on stderr how far it is and which rows are not to be trusted, and returns the
/// profile.
Profile measured_profile(const Target& target, RecordWriter& writer, const OpRequest& request,
                         const std::vector<LayerJob>& layers);

}  // namespace moe::commands
