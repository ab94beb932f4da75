#pragma once
// Assumption files: what no paper prints and a table needs, as TOML; each row says what it is by its label.
//
//   schema = 1
//   name = "fsmoe-fig7-16-gpus"
//   source = "..."                      why these values
//   tables = ["fsmoe-fig7"]             the keys that it is for
//   derive = ["allreduce"]              optional: rows that the pricer may derive where a profile lacks them
//   [[comm]]                            [[comm]], [[compute]], [[module]]: rows of a cluster profile, with
//   cluster = "testbed-a"               whose profile the row is added to, and
//   label = "AlltoAll of 16 GPUs ..."   what is assumed
//   op = "alltoall"  ...
//   [[value]]                           a number of a table's own
//   name = "micro_batches"
//   value = 4
//   label = "..."
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "moe/prices/profile.h"

namespace moe::reproduce {

struct AssumedRow {
  std::string cluster, label;
  std::variant<CommRow, ComputeRow, ModuleRow> row;
};

struct AssumedValue {
  std::string name, label;
  double value = 0;
};

struct Assumptions {
  std::string name, source, file;
  std::vector<std::string> tables, derive;
  std::vector<AssumedRow> rows;
  std::vector<AssumedValue> values;

  bool is_for(std::string_view table) const;
  /// Returns whether the pricer may derive rows of that op.
  bool derives(std::string_view op) const;
  std::optional<double> value(std::string_view of) const;
};

/// Throws BadInput "FILE:LINE: key: found ..., expected ...". Unknown keys are errors.
Assumptions read_assumptions(const std::string& path);

/// Reads configs/papers/assume/NAME.toml, or a file by its path. Throws BadInput listing the known names.
Assumptions find_assumptions(const std::string& name_or_path);

/// Returns the value "contention", or "contention:CLUSTER" for one alone: the slowdown of either network while the
/// other is busy.
std::optional<double> assumed_contention(const Assumptions& assumed, std::string_view cluster);

/// Returns the profile with the rows that are assumed for its cluster, a row of the same kind being replaced, and with
/// values that have a key of [contention] ("intra_by_copy_stall_s"). Without assumptions (null) the profile itself.
Profile with_assumed(Profile profile, const Assumptions* assumed);

/// Returns one line a row and value, for a report.
std::vector<std::string> lines_of(const Assumptions& assumed);

}  // namespace moe::reproduce
