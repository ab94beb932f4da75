#pragma once
// A limit of wall time that every rank finds exceeded at the same point, whatever its own clock says.
#include "moe/comm/world.h"

namespace moe::measure {

class TimeLimit {
 public:
  TimeLimit() = default;
  /// Starts now. `most_s` 0: no limit.
  explicit TimeLimit(double most_s) : most_s_(most_s), begin_s_(now_s()) {}
  /// Returns whether the limit is exceeded on any rank. All ranks call it, on their own threads.
  bool exceeded(Communicator& everyone, Stream& stream) const;
  /// Returns the same. All processes call it, outside of World::run.
  bool exceeded(World& world) const;

 private:
  double most_s_ = 0, begin_s_ = 0;
};

}  // namespace moe::measure
