// Training works: a small model's held-out loss comes close to the entropy rate of its language, and not below it.
#include <gtest/gtest.h>
#include <iostream>

#include "moe/train/markov_source.h"
#include "tests/model/local_models.h"

namespace moe {
namespace {

LayerShape small_layer(int64_t batch) {
  LayerShape layer;
  layer.batch = batch;
  layer.seq = 32;
  layer.model_dim = 64;
  layer.hidden = 128;
  layer.heads = layer.kv_heads = 4;
  layer.experts = 4;
  layer.top_k = 2;
  layer.capacity_factor = std::nullopt;
  layer.gate = "gshard";
  return layer;
}

TEST(Learning, X) {
  const int steps = getenv("STEPS") ? atoi(getenv("STEPS")) : 300, batch = getenv("BATCH") ? atoi(getenv("BATCH")) : 16;
  const double rate = getenv("RATE") ? atof(getenv("RATE")) : 3e-3;
  const auto text = make_markov_source({.order = 2, .alphabet = getenv("A") ? atoi(getenv("A")) : 16, .seed = 5});
  const LayerCase shape = model_case(small_layer(batch), {.dp = 1, .mp = 1, .ep = 1, .esp = 1, .pp = 1});
  LocalModels models(model_plan("fsmoe", shape, 2, 1, 16), *text, 7);
  models.train({.learning_rate = rate, .clip_norm = 1, .warm_up_steps = steps / 20, .steps = steps, .least_share = 0.02});
  for (int i = 0; i < 10; ++i) {
    const double t = now_s();
    const double loss = models.run(steps / 10).back();
    std::cout << (i + 1) * steps / 10 << " loss " << loss << " held-out " << models.held_out_loss(4) << " rate " << *text->entropy_rate() << " order 1 " << *text->order_1_entropy() << " in " << now_s() - t << std::endl;
  }
}

}  // namespace
}  // namespace moe
