// Rows, capacity and volumes against the formulas of FSMoE section 4.1, in whole numbers.
#include "moe/shape/volumes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <set>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/plan/plan.h"
#include "tests/base/error_of.h"

namespace moe {
namespace {

TEST(ChunkRows, PartitionTotalInEqualParts) {
  for (int64_t total = 0; total <= 40; ++total)
    for (int chunks = 1; chunks <= 45; ++chunks) {
      int64_t reached = 0, previous = total;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const Rows rows = chunk_rows(total, chunks, chunk);
        ASSERT_EQ(rows.begin, reached) << total << " rows, chunk " << chunk << " of " << chunks;
        ASSERT_TRUE(rows.count() == total / chunks || rows.count() == (total + chunks - 1) / chunks);
        ASSERT_LE(rows.count(), previous) << "a longer chunk after a shorter one";
        previous = rows.count();
        reached = rows.end;
      }
      ASSERT_EQ(reached, total);
    }
  EXPECT_EQ(chunk_rows(int64_t{1} << 40, 3, 2).end, int64_t{1} << 40);
}

TEST(Capacity, IsTheFormulaRoundedUp) {
  // f as a fraction, so that the expected value is exact.
  struct Factor {
    int64_t numerator, denominator;
  };
  int compared = 0;
  for (const Factor f : {Factor{6, 5}, {12, 5}, {11, 10}, {1, 1}, {5, 4}, {1, 2}, {13, 10}, {7, 3}})
    for (const int64_t batch : {1, 2, 3, 4})
      for (const int64_t seq : {4, 12, 60, 256, 1024})
        for (const int64_t experts : {1, 2, 4, 6, 8})
          for (const int64_t k : {1, 2})
            for (const int mp : {1, 2, 4}) {
              if (k > experts) continue;
              LayerShape layer{.batch = batch, .seq = seq, .experts = experts, .top_k = k};
              layer.capacity_factor = static_cast<double>(f.numerator) / static_cast<double>(f.denominator);
              const LayerCase c =
                  complete(layer, {.nodes = 1, .ranks_per_node = 4, .mp = mp, .ep = 1, .esp = 1}, Rounding::ragged);
              const int64_t top = k * f.numerator * batch * seq, bottom = f.denominator * mp * experts;
              ASSERT_EQ(capacity_rows(c), (top + bottom - 1) / bottom)
                  << describe(layer) << " mp " << mp << ": " << top << " / " << bottom;
              ASSERT_NEAR(capacity_exact(c), static_cast<double>(top) / static_cast<double>(bottom),
                          1e-12 * capacity_exact(c));
              ++compared;
            }
  EXPECT_GT(compared, 3000);
}

TEST(Capacity, PaddingIsTheNextMultipleAndLetsNoMoreTokensThrough) {
  for (int64_t seq = 8; seq <= 400; seq += 8) {
    LayerCase c = complete({.batch = 1, .seq = seq, .experts = 4, .top_k = 1, .capacity_factor = 1.1},
                           {.nodes = 4, .ranks_per_node = 1}, Rounding::lcm);
    const int64_t capacity = capacity_rows(c);
    EXPECT_EQ(padded_rows(c), capacity);
    for (c.row_multiple = 1; c.row_multiple <= 60; ++c.row_multiple) {
      EXPECT_EQ(capacity_rows(c), capacity);
      EXPECT_EQ(padded_rows(c) % c.row_multiple, 0);
      EXPECT_GE(padded_rows(c), capacity);
      EXPECT_LT(padded_rows(c), capacity + c.row_multiple);
    }
  }
}

TEST(Capacity, DroplessTakesItsExpectation) {
  LayerShape layer{.batch = 3, .seq = 10, .experts = 4, .top_k = 2, .capacity_factor = std::nullopt};
  const LayerCase c = complete(layer, {.nodes = 4, .ranks_per_node = 1}, Rounding::ragged);
  EXPECT_EQ(capacity_exact(c), 15.0);
  EXPECT_EQ(capacity_rows(c), 15);
}

TEST(Volumes, AreTheFormulas) {
  for (uint64_t draw = 0; draw < 2000; ++draw) {
    const auto pick = [&](uint64_t index, std::initializer_list<int64_t> values) {
      return values.begin()[random_bits(11, draw, index) % values.size()];
    };
    LayerShape l{.batch = pick(0, {1, 2, 4}),
                 .seq = pick(1, {128, 256, 512}),
                 .model_dim = pick(2, {64, 256, 1024}),
                 .hidden = pick(3, {128, 512, 4096}),
                 .heads = pick(4, {8, 16}),
                 .kv_heads = pick(5, {0, 4, 8}),
                 .experts = pick(6, {8, 16}),
                 .top_k = pick(7, {1, 2})};
    l.ffn = pick(8, {0, 1}) == 0 ? Ffn::gpt : Ffn::mixtral;
    l.dtype = pick(9, {0, 1}) == 0 ? DType::float32 : DType::bfloat16;
    l.shared_hidden = pick(10, {0, 64, 1024});
    l.head_dim = pick(11, {0, 0, 24, 128});
    const LayerCase c = complete(l, {.nodes = 8, .ranks_per_node = 4}, Rounding::exact);
    const double bytes = l.dtype == DType::float32 ? 4 : 2, g = l.ffn == Ffn::gpt ? 2 : 3, mp = 4, esp = 4;
    const double b = double(l.batch), s = double(l.seq), m = double(l.model_dim), h = double(l.hidden);
    const double n_a2a = double(l.top_k) * 1.2 * b * s * m / mp;
    const MoeVolumes v = moe_volumes(c, capacity_exact(c));
    const auto near = [&](double found, double expected) {
      ASSERT_NEAR(found, expected, 1e-12 * expected) << "draw " << draw << ": " << describe(l);
    };
    near(v.alltoall_bytes, n_a2a * bytes);
    near(v.gathered_bytes, n_a2a * esp * bytes);
    near(v.expert_flops, 2 * g * n_a2a * h);
    near(mp_bytes(c), b * s * m * bytes);
    const double kv_share = double(c.layer.kv_heads) / double(l.heads);
    const double a = l.head_dim > 0 ? double(l.heads * l.head_dim) : m;  // columns of all heads
    near(attention_flops(c), 2 * ((2 + 2 * kv_share) * b * s * m * a + 2 * b * s * s * a) / mp);
    const double shared = double(l.shared_hidden);
    near(shared_flops(c), 2 * g * b * s * m * shared / mp);
    near(double(gradient_bytes(c)), ((2 + 2 * kv_share) * m * a + g * m * shared) / mp * bytes);
  }
}

TEST(Volumes, HeadsMayBeWiderThanTheModel) {
  LayerShape l{.batch = 1,
               .seq = 64,
               .model_dim = 640,
               .hidden = 128,
               .heads = 12,
               .kv_heads = 4,
               .head_dim = 128,
               .experts = 2};
  const LayerCase c = complete(l, {.nodes = 1, .ranks_per_node = 2, .mp = 2, .ep = 1, .esp = 1}, Rounding::ragged);
  EXPECT_EQ(attention_parameters(c), 640 * 128 * (6 + 2 + 2) + 6 * 128 * 640) << "q, k, v, out of half the heads";
  EXPECT_EQ(scores_flops(c), 2.0 * 2 * 64 * 64 * 6 * 128);
  l.model_dim = 12 * 128;
  EXPECT_EQ(complete(l, {}, Rounding::ragged).layer.head_dim, 0) << "as by default: one layer has one hash";
}

// Half of what is counted is the band: the pairs of a token and one that it sees.
TEST(Volumes, WindowsCountTheirBandTwice) {
  for (const int64_t window : {1, 2, 7, 63, 64, 65}) {
    LayerShape l{.batch = 3, .seq = 64, .model_dim = 640, .hidden = 128, .heads = 10, .experts = 2};
    l.window = window;
    const LayerCase c = complete(l, {}, Rounding::ragged);
    EXPECT_EQ(c.layer.window, window < 64 ? window : 0) << "one that sees all is none: one layer has one hash";
    double band = 0;
    for (int64_t token = 0; token < 64; ++token)
      for (int64_t seen = 0; seen <= token; ++seen) band += token - seen < window ? 1 : 0;
    const double expected = window < 63 ? 2 * band : 64.0 * 64;
    EXPECT_NEAR(scores_flops(c), 2 * 2 * 3 * expected * 640, 1e-6) << window;
    EXPECT_NEAR(attention_flops(c) - scores_flops(c), 2.0 * 3 * 64 * 4 * 640 * 640, 1e-6);
  }
}

// Six heads of 24 + 8 (values of 40) over latents of 48 and 20, over 2 ranks: three heads each.
TEST(Volumes, LatentAttentionCountsItsProjections) {
  LayerShape l{.batch = 2, .seq = 64, .model_dim = 100, .hidden = 128, .heads = 6, .experts = 2};
  l.q_lora_rank = 48;
  l.kv_lora_rank = 20;
  l.qk_nope_head_dim = 24;
  l.qk_rope_head_dim = 8;
  l.v_head_dim = 40;
  const ParallelShape parallel{.nodes = 1, .ranks_per_node = 2, .mp = 2, .ep = 1, .esp = 1};
  const LayerCase c = complete(l, parallel, Rounding::ragged);
  const int64_t up = 48 * 3 * 32 + 20 * 3 * (24 + 40) + 3 * 40 * 100, down = 100 * 48 + 100 * (20 + 8);
  EXPECT_EQ(attention_parameters(c), up);
  EXPECT_EQ(latent_parameters(l), down + 48 + 20);
  EXPECT_EQ(scores_flops(c), 2.0 * 128 * 64 * 3 * (32 + 40));
  EXPECT_EQ(attention_flops(c), 2.0 * 128 * double(up + down) + scores_flops(c)) << "every rank makes the latents";
  EXPECT_EQ(gradient_bytes(c), 4 * up);
  l.q_lora_rank = 0;
  const LayerCase plain = complete(l, parallel, Rounding::ragged);
  EXPECT_EQ(attention_parameters(plain), up + (100 - 48) * 3 * 32) << "W_q of the tokens themselves";
  EXPECT_EQ(latent_parameters(l), 100 * (20 + 8) + 20);
  l.seq = 128;  // with two pieces a rank
  const LayerCase shared =
      complete(l, {.nodes = 1, .ranks_per_node = 2, .mp = 1, .ep = 1, .esp = 1, .cp = 2}, Rounding::ragged);
  EXPECT_EQ(cp_bytes(shared), 4.0 * 2 * 128 * 6 * (32 + 40)) << "keys and values of all heads are gathered";
  EXPECT_EQ(keys_values_flops(shared), 2.0 * 128 * (100 * (20 + 8) + 20 * 6 * (24 + 40)));
  for (const auto& [change, message] : std::initializer_list<std::pair<void (*)(LayerShape&), std::string_view>>{
           {[](LayerShape& of) { of.head_dim = 32; }, "head-dim: found 32 with kv-lora-rank, expected none"},
           {[](LayerShape& of) { of.kv_heads = 3; },
            "kv-heads: found 3 with kv-lora-rank, expected as many as heads, 6"},
           {[](LayerShape& of) { of.bias = true; }, "bias: found with kv-lora-rank"},
           {[](LayerShape& of) { of.v_head_dim = 0; }, "v-head-dim: found 0, expected a whole number >= 1"},
           {[](LayerShape& of) { of.kv_lora_rank = 0; }, "qk-nope-head-dim: found 24 without kv-lora-rank"},
           {[](LayerShape& of) { of.qk_rope_head_dim = 7, of.rope_theta = 1e4; }, "rope-theta: found a rotary part"}}) {
    LayerShape wrong = l;
    change(wrong);
    const std::string error = error_of<BadInput>([&] { complete(wrong, parallel, Rounding::ragged); });
    EXPECT_TRUE(error.starts_with(message)) << error;
  }
}

TEST(Volumes, UnevenHeadsCountTheLargestShard) {
  LayerShape l{.model_dim = 1600, .hidden = 6400, .heads = 25};  // GPT2-XL
  const LayerCase c = complete(l, {.nodes = 8, .ranks_per_node = 4}, Rounding::ragged);
  EXPECT_EQ(attention_parameters(c), 4 * 1600 * 64 * 7);
  EXPECT_EQ(gradient_bytes(c), 4 * attention_parameters(c));
  const LayerCase whole = complete(l, {.nodes = 8, .ranks_per_node = 1}, Rounding::ragged);
  EXPECT_DOUBLE_EQ(attention_flops(c) / attention_flops(whole), 7.0 / 25);  // of all 25 heads
}

// A stage's chunks together are the whole; a backward's expert is twice the forward's; collectives are the same.
TEST(Volumes, WorkOfChunksAddsUp) {
  for (const Rounding rounding : {Rounding::ragged, Rounding::exact})
    for (const int chunks : {1, 2, 3, 7, 64}) {
      LayerShape layer{.batch = 1, .seq = 100, .model_dim = 64, .hidden = 128, .heads = 4, .ffn = Ffn::mixtral};
      const LayerCase c = complete(layer, {.nodes = 2, .ranks_per_node = 2}, rounding);
      const double rows = rounding == Rounding::exact ? capacity_exact(c) : double(capacity_rows(c));
      const MoeVolumes whole = moe_volumes(c, rows);
      for (const Phase phase : {Phase::forward, Phase::backward}) {
        double dispatch = 0, gather = 0, scatter = 0, expert = 0, combine = 0;
        for (int chunk = 0; chunk < chunks; ++chunk) {
          const auto work = [&](TaskKind kind) {
            Task task;
            task.kind = kind;
            task.phase = phase;
            task.chunk = chunk;
            task.chunks = chunks;
            return work_of(task, c, {});
          };
          dispatch += work(TaskKind::dispatch).bytes;
          gather += work(TaskKind::allgather).bytes;
          scatter += work(TaskKind::reducescatter).bytes;
          combine += work(TaskKind::combine).bytes;
          expert += work(TaskKind::expert).flops;
          EXPECT_EQ(work(TaskKind::expert).gemms, phase == Phase::forward ? 3 : 6);
        }
        EXPECT_NEAR(dispatch, whole.alltoall_bytes, 1e-6);
        EXPECT_NEAR(combine, whole.alltoall_bytes, 1e-6);
        EXPECT_NEAR(gather, whole.gathered_bytes, 1e-6);
        EXPECT_NEAR(scatter, whole.gathered_bytes, 1e-6);
        EXPECT_NEAR(expert, whole.expert_flops * (phase == Phase::forward ? 1 : 2), 1e-3);
      }
    }
}

// Routings drawn at random: M of the nodes, then k of their experts, each as likely.
TEST(Volumes, TokensReachAsManyNodesAsRandomRoutingsDo) {
  std::mt19937_64 draw(5);
  for (const auto& [nodes, ranks_per_node, experts, top_k, limit] : {std::array{8, 8, 256, 8, 4},
                                                                     {8, 8, 256, 8, 0},
                                                                     {8, 2, 16, 4, 2},
                                                                     {4, 2, 8, 2, 3},
                                                                     {4, 4, 64, 6, 9},
                                                                     {2, 4, 8, 8, 0},
                                                                     {1, 8, 8, 2, 0}}) {
    const LayerShape layer{.seq = 64, .experts = experts, .top_k = top_k, .node_limit = limit};
    const LayerCase c = complete(
        layer, {.nodes = nodes, .ranks_per_node = ranks_per_node, .mp = 1, .ep = nodes * ranks_per_node, .esp = 1},
        Rounding::ragged);
    ASSERT_EQ(expert_nodes(c.parallel), nodes);
    const auto allowed = static_cast<size_t>(limit > 0 ? std::min(limit, nodes) : nodes);
    double reached = 0;
    size_t most = 0;
    constexpr int kTokens = 20'000;
    for (int token = 0; token < kTokens; ++token) {
      std::vector<int> order(nodes), open;
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), draw);
      for (int expert = 0; expert < experts; ++expert)
        if (std::find(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(allowed),
                      expert / (experts / nodes)) != order.begin() + static_cast<std::ptrdiff_t>(allowed))
          open.push_back(expert);
      std::shuffle(open.begin(), open.end(), draw);
      std::set<int> of;
      for (int i = 0; i < top_k; ++i) of.insert(open[i] / (experts / nodes));
      reached += static_cast<double>(of.size()) / kTokens;
      most = std::max(most, of.size());
    }
    EXPECT_LE(most, allowed);
    EXPECT_NEAR(nodes_reached(c), reached, 0.03) << nodes << " nodes, at most " << limit;
  }
}

