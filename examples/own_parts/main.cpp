// Registers a gate and a hook, and trains a layer that names them, on 2 nodes x 2 ranks of threads.
#include <algorithm>
#include <atomic>
#include <fmt/core.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>

#include "moe/comm/local/local_world.h"
#include "moe/layer/gates/gate_parts.h"
#include "moe/schedule/schedule.h"
#include "moe/torch/moe_layer_module.h"

namespace {

// The k largest logits x W_g of a token, each weighed by max(logit, 0).
class ReluGate final : public moe::Gate {
 public:
  explicit ReluGate(const moe::PartSetup& setup) : experts_(setup.rank.experts.total), logits_(setup, experts_) {
    moe::fill_weight(logits_.weight(moe::kGateWeight), setup.rank.model_dim(), setup.seed);
  }
  void forward(moe::TensorView hidden, moe::Routing& routing) override {
    logits_.forward(hidden);
    moe::choose_top_k(logits(), experts_, routing);
    for (int64_t pair = 0; pair < routing.pairs(); ++pair)
      routing.weight.view().as<float>()[pair] = std::max(0.0F, logits()[logit_of(routing, pair)]);
  }
  void backward(const moe::GateBackward& pass) override {
    auto* d = logits_.d_products().as<float>();
    std::fill_n(d, pass.routing.tokens * experts_, 0.0F);
    for (int64_t pair = 0; pair < pass.routing.pairs(); ++pair)
      if (const int64_t i = logit_of(pass.routing, pair); logits()[i] > 0) d[i] = pass.d_weight.as<float>()[pair];
    logits_.backward(pass);
  }
  std::vector<moe::Parameter> parameters() override { return {logits_.weight(moe::kGateWeight)}; }

 private:
  const float* logits() const { return logits_.products().as<float>(); }
  int64_t logit_of(const moe::Routing& routing, int64_t pair) const {
    return pair / routing.choices * experts_ + routing.expert[pair];
  }
  int64_t experts_;
  moe::GateProjection logits_;
};

std::atomic<int64_t> sent_bytes = 0;

// Counts what is sent.
class CountingHook final : public moe::Hook {
 public:
  void before_dispatch(moe::Phase, moe::TensorView, moe::TensorView wire) override { sent_bytes += wire.bytes(); }
  void before_combine(moe::Phase, moe::TensorView, moe::TensorView wire) override { sent_bytes += wire.bytes(); }
};

}  // namespace

int main() {
  moe::register_gate({"relu", "top-k, each weighed by max(logit, 0)"}, {.make = [](const moe::PartSetup& setup) {
                       return std::unique_ptr<moe::Gate>(new ReluGate(setup));
                     }});
  moe::register_hook({"counting", "counts the bytes that are sent"},
                     {.make = [](moe::Math&) { return std::unique_ptr<moe::Hook>(new CountingHook); }});

  moe::LayerShape layer{.batch = 2, .seq = 32, .model_dim = 32, .hidden = 64, .heads = 4};
  layer.gate = "relu";
  layer.hook = "counting";
  const moe::LayerCase shape = moe::complete(layer, {.nodes = 2, .ranks_per_node = 2}, moe::Rounding::ragged);
  const moe::Plan plan =
      moe::build_plan(moe::find_schedule("fsmoe"), shape, {.degree_forward = 2, .degree_backward = 2});

  moe::LocalWorld world(shape.parallel.ranks());
  world.run([&](int rank) {
    const auto comm = world.communicator(rank);
    const auto local = std::make_shared<moe::MoeLayer>(moe::rank_shape(shape, rank), moe::LayerSeed{},
                                                       moe::LayerComms::split(*comm, shape.parallel));
    moe::MoeLayerModule module(local, plan);
    torch::optim::Adam adam(module.parameters(), torch::optim::AdamOptions(1e-2));
    const auto x = torch::from_blob(module.layer().input().data(), {module.layer().input().size(0), 32}).clone();
    for (int step = 0; step <= 20; ++step) {
      adam.zero_grad();
      const auto loss = torch::nn::functional::mse_loss(module.forward(x), x.roll(1, 1));
      loss.backward();
      adam.step();
      if (rank == 0 && step % 5 == 0) fmt::print("step {:2} loss {:.4f}\n", step, loss.item<double>());
    }
  });
  fmt::print("gate {}, hook {}: {} bytes sent\n", shape.layer.gate, shape.layer.hook, sent_bytes.load());
}
