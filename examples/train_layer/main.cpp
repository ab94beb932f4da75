// Trains one MoE layer on 2 nodes x 2 ranks of threads under FSMoE's schedule, and prints the loss of every fifth step.
#include <fmt/core.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>

#include "moe/comm/local/local_world.h"
#include "moe/schedule/schedule.h"
#include "moe/torch/moe_layer_module.h"

int main() {
  moe::LayerShape layer{.batch = 2, .seq = 32, .model_dim = 32, .hidden = 64, .heads = 4};
  const moe::ParallelShape parallel{.nodes = 2, .ranks_per_node = 2};  // MP = ESP = 2 inside a node, EP = 2 between
  const moe::LayerCase shape = moe::complete(layer, parallel, moe::Rounding::ragged);
  const moe::Plan plan =
      moe::build_plan(moe::find_schedule("fsmoe"), shape, {.degree_forward = 2, .degree_backward = 2});

  moe::LocalWorld world(shape.parallel.ranks());
  world.run([&](int rank) {
    const auto comm = world.communicator(rank);
    const auto local = std::make_shared<moe::MoeLayer>(moe::rank_shape(shape, rank), moe::LayerSeed{},
                                                       moe::LayerComms::split(*comm, shape.parallel));
    moe::MoeLayerModule module(local, plan);
    torch::optim::Adam adam(module.parameters(), torch::optim::AdamOptions(1e-2));

    const auto view = module.layer().input();
    const auto x = torch::from_blob(view.data(), {view.size(0), view.size(1)}).clone();
    const auto target = torch::roll(x, 1, 1);
    for (int step = 0; step <= 20; ++step) {
      adam.zero_grad();
      const auto loss = torch::nn::functional::mse_loss(module.forward(x), target);
      loss.backward();  // gradients are summed over the ranks
      adam.step();
      if (rank == 0 && step % 5 == 0) fmt::print("step {:2} loss {:.4f}\n", step, loss.item<double>());
    }
  });
}
