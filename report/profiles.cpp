#include "report/profiles.h"

#include <algorithm>
#include <iterator>

#include "moe/base/check.h"
#include "moe/cost/fit.h"
#include "moe/cost/price_curve.h"

namespace moe::report {
Profile replay_profile(const std::string& name_or_file, const Run& run, const std::string& cluster) {
  if (!name_or_file.empty()) return find_profile(name_or_file);
  std::vector<CaseRecord> operations;
  std::ranges::copy_if(run.cases, std::back_inserter(operations),
                       [](const CaseRecord& record) { return record.parameters.has("op"); });
  if (!operations.empty()) return fit_profile(operations, cluster, "the operations of these records").profile;
  try {
    return find_profile(cluster);
  } catch (const BadInput&) {
    bad_input("found no profile of the name '{}', expected its file: moetune report ... --cluster FILE", cluster);
  }
}

Profile without_starts(Profile profile) {
  for (CommRow& row : profile.comm) {
    const double start_s = cost::price_curve(row).alpha;
    for (auto& point : row.points) point[1] = std::max(0.0, point[1] - start_s);
    row.alpha_s = 0;
  }
  for (ComputeRow& row : profile.compute) row.alpha_s = 0;
  for (ModuleRow& row : profile.modules) row.alpha_s = 0;
  for (TaskRow& row : profile.tasks) row.s_per[static_cast<size_t>(Term::call)] = 0;
  profile.task_overhead_s = 0;
  return profile;
}

}  // namespace moe::report
