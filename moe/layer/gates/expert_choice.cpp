#include "moe/layer/gates/expert_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "moe/layer/gates/gate_parts.h"
#include "moe/tensor/element.h"

namespace moe {
namespace {

template <class T>
class ExpertChoiceGate final : public SoftmaxGate<T> {
 public:
  explicit ExpertChoiceGate(const PartSetup& setup)
      : SoftmaxGate<T>(setup), order_(static_cast<size_t>(setup.rank.tokens.count)) {}

 private:
  void choose(const T*, const SoftmaxScores<T>& scores, Routing& routing) override {
    std::ranges::fill(routing.expert, Routing::kDropped);
    std::ranges::fill(routing.row, Routing::kDropped);
    std::ranges::fill(routing.filled, std::min(routing.rows, routing.group_tokens));
    for (int64_t group = 0; group < routing.groups(); ++group)
      for (int64_t e = 0; e < routing.experts; ++e) take(group, e, scores, routing);
  }

  // The taken tokens' rows are in token order.
  void take(int64_t group, int64_t expert, const SoftmaxScores<T>& scores, Routing& routing) {
    const int64_t first = group * routing.group_tokens, taken = std::min(routing.rows, routing.group_tokens);
    const auto score = [&](int64_t token) {  // NaN last: the order must be a valid one for any input
      const T p = scores.probabilities(token)[expert];
      return std::isnan(p) ? T(-1) : p;
    };
    std::iota(order_.begin(), order_.end(), first);
    const auto end = order_.begin() + taken;
    std::nth_element(order_.begin(), end, order_.end(),
                     [&](int64_t a, int64_t b) { return score(a) != score(b) ? score(a) > score(b) : a < b; });
    std::sort(order_.begin(), end);
    for (auto token = order_.begin(); token != end; ++token) {
      const auto pair = static_cast<size_t>(*token * routing.experts + expert);
      routing.expert[pair] = static_cast<int32_t>(expert);
      routing.row[pair] = static_cast<int32_t>(token - order_.begin());
    }
  }

  std::vector<int64_t> order_;  // a group's tokens in the order of one expert's scores
};

}  // namespace

std::unique_ptr<Gate> make_expert_choice_gate(const PartSetup& setup) {
  return make_for<Gate, ExpertChoiceGate>(setup.rank.dtype(), setup);
}

}  // namespace moe
