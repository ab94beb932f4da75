#include "moe/measure/layers/time_limit.h"

#include <algorithm>

namespace moe::measure {

bool TimeLimit::exceeded(Communicator& everyone, Stream& stream) const {
  if (most_s_ <= 0) return false;
  double late = now_s() - begin_s_ > most_s_ ? 1 : 0;
  everyone.allreduce(&late, 1, DType::float64, {stream, {}, "time of passes"});
  stream.synchronize();
  return late > 0;
}

bool TimeLimit::exceeded(World& world) const {
  if (most_s_ <= 0) return false;
  const std::vector<double> own{now_s() - begin_s_};
  const auto all = gather(world, std::vector(world.here().size(), own));
  return std::ranges::any_of(all, [&](const auto& rank) { return rank.front() > most_s_; });
}

}  // namespace moe::measure
