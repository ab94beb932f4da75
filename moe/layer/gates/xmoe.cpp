#include "moe/layer/gates/xmoe.h"

#include <algorithm>
#include <cmath>

#include "moe/layer/gates/gate_parts.h"
#include "moe/shape/volumes.h"
#include "moe/tensor/cpu/math.h"
#include "moe/tensor/element.h"
#include "moe/tensor/host_copy.h"

namespace moe {
namespace {

// Rows of unit length, and the factors by which they were multiplied.
template <class T>
class UnitRows {
 public:
  UnitRows(int64_t rows, int64_t width, DType dtype)
      : width_(width), scale_(static_cast<size_t>(rows)), units_({rows, width}, dtype) {}

  TensorView units() const { return units_; }

  void forward(const T* in) {
    T* unit = units_.view().template as<T>();
    for (T& scale : scale_) {
      T squares = 0;
      for (int64_t j = 0; j < width_; ++j) squares += in[j] * in[j];
      scale = T(1) / std::max(std::sqrt(squares), static_cast<T>(1e-12));
      for (int64_t j = 0; j < width_; ++j) unit[j] = scale * in[j];
      in += width_;
      unit += width_;
    }
  }

  // Turns the units' gradients into those of the rows, in place.
  void backward(T* d) const {
    const T* unit = units_.view().template as<T>();
    for (const T scale : scale_) {
      T along = 0;
      for (int64_t j = 0; j < width_; ++j) along += unit[j] * d[j];
      for (int64_t j = 0; j < width_; ++j) d[j] = scale * (d[j] - along * unit[j]);
      d += width_;
      unit += width_;
    }
  }

 private:
  int64_t width_;
  std::vector<T> scale_;
  Tensor units_;
};

template <class T>
class XMoeGate final : public Gate {
 public:
  explicit XMoeGate(const PartSetup& setup)
      : tokens_(setup.rank.gated_tokens()),
        experts_(setup.rank.experts.total),
        weights_(setup),
        tokens_units_(tokens_, weights_.width(), weights_.dtype()),
        expert_units_(experts_, weights_.width(), weights_.dtype()),
        scores_(setup.rank) {
    for (Tensor* t : {&logits_, &d_logits_}) *t = Tensor({tokens_, experts_}, weights_.dtype());
    d_units_ = Tensor({experts_, weights_.width()}, weights_.dtype());
  }

  void forward(TensorView hidden, Routing& routing) override {
    weights_.projection().forward(hidden);
    tokens_units_.forward(weights_.projection().products().as<T>());
    expert_units_.forward(weights_.embeddings().as<T>());
    gemm(matrix(tokens_units_.units()), transpose(matrix(expert_units_.units())), matrix(logits_));
    scale(logits_, 1 / static_cast<double>(temperature()));
    scores_.forward(logits_.as<T>(), experts_);
    choose_top_k(logits_.as<T>(), experts_, routing);
    scores_.weigh(routing);
    scores_.count(routing);
  }

  void backward(const GateBackward& pass) override {
    T* d = d_logits_.as<T>();
    scores_.backward(pass.routing, pass.d_weight.as<T>(), d, experts_);
    scores_.add_losses(pass.share, d, experts_);
    T along = 0;
    for (int64_t i = 0; i < tokens_ * experts_; ++i) along += d[i] * logits_.as<T>()[i];
    T& d_temperature = *weights_.d_temperature().as<T>();
    d_temperature = (pass.into == Into::add ? d_temperature : T(0)) - along / temperature();
    scale(d_logits_, 1 / static_cast<double>(temperature()));
    const TensorView d_projected = weights_.projection().d_products();
    gemm(matrix(d_logits_), matrix(expert_units_.units()), matrix(d_projected));
    gemm(transpose(matrix(d_logits_)), matrix(tokens_units_.units()), matrix(d_units_));
    tokens_units_.backward(d_projected.as<T>());
    expert_units_.backward(d_units_.as<T>());
    const TensorView d_embeddings = weights_.d_embeddings();
    pass.into == Into::add ? cpu_math().add(d_units_, d_embeddings) : cpu_math().assign(d_units_, d_embeddings);
    weights_.projection().backward(pass);
  }

  std::vector<Parameter> parameters() override { return weights_.parameters(); }
  TensorView statistics() override { return scores_.statistics(); }
  double auxiliary_loss() const override { return scores_.loss(); }

 private:
  T temperature() const { return *weights_.temperature().as<T>(); }

  int64_t tokens_, experts_;
  XMoeWeights weights_;
  UnitRows<T> tokens_units_, expert_units_;
  SoftmaxScores<T> scores_;
  Tensor d_units_;            // (E, width)
  Tensor logits_, d_logits_;  // (tokens, E)
};

}  // namespace

XMoeWeights::XMoeWeights(const PartSetup& setup)
    : width_(cosine_rank(setup.rank.shape.layer)), projection_(setup, width_) {
  const DType dtype = accumulation_type(setup.rank.dtype());
  const int64_t experts = setup.rank.experts.total;
  embeddings_ = setup.weight("experts' embeddings", {1, experts, width_}, dtype);
  d_embeddings_ = setup.weight("experts' embeddings' gradient", {1, experts, width_}, dtype);
  temperature_ = setup.weight("temperature", {1, 1, 1}, dtype);
  d_temperature_ = setup.weight("temperature's gradient", {1, 1, 1}, dtype);
  MemorySpace& memory = setup.math.memory();
  const std::vector<Parameter> all = parameters();
  fill_weight(all[0], setup.rank.model_dim(), setup.seed, memory);
  fill_weight(all[1], width_, setup.seed, memory);
  fill_weight(all[2], 10000, setup.seed, memory);
  const HostCopy temperature(temperature_, memory);
  with_element(dtype, [&](auto zero) {
    using T = decltype(zero);
    *temperature.view().as<T>() += static_cast<T>(0.3);
  });
  temperature.send();
}

std::vector<Parameter> XMoeWeights::parameters() const {
  const ShardRange one{0, 1, 1}, width{0, width_, width_};
  const int64_t experts = embeddings().size(1);
  return {projection_.weight(kGateProjection),
          {std::string(kGateWeight), {one, {0, experts, experts}, width}, embeddings_, d_embeddings_},
          {std::string(kGateTemperature), {one, one, one}, temperature_, d_temperature_, SummedOver::stage, 1, 1}};
}

std::unique_ptr<Gate> make_xmoe_gate(const PartSetup& setup) {
  return make_for<Gate, XMoeGate>(setup.rank.dtype(), setup);
}

}  // namespace moe
