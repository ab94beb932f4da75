// Gates gshard, switch and sigmoid: they differ in noise, in how a pair is weighed, and in having losses. What they
// compute is said in moe/layer/gates/.
#include <array>

#include "moe/base/registry.h"
#include "moe/layer/cuda/kernels.h"
#include "moe/layer/cuda/layer_device.h"
#include "moe/layer/gates/projection.h"
#include "moe/tensor/host_copy.h"

namespace moe::cuda {
namespace {

struct Kind {
  std::string_view name;
  Scoring scoring;
  bool noisy = false, losses = true;
};

constexpr std::array kKinds{Kind{"gshard", Scoring::chosen, true}, Kind{"switch", Scoring::all},
                            Kind{"sigmoid", Scoring::sigmoid, false, false}};

const Kind& kind_of(std::string_view name) {
  for (const Kind& kind : kKinds)
    if (kind.name == name) return kind;
  find_gate(name);  // BadInput if nobody knows it
  throw Unsupported(fmt::format("gate {}: has no CUDA kernels, expected gshard, switch or sigmoid", name));
}

class CudaGate final : public Gate {
 public:
  CudaGate(const GateSetup& setup, CudaMath& math, const Kind& kind)
      : math_(math),
        kind_(kind),
        rank_(setup.rank),
        tokens_(rank_.gated_tokens()),
        experts_(rank_.experts.total),
        width_(kind.noisy ? 2 * experts_ : experts_),
        dtype_(sums_type(rank_.dtype())),
        products_(rank_, width_, math) {
    const auto all = static_cast<double>(rank_.tokens.total);
    balance_ = rank_.shape.layer.aux_loss * static_cast<double>(experts_) / (all * all);
    z_ = rank_.shape.layer.z_loss / all;
    MemorySpace& memory = math_.memory();
    if (balance_ > 0 || z_ > 0) statistics_ = Tensor({2 * experts_ + 1}, DType::float64, memory);
    if (kind.scoring == Scoring::all || has_losses()) {
      probabilities_ = Tensor({tokens_, experts_}, dtype_, memory);
      log_sums_ = Tensor({tokens_}, dtype_, memory);
    }
    for (const Parameter& p : parameters()) fill_weight(p, rank_.model_dim(), setup.seed, memory);
    if (kind.noisy) fill_noise(setup.seed);
  }

  void forward(TensorView hidden, Routing& r) override {
    products_.forward(hidden);
    const Logits l = logits(products_.products());
    if (kind_.noisy) add_noise(work(), l, noise_.view().data(), spread(products_.products()));
    if (!r.preset) choose_top_k(work(), l, r.choices, r.device.expert.data());
    assign_rows(math_.stream(),
                {r.groups(), r.group_tokens, r.choices, r.experts, r.rows, r.device.expert.data(), r.device.row.data(),
                 r.device.slot_of.data(), r.device.pair_of.data(), r.device.filled.data(), r.padding});
    if (kind_.scoring == Scoring::all || has_losses())
      softmax_scores(work(), l, probabilities_.view().data(), log_sums_.view().data());
    weigh(work(), l, {kind_.scoring, r.choices, r.device.expert.data(), r.weight.view().data()});
    if (has_losses()) count(r);
  }

  void backward(const GateBackward& pass) override {
    const Routing& r = pass.routing;
    const TensorView d = products_.d_products(), products = products_.products();
    const GateGradient gradient{.d_weight = pass.d_weight.data(),
                                .weight = r.weight.view().data(),
                                .probabilities = probabilities_.view().data(),
                                .log_sums = log_sums_.view().data(),
                                .sums = statistics_.view().as<double>(),
                                .balance = pass.share * balance_,
                                .z = 2 * pass.share * z_,
                                .noise = noise_.view().data(),
                                .spread = spread(products),
                                .d_spread = spread(d),
                                .scoring = kind_.scoring,
                                .choices = r.choices,
                                .expert = r.device.expert.data()};
    gate_backward(work(), gradient, logits(d));
    products_.backward(pass.hidden, pass.d_hidden);
  }

  std::vector<Parameter> parameters() override {
    std::vector<Parameter> all{products_.weight(kGateWeight, 0, experts_)};
    if (kind_.noisy) all.push_back(products_.weight(kGateNoise, experts_, experts_));
    return all;
  }

  TensorView statistics() override { return statistics_; }

  double auxiliary_loss() const override {
    if (!has_losses()) return 0;
    const OnHost sums(statistics_, math_.memory());
    const double *first = sums.view().as<double>(), *probability = first + experts_;
    double balance = 0;
    for (int64_t e = 0; e < experts_; ++e) balance += first[e] * probability[e];
    return balance_ * balance + z_ * first[2 * experts_];
  }

 private:
  bool has_losses() const { return statistics_.view().data() != nullptr; }
  Work work() const { return {math_.stream(), dtype_}; }
  Logits logits(TensorView products) const { return {products.data(), tokens_, experts_, width_}; }
  // W_g and W_noise lie one below the other: their products side by side.
  static void* spread(TensorView products) { return products.at(products.size(1) / 2); }

  void fill_noise(const LayerSeed& seed) {
    noise_ = Tensor({tokens_, experts_}, dtype_, math_.memory());
    int64_t at = 0;
    for (const Share& run : rank_.gated) {
      fill_gate_noise(noise_.view().part(at * experts_, {run.count, experts_}), run, seed, math_.memory());
      at += run.count;
    }
  }

  void count(const Routing& r) const {
    const int64_t first = rank_.own_group * r.group_tokens;
    count_statistics(work(), {.tokens = r.group_tokens,
                              .experts = experts_,
                              .choices = r.choices,
                              .expert = r.device.expert.data() + first * r.choices,
                              .probabilities = probabilities_.view().at(first * experts_),
                              .log_sums = log_sums_.view().at(first),
                              .sums = statistics_.view().as<double>()});
  }

  CudaMath& math_;
  const Kind& kind_;
  RankShape rank_;
  int64_t tokens_, experts_, width_;
  DType dtype_;                 // float32 of a 16-bit layer
  double balance_ = 0, z_ = 0;  // as SoftmaxScores'
  GateProjection products_;
  Tensor probabilities_, log_sums_, statistics_, noise_;
};

}  // namespace

std::unique_ptr<Gate> make_gate(CudaMath& math, const GateSetup& setup) {
  return std::make_unique<CudaGate>(setup, math, kind_of(setup.rank.shape.layer.gate));
}

}  // namespace moe::cuda
