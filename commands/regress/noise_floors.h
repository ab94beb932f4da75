#pragma once
// What self-test measured on a machine: how far apart equal programs may lie.
#include <optional>
#include <string>
#include <vector>

#include "moe/record/record.h"

namespace moe::regress {

inline constexpr const char* kSelfTestRecords = "results/self-test.jsonl";
inline constexpr const char* kFloorKey = "self-test/floor";

/// Relative deviations; empty: not measured.
struct Floor {
  std::optional<double> within_session;    // 99 % of cases' means over a stage's pairs stay within it
  std::optional<double> between_sessions;  // the largest of a case's medians in two sessions
};

/// The floors of all machines in a file of self-tests.
class NoiseFloors {
 public:
  /// `path`: empty for kSelfTestRecords, which need not be there. Throws BadInput where a named file can't be read, and
  /// for a floor that is no number from 0.
  explicit NoiseFloors(const std::string& path);
  /// Returns the last floors of a machine like this one.
  Floor of(const Fields& machine) const;

 private:
  struct OfMachine {
    Fields machine;
    Floor floor;
  };
  std::vector<OfMachine> floors_;
};

}  // namespace moe::regress
