// Gates by kernels: they differ in noise, in how a pair is weighed, and in having losses, as their rows say
// (moe/layer/gates/gate.cpp). What they compute is said in moe/layer/gates/.
#include "moe/layer/cuda/kernels.h"
#include "moe/layer/cuda/layer_device.h"
#include "moe/layer/gates/auxiliary_losses.h"
#include "moe/layer/gates/projection.h"
#include "moe/tensor/host_copy.h"

namespace moe::cuda {
namespace {

const GateRow& row_of(std::string_view name) {
  const GateRow& row = find_gate(name);
  if (row.scoring != Scoring::none) return row;
  std::string known;
  for (const std::string_view gate : gate_names())
    if (find_gate(gate).scoring != Scoring::none) known += fmt::format("{}{}", known.empty() ? "" : ", ", gate);
  throw Unsupported(fmt::format("gate {}: has no CUDA kernels, expected one of: {}", name, known));
}

class CudaGate final : public Gate {
 public:
  CudaGate(const PartSetup& setup, CudaMath& math, const GateRow& row)
      : math_(math),
        row_(row),
        rank_(setup.rank),
        tokens_(rank_.gated_tokens()),
        experts_(rank_.experts.total),
        width_(row.noisy ? 2 * experts_ : experts_),
        dtype_(sums_type(rank_.dtype())),
        losses_(rank_),
        products_(setup, width_) {
    MemorySpace& memory = math_.memory();
    statistics_ = losses_.make_statistics(memory);
    if (row.scoring == Scoring::all || losses_.any()) {
      probabilities_ = Tensor({tokens_, experts_}, dtype_, memory);
      log_sums_ = Tensor({tokens_}, dtype_, memory);
    }
    for (const Parameter& p : parameters()) fill_weight(p, rank_.model_dim(), setup.seed, memory);
    if (row.noisy) fill_noise(setup.seed);
    seed_ = setup.seed;
  }

  void begin_step(uint64_t step) override {
    if (!row_.noisy || seed_.step == step) return;
    seed_.step = step;
    fill_noise(seed_);
  }

  void forward(TensorView hidden, Routing& r) override {
    products_.forward(hidden);
    const Logits l = logits(products_.products());
    if (row_.noisy) add_noise(work(), l, noise_.view().data(), spread(products_.products()));
    if (!r.preset) choose_top_k(work(), l, r.choices, r.device.expert.data());
    assign_rows(math_.stream(),
                {r.groups(), r.group_tokens, r.choices, r.experts, r.rows, r.device.expert.data(), r.device.row.data(),
                 r.device.slot_of.data(), r.device.pair_of.data(), r.device.filled.data(), r.padding});
    if (row_.scoring == Scoring::all || losses_.any())
      softmax_scores(work(), l, probabilities_.view().data(), log_sums_.view().data());
    weigh(work(), l, {row_.scoring, r.choices, r.device.expert.data(), r.weight.view().data()});
    if (losses_.any()) count(r);
  }

  void backward(const GateBackward& pass) override {
    const Routing& r = pass.routing;
    const TensorView d = products_.d_products(), products = products_.products();
    const GateGradient gradient{.d_weight = pass.d_weight.data(),
                                .weight = r.weight.view().data(),
                                .probabilities = probabilities_.view().data(),
                                .log_sums = log_sums_.view().data(),
                                .sums = statistics_.view().as<double>(),
                                .balance = losses_.balance_slope(pass.share),
                                .z = losses_.z_slope(pass.share),
                                .noise = noise_.view().data(),
                                .spread = spread(products),
                                .d_spread = spread(d),
                                .scoring = row_.scoring,
                                .choices = r.choices,
                                .expert = r.device.expert.data()};
    gate_backward(work(), gradient, logits(d));
    products_.backward(pass);
  }

  std::vector<Parameter> parameters() override {
    std::vector<Parameter> all{products_.weight(kGateWeight, 0, experts_)};
    if (row_.noisy) all.push_back(products_.weight(kGateNoise, experts_, experts_));
    return all;
  }

  TensorView statistics() override { return statistics_; }

  double auxiliary_loss() const override {
    if (!losses_.any()) return 0;
    const HostCopy sums(statistics_, math_.memory());
    return losses_.value(sums.view().as<double>());
  }

 private:
  Work work() const { return {math_.stream(), dtype_}; }
  Logits logits(TensorView products) const { return {products.data(), tokens_, experts_, width_}; }
  // W_g and W_noise lie one below the other: their products side by side.
  static void* spread(TensorView products) { return products.at(products.size(1) / 2); }

  void fill_noise(const LayerSeed& seed) {
    if (noise_.view().rank() == 0) noise_ = Tensor({tokens_, experts_}, dtype_, math_.memory());
    int64_t at = 0;
    for (const ShardRange& run : rank_.gated) {
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
  const GateRow& row_;
  RankShape rank_;
  int64_t tokens_, experts_, width_;
  DType dtype_;  // float32 of a 16-bit layer
  AuxiliaryLosses losses_;
  GateProjection products_;
  Tensor probabilities_, log_sums_, statistics_, noise_;
  LayerSeed seed_;
};

}  // namespace

std::unique_ptr<Gate> make_gate(CudaMath& math, const PartSetup& setup) {
  return std::make_unique<CudaGate>(setup, math, row_of(setup.rank.shape.layer.gate));
}

}  // namespace moe::cuda
