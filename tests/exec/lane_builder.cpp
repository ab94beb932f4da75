#include "tests/exec/lane_builder.h"

#include "moe/base/random.h"

namespace moe {

LaneBuilder random_structure(uint64_t seed, int lanes, int tasks) {
  uint64_t drawn = 0;
  const auto below = [&](int bound) {
    return static_cast<int>(random_uniform(seed, random_stream_id("structure"), drawn++) * bound);
  };
  LaneBuilder builder(lanes);
  for (int id = 0; id < tasks; ++id) {
    std::vector<int> after;
    for (int n = id == 0 ? 0 : below(5); n > 0; --n) after.push_back(below(id));
    builder.add(below(lanes), after);
  }
  return builder;
}

}  // namespace moe
