#include "moe/layer/cuda/mixing_gate.h"

#include "moe/layer/gates/gate_parts.h"
#include "moe/shape/volumes.h"

namespace moe::cuda {
namespace {

class CudaMixingGate final : public Gate {
 public:
  CudaMixingGate(const PartSetup& setup, CudaMath& math)
      : math_(math),
        tokens_(setup.rank.gated_tokens()),
        rows_(setup.rank.experts.total * capacity_rows(setup.rank.shape)),
        products_(setup, rows_),
        log_sums_({tokens_}, products_.products().dtype(), math.memory()) {
    fill_weight(products_.weight(kGateWeight), setup.rank.model_dim(), setup.seed, math.memory());
  }

  void forward(TensorView hidden, Routing& r) override {
    products_.forward(hidden);
    const Logits l = as_logits(products_.products());
    softmax_scores(work(), l, r.weight.view().data(), log_sums_.view().data());
    softmax_over_tokens(work(), l, r.group_tokens, r.fill.view().data());
    mix_tokens(math_.stream(), assignment_of(r), r.device.expert.data());
  }

  void backward(const GateBackward& pass) override {
    const Routing& r = pass.routing;
    mixture_backward(
        work(),
        {r.group_tokens, r.weight.view().data(), pass.d_weight.data(), r.fill.view().data(), pass.d_fill.data()},
        as_logits(products_.d_products()));
    products_.backward(pass);
  }

  std::vector<Parameter> parameters() override { return {products_.weight(kGateWeight)}; }

 private:
  Work work() const { return {math_.stream(), products_.products().dtype()}; }
  Logits as_logits(TensorView products) const { return {products.data(), tokens_, rows_, rows_}; }

  CudaMath& math_;
  int64_t tokens_, rows_;  // rows_: of all experts together
  GateProjection products_;
  Tensor log_sums_;
};

}  // namespace

std::unique_ptr<Gate> make_mixing_gate(CudaMath& math, const PartSetup& setup) {
  return std::make_unique<CudaMixingGate>(setup, math);
}

}  // namespace moe::cuda
