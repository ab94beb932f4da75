// Lina's training: the experts' time by the printed share and the figures of a replay, each against a second, short
// computation.
#include "commands/reproduce/lina.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "commands/reproduce/lina_inference.h"
#include "commands/reproduce/printed_rows.h"
#include "commands/reproduce/study.h"
#include "moe/shape/model_file.h"

namespace moe::reproduce {
namespace {

const Assumptions& assumed() {
  static const Assumptions all = find_assumptions("lina-a100");
  return all;
}

LinaStep step_of(const LinaRun& run) {
  std::set<std::string> missing;
  const auto step = lina_step(run, assumed(), missing);
  EXPECT_TRUE(missing.empty() && step.has_value());
  return step.value();
}

// 2 t_a / (2 t_a + t_e) is the share, for every model over 16 GPUs; Table 3's efficiency without packing is t_e / 2
// t_a.
TEST(Lina, ExpertsTakeWhatTheShareLeaves) {
  for (const PrintedPipelining& row : printed_lina_table3()) {
    const Profile profile = lina_profile(row.model, assumed());
    const LayerCase shape = lina_case(row.model, 16, assumed());
    const LayerPricer pricer(profile, shape);
    const auto rows = static_cast<double>(pricer.rows());
    const double alltoall = pricer.chunk_seconds(TaskKind::dispatch, Phase::forward, rows);
    const double expert = pricer.chunk_seconds(TaskKind::expert, Phase::forward, rows);
    EXPECT_NEAR(2 * alltoall / (2 * alltoall + expert), 0.749, 1e-9) << row.model;
    EXPECT_NEAR(expert / (2 * alltoall), row.without, 0.03) << "Figure 2 and Table 3 agree, " << row.model;
    // 30 MB cut each AlltoAll in two, and each half has its own start-up time.
    const double halves = 4 * pricer.chunk_seconds(TaskKind::dispatch, Phase::forward, rows / 2);
    EXPECT_NEAR(step_of({.model = row.model, .schedule = "lina"}).efficiency_forward, expert / halves, 1e-6);
  }
}

// Table 1's parameters: 12 layers with 16 experts and with 4 differ by 144 experts of 2 M H; twice as many layers by
// 288. They are rounded to a million, and biases are not counted here.
TEST(Lina, TableOnePrintsItsModelsWidth) {
  const LayerCase shape = lina_case("transformer-xl", 16, assumed());
  EXPECT_NEAR(12.0 * 12 * 2 * static_cast<double>(shape.layer.model_dim * shape.layer.hidden), 419e6 - 117e6, 2e6);
  EXPECT_NEAR(12.0 * 24 * 2 * static_cast<double>(shape.layer.model_dim * shape.layer.hidden), 838e6 - 233e6, 2e6);
}

// Without contention, pipelining or micro-ops a step is a sum: forward and backward of 12 layers, each two AlltoAlls,
// expert, attention and gate, then the tail. lina-fixed's gradients go between, so that what remains is bounded by it.
TEST(Lina, ABaselineStepIsAtLeastItsComputationAndAlltoAlls) {
  for (const int experts : {4, 16}) {
    const Profile profile = lina_profile("transformer-xl", assumed());
    const LayerCase shape = lina_case("transformer-xl", experts, assumed());
    const LayerPricer pricer(profile, shape);
    const auto rows = static_cast<double>(pricer.rows());
    double layer = 0;
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      layer += 2 * pricer.chunk_seconds(TaskKind::dispatch, phase, rows);
      layer += pricer.chunk_seconds(TaskKind::expert, phase, rows);
      layer += pricer.dense_seconds(TaskKind::attention, phase) + pricer.dense_seconds(TaskKind::gate, phase);
    }
    // Gradients: 12 layers of 4 M^2, an embedding of 204 M with a place a token of the sample, the last norm; float32.
    const double gradients = 12 * pricer.gradient_seconds(4 * 512 * 512 * 4) +
                             pricer.gradient_seconds((204 + shape.layer.seq) * 512 * 4) +
                             pricer.gradient_seconds(2 * 512 * 4);
    const double step = step_of({.model = "transformer-xl", .experts = experts}).step_s;
    EXPECT_GE(step, 12 * layer * (1 - 1e-9));
    EXPECT_LE(step, (12 * layer + gradients) * (1 + 1e-9));
    // In sequence, the last layer's gradients and the embedding's are the tail.
    const double tail = pricer.gradient_seconds(4 * 512 * 512 * 4) + pricer.gradient_seconds(204 * 512 * 4);
    EXPECT_NEAR(step_of({.model = "transformer-xl", .experts = experts, .schedule = "lina-priority"}).step_s,
                12 * layer + tail, 0.01 * step);
  }
}

// What Lina's section 7.2.2 says of its design choices, and packing never costs.
// No AlltoAll loses more than AllReduce has to do, whoever gets more of the link; Transformer-XL's share by hand:
// 33.6 MB by AlltoAll, and of the dense part 4 M^2 and of norms and gate 4 M + E M by AllReduce, float32.
TEST(Lina, AlltoallsLoseAtMostWhatAllReduceTakes) {
  const double m = 512, alltoall_s = 1.75e-4 + 2.016e-10 * 8192 * 2 * m * 4;
  const double gradients_s = 3.5e-4 + 4.032e-10 * 4 * (4 * m * m + 4 * m + 16 * m);
  EXPECT_NEAR(lina_gradient_share("transformer-xl", assumed()) / (gradients_s / (2 * alltoall_s)), 1, 0.01);
  std::set<std::string> missing;
  for (const std::string& model : kLinaModels)
    for (const char* schedule : {"lina-baseline", "lina-fixed"}) {
      const auto step = lina_step({model, 16, schedule}, assumed(), missing);
      ASSERT_TRUE(step.has_value());
      const Profile profile = lina_profile(model, assumed());
      const LayerPricer pricer(profile, lina_case(model, 16, assumed()));
      const double alone_s =
          pricer.chunk_seconds(TaskKind::dispatch, Phase::backward, static_cast<double>(pricer.rows()));
      const double backward_s = 2 * find_model(model).layers * alone_s;
      EXPECT_GE(step->alltoall_backward_s, backward_s * (1 - 1e-9)) << model << " " << schedule;
      EXPECT_LE(step->alltoall_backward_s, backward_s + step->communication_s - 2 * backward_s) << model;
    }
}

TEST(Lina, DesignChoicesRankAsPrinted) {
  for (const PrintedPipelining& row : printed_lina_table3()) {
    const auto seconds = [&](const char* schedule) {
      return step_of({.model = row.model, .schedule = schedule}).step_s;
    };
    const double baseline = seconds("lina-baseline"), lina = seconds("lina");
    EXPECT_LT(seconds("lina-priority"), baseline) << row.model;
    EXPECT_LT(lina, seconds("lina-partition")) << row.model;
    EXPECT_LE(seconds("lina-packed"), lina * (1 + 1e-9)) << row.model;
  }
}

// The embedding's gradients are part of a step.
TEST(Lina, AStepSendsTheEmbeddingsGradients) {
  const Profile profile = lina_profile("gpt-2", assumed());
  ModelShape model{lina_case("gpt-2", 16, assumed()), 12};
  const LayerPricer pricer(profile, model.shape);
  const auto tuned = [&] { return ModelSearch().tune(find_schedule("lina"), pricer, model); };
  const double without = tuned().total_s();
  add_ends(model, 50257, true);
  EXPECT_EQ(model.head_gradient_bytes, 0);
  EXPECT_EQ(model.embedding_gradient_bytes, (50257 + model.shape.layer.seq) * 768 * 4);
  double pieces = 0;  // 154.4 MB in six, after everything else
  for (const int64_t bytes :
       pieces_of(find_schedule("lina"), {model.embedding_gradient_bytes}, kMicroOpBytes, DType::float32))
    pieces += pricer.gradient_seconds(bytes);
  EXPECT_NEAR(tuned().total_s(), without + pieces, 1e-9);
}

TEST(Lina, EveryFigureIsComputedWhereTheAssumptionsAre) {
  Study study;
  study.assumed = &assumed();
  const Report report = reproduce("lina-training", study);
  EXPECT_EQ(report.not_computable,
            (std::vector<std::string>{"efficiency with packed experts by Figure 2's share: it is "
                                      "of one expert a GPU"}));
  for (const Figure& f : report.comparisons.front().figures)
    EXPECT_TRUE(f.ours.has_value()) << f.labels[0] << " " << f.labels[1];
  ASSERT_EQ(report.tables.size(), 3u);
  EXPECT_EQ(report.tables[0].rows.size(), 12u) << "three models, four numbers of experts";
  EXPECT_EQ(report.tables[1].header.size(), 7u) << "10 to 100 MB";
}

// The controller ends where the rule does, by times that are computed again from volumes and assumed rows: the expert's
// work does not change, and is cut into as many micro-ops as the AlltoAll.
TEST(Lina, ControllerEndsWhereTheRuleDoes) {
  for (const std::string& model : kLinaModels) {
    const std::vector<LinaPacking> all = lina_packing_steps(model, 16, assumed());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].packing, 1 << i);
      if (i + 1 == all.size()) break;
      EXPECT_LT(all[i].times.expert_s, all[i].times.alltoall_s) << model;
    }
    const TextTable table = lina_controller(assumed());
    int last = 0;
    for (const auto& row : table.rows)
      if (row[0] == model) last = std::stoi(row[2]);
    EXPECT_EQ(last, lina_rule(model, 16, assumed()).packing);
  }
  const TextTable table = lina_controller(assumed());
  EXPECT_EQ(table.rows.at(0).at(1), "1 to 10");
  EXPECT_EQ(table.rows.at(1).at(1), "11 to 14");
}

