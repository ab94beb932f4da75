#include "moe/layer/gates/topk.h"

#include "moe/layer/gates/gate_parts.h"
#include "moe/tensor/element.h"

namespace moe {
namespace {

template <class T>
class TopKGate final : public Gate {
 public:
  explicit TopKGate(const PartSetup& setup)
      : experts_(setup.rank.experts.total), logits_(setup, experts_), scores_(setup.rank) {
    fill_weight(logits_.weight(kGateWeight), setup.rank.model_dim(), setup.seed);
  }

  void forward(TensorView hidden, Routing& routing) override {
    logits_.forward(hidden);
    const T* logits = logits_.products().as<T>();
    choose_top_k(logits, experts_, routing);
    weigh_chosen(logits, experts_, routing);
    if (!scores_.losses()) return;
    scores_.forward(logits, experts_);
    scores_.count(routing);
  }

  void backward(const GateBackward& pass) override {
    T* d = logits_.d_products().as<T>();
    weigh_chosen_backward(pass.routing, pass.d_weight.as<T>(), d, experts_);
    scores_.add_losses(pass.share, d, experts_);
    logits_.backward(pass);
  }

  std::vector<Parameter> parameters() override { return {logits_.weight(kGateWeight)}; }
  TensorView statistics() override { return scores_.statistics(); }
  double auxiliary_loss() const override { return scores_.loss(); }

 private:
  int64_t experts_;
  GateProjection logits_;
  SoftmaxScores<T> scores_;  // softmax for the auxiliary losses
};

}  // namespace

std::unique_ptr<Gate> make_topk_gate(const PartSetup& setup) {
  return make_for<Gate, TopKGate>(setup.rank.dtype(), setup);
}

}  // namespace moe
