#include "commands/regress/noise_floors.h"

#include <cmath>
#include <filesystem>

#include "commands/regress/compare.h"
#include "moe/base/check.h"
#include "moe/record/reader.h"

namespace moe::regress {
namespace {

std::optional<double> share_of(const CaseRecord& record, std::string_view name) {
  if (!record.summary.has(name)) return std::nullopt;
  const double share = record.summary.number(name, record.where);
  require<BadInput>(std::isfinite(share) && share >= 0, "{}: {}: found {}, expected a number of at least 0",
                    record.where, name, share);
  return share;
}

}  // namespace

NoiseFloors::NoiseFloors(const std::string& path) {
  std::error_code ignored;
  if (path.empty() && !std::filesystem::exists(kSelfTestRecords, ignored)) return;
  for (const Run& run : read_runs(path.empty() ? kSelfTestRecords : path))
    for (const CaseRecord& record : run.cases)
      if (record.key == kFloorKey)
        floors_.push_back(
            {run.header.machine, {share_of(record, "within_session"), share_of(record, "between_sessions")}});
  require<BadInput>(path.empty() || !floors_.empty(), "{}: found no record {}, expected records of self-test", path,
                    kFloorKey);
}

Floor NoiseFloors::floor(const Fields& machine) const {
  Floor last;
  for (const MachineFloors& one : floors_) {
    if (machine_difference(one.machine, machine)) continue;
    if (one.floor.within_session) last.within_session = one.floor.within_session;
    if (one.floor.between_sessions) last.between_sessions = one.floor.between_sessions;
  }
  return last;
}

}  // namespace moe::regress
