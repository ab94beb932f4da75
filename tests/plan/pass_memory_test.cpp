// What a pass keeps, against tensors listed one by one.
#include <gtest/gtest.h>
#include <random>

#include "moe/base/check.h"
#include "moe/plan/memory.h"
#include "moe/shape/volumes.h"

namespace moe {
namespace {

/// What a rank keeps of one pass, tensor by tensor: rows and columns as the layer's documentation names them.
double listed_activations(const MemoryRequest& r) {
  const LayerShape& l = r.shape.layer;
  const ParallelShape& p = r.shape.parallel;
  const auto f = [](int64_t n) { return static_cast<double>(n); };
  const double bl = f(l.batch * l.seq), own = bl / p.mp, m = f(l.model_dim),
               head = l.head_dim > 0 ? f(l.head_dim) : m / f(l.heads);
  double heads = 0, kv_heads = 0;  // of rank 0, to which they are dealt first
  for (int64_t h = 0; h < l.heads; h += p.mp) ++heads;
  for (int64_t h = 0; h < l.kv_heads; h += p.mp) ++kv_heads;
  const bool baseline = r.flow == Flow::replicated;
  double bytes = 0;
  const auto keep_of = [&](DType dtype, double rows, double columns) { bytes += rows * columns * bytes_of(dtype); };
  const auto keep = [&](double rows, double columns) { keep_of(l.dtype, rows, columns); };
  const double gated = baseline ? bl * p.esp : own;
  if (r.dense_part) {
    keep(baseline && p.esp > 1 ? gated : baseline ? bl : own, m);  // y, the next layer's x
    if (!baseline && p.mp > 1) keep(bl, m);                        // x, gathered
    keep(bl, m);                                                   // normalised: what is projected
    keep(bl, heads * head);                                        // q
    keep(bl, kv_heads * head);                                     // k
    keep(bl, kv_heads * head);                                     // v
    keep(f(l.batch) * heads * f(l.seq), f(l.seq));                 // softmax
    keep(bl, heads * head);                                        // its product with v
    keep(baseline ? bl : own, m);                                  // hidden state
    if (baseline && p.esp > 1) keep(gated, m);                     // those of the ESP group
  }
  keep(gated, m);                                // normalised: what the gate and the order read
  keep_of(DType::float32, gated, f(l.experts));  // logits
  // Every rank of the EP and ESP groups sends T_rank rows for each of this rank's experts: of its own tokens, or of all
  // that it gates, which the ranks of an ESP group do alike.
  const double t_rank = capacity_exact(r.shape), groups = baseline ? p.mp * p.esp : 1;
  const double rows = f(l.experts) / p.ep * t_rank * p.ep * (baseline ? groups : p.esp);
  keep(rows, m);  // experts' input
  keep(rows, f(l.hidden) / p.esp);
  keep(rows, f(l.hidden) / p.esp);
  if (l.ffn == Ffn::mixtral) keep(rows, f(l.hidden) / p.esp);
  keep(f(l.experts) * t_rank * groups, m);  // combined
  if (l.shared_hidden > 0) {
    if (p.mp > 1 && !baseline) keep(bl, m);  // gathered
    for (int gemm = 0; gemm < (l.ffn == Ffn::mixtral ? 3 : 2); ++gemm) keep(bl, f(l.shared_hidden) / p.mp);
  }
  return bytes;
}

TEST(PassMemory, CountedActivationsAreTheListedTensors) {
  const unsigned seed = std::random_device{}();
  std::mt19937 draw(seed);
  const auto pick = [&](std::initializer_list<int64_t> values) {
    return *(values.begin() + std::uniform_int_distribution<size_t>(0, values.size() - 1)(draw));
  };
  for (int i = 0; i < 300; ++i) {
    LayerShape layer;
    layer.batch = pick({1, 2, 3});
    layer.seq = pick({64, 128});
    layer.heads = pick({5, 8, 16});
    layer.model_dim = layer.heads * pick({16, 32});
    layer.kv_heads = layer.heads == 5 ? 5 : pick({4, layer.heads});
    layer.head_dim = pick({0, 0, 48});
    layer.hidden = pick({256, 768});
    layer.shared_hidden = pick({0, 128});
    layer.experts = pick({4, 8});
    layer.ffn = pick({0, 1}) == 0 ? Ffn::gpt : Ffn::mixtral;
    layer.dtype = pick({0, 1}) == 0 ? DType::float32 : DType::float16;
    ParallelShape parallel{.nodes = 4, .ranks_per_node = 4};
    parallel.mp = static_cast<int>(pick({1, 2, 4}));
    parallel.esp = static_cast<int>(pick({1, 2, 4}));
    parallel.ep = static_cast<int>(pick({1, 2, 4}));
    MemoryRequest r;
    r.shape = complete(layer, parallel, Rounding::exact);
    r.layers = static_cast<int>(pick({1, 3}));
    r.dense_part = pick({0, 1}) == 0;
    if (pick({0, 1}) == 0) r.flow = Flow::replicated;
    EXPECT_NEAR(estimate_memory(r).activations / (r.layers * listed_activations(r)), 1, 1e-12)
        << "seed " << seed << ", draw " << i << ": " << describe(layer);
  }
}

}  // namespace
}  // namespace moe
