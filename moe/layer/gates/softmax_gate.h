#pragma once
// Gates that weigh every pair by the softmax over all logits x W_g share this; they differ in which pairs they take.
#include "moe/layer/gates/gate.h"
#include "moe/layer/gates/projection.h"
#include "moe/layer/gates/softmax_scores.h"

namespace moe {

template <class T>
class SoftmaxGate : public Gate {
 public:
  explicit SoftmaxGate(const PartSetup& setup)
      : experts_(setup.rank.experts.total), logits_(setup, experts_), scores_(setup.rank) {
    fill_weight(logits_.weight(kGateWeight), setup.rank.model_dim(), setup.seed);
  }

  void forward(TensorView hidden, Routing& routing) final {
    logits_.forward(hidden);
    const T* logits = logits_.products().as<T>();
    scores_.forward(logits, experts_);
    choose(logits, scores_, routing);
    scores_.weigh(routing);
    scores_.count(routing);
  }

  void backward(const GateBackward& pass) final {
    T* d = logits_.d_products().as<T>();
    scores_.backward(pass.routing, pass.d_weight.as<T>(), d, experts_);
    scores_.add_losses(pass.share, d, experts_);
    logits_.backward(pass);
  }

  std::vector<Parameter> parameters() final { return {logits_.weight(kGateWeight)}; }
  TensorView statistics() final { return scores_.statistics(); }
  double auxiliary_loss() const final { return scores_.loss(); }

 private:
  /// Sets the routing's experts and rows from logits (tokens, E) and their softmax.
  virtual void choose(const T* logits, const SoftmaxScores<T>& scores, Routing& routing) = 0;

  int64_t experts_;
  GateProjection logits_;
  SoftmaxScores<T> scores_;
};

}  // namespace moe
