#pragma once
// Measures a cluster's ops into records: the first part of `microbench` and of `tune`.
#include <functional>
#include <vector>

#include "moe/cost/fit.h"
#include "moe/measure/op_bench.h"
#include "moe/record/writer.h"

namespace moe {

/// 2 nodes x 2 ranks of this machine's threads, unpaced; nothing is known of it before it is measured.
Profile host_cluster();
/// `host`, or a profile to emulate.
Profile running_cluster(const std::string& name);
bool is_host(const Profile& cluster);

struct OpSettings {
  int repetitions = 5;
  double timeout_s = 60;
  std::vector<std::string> modules = {};  // of the registries, on the host
};

/// More than this share of overruns makes a measurement invalid.
inline constexpr double kOverrunLimit = 0.01;

/// What a case leaves: wrong results without samples.
CaseRecord record_of(const OpCase& c, const OpResult& result, const Profile& cluster);

/// Every case of the cluster and of `modules` (module_cases), those that `writer` has already taken from there; in
/// order. A wrong result is a record with status `wrong` and no samples. `progress` is told the share of the work done,
/// in [0, 1].
std::vector<CaseRecord> measure_ops(const Profile& cluster, RecordWriter& writer, const OpSettings& settings,
                                    const std::function<void(double share)>& progress);

/// Measures the cluster and fits it. Of the host the executor's hand-over is measured too, and becomes the profile's
/// task overhead: on an emulated cluster it is small beside the paces, here it is most of a small task.
FittedProfile measure_and_fit(const Profile& cluster, RecordWriter& writer, int repetitions, double timeout_s,
                              const std::function<void(double share)>& progress);

}  // namespace moe
