#include "regress/floor.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "moe/base/check.h"
#include "regress/compare_records.h"

namespace moe::regress {
namespace {

std::optional<double> share_of(const CaseRecord& record, std::string_view name) {
  if (!record.summary.has(name)) return std::nullopt;
  const double share = record.summary.number(name, record.where);
  require<BadInput>(std::isfinite(share) && share >= 0, "{}: {}: found {}, expected a number from 0", record.where,
                    name, share);
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
}

Floor NoiseFloors::of(const Fields& machine) const {
  const auto last = std::ranges::find_if(floors_.rbegin(), floors_.rend(), [&](const OfMachine& floor) {
    return machine_difference(floor.machine, machine).empty();
  });
  return last == floors_.rend() ? Floor() : last->floor;
}

}  // namespace moe::regress
