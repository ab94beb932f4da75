#include "tests/schedule/any_decision.h"

#include <algorithm>

#include "moe/base/random.h"

namespace moe::any_decision {
namespace {

// Any order in which no S stands before its G.
LaneOrder any_order(int degree, uint64_t seed) {
  LaneOrder order;
  for (int gathers = 0, scatters = 0; scatters < degree;) {
    const bool gather = scatters == gathers || (gathers < degree && random_bits(seed, 9, order.size()) % 2 == 0);
    order += gather ? 'G' : 'S';
    ++(gather ? gathers : scatters);
  }
  return order;
}

}  // namespace

bool fits(const Schedule& schedule, const LayerCase& shape) {
  const bool one_group = traits_of(schedule.flow).one_group;
  const bool same_ranks = shape.parallel.mp == shape.parallel.esp &&
                          (!shape.parallel.ep_inside || shape.parallel.ep == 1 || shape.parallel.esp == 1);
  return schedule.variants.empty() && (!one_group || same_ranks);
}

std::vector<const Schedule*> fitting(const LayerCase& shape) {
  std::vector<const Schedule*> all;
  for (const Schedule& schedule : schedules())
    if (fits(schedule, shape)) all.push_back(&schedule);
  return all;
}

Decision any_decision(const Schedule& schedule, const LayerCase& shape, uint64_t seed, int most) {
  const auto below = [&](uint64_t stream, int64_t n) {
    return static_cast<int64_t>(random_bits(seed, stream, 0) % static_cast<uint64_t>(n));
  };
  int forward = 1, backward = 1;
  if (schedule.degrees != DegreePolicy::one) forward = backward = 1 + static_cast<int>(below(1, most));
  if (schedule.degrees == DegreePolicy::apart) backward = 1 + static_cast<int>(below(2, most));
  const int64_t elements = gradient_bytes(shape) / bytes_of(shape.layer.dtype);
  Decision d = with_split(schedule, forward, backward, bytes_of(shape.layer.dtype) * below(3, elements + 1));
  if (schedule.gradients == GradientPolicy::adaptive && below(7, 3) == 0)
    d.gar_after_bytes =
        bytes_of(shape.layer.dtype) * below(8, elements - d.gar_in_moe_bytes / bytes_of(shape.layer.dtype) + 1);
  if (schedule.gradients == GradientPolicy::micro_ops) {
    d.micro_op_bytes = std::max<int64_t>(8, gradient_bytes(shape) / (1 + below(4, 9)));
    const size_t pieces = shape.parallel.dp > 1 ? gradient_pieces(schedule, shape, d.micro_op_bytes).size() : 0;
    for (size_t i = 0; i < pieces; ++i) d.gaps.push_back(static_cast<int>(random_bits(seed, 5, i) % 20));
    std::ranges::sort(d.gaps);
  }
  if (schedule.searched_order && below(6, 4) > 0) {
    d.order_forward = any_order(forward, seed);
    d.order_backward = any_order(backward, seed + 1);
  }
  return d;
}

}  // namespace moe::any_decision
