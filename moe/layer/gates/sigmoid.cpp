#include "moe/layer/gates/sigmoid.h"

#include <algorithm>
#include <cmath>

#include "moe/layer/gates/gate_parts.h"
#include "moe/tensor/element.h"

namespace moe {
namespace {

template <class T>
class SigmoidGate final : public Gate {
 public:
  explicit SigmoidGate(const PartSetup& setup) : experts_(setup.rank.experts.total), logits_(setup, experts_) {
    fill_weight(logits_.weight(kGateWeight), setup.rank.model_dim(), setup.seed);
  }

  void forward(TensorView hidden, Routing& routing) override {
    logits_.forward(hidden);
    const T* logits = logits_.products().as<T>();
    choose_top_k(logits, experts_, routing);
    T* weight = routing.weight.view().as<T>();
    for_each_pair(routing,
                  [&](int64_t pair, int64_t logit) { weight[pair] = T(1) / (T(1) + std::exp(-logits[logit])); });
  }

  void backward(const GateBackward& pass) override {
    const TensorView d_logits = logits_.d_products();
    T* d = d_logits.as<T>();
    std::fill_n(d, d_logits.elements(), T(0));
    const T *w = pass.routing.weight.view().as<T>(), *dw = pass.d_weight.as<T>();
    for_each_pair(pass.routing, [&](int64_t pair, int64_t logit) { d[logit] = dw[pair] * w[pair] * (T(1) - w[pair]); });
    logits_.backward(pass);
  }

  std::vector<Parameter> parameters() override { return {logits_.weight(kGateWeight)}; }

 private:
  // Calls body(pair, index of its logit).
  template <class Body>
  void for_each_pair(const Routing& routing, Body body) const {
    for (int64_t pair = 0; pair < routing.pairs(); ++pair)
      body(pair, pair / routing.choices * experts_ + routing.expert[pair]);
  }

  int64_t experts_;
  GateProjection logits_;
};

}  // namespace

std::unique_ptr<Gate> make_sigmoid_gate(const PartSetup& setup) {
  return make_for<Gate, SigmoidGate>(setup.rank.dtype(), setup);
}

}  // namespace moe