// 12 layers of four AlltoAlls, 2 x 8192 rows of 512 floats each; Transformer-XL's embedding is below 30 MB.
TEST(Lina, ConcatenationCopiesWhatIsCut) {
  const double bytes = 12.0 * 4 * 2 * 8192 * 512 * 4;
  EXPECT_NEAR(lina_concatenation_s("transformer-xl", assumed()), 2 * bytes / 1.555e12, 1e-12);
}

// Without packing or contention computation is busy for what its tasks take: the forward and backward of 12 layers.
TEST(Lina, UtilizationIsWorkOverTheStep) {
  const Profile profile = lina_profile("transformer-xl", assumed());
  const LayerPricer pricer(profile, lina_case("transformer-xl", 16, assumed()));
  double layer = 0, alltoalls = 0;
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    const auto rows = static_cast<double>(pricer.rows());
    layer += pricer.chunk_seconds(TaskKind::expert, phase, rows);
    layer += pricer.dense_seconds(TaskKind::attention, phase) + pricer.dense_seconds(TaskKind::gate, phase);
    alltoalls += 2 * pricer.chunk_seconds(TaskKind::dispatch, phase, rows);
  }
  const LinaStep step = step_of({.model = "transformer-xl"});
  EXPECT_NEAR(step.utilization, 12 * layer / step.step_s, 1e-3);
  EXPECT_GT(step.communication_s, 12 * alltoalls);
}

