#include "moe/layer/cuda/logits.h"

#include "moe/layer/gates/gate_parts.h"
#include "moe/layer/gates/xmoe.h"

namespace moe::cuda {
namespace {

// Computes x W_g and, if the gate is noisy, adds noise of deviation softplus(x W_noise). W_g and W_noise lie one below
// the other, so their products lie side by side.
class ProductLogits final : public GateLogits {
 public:
  ProductLogits(const PartSetup& setup, CudaMath& math, bool noisy)
      : math_(math),
        noisy_(noisy),
        rank_(setup.rank),
        tokens_(rank_.gated_tokens()),
        experts_(rank_.experts.total),
        products_(setup, noisy ? 2 * experts_ : experts_),
        seed_(setup.seed) {
    for (const Parameter& p : parameters()) fill_weight(p, rank_.model_dim(), seed_, math_.memory());
    if (!noisy_) return;
    noise_ = Tensor({tokens_, experts_}, products_.products().dtype(), math_.memory());
    fill_noise();
  }

  void begin_step(uint64_t step, bool noisy) override {
    if (!noisy_ || (seed_.step == step && seed_.noisy == noisy)) return;
    seed_.step = step;
    seed_.noisy = noisy;
    fill_noise();
  }

  void forward(TensorView hidden) override {
    products_.forward(hidden);
    if (noisy_) add_noise(work(), logits(), noise());
  }
  Logits logits() const override { return as_logits(products_.products()); }
  Logits d_logits() const override { return as_logits(products_.d_products()); }

  void backward(const GateBackward& pass) override {
    if (noisy_) noise_backward(work(), d_logits(), noise(), spread(products_.d_products()));
    products_.backward(pass);
  }

  std::vector<Parameter> parameters() override {
    std::vector<Parameter> all{products_.weight(kGateWeight, 0, experts_)};
    if (noisy_) all.push_back(products_.weight(kGateNoise, experts_, experts_));
    return all;
  }

 private:
  Work work() const { return {math_.stream(), products_.products().dtype()}; }
  Logits as_logits(TensorView products) const { return {products.data(), tokens_, experts_, products.size(1)}; }
  void* spread(TensorView products) const { return products.at(experts_); }
  Noise noise() const { return {noise_.view().data(), spread(products_.products())}; }

  void fill_noise() {
    int64_t at = 0;
    for (const ShardRange& run : rank_.gated) {
      fill_gate_noise(noise_.view().part(at * experts_, {run.count, experts_}), run, rank_.shape, seed_,
                      math_.memory());
      at += run.count;
    }
  }

  CudaMath& math_;
  bool noisy_;
  RankShape rank_;
  int64_t tokens_, experts_;
  GateProjection products_;
  Tensor noise_;
  LayerSeed seed_;
};

// Computes X-MoE's cosines of projected tokens and experts' embeddings, divided by the temperature.
class CosineLogits final : public GateLogits {
 public:
  CosineLogits(const PartSetup& setup, CudaMath& math)
      : math_(math),
        tokens_(setup.rank.gated_tokens()),
        experts_(setup.rank.experts.total),
        weights_(setup),
        tokens_units_(tokens_, weights_.width(), weights_.dtype(), math.memory()),
        expert_units_(experts_, weights_.width(), weights_.dtype(), math.memory()) {
    for (Tensor* t : {&logits_, &d_logits_}) *t = Tensor({tokens_, experts_}, weights_.dtype(), math.memory());
    d_units_ = Tensor({experts_, weights_.width()}, weights_.dtype(), math.memory());
    along_ = Tensor({tokens_}, weights_.dtype(), math.memory());
  }

  void forward(TensorView hidden) override {
    const GateProjection& projection = weights_.projection();
    projection.forward(hidden);
    make_units(work(), projection.products().data(), tokens_units_.rows());
    make_units(work(), weights_.embeddings().data(), expert_units_.rows());
    math_.gemm(matrix(tokens_units_.units), transpose(matrix(expert_units_.units)), matrix(logits_), Into::overwrite,
               {});
    divide(work(), logits_.view().data(), weights_.temperature().data(), tokens_ * experts_);
  }
  Logits logits() const override { return {logits_.view().data(), tokens_, experts_, experts_}; }
  Logits d_logits() const override { return {d_logits_.view().data(), tokens_, experts_, experts_}; }

  void backward(const GateBackward& pass) override {
    const bool adds = pass.into == Into::add;
    temperature_backward(work(), d_logits(),
                         {weights_.temperature().data(), logits_.view().data(), along_.view().data(),
                          weights_.d_temperature().data(), adds});
    const TensorView d_projected = weights_.projection().d_products();
    math_.gemm(matrix(d_logits_), matrix(expert_units_.units), matrix(d_projected), Into::overwrite, {});
    math_.gemm(transpose(matrix(d_logits_)), matrix(tokens_units_.units), matrix(d_units_), Into::overwrite, {});
    units_backward(work(), tokens_units_.rows(), d_projected.data());
    units_backward(work(), expert_units_.rows(), d_units_.view().data());
    if (adds)
      math_.add(d_units_, weights_.d_embeddings());
    else
      math_.assign(d_units_, weights_.d_embeddings());
    weights_.projection().backward(pass);
  }

  std::vector<Parameter> parameters() override { return weights_.parameters(); }

 private:
  struct Units {
    Units(int64_t rows, int64_t width, DType dtype, MemorySpace& memory)
        : units({rows, width}, dtype, memory), scale({rows}, dtype, memory) {}
    UnitRows rows() const {
      return {units.view().size(0), units.view().size(1), units.view().data(), scale.view().data()};
    }
    Tensor units, scale;
  };
  Work work() const { return {math_.stream(), weights_.dtype()}; }

  CudaMath& math_;
  int64_t tokens_, experts_;
  XMoeWeights weights_;
  Units tokens_units_, expert_units_;
  Tensor d_units_;            // (E, width)
  Tensor logits_, d_logits_;  // (tokens, E)
  Tensor along_;              // (tokens)
};

}  // namespace

std::unique_ptr<GateLogits> make_logits(LogitsBy by, const PartSetup& setup, CudaMath& math) {
  if (by == LogitsBy::cosine) return std::make_unique<CosineLogits>(setup, math);
  return std::make_unique<ProductLogits>(setup, math, by == LogitsBy::noisy_product);
}

}  // namespace moe::cuda
