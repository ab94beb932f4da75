#include "moe/layer/gates/switch.h"

#include "moe/layer/element.h"
#include "moe/layer/gates/projection.h"
#include "moe/layer/gates/softmax_scores.h"
#include "moe/layer/gates/top_k.h"

namespace moe {
namespace {

template <class T>
class SwitchGate final : public Gate {
 public:
  explicit SwitchGate(const GateSetup& setup)
      : experts_(setup.rank.experts.total), logits_(setup.rank, experts_), scores_(setup.rank) {
    fill_weight(logits_.weight(kGateWeight), setup.rank.model_dim(), setup.seed);
  }

  void forward(TensorView hidden, Routing& routing) override {
    logits_.forward(hidden);
    const T* logits = logits_.products().as<T>();
    scores_.forward(logits, experts_);
    choose_top_k(logits, experts_, routing);
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
  int64_t experts_;
  GateProjection logits_;
  SoftmaxScores<T> scores_;
};

}  // namespace

std::unique_ptr<Gate> make_switch_gate(const GateSetup& setup) {
  return make_for<Gate, SwitchGate>(setup.rank.dtype(), setup);
}

}  // namespace moe
