// The k largest logits x W_g of a token, each weighed by max(logit, 0).
#include <algorithm>

#include "moe/layer/gates/gate_parts.h"
#include "moe/tensor/element.h"
#include "tests/adding/parts.h"

namespace moe {
namespace {

template <class T>
class ReluGate final : public Gate {
 public:
  explicit ReluGate(const PartSetup& setup) : experts_(setup.rank.experts.total), logits_(setup, experts_) {
    fill_weight(logits_.weight(kGateWeight), setup.rank.model_dim(), setup.seed);
  }

  void forward(TensorView hidden, Routing& routing) override {
    logits_.forward(hidden);
    const T* logits = logits_.products().as<T>();
    choose_top_k(logits, experts_, routing);
    T* weight = routing.weight.view().as<T>();
    for (int64_t pair = 0; pair < routing.pairs(); ++pair)
      weight[pair] = std::max(T(0), logits[logit_of(routing, pair)]);
  }

  void backward(const GateBackward& pass) override {
    const Routing& routing = pass.routing;
    T* d = logits_.d_products().as<T>();
    std::fill_n(d, routing.tokens * experts_, T(0));
    for (int64_t pair = 0; pair < routing.pairs(); ++pair)
      if (routing.weight.view().as<T>()[pair] > 0) d[logit_of(routing, pair)] = pass.d_weight.as<T>()[pair];
    logits_.backward(pass);
  }

  std::vector<Parameter> parameters() override { return {logits_.weight(kGateWeight)}; }

 private:
  int64_t logit_of(const Routing& routing, int64_t pair) const {
    return pair / routing.choices * experts_ + routing.expert[pair];
  }
  int64_t experts_;
  GateProjection logits_;
};

}  // namespace

std::unique_ptr<Gate> make_relu_gate(const PartSetup& setup) {
  return make_for<Gate, ReluGate>(setup.rank.dtype(), setup);
}

}  // namespace moe
