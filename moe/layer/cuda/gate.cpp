// Gates that choose, by kernels. They differ in the logits (logits.h), in who chooses, in how a pair is weighed, and in
// whether they have losses, as their rows say (moe/layer/gates/gate.cpp). moe/layer/gates/ documents the computations.
#include "moe/layer/cuda/layer_device.h"
#include "moe/layer/cuda/logits.h"
#include "moe/layer/cuda/mixing_gate.h"
#include "moe/layer/gates/gate_parts.h"
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
        part_(gate_of(setup.rank.shape.layer)),
        rank_(setup.rank),
        tokens_(rank_.gated_tokens()),
        experts_(rank_.experts.total),
        dtype_(accumulation_type(rank_.dtype())),
        losses_(rank_),
        logits_(make_logits(part_.logits, setup, math)) {
    MemorySpace& memory = math_.memory();
    statistics_ = losses_.make_statistics(memory);
    if (!has_scores()) return;
    probabilities_ = Tensor({tokens_, experts_}, dtype_, memory);
    log_sums_ = Tensor({tokens_}, dtype_, memory);
  }

  void begin_step(uint64_t step, bool noisy) override { logits_->begin_step(step, noisy); }

  void forward(TensorView hidden, Routing& r) override {
    logits_->forward(hidden);
    const Logits l = logits_->logits();
    if (has_scores()) softmax_scores(work(), l, probabilities_.view().data(), log_sums_.view().data());
    choose(l, r);
    weigh(work(), l,
          {row_.scoring, r.choices, r.device.expert.data(), probabilities_.view().data(), r.weight.view().data()});
    if (losses_.any()) count(r);
  }

  void backward(const GateBackward& pass) override {
    const Routing& r = pass.routing;
    const GateGradient gradient{.d_weight = pass.d_weight.data(),
                                .weight = r.weight.view().data(),
                                .probabilities = probabilities_.view().data(),
                                .log_sums = log_sums_.view().data(),
                                .sums = statistics_.view().as<double>(),
                                .balance = losses_.balance_slope(pass.share),
                                .z = losses_.z_slope(pass.share),
                                .scoring = row_.scoring,
                                .choices = r.choices,
                                .by_expert = experts_choose(),
                                .expert = r.device.expert.data()};
    gate_backward(work(), gradient, logits_->d_logits());
    logits_->backward(pass);
  }

  std::vector<Parameter> parameters() override { return logits_->parameters(); }

  TensorView statistics() override { return statistics_; }

  double auxiliary_loss() const override {
    if (!losses_.any()) return 0;
    const HostCopy sums(statistics_, math_.memory());
    return losses_.value(sums.view().as<double>());
  }

 private:
  Work work() const { return {math_.stream(), dtype_}; }
  bool has_scores() const { return row_.scoring == Scoring::all || losses_.any(); }
  bool experts_choose() const { return part_.choices == Choices::experts; }

  void choose(const Logits& l, Routing& r) const {
    const RowAssignment rows = assignment_of(r);
    if (experts_choose()) return take_tokens(work(), probabilities_.view().data(), rows, r.device.expert.data());
    if (!r.preset) choose_top_k(work(), l, r.choices, r.device.expert.data());
    assign_rows(math_.stream(), rows);
  }

  void count(const Routing& r) const {
    const int64_t first = rank_.own_group * r.group_tokens;
    count_statistics(work(), {.tokens = r.group_tokens,
                              .experts = experts_,
                              .choices = r.choices,
                              .expert = losses_.balances() ? r.device.expert.data() + first * r.choices : nullptr,
                              .probabilities = probabilities_.view().at(first * experts_),
                              .log_sums = log_sums_.view().at(first),
                              .sums = statistics_.view().as<double>()});
  }

  CudaMath& math_;
  const GateRow& row_;
  const GatePart& part_;
  RankShape rank_;
  int64_t tokens_, experts_;
  DType dtype_;  // float32 for a 16-bit layer
  AuxiliaryLosses losses_;
  std::unique_ptr<GateLogits> logits_;
  Tensor probabilities_, log_sums_, statistics_;
};

}  // namespace

std::unique_ptr<Gate> make_gate(CudaMath& math, const PartSetup& setup) {
  const GateRow& row = row_of(setup.rank.shape.layer.gate);
  if (gate_of(setup.rank.shape.layer).choices == Choices::rows) return make_mixing_gate(math, setup);
  return std::make_unique<CudaGate>(setup, math, row);
}

}  // namespace moe::cuda
