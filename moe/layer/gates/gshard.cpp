#include "moe/layer/gates/gshard.h"

#include <algorithm>
#include <cmath>

#include "moe/layer/gates/gate_parts.h"
#include "moe/tensor/element.h"

namespace moe {
namespace {

template <class T>
T softplus(T x) {
  return std::max(x, T(0)) + std::log1p(std::exp(-std::abs(x)));
}

template <class T>
T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// W_g and W_noise lie one below the other, so that both products are one GEMM: the logits, to which the noise is added
// in place, and spread = x W_noise.
template <class T>
class GShardGate final : public Gate {
 public:
  explicit GShardGate(const PartSetup& setup)
      : tokens_(setup.rank.gated_tokens()),
        experts_(setup.rank.experts.total),
        gated_(setup.rank.gated),
        shape_(setup.rank.shape),
        seed_(setup.seed),
        products_(setup, 2 * experts_),
        scores_(setup.rank),
        noise_({tokens_, experts_}, setup.rank.dtype()) {
    for (const Parameter& p : parameters()) fill_weight(p, setup.rank.model_dim(), seed_);
  }

  void begin_step(uint64_t step, bool noisy) override { seed_.step = step, seed_.noisy = noisy; }
  void forward(TensorView hidden, Routing& routing) override {
    products_.forward(hidden);
    fill_noise();
    T* logits = products_.products().as<T>();
    const T* noise = noise_.as<T>();
    for (int64_t t = 0; t < tokens_; ++t, logits += 2 * experts_, noise += experts_)
      for (int64_t e = 0; e < experts_; ++e) logits[e] += noise[e] * softplus(logits[experts_ + e]);
    logits = products_.products().as<T>();
    choose_top_k(logits, 2 * experts_, routing);
    weigh_chosen(logits, 2 * experts_, routing);
    if (!scores_.losses()) return;
    scores_.forward(logits, 2 * experts_);
    scores_.count(routing);
  }

  void backward(const GateBackward& pass) override {
    T* d = products_.d_products().as<T>();
    weigh_chosen_backward(pass.routing, pass.d_weight.as<T>(), d, 2 * experts_);
    scores_.add_losses(pass.share, d, 2 * experts_);
    const T *spread = products_.products().as<T>() + experts_, *noise = noise_.as<T>();
    for (int64_t t = 0; t < tokens_; ++t, d += 2 * experts_, spread += 2 * experts_, noise += experts_)
      for (int64_t e = 0; e < experts_; ++e) d[experts_ + e] = d[e] == 0 ? T(0) : d[e] * noise[e] * sigmoid(spread[e]);
    products_.backward(pass);
  }

  std::vector<Parameter> parameters() override {
    return {products_.weight(kGateWeight, 0, experts_), products_.weight(kGateNoise, experts_, experts_)};
  }
  TensorView statistics() override { return scores_.statistics(); }
  double auxiliary_loss() const override { return scores_.loss(); }

 private:
  void fill_noise() const {
    int64_t at = 0;
    for (const ShardRange& run : gated_) {
      fill_gate_noise(noise_.view().part(at * experts_, {run.count, experts_}), run, shape_, seed_);
      at += run.count;
    }
  }

  int64_t tokens_, experts_;
  std::vector<ShardRange> gated_;
  LayerCase shape_;
  LayerSeed seed_;
  GateProjection products_;
  SoftmaxScores<T> scores_;  // softmax for the auxiliary losses
  Tensor noise_;             // (tokens, E)
};

}  // namespace

std::unique_ptr<Gate> make_gshard_gate(const PartSetup& setup) {
  return make_for<Gate, GShardGate>(setup.rank.dtype(), setup);
}

}  // namespace moe
