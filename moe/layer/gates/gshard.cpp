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

// W_g and W_noise lie one below the other, so that both products are one GEMM.
template <class T>
class GShardGate final : public Gate {
 public:
  explicit GShardGate(const GateSetup& setup)
      : tokens_(setup.rank.gated_tokens()),
        gated_(setup.rank.gated),
        seed_(setup.seed),
        model_dim_(setup.rank.model_dim()),
        experts_(setup.rank.experts.total) {
    const DType dtype = setup.rank.dtype();
    for (Tensor* t : {&weights_, &d_weights_}) *t = Tensor({2 * experts_, model_dim_}, dtype);
    for (Tensor* t : {&products_, &d_products_}) *t = Tensor({tokens_, 2 * experts_}, dtype);
    noise_ = Tensor({tokens_, experts_}, dtype);
    for (const Parameter& p : parameters()) fill_weight(p, model_dim_, seed_);
  }

  void forward(TensorView hidden, Routing& routing) override {
    gemm(matrix(hidden), transpose(matrix(weights_)), matrix(products_));
    fill_noise();
    T* logits = values(products_);
    const T* noise = values(noise_);
    for (int64_t t = 0; t < tokens_; ++t, logits += 2 * experts_, noise += experts_) {
      for (int64_t e = 0; e < experts_; ++e) logits[e] += noise[e] * softplus(logits[experts_ + e]);
      choose(logits, t, routing);
    }
    assign_rows(routing);
  }

  void backward(const GateBackward& pass) override {
    products_backward(pass.routing, pass.d_weight.as<T>());
    gemm(transpose(matrix(d_products_)), matrix(pass.hidden), matrix(d_weights_));
    gemm(matrix(d_products_), matrix(weights_), matrix(pass.d_hidden), Into::add);
  }

  std::vector<Parameter> parameters() override {
    const std::array<Share, 3> axes{Share{0, 1, 1}, {0, experts_, experts_}, {0, model_dim_, model_dim_}};
    const auto half = [&](const Tensor& t, int64_t i) {
      return t.view().part(i * experts_ * model_dim_, {1, experts_, model_dim_});
    };
    return {{std::string(kGateWeight), axes, half(weights_, 0), half(d_weights_, 0), SummedOver::stage},
            {std::string(kGateNoise), axes, half(weights_, 1), half(d_weights_, 1), SummedOver::stage}};
  }

 private:
  static T* values(const Tensor& t) { return t.view().template as<T>(); }

  void fill_noise() const {
    int64_t at = 0;
    for (const Share& run : gated_) {
      fill_gate_noise(noise_.view().part(at * experts_, {run.count, experts_}), run, seed_);
      at += run.count;
    }
  }

  // The k largest logits of token t, largest first, and their softmax.
  void choose(const T* logits, int64_t t, Routing& routing) const {
    const int64_t k = routing.choices;
    int32_t* expert = routing.expert.data() + t * k;
    T* weight = values(routing.weight) + t * k;
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

  // 0 but for the chosen experts: softmax's transpose, then through noise * softplus(spread).
  void products_backward(const Routing& routing, const T* dw) {
    const T *weight = values(routing.weight), *spread = values(products_) + experts_, *noise = values(noise_);
    T* d = values(d_products_);
    std::fill_n(d, tokens_ * 2 * experts_, T(0));
    const int32_t* expert = routing.expert.data();
    for (int64_t t = 0; t < tokens_; ++t) {
      T mean = 0;
      for (int64_t c = 0; c < routing.choices; ++c) mean += weight[c] * dw[c];
      for (int64_t c = 0; c < routing.choices; ++c) {
        d[expert[c]] = weight[c] * (dw[c] - mean);
        d[experts_ + expert[c]] = d[expert[c]] * noise[expert[c]] * sigmoid(spread[expert[c]]);
      }
      weight += routing.choices, dw += routing.choices, expert += routing.choices;
      d += 2 * experts_, spread += 2 * experts_, noise += experts_;
    }
  }

  int64_t tokens_;
  std::vector<Share> gated_;
  LayerSeed seed_;
  int64_t model_dim_, experts_;
  Tensor weights_, d_weights_;    // (2 E, M): W_g, then W_noise, both transposed
  Tensor products_, d_products_;  // (tokens, 2 E): logits, noise added, then spread = x W_noise
  Tensor noise_;                  // (tokens, E)
};

}  // namespace

std::unique_ptr<Gate> make_gshard_gate(const GateSetup& setup) {
  return make_for<Gate, GShardGate>(setup.rank.dtype(), setup);
}

}  // namespace moe
