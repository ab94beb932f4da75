#include "moe/layer/gates/gshard.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "moe/layer/cpu/math.h"
#include "moe/layer/element.h"

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

template <class T>
class GShardGate : public Gate {
 public:
  explicit GShardGate(const GateSetup& setup)
      : tokens_(setup.rank.tokens),
        seed_(setup.seed),
        model_dim_(setup.rank.model_dim()),
        experts_(setup.rank.experts.total) {
    const DType dtype = setup.rank.dtype();
    for (Tensor* t : {&weight_, &noise_weight_, &d_weight_, &d_noise_weight_})
      *t = Tensor({model_dim_, experts_}, dtype);
    for (Tensor* t : {&logits_, &spread_, &noise_, &d_logits_, &d_spread_})
      *t = Tensor({tokens_.count, experts_}, dtype);
    for (const Parameter& p : parameters()) fill_weight(p, model_dim_, seed_);
  }

  void forward(TensorView hidden, Routing& routing) override {
    gemm(matrix(hidden), matrix(weight_), matrix(logits_));
    gemm(matrix(hidden), matrix(noise_weight_), matrix(spread_));
    fill_gate_noise(noise_, tokens_, seed_);
    T* logits = logits_.view().template as<T>();
    const T *spread = spread_.view().template as<T>(), *noise = noise_.view().template as<T>();
    for (int64_t i = 0; i < tokens_.count * experts_; ++i) logits[i] += noise[i] * softplus(spread[i]);
    for (int64_t t = 0; t < tokens_.count; ++t) choose(logits + t * experts_, t, routing);
    assign_rows(routing);
  }

  void backward(TensorView hidden, const Routing& routing, TensorView d_weight, TensorView d_hidden) override {
    logits_backward(routing, d_weight);
    gemm(transpose(matrix(hidden)), matrix(d_logits_), matrix(d_weight_));
    gemm(transpose(matrix(hidden)), matrix(d_spread_), matrix(d_noise_weight_));
    gemm(matrix(d_logits_), transpose(matrix(weight_)), matrix(d_hidden), Into::add);
    gemm(matrix(d_spread_), transpose(matrix(noise_weight_)), matrix(d_hidden), Into::add);
  }

  std::vector<Parameter> parameters() override {
    const std::array<Share, 3> axes{Share{0, 1, 1}, {0, model_dim_, model_dim_}, {0, experts_, experts_}};
    return {{std::string(kGateWeight), axes, weight_, d_weight_, SummedOver::stage},
            {std::string(kGateNoise), axes, noise_weight_, d_noise_weight_, SummedOver::stage}};
  }

 private:
  // The k largest logits of token t, largest first, and their softmax.
  void choose(const T* logits, int64_t t, Routing& routing) const {
    const int64_t k = routing.top_k;
    int32_t* expert = routing.expert.data() + t * k;
    T* weight = routing.weight.view().template as<T>() + t * k;
    T sum = 0;
    for (int64_t c = 0; c < k; ++c) {
      int64_t best = -1;
      for (int64_t e = 0; e < experts_; ++e)
        if (std::find(expert, expert + c, e) == expert + c && (best < 0 || logits[e] > logits[best])) best = e;
      expert[c] = static_cast<int32_t>(best);
      sum += weight[c] = std::exp(logits[best] - logits[expert[0]]);
    }
    for (int64_t c = 0; c < k; ++c) weight[c] /= sum;
  }

  // d_logits and d_spread: 0 but for the chosen experts; softmax's transpose, then through noise * softplus(spread).
  void logits_backward(const Routing& routing, TensorView d_weight) {
    T *d_logits = d_logits_.view().template as<T>(), *d_spread = d_spread_.view().template as<T>();
    std::fill_n(d_logits, tokens_.count * experts_, T(0));
    std::fill_n(d_spread, tokens_.count * experts_, T(0));
    const T *weight = routing.weight.view().template as<T>(), *dw = d_weight.as<T>();
    const T *spread = spread_.view().template as<T>(), *noise = noise_.view().template as<T>();
    for (int64_t t = 0; t < tokens_.count; ++t, weight += routing.top_k, dw += routing.top_k) {
      T mean = 0;
      for (int64_t c = 0; c < routing.top_k; ++c) mean += weight[c] * dw[c];
      for (int64_t c = 0; c < routing.top_k; ++c) {
        const int64_t i = t * experts_ + routing.expert[static_cast<size_t>(t * routing.top_k + c)];
        d_logits[i] = weight[c] * (dw[c] - mean);
        d_spread[i] = d_logits[i] * noise[i] * sigmoid(spread[i]);
      }
    }
  }

  Share tokens_;
  LayerSeed seed_;
  int64_t model_dim_, experts_;
  Tensor weight_, noise_weight_, d_weight_, d_noise_weight_;  // (M, E)
  Tensor logits_, spread_, noise_, d_logits_, d_spread_;      // (tokens, E); spread = x W_noise
};

}  // namespace

std::unique_ptr<Gate> make_gshard_gate(const GateSetup& setup) {
  return make_for<Gate, GShardGate>(setup.rank.dtype(), setup);
}

}  // namespace moe