// The share of Table 4's memory that packed experts add: three more of 2 x 512 x 2048 weights, 16 bytes each, in 12
// layers.
TEST(Lina, PackedExpertsAddTheirStates) {
  const MemoryEstimate one = lina_memory("transformer-xl", 1, assumed());
  const MemoryEstimate four = lina_memory("transformer-xl", 4, assumed());
  const double states = 12.0 * 3 * 2 * 512 * 2048 * 16;
  const auto of = [](const MemoryEstimate& m) { return m.weights + m.gradients + m.optimizer; };
  EXPECT_NEAR(of(four) - of(one), states, 0.01 * states);
}

const Assumptions& assumed_inference() {
  static const Assumptions all = find_assumptions("lina-inference");
  return all;
}

// Attention takes the assumed dense part, and two AlltoAlls are Figure 2's share of those and an expert.
TEST(LinaInference, LayersTakeWhatIsAssumed) {
  for (const char* const model : {"transformer-xl", "bert-large"}) {
    const InferenceRun run{model};
    const Profile profile = inference_profile(run, assumed_inference());
    const LayerCase shape = inference_case(run, assumed_inference());
    EXPECT_EQ(shape.layer.batch * shape.layer.seq, 4096);
    const LayerPricer pricer(profile, shape);
    const double rows = 4096.0 / 16;  // of each expert
    const double alltoall = pricer.chunk_seconds(TaskKind::dispatch, Phase::forward, rows);
    const double expert = pricer.chunk_seconds(TaskKind::expert, Phase::forward, rows);
    EXPECT_NEAR(2 * alltoall / (2 * alltoall + expert), 0.749, 1e-9) << model;
    EXPECT_NEAR(alltoall, 0.000175 + 2.016e-10 * 4096 * static_cast<double>(shape.layer.model_dim) * 4, 1e-12);
    EXPECT_NEAR(pricer.dense_seconds(TaskKind::attention, Phase::forward), 0.0149, 1e-9);
  }
}

// What is said to be calibrated is near what is printed, and the ideal bounds every variant.
TEST(LinaInference, RoutingIsCalibratedToPrint) {
  const InferenceResult all = served({.model = "transformer-xl"}, assumed_inference());
  EXPECT_NEAR(all.routing.most_over_least / 5.56, 1, 0.05);
  EXPECT_NEAR(all.routing.pattern_1, 0.4194, 0.005);
  const ServingResult &lina = all.variants.at("lina-serve"), &ideal = all.variants.at("ideal");
  EXPECT_NEAR(lina.placed_again_share(), 0.23, 0.04);
  for (size_t i = 0; i < ideal.batch_s.size(); ++i)
    for (const auto& [name, variant] : all.variants) EXPECT_LE(ideal.batch_s[i], variant.batch_s[i]) << name;
  // Layers before the fourth have no estimate.
  EXPECT_EQ(lina.estimated, static_cast<int64_t>(lina.batch_s.size()) * (all.layers - 3));
}

TEST(LinaInference, EveryPrintedNumberIsInTheReport) {
  Study study;
  study.assumed = &assumed_inference();
  const Report report = reproduce("lina-inference", study);
  std::vector<double> printed;
  size_t open = 0;
  for (const Comparison& c : report.comparisons)
    for (const Figure& f : c.figures) {
      printed.push_back(f.paper.value());
      open += !f.ours.has_value();
    }
  for (const PrintedInference& row : printed_lina_inference())
    EXPECT_TRUE(std::ranges::any_of(printed, [&](double value) {
      return value == row.value || value == row.value * 1e-3;
    })) << row.metric;
  EXPECT_EQ(open, 8U);  // Table 6
  study.assumed = nullptr;
  const Report alone = reproduce("lina-inference", study);
  for (const Comparison& c : alone.comparisons)
    for (const Figure& f : c.figures) EXPECT_EQ(f.ours.has_value(), f.convention == "no AlltoAll at all");
}

}  // namespace
}  // namespace moe::reproduce
