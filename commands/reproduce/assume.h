#pragma once
// Assumption files in TOML: values that a table needs and no paper prints; each row's label describes it.
//
//   schema = 1
//   name = "fsmoe-fig7-16-gpus"
//   source = "..."                      why these values
//   tables = ["fsmoe-fig7"]             keys of the tables that use it
//   derive = ["allreduce"]              optional: rows that the pricer may derive if a profile lacks them
//   [[comm]]                            [[comm]], [[compute]], [[module]]: rows of a cluster profile, with
//   cluster = "testbed-a"               the profile to which the row is added, and
//   label = "AlltoAll of 16 GPUs ..."   a description of the assumption
//   op = "alltoall"  ...
//   [[value]]                           a number that belongs to a table
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

  bool applies_to_table(std::string_view table) const;
  /// Returns whether the pricer may derive rows of that op.
  bool derives(std::string_view op) const;
  std::optional<double> value(std::string_view of) const;
};

/// Throws BadInput "FILE:LINE: key: found ..., expected ...". Unknown keys are errors.
Assumptions read_assumptions(const std::string& path);

/// Reads configs/papers/assume/NAME.toml, or a file by its path. Throws BadInput listing the known names.
Assumptions find_assumptions(const std::string& name_or_path);

/// Returns the value "contention", or "contention:CLUSTER" for a single cluster: the slowdown of either network while
/// the other is busy.
std::optional<double> assumed_contention(const Assumptions& assumed, std::string_view cluster);

/// Returns the profile with the rows assumed for its cluster, which replace rows of the same kind, and with the values
/// that have a key of [contention] ("intra_by_copy_stall_s"). Without assumptions (null), returns the profile itself.
Profile with_assumed_rows(Profile profile, const Assumptions* assumed);

/// Returns one line for each row and value, for a report.
std::vector<std::string> lines_of(const Assumptions& assumed);

}  // namespace moe::reproduce