// Of 256 experts in groups, k = 8: a group is on several nodes if there are more nodes than groups.
TEST(Volumes, RouterGroupsLimitTheNodesThatTheyLieOn) {
  for (const auto& [groups, limit, nodes, allowed] : {std::array{8, 4, 32, 16},
                                                      {8, 4, 8, 4},
                                                      {8, 1, 16, 2},
                                                      {8, 4, 2, 2},
                                                      {8, 1, 4, 1},
                                                      {0, 4, 32, 4},
                                                      {8, 0, 32, 32}}) {
    const LayerShape layer{
        .seq = 64, .experts = 256, .top_k = 8, .node_limit = limit, .router_groups = limit > 0 ? groups : 0};
    EXPECT_EQ(places_allowed(layer, nodes), allowed) << groups << " groups on " << nodes << " nodes";
    const LayerCase c =
        complete(layer, {.nodes = nodes, .ranks_per_node = 1, .mp = 1, .ep = nodes, .esp = 1}, Rounding::ragged);
    EXPECT_DOUBLE_EQ(nodes_reached(c), places_reached(256, nodes, allowed, 8));
  }
}

// Copies of a row are one a chosen expert, whatever nodes these lie on.
TEST(Volumes, ALimitOfNodesChangesNoVolume) {
  LayerShape layer{.seq = 64, .experts = 16, .top_k = 4};
  const ParallelShape parallel{.nodes = 4, .ranks_per_node = 2};
  const double any = moe_volumes(complete(layer, parallel, Rounding::ragged), 10).alltoall_bytes;
  layer.node_limit = 2;
  EXPECT_EQ(moe_volumes(complete(layer, parallel, Rounding::ragged), 10).alltoall_bytes, any);
}

