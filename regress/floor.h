#pragma once
// What self-test measured on this machine: how far apart equal programs may lie.
#include <optional>
#include <string>

#include "moe/record/record.h"

namespace moe::regress {

inline constexpr const char* kDefaultFloor = "results/self-test.jsonl";
inline constexpr const char* kFloorKey = "self-test/floor";

struct Floor {
  double within_session = 0;    // relative: 99 % of a case's mean over a stage's pairs lie below it
  double between_sessions = 0;  // likewise, of its medians in two sessions; 0: not measured
  std::string machine;          // its fingerprint
};

/// Returns a text that only machines of one kind share.
std::string fingerprint_of(const RunHeader& header);

/// Returns the last floor in a file of records that was measured on a machine like this one; none where there is none.
/// `path`: empty for the default, which need not be there. Throws BadInput where a file that was named can't be read.
std::optional<Floor> read_floor(const std::string& path);

}  // namespace moe::regress
