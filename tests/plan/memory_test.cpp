// Memory of a rank: against MoNTA's printed formulas written out, against tensors listed one by one, and against what
// the papers say did and did not fit.
#include "moe/plan/memory.h"

#include <cmath>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/shape/grid.h"
#include "moe/shape/groups.h"
#include "moe/shape/model_file.h"
#include "moe/shape/volumes.h"
#include "tests/base/error_of.h"

namespace moe {
namespace {

/// 2 stages of 8 ranks: mp = esp = 4, dp = ep = 2.
MemoryRequest small(DType dtype = DType::bfloat16) {
  LayerShape layer;
  layer.batch = 2;
  layer.seq = 256;
  layer.model_dim = 512;
  layer.hidden = 2048;
  layer.heads = 8;
  layer.experts = 4;
  layer.dtype = dtype;
  ParallelShape parallel{.nodes = 4, .ranks_per_node = 4, .ep = 2, .pp = 2};
  MemoryRequest r;
  r.shape = complete(layer, parallel, Rounding::exact);
  r.layers = 6;
  return r;
}

// Table 3: 16 P1 / (p t) + 16 P2 / (p t e) and its rows, with the replicas of each part in the place of d.
TEST(Memory, StatesAreTable3) {
  MemoryRequest r = small();
  ASSERT_EQ(r.shape.parallel.dp, 2);
  ASSERT_EQ(r.shape.parallel.edp, 1);
  const double attention = 4 * 512.0 * 512 / 4, norms = 2 * 512, gate = 2 * 4 * 512, layers = 3;
  const double p1 = layers * (attention + norms + gate), p2 = layers * (4 / 2) * 2 * 512.0 * 2048 / 4;
  const auto total = [&](int zero) {
    r.shape.parallel.zero = zero;
    const MemoryEstimate e = estimate_memory(r);
    return e.weights + e.gradients + e.optimizer;
  };
  const double d = 2;
  EXPECT_DOUBLE_EQ(total(0), 16 * p1 + 16 * p2);
  EXPECT_DOUBLE_EQ(total(1), (4 + 12 / d) * p1 + 16 * p2) << "one replica of each expert";
  EXPECT_DOUBLE_EQ(total(2), (2 + 14 / d) * p1 + 16 * p2);
  EXPECT_DOUBLE_EQ(total(3), 16 / d * p1 + 16 * p2);
  r.shape.parallel.ep = 1;
  r.shape.parallel.edp = 2;
  EXPECT_DOUBLE_EQ(total(3), 8 * p1 + 8 * 2 * p2) << "twice the experts a rank, two replicas of each";
}

TEST(Memory, SixteenBytesAParameterInFloat32Too) {
  for (const auto& [dtype, bytes] :
       {std::pair{DType::float16, 16}, {DType::bfloat16, 16}, {DType::float32, 16}, {DType::float64, 32}}) {
    const MemoryRequest r = small(dtype);
    const RankParameters p = rank_parameters(r);
    const MemoryEstimate e = estimate_memory(r);
    EXPECT_DOUBLE_EQ(e.weights + e.gradients + e.optimizer, 3 * bytes * (p.dense + p.experts)) << name_of(dtype);
    EXPECT_DOUBLE_EQ(e.weights, e.gradients);
  }
}

// Table 4 with b = 2, s = 256, h = 512, a = 8, k = 2, t = 4, e = 2, l = 6.
TEST(Memory, PrintedActivationsAreTable4) {
  MemoryRequest r = small(DType::float32);
  r.activations = ActivationModel::printed;
  const double bshl = 2.0 * 256 * 512 * 6;
  EXPECT_DOUBLE_EQ(estimate_memory(r).activations, bshl * ((13 + 21.0 * 2 / 2) / 4 + 5.0 * 8 * 256 / 512));
  r.shape.parallel.recompute = Recompute::selective;
  EXPECT_DOUBLE_EQ(estimate_memory(r).activations, bshl * (13 + 21.0 * 2 / 2) / 4);
  r.shape.parallel.recompute = Recompute::full;
  EXPECT_DOUBLE_EQ(estimate_memory(r).activations, 2 * bshl / 4);
}

TEST(Memory, CorrectedActivationsDivideScoresAndCountThePipeline) {
  MemoryRequest r = small();
  r.activations = ActivationModel::corrected;
  const double one = 2.0 * 256 * 512 * ((13 + 21.0 * 2 / 2) / 4 + 5.0 * 8 * 256 / 512 / 4);
  for (const auto& [order, micro_batches, in_flight] : {std::tuple{PipelineOrder::gpipe, 1, 1},
                                                        {PipelineOrder::gpipe, 5, 5},
                                                        {PipelineOrder::one_f_one_b, 1, 1},
                                                        {PipelineOrder::one_f_one_b, 5, 2}}) {
    r.order = order;
    r.micro_batches = micro_batches;
    EXPECT_DOUBLE_EQ(estimate_memory(r).activations, 3 * in_flight * one) << name_of(order) << ' ' << micro_batches;
  }
  r.micro_batches = 1;
  r.shape.layer.dtype = DType::float32;
  EXPECT_DOUBLE_EQ(estimate_memory(r).activations,
                   3 * 2.0 * 256 * 512 * ((25 + 41.0 * 2 / 2) / 4 + 9.0 * 8 * 256 / 512 / 4))
      << "masks stay a byte";
  r.layers = 7;
  EXPECT_DOUBLE_EQ(estimate_memory(r).activations / 4,
                   2.0 * 256 * 512 * ((25 + 41.0 * 2 / 2) / 4 + 9.0 * 8 * 256 / 512 / 4))
      << "the fullest stage has 4 of 7";
}

// The plan runs all forwards before the first backward.
TEST(Memory, GpipeKeepsEveryMicroBatchOnOneStageToo) {
  MemoryRequest r;
  r.shape = complete({.top_k = 1}, {}, Rounding::ragged);
  const double one = estimate_memory(r).activations;
  r.micro_batches = 64;
  EXPECT_DOUBLE_EQ(estimate_memory(r).activations, 64 * one);
  r.order = PipelineOrder::one_f_one_b;
  EXPECT_DOUBLE_EQ(estimate_memory(r).activations, one);
}

TEST(Memory, WithoutParallelismEveryModelOfTable4Agrees) {
  LayerShape layer;
  layer.experts = 1;
  layer.top_k = 1;
  MemoryRequest r;
  r.shape = complete(layer, {}, Rounding::exact);
  r.shape.layer.dtype = DType::float16;
  r.layers = 3;
  r.micro_batches = 8;
  r.order = PipelineOrder::one_f_one_b;  // on one stage: gradient accumulation, one micro-batch at a time
  r.activations = ActivationModel::printed;
  const double printed = estimate_memory(r).activations;
  r.activations = ActivationModel::corrected;
  EXPECT_DOUBLE_EQ(estimate_memory(r).activations, printed);
  EXPECT_DOUBLE_EQ(printed, 4.0 * 1024 * 1024 * 3 * (13 + 21 + 5.0 * 16 * 1024 / 1024)) << "equation 2";
}

// The first stage has the embedding, the last the projection and its probabilities, of 1001 words over 4 MP ranks.
TEST(Memory, AStageHasItsOwnEnds) {
  MemoryRequest r = small();
  r.shape = complete(r.shape.layer, {.nodes = 8, .ranks_per_node = 4, .ep = 2, .pp = 4}, Rounding::exact);
  r.layers = 4;
  r.micro_batches = 6;
  r.order = PipelineOrder::one_f_one_b;
  const MemoryRequest layers = r;
  r.vocabulary = 1001;
  const double words = 251, tokens = 2 * 256, width = 2;
  for (int stage = 0; stage < 4; ++stage) {
    const MemoryEstimate with = estimate_stage(r, stage), without = estimate_stage(layers, stage);
    EXPECT_DOUBLE_EQ(with.weights - without.weights, stage == 0   ? width * (words + 64) * 512
                                                     : stage == 3 ? width * (words + 1) * 512
                                                                  : 0)
        << "an embedding has learned places, 256 over MP too; a projection a norm: stage " << stage;
    EXPECT_DOUBLE_EQ(with.activations - without.activations, stage == 3 ? width * tokens * words : 0) << stage;
    EXPECT_EQ(with.stage, stage);
  }
  EXPECT_EQ(estimate_memory(r).stage, 0) << "it has most micro-batches in flight";
  r.vocabulary = 1'000'000;
  const MemoryEstimate most = estimate_memory(r);
  EXPECT_EQ(most.stage, 3);
  EXPECT_DOUBLE_EQ(most.total(), estimate_stage(r, 3).total());
}

TEST(Memory, CountsEveryGatesWeights) {
  MemoryRequest r = small();
  const auto gate = [&](const char* name) {
    r.shape.layer.gate = name;
    r.shape = complete(r.shape.layer, r.shape.parallel, Rounding::ragged);
    return rank_parameters(r).dense;
  };
  const double none = gate("gshard") - 2 * 4 * 512;
  EXPECT_DOUBLE_EQ(gate("switch") - none, 4 * 512);
  EXPECT_DOUBLE_EQ(gate("xmoe") - none, 16 * (512 + 4) + 1);
  r.shape.layer.capacity_factor = 1.5;
  EXPECT_DOUBLE_EQ(gate("softmoe") - none, 512 * 4 * capacity_rows(r.shape));
}

TEST(Memory, RecomputingKeepsLess) {
  MemoryRequest r = small();
  r.micro_batches = 4;
  const double none = estimate_memory(r).activations;
  r.shape.parallel.recompute = Recompute::selective;
  const double selective = estimate_memory(r).activations;
  EXPECT_DOUBLE_EQ(none - selective, 3 * 4 * 2.0 * (2 * 2 * 256 * 256))
      << "3 layers, 4 micro-batches, 2 samples x heads";
  r.shape.parallel.recompute = Recompute::full;
  const double layer = selective / (3 * 4), output = 2.0 * (2 * 256 * 512 / 4);
  EXPECT_DOUBLE_EQ(estimate_memory(r).activations, layer + (3 * 4 - 1) * output)
      << "outputs, and one layer whole but its scores";
}

// What a pass needs meanwhile, tensor by tensor, and what enters and leaves a stage.
TEST(Memory, BuffersAreTheListedTensors) {
  MemoryRequest r = small();
  const MoeVolumes v = moe_volumes(r.shape, capacity_exact(r.shape));
  const double bl = 2.0 * 256, m = 512;
  // Sums of MP, x's gradient; hidden; q, k, v, mixed. What the gate reads, widened; gradients of its scores.
  const double dense = 2 * (2 * bl * m + bl / 4 * m + 4 * bl * m / 4) + 4 * bl / 4 * (m + 4);
  const double weights = bl / 4 * 2 * 4;                  // gradients of the gate's weights: float32
  const double inside = v.gathered_bytes / m * 2048 / 4;  // gradients before GELU
  const double moe = 2 * v.alltoall_bytes + 3 * v.gathered_bytes + weights + inside;
  const double apart = 3 * 2 * 4 * bl / 4 * 4;  // a layer's spread and noise, of 3 layers
  const double ends = 4 * 2 * bl / 4 * m;       // x, its gradient, y's, and one between the layers of a stage
  EXPECT_DOUBLE_EQ(estimate_memory(r).buffers, dense + apart + moe + ends);
  r.slots.assign(2, {.parts = {.moe = 2, .output_gradients = 3}});
  EXPECT_DOUBLE_EQ(estimate_memory(r).buffers, dense + apart + 2 * moe + 1.5 * ends);
  r.slots.clear();
  r.micro_batches = 5;
  r.keeps_ends = true;
  EXPECT_DOUBLE_EQ(estimate_memory(r).buffers, dense + 5 * apart + moe + ends / 4 * (1 + 4 * 5 - 5))
      << "GPipe keeps 5 outputs";
  r.micro_batches = 1;
  r.shape.parallel.zero = 3;
  const RankParameters p = rank_parameters(r);
  EXPECT_DOUBLE_EQ(estimate_memory(r).buffers, dense + apart + moe + ends + 2 * (p.dense + p.experts));
  r.shape.parallel.zero = 1;  // a layer's weights over DP; experts have no replicas
  EXPECT_DOUBLE_EQ(estimate_memory(r).buffers, dense + apart + moe + ends + 2 * p.dense);
}

TEST(Memory, RaggedCapacityIsRoundedUp) {
  MemoryRequest r = small();
  r.shape.layer.capacity_factor = 1.3;
  const double rows = capacity_exact(r.shape);
  ASSERT_NE(rows, std::ceil(rows));
  const double exact = pass_bytes(r.shape, r.flow).moe;
  r.shape.layer.capacity_factor = 1.3 * std::ceil(rows) / rows;
  const double wider = pass_bytes(r.shape, r.flow).moe;
  r.shape.layer.capacity_factor = 1.3;
  r.shape.rounding = Rounding::ragged;
  EXPECT_GT(wider, exact);
  EXPECT_NEAR(pass_bytes(r.shape, r.flow).moe / wider, 1, 1e-12);
}

TEST(Memory, EmbeddingsAreOnTheEnds) {
  MemoryRequest r = small();
  r.shape.layer.rope_theta = 10000;  // no learned places
  r.shape.layer.norm = Norm::none;
  const double without = estimate_memory(r).weights;
  r.vocabulary = 1000;
  const auto added = [&] { return estimate_memory(r).weights - without; };
  EXPECT_DOUBLE_EQ(added(), 2 * 1000.0 * 512 / 4) << "two stages: one end each";
  r.tied_embedding = true;
  EXPECT_DOUBLE_EQ(added(), 2 * 1000.0 * 512 / 4) << "the other end has a copy";
  r.shape.parallel.pp = 1;
  r.layers = 3;
  EXPECT_DOUBLE_EQ(added(), 2 * 1000.0 * 512 / 4);
  r.tied_embedding = false;
  EXPECT_DOUBLE_EQ(added(), 2 * 2 * 1000.0 * 512 / 4);
  r.shape.layer.norm = Norm::layernorm;
  r.vocabulary = 0;
  const double layers = estimate_memory(r).weights;
  r.vocabulary = 1000;
  r.shape.layer.rope_theta = 0;
  EXPECT_DOUBLE_EQ(estimate_memory(r).weights - layers, 2 * (2 * 1000.0 / 4 + 256.0 / 4 + 1) * 512)
      << "256 learned places over MP, a norm whole";
}

TEST(Memory, BadCountsAreNamed) {
  const auto message = [](auto change) {
    MemoryRequest r = small();
    change(r);
    return error_of<BadInput>([&] { estimate_memory(r); });
  };
  EXPECT_EQ(message([](MemoryRequest& r) { r.layers = 0; }), "layers: found 0, expected a whole number >= 1");
  EXPECT_EQ(message([](MemoryRequest& r) { r.layers = 1; }), "layers = 1 over pp = 2: every stage needs a layer");
  EXPECT_EQ(message([](MemoryRequest& r) { r.micro_batches = 0; }),
            "micro-batches: found 0, expected a whole number >= 1");
  EXPECT_EQ(message([](MemoryRequest& r) { r.shape.parallel.zero = 4; }), "zero: found 4, expected 0 to 3");
  EXPECT_EQ(error_of<BadInput>([] { recompute_from("some", "--recompute"); }),
            "--recompute: unknown 'some', expected one of: none, selective, full");
}

TEST(Memory, NamesSurvive) {
  for (const auto recompute : {Recompute::none, Recompute::selective, Recompute::full})
    EXPECT_EQ(recompute_from(name_of(recompute), ""), recompute);
  for (const auto order : {PipelineOrder::gpipe, PipelineOrder::one_f_one_b})
    EXPECT_EQ(pipeline_order_from(name_of(order), ""), order);
}

TEST(Memory, AMisfitSaysBothSizes) {
  MemoryEstimate e;
  e.weights = 20 * kGiB;
  e.buffers = 11.25 * kGiB;
  EXPECT_EQ(memory_refusal(e, 11 * kGiB).value().text(), "does not fit: needs 31.25 GiB, a rank has 11.00 GiB");
  EXPECT_EQ(memory_refusal(e, 31.25 * kGiB), std::nullopt);
}

struct PaperRun {
  std::string model, cluster;
  int nodes, ranks_per_node, layers;  // layers 0: the model file's for that cluster
  double gib;
  bool fits;
};

// FSMoE, section 6.4: the models it ran did fit, the whole ones that it cut did not.
TEST(Memory, AgreesWithWhatFsmoeRan) {
  for (const PaperRun& run : {PaperRun{"gpt2-xl@fsmoe", "testbed-a", 6, 8, 0, 48, true},
                              {"gpt2-xl@fsmoe", "testbed-b", 8, 4, 0, 11, true},
                              {"mixtral-7b@fsmoe", "testbed-a", 6, 8, 0, 48, true},
                              {"mixtral-7b@fsmoe", "testbed-b", 8, 4, 0, 11, true},
                              {"mixtral-7b@fsmoe", "testbed-b", 8, 4, 32, 11, false},
                              {"mixtral-22b@fsmoe", "testbed-a", 6, 8, 0, 48, true},
                              {"mixtral-22b@fsmoe", "testbed-a", 6, 8, 56, 48, false}}) {
    const Model model = model_on_cluster(find_model(run.model), run.cluster);
    ParallelShape parallel = model.parallel;
    parallel.nodes = run.nodes;
    parallel.ranks_per_node = run.ranks_per_node;
    MemoryRequest r;
    r.shape = complete(model.layer, parallel, Rounding::ragged);
    r.layers = run.layers > 0 ? run.layers : model.layers;
    r.vocabulary = model.vocabulary;
    r.tied_embedding = model.tied_embedding;
    const MemoryEstimate e = estimate_memory(r);
    std::printf("%-12s %-10s %2d layers: %6.2f GiB of %.0f (states %.2f, activations %.2f, buffers %.2f)\n",
                run.model.c_str(), run.cluster.c_str(), r.layers, e.total() / kGiB, run.gib,
                (e.weights + e.gradients + e.optimizer) / kGiB, e.activations / kGiB, e.buffers / kGiB);
    EXPECT_EQ(!memory_refusal(e, run.gib * kGiB), run.fits) << run.model << " on " << run.cluster;
  }
}

// FSMoE, section 6.3: it ran all 1458 layers of Table 4 on both testbeds.
TEST(Memory, EveryLayerThatFsmoeRanFits) {
  struct Testbed {
    const char* grid;
    int nodes, ranks_per_node;
    double gib;
  };
  for (const Testbed& t :
       {Testbed{"fsmoe-a", 6, 8, 48}, {"fsmoe-a-k2", 6, 8, 48}, {"fsmoe-b", 8, 4, 11}, {"fsmoe-b-k2", 8, 4, 11}}) {
    int fits = 0;
    double most = 0;
    for (const GridLayer& layer : find_grid(t.grid).layers) {
      MemoryRequest r;
      r.shape = complete(layer.shape, {.nodes = t.nodes, .ranks_per_node = t.ranks_per_node}, Rounding::exact);
      const MemoryEstimate e = estimate_memory(r);
      fits += !memory_refusal(e, t.gib * kGiB);
      most = std::max(most, e.total());
    }
    std::printf("%-10s %d of 1458 layers fit, the largest takes %.2f of %.0f GiB\n", t.grid, fits, most / kGiB, t.gib);
    EXPECT_EQ(fits, 1458) << t.grid;
  }
}

}  // namespace
}  // namespace moe
