#include "moe/layer/gates/expert_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "moe/layer/element.h"
#include "moe/layer/gates/projection.h"
#include "moe/layer/gates/softmax_scores.h"

namespace moe {
namespace {

template <class T>
class ExpertChoiceGate final : public Gate {
 public:
  explicit ExpertChoiceGate(const GateSetup& setup)
      : experts_(setup.rank.experts.total),
        logits_(setup.rank, experts_),
        scores_(setup.rank),
        order_(static_cast<size_t>(setup.rank.tokens.count)) {
    fill_weight(logits_.weight(kGateWeight), setup.rank.model_dim(), setup.seed);
  }

  void forward(TensorView hidden, Routing& routing) override {
    logits_.forward(hidden);
    scores_.forward(logits_.products().as<T>(), experts_);
    std::ranges::fill(routing.expert, Routing::kDropped);
    std::ranges::fill(routing.row, Routing::kDropped);
    std::ranges::fill(routing.filled, std::min(routing.rows, routing.group_tokens));
    for (int64_t group = 0; group < routing.groups(); ++group)
      for (int64_t e = 0; e < experts_; ++e) choose(group, e, routing);
    scores_.weigh(routing);
    scores_.count(routing);
  }

  void backward(const GateBackward& pass) override {
    T* d = logits_.d_products().as<T>();
    scores_.backward(pass.routing, pass.d_weight.as<T>(), d, experts_);
    scores_.add_losses(pass.share, d, experts_);
    logits_.backward(pass.hidden, pass.d_hidden);
  }

  std::vector<Parameter> parameters() override { return {logits_.weight(kGateWeight)}; }
  TensorView statistics() override { return scores_.statistics(); }
  double auxiliary_loss() const override { return scores_.loss(); }

 private:
  // The taken tokens' rows are in token order.
  void choose(int64_t group, int64_t expert, Routing& routing) {
    const int64_t first = group * routing.group_tokens, taken = std::min(routing.rows, routing.group_tokens);
    const auto score = [&](int64_t token) {  // NaN last: an order must be one whatever comes in
      const T p = scores_.probabilities(token)[expert];
      return std::isnan(p) ? T(-1) : p;
    };
    std::iota(order_.begin(), order_.end(), first);
    const auto end = order_.begin() + taken;
    std::nth_element(order_.begin(), end, order_.end(),
                     [&](int64_t a, int64_t b) { return score(a) != score(b) ? score(a) > score(b) : a < b; });
    std::sort(order_.begin(), end);
    for (auto token = order_.begin(); token != end; ++token) {
      const auto pair = static_cast<size_t>(*token * experts_ + expert);
      routing.expert[pair] = static_cast<int32_t>(expert);
      routing.row[pair] = static_cast<int32_t>(token - order_.begin());
    }
  }

  int64_t experts_;
  GateProjection logits_;
  SoftmaxScores<T> scores_;
  std::vector<int64_t> order_;  // of a group's tokens, for one expert
};

}  // namespace

std::unique_ptr<Gate> make_expert_choice_gate(const GateSetup& setup) {
  return make_for<Gate, ExpertChoiceGate>(setup.rank.dtype(), setup);
}

}  // namespace moe
