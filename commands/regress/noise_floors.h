#pragma once
// Noise floors of a machine: the differences that self-test measured between equal programs.
#include <optional>
#include <string>
#include <vector>

#include "moe/record/record.h"

namespace moe::regress {

inline constexpr const char* kSelfTestRecords = "results/self-test.jsonl";
inline constexpr const char* kFloorKey = "self-test/floor";

/// Relative deviations; empty: not measured.
struct Floor {
  std::optional<double> within_session;    // 99 % of gates have all means within it (noise_floor_of)
  std::optional<double> between_sessions;  // largest difference of a case's medians in two sessions
};

/// The floors of all machines in a file of self-tests.
class NoiseFloors {
 public:
  /// `path`: file with records of self-test; empty: kSelfTestRecords, which may be missing. Throws BadInput if a named
  /// file cannot be read or has no floor, or if a floor is not a number of at least 0.
  explicit NoiseFloors(const std::string& path);
  /// Returns the latest floors of machines that equal this one (machine_difference).
  Floor floor(const Fields& machine) const;

 private:
  struct MachineFloors {
    Fields machine;
    Floor floor;
  };
  std::vector<MachineFloors> floors_;
};

}  // namespace moe::regress