TEST(Volumes, NodesThatHoldTooFewExpertsAreRefused) {
  const LayerShape layer{.seq = 64, .experts = 8, .top_k = 4, .node_limit = 1};
  EXPECT_EQ(error_of<BadInput>([&] { complete(layer, {.nodes = 4, .ranks_per_node = 2}, Rounding::ragged); }),
            "node-limit: found 1 of 4 nodes with 2 experts each, expected as many as hold top-k = 4");
  LayerShape grouped = layer;
  grouped.router_groups = 4;
  grouped.experts = 12;
  EXPECT_EQ(error_of<BadInput>([&] { complete(grouped, {.nodes = 1, .ranks_per_node = 2}, Rounding::ragged); }),
            "node-limit: found 1 of 4 groups with 3 experts each, expected as many as hold top-k = 4");
  grouped.router_groups = 5;
  EXPECT_NE(error_of<BadInput>([&] {
              complete(grouped, {.nodes = 1, .ranks_per_node = 2}, Rounding::ragged);
            }).find("router-groups"),
            std::string::npos);
  grouped.node_limit = 0;
  EXPECT_EQ(error_of<BadInput>([&] { complete(grouped, {.nodes = 1, .ranks_per_node = 2}, Rounding::ragged); }),
            "router-groups: found 5 without node-limit, expected both");
  LayerShape negative = layer;
  negative.node_limit = -1;
  EXPECT_EQ(error_of<BadInput>([&] { complete(negative, {.nodes = 4, .ranks_per_node = 2}, Rounding::ragged); }),
            "node-limit: found -1, expected a whole number >= 0");
}

}  // namespace
}  // namespace moe
