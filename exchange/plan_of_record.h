#pragma once
// The plan that a record is of, or that a file has.
#include <optional>

#include "exchange/exchange.h"
#include "moe/cost/profile.h"
#include "moe/plan/plan.h"

namespace moe::exchange {

struct NamedPlan {
  Plan plan;
  std::optional<Profile> profile;  // that prices it; none: unknown
};

/// Returns whether the file is one JSON object with a format, as plans are and records are not.
bool is_plan(const std::string& path);

/// Reads a file of a plan, or plans what the records' fastest case (or that of `options.schedule`) decided. Some
/// decisions are in no record (where pieces of gradients go, orders of lanes, a choice among schedules); they are
/// searched again, at the record's degrees, on the profile of its cluster or of --cluster. Throws BadInput where that
/// profile is needed and unknown, and for the record of a plan that came from a file. What the plan takes on that
/// profile is compared with what the record says, and a warning says how far they are apart.
NamedPlan plan_of(const ExportOptions& options);

}  // namespace moe::exchange
