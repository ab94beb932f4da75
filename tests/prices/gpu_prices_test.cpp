// Prices by a model of the hardware, each worked out by hand from round numbers.
#include "moe/prices/gpu_prices.h"

#include <gtest/gtest.h>
#include <sstream>

#include "moe/prices/pricer.h"
#include "tests/base/scratch.h"

namespace moe {
namespace {

// A wave of 10 tiles of 128 x 128 x k takes k 2 128^2 10 / 5e11 = k 6.5536e-7 s and 1 us; memory moves 5e11 B/s.
GpuModel round_gpu() {
  GpuModel gpu{.name = "round",
               .multiprocessors = 10,
               .tensor_flops_per_s = 1e12,
               .memory_bytes_per_s = 1e12,
               .memory_share = 0.5,
               .gemm_share = 0.5,
               .gemm_tile_s = 1e-6,
               .grouped_share = 0.25,
               .grouped_tile_s = 4e-6};
  gpu.attention = {{64, Phase::forward, {{1000, 1e11}, {3000, 3e11}}},
                   {144, Phase::forward, {{1000, 4e11}}},
                   {64, Phase::backward, {{1000, 5e10}}}};
  return gpu;
}
constexpr double kWave = 6.5536e-7, kMemory = 5e11;

// 1000 tokens of 256 numbers on one rank; 4 heads of 64, 2 of them of keys; 4 experts of 512, k 2.
LayerCase one_gpu_case(ParallelShape parallel = {.nodes = 1, .ranks_per_node = 1}) {
  const LayerShape layer{.batch = 1,
                         .seq = 1000,
                         .model_dim = 256,
                         .hidden = 512,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = 64,
                         .rope_theta = 1e4,
                         .experts = 4,
                         .top_k = 2,
                         .capacity_factor = std::nullopt,
                         .ffn = Ffn::mixtral,
                         .dtype = DType::bfloat16};
  return complete(layer, parallel, Rounding::exact);
}

TEST(GpuPrices, GemmsTakeWholeWavesOfTiles) {
  const GpuModel gpu = round_gpu();
  const LayerCase shape = one_gpu_case();
  const GpuPrices prices(gpu, shape);
  // 2 x 5 tiles are one wave, 3 x 5 are two, however little the last tiles have.
  EXPECT_NEAR(prices.gemm_seconds({.m = 256, .n = 640, .k = 1000}), 1000 * kWave + 1e-6, 1e-12);
  EXPECT_NEAR(prices.gemm_seconds({.m = 257, .n = 640, .k = 1000}), 2 * (1000 * kWave + 1e-6), 1e-12);
  // Experts have a share and a start of their own: half as fast, three groups of 4 tiles each in two waves.
  EXPECT_NEAR(prices.gemm_seconds({.m = 256, .n = 256, .k = 1000, .groups = 3, .experts = true}),
              2 * (1000 * 2 * kWave + 4e-6), 1e-12);
}

TEST(GpuPrices, NoGemmIsFasterThanItsMemory) {
  const GpuModel gpu = round_gpu();
  const LayerCase shape = one_gpu_case();
  const GpuPrices prices(gpu, shape);
  // One tile: two vectors and a matrix of 2 B each, k = 1; the sums of gradients are 8 B.
  const double wide = 128 * 1e4;
  EXPECT_NEAR(prices.gemm_seconds({.m = 128, .n = 1e4, .k = 1, .out_bytes = 8000}),
              (2 * (128 + 1e4) + 8000 * wide) / kMemory, 1e-9);
  EXPECT_NEAR(prices.traffic_seconds(1e9), 2e-3, 1e-15);
}

TEST(GpuPrices, AttentionsRateIsThatOfTheNearestWidthAtItsLength) {
  const GpuModel gpu = round_gpu();
  const LayerCase shape = one_gpu_case();
  const GpuPrices prices(gpu, shape);
  EXPECT_EQ(prices.attention_rate(64, Phase::forward, 2000), 2e11);  // between two lengths
  EXPECT_EQ(prices.attention_rate(64, Phase::forward, 10), 1e11);    // before the first and behind the last
  EXPECT_EQ(prices.attention_rate(64, Phase::forward, 9999), 3e11);
  EXPECT_EQ(prices.attention_rate(80, Phase::forward, 1000), 1e11);  // 80 / 64 < 144 / 80
  EXPECT_EQ(prices.attention_rate(96, Phase::forward, 1000), 4e11);  // as near to both: the larger
  EXPECT_EQ(prices.attention_rate(128, Phase::backward, 1000), 5e10);
  GpuModel without = round_gpu();
  without.attention.clear();
  EXPECT_EQ(GpuPrices(without, shape).attention_rate(64, Phase::forward, 1000), std::nullopt);
}

// Attention: (1000, 256) x (256, 512) of q, k and v, 8 x 4 tiles; (1000, 256) x (256, 256), 8 x 2; half of 4 L^2 256 of
// scores; two norms (2 numbers a token and column), two residual sums (3), rotations of 4 + 2 heads (2).
TEST(GpuPrices, AttentionHasItsProjectionsItsKernelAndWhatPassesOverMemory) {
  const GpuModel gpu = round_gpu();
  const LayerCase shape = one_gpu_case();
  const GpuPrices prices(gpu, shape);
  const auto seconds = [&](Phase phase) { return prices.curve(TaskKind::attention, phase, {})->seconds(0); };
  const double wave = 256 * kWave + 1e-6, scores = 4.0 * 1000 * 1000 * 256 / 2;
  const double forward_bytes = 2 * (1000.0 * 256 * (2 * 2 + 2 * 3) + 1000.0 * (256 + 128) * 2);
  EXPECT_NEAR(seconds(Phase::forward), 4 * wave + 2 * wave + scores / 1e11 + forward_bytes / kMemory, 1e-9);
  // Backwards: (1000, 512) x (512, 256) and (256, 1000) x (1000, 512); (1000, 256) x (256, 256) and (256, 1000) x
  // (1000, 256). Norms read and write 3, sums 3, rotations 2.
  const double products = 2 * (512 * kWave + 1e-6) + 1 * (1000 * kWave + 1e-6) + 2 * wave + 1 * (1000 * kWave + 1e-6);
  const double backward_bytes = 2 * (1000.0 * 256 * (2 * 3 + 2 * 3) + 1000.0 * (256 + 128) * 2);
  EXPECT_NEAR(seconds(Phase::backward), products + 2.5 * scores / 5e10 + backward_bytes / kMemory, 1e-9);
}

// Latent attention: 1000 tokens, 4 heads of 96 + 32 (values of 160) over latents of 128 and 96. Down to 128, 8 x 1
// tiles, and to 96 + 32, 8 x 1; up to 4 x 128 from 128, 8 x 4, and to 4 x 256 from 96, 8 x 8; W_o from 4 x 160, 8 x 2.
// A pair of scores is 128 + 160 products a head: the rate is that of heads of 144. Norms of both latents (2), rotations
// of 4 rotary parts and the key (2), keys put together (2).
TEST(GpuPrices, LatentAttentionIsPricedByItsProjectionsAndBothWidthsOfItsHeads) {
  const GpuModel gpu = round_gpu();
  LayerShape layer = one_gpu_case().layer;
  layer.kv_heads = layer.head_dim = 0;
  layer.q_lora_rank = 128;
  layer.kv_lora_rank = 96;
  layer.qk_nope_head_dim = 96;
  layer.qk_rope_head_dim = 32;
  layer.v_head_dim = 160;
  const LayerCase shape = complete(layer, {.nodes = 1, .ranks_per_node = 1}, Rounding::exact);
  const auto waves = [](double count, double k) { return count * (k * kWave + 1e-6); };
  const double projections = 2 * waves(1, 256) + waves(4, 128) + waves(7, 96) + waves(2, 640);
  const double scores = 2.0 * 1000 * 1000 * 4 * (128 + 160) / 2;
  const double bytes = 2 * 1000.0 * (256 * (2 * 2 + 2 * 3) + (128 + 96) * 2 + (4 + 1) * 32 * 2 + 4 * 128 * 2);
  EXPECT_NEAR(GpuPrices(gpu, shape).curve(TaskKind::attention, Phase::forward, {})->seconds(0),
              projections + scores / 4e11 + bytes / kMemory, 1e-9);
}

TEST(GpuPrices, AttentionWithoutAMaskHasAllScores) {
  const GpuModel gpu = round_gpu();
  LayerCase shape = one_gpu_case();
  const double causal = GpuPrices(gpu, shape).curve(TaskKind::attention, Phase::forward, {})->seconds(0);
  shape.layer.causal = false;
  const double whole = GpuPrices(gpu, shape).curve(TaskKind::attention, Phase::forward, {})->seconds(0);
  EXPECT_NEAR(whole - causal, 4.0 * 1000 * 1000 * 256 / 2 / 1e11, 1e-9);
}

// 1000 tokens' 2000 rows are 500 of each of 4 experts: forwards (500, 256) x (256, 1024), 4 x 8 tiles a group, and
// (500, 512) x (512, 256), 4 x 2; three numbers of 512 a row.
TEST(GpuPrices, ExpertsAreGroupedProductsByTheirRows) {
  const GpuModel gpu = round_gpu();
  const LayerCase shape = one_gpu_case();
  const GpuPrices prices(gpu, shape);
  const Work work = whole_work(TaskKind::expert, Phase::forward, shape, Flow::sharded);
  const PriceCurve forward = *prices.curve(TaskKind::expert, Phase::forward, work);
  const auto wave = [](double k) { return 2 * k * kWave + 4e-6; };
  EXPECT_NEAR(forward.seconds(work.flops), 13 * wave(256) + 4 * wave(512) + 2000.0 * 512 * 3 * 2 / kMemory, 1e-9);
  // Half of the rows, 250 of each expert: 2 x 8 tiles a group, and 2 x 2.
  EXPECT_NEAR(forward.seconds(work.flops / 2), 7 * wave(256) + 2 * wave(512) + 1000.0 * 512 * 3 * 2 / kMemory, 1e-9);
  // Backwards: (500, 512) of 4 x 4 tiles by k 256, (500, 256) of 4 x 2 by k 1024; weights (512, 256) and (256, 1024) of
  // 4 x 2 and 2 x 8 tiles by k 500; five numbers of 512 a row.
  const Work back = whole_work(TaskKind::expert, Phase::backward, shape, Flow::sharded);
  EXPECT_NEAR(prices.curve(TaskKind::expert, Phase::backward, back)->seconds(back.flops),
              7 * wave(256) + 4 * wave(1024) + 4 * wave(500) + 7 * wave(500) + 2000.0 * 512 * 5 * 2 / kMemory, 1e-9);
}

TEST(GpuPrices, GatesOrdersAndTheHeadAreCounted) {
  const GpuModel gpu = round_gpu();
  const LayerCase shape = one_gpu_case();
  const GpuPrices prices(gpu, shape);
  const Work gate = whole_work(TaskKind::gate, Phase::forward, shape, Flow::sharded);
  EXPECT_NEAR(prices.curve(TaskKind::gate, Phase::forward, gate)->seconds(0),
              256 * kWave + 1e-6 + 6.0 * 4 * 1000 * 4 / kMemory, 1e-9);
  // 2000 rows are written, and 1000 tokens read.
  const Work order = whole_work(TaskKind::order, Phase::forward, shape, Flow::sharded);
  EXPECT_NEAR(prices.curve(TaskKind::order, Phase::forward, order)->seconds(order.bytes), 3000.0 * 256 * 2 / kMemory,
              1e-12);
  // 640 words: 8 x 5 tiles; three passes over logits in float32.
  const Work head = end_work(TaskKind::head, Phase::forward, shape, Flow::sharded, 640);
  EXPECT_NEAR(prices.head_seconds(Phase::forward, head), 4 * (256 * kWave + 1e-6) + 3.0 * 4 * 1000 * 640 / kMemory,
              1e-9);
}

TEST(GpuPrices, AreOf16BitsAlone) {
  Profile profile;
  profile.name = profile.source = "p";
  profile.gpu = round_gpu();
  LayerCase shape = one_gpu_case();
  const LayerPricer pricer(profile, shape);
  EXPECT_GT(pricer.dense_seconds(TaskKind::attention, Phase::forward), 0);
  EXPECT_EQ(pricer.notes().size(), 1u);
  shape.layer.dtype = DType::float32;
  const LayerPricer wide(profile, shape);
  EXPECT_THROW(wide.dense_seconds(TaskKind::attention, Phase::forward), Unpriced);
}

TEST(GpuPrices, HalvesOfABackwardTakeAsLongAsTheWhole) {
  Profile profile;
  profile.name = profile.source = "p";
  profile.gpu = round_gpu();
  const LayerPricer pricer(profile, one_gpu_case());
  using enum TaskKind;
  for (const double rows : {2000.0, 1000.0, 300.0, 20.0})
    EXPECT_NEAR(
        pricer.chunk_seconds(expert_dx, Phase::backward, rows) + pricer.chunk_seconds(expert_dw, Phase::backward, rows),
        pricer.chunk_seconds(expert, Phase::backward, rows), 1e-12)
        << rows;
  EXPECT_NEAR(pricer.dense_seconds(attention_dx, Phase::backward) + pricer.dense_seconds(attention_dw, Phase::backward),
              pricer.dense_seconds(attention, Phase::backward), 1e-12);
}

// Its kernel computes scores again in any case: `selective` adds nothing.
TEST(GpuPrices, ScoresThatAreComputedAgainAreInTheKernel) {
  Profile profile;
  profile.name = profile.source = "p";
  profile.gpu = round_gpu();
  LayerCase shape = one_gpu_case();
  const double kept = LayerPricer(profile, shape).dense_seconds(TaskKind::attention, Phase::backward);
  shape.parallel.recompute = Recompute::selective;
  EXPECT_EQ(LayerPricer(profile, shape).dense_seconds(TaskKind::attention, Phase::backward), kept);
}

// 2000 tokens a rank see half of 4000, in blocks of 2000, at which length the kernel has 2e11 FLOP/s.
TEST(GpuPrices, HeadsInARingAreCallsOfTheKernelWithABlock) {
  Profile profile;
  profile.name = profile.source = "p";
  profile.gpu = round_gpu();
  LayerShape layer = one_gpu_case().layer;
  layer.seq = 4000;
  ParallelShape parallel{.nodes = 1, .ranks_per_node = 2, .mp = 1, .cp = 2};
  parallel.cp_exchange = CpExchange::ring;
  const LayerCase ring = complete(layer, parallel, Rounding::exact);
  const LayerPricer pricer(profile, ring);
  const double scores = 2.0 * 2000 * 2000 * (256 + 256);
  const auto seconds = [&](TaskKind kind) { return pricer.dense_seconds(kind, Phase::forward); };
  EXPECT_NEAR(seconds(TaskKind::heads), scores / 2e11 / 2, 1e-12);
  const double all = GpuPrices(*profile.gpu, ring).attention_seconds(Phase::forward);
  EXPECT_NEAR(seconds(TaskKind::keys_values) + seconds(TaskKind::attention), all - scores / 3e11, 1e-12);
  EXPECT_NEAR(seconds(TaskKind::keys_values) / seconds(TaskKind::attention), (256 + 2 * 128) / 256.0, 1e-9);
}

TEST(GpuPrices, AreReadAsTheyAreWritten) {
  Profile profile;
  profile.name = profile.source = "p";
  profile.gpu = round_gpu();
  const Scratch scratch;
  const std::string path = scratch.path("p.toml");
  std::ostringstream text;
  write_profile(profile, text);
  scratch.write("p.toml", text.str());
  const GpuModel read = *read_profile(path).gpu;
  EXPECT_EQ(read.name, "round");
  EXPECT_EQ(read.multiprocessors, 10);
  EXPECT_EQ(read.grouped_share, 0.25);
  EXPECT_EQ(read.grouped_tile_s, 4e-6);
  ASSERT_EQ(read.attention.size(), 3u);
  EXPECT_EQ(read.attention[0].flops_per_s, profile.gpu->attention[0].flops_per_s);
}

}  // namespace
}  // namespace moe
