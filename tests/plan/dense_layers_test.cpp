// Dense layers between those with experts: which they are, what they hold, and the plans that have them.
#include "moe/shape/dense_layers.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>

#include "moe/base/check.h"
#include "moe/plan/memory.h"
#include "moe/schedule/model_plan.h"
#include "moe/shape/volumes.h"
#include "tests/plan/broken_plan.h"

namespace moe {
namespace {

using namespace broken_plan;

std::vector<int> numbers(const DenseLayers& dense, int layers) {
  std::vector<int> all;
  for (int layer = 0; layer < layers; ++layer)
    if (dense.has(layer)) all.push_back(layer);
  return all;
}

TEST(DenseLayers, AreThoseThatRulesName) {
  using List = std::vector<int>;
  EXPECT_EQ(numbers(DenseRule{8, 0, 2, {}}.expand(6), 6), (List{0, 2, 4})) << "every second layer has experts: 1, 3, 5";
  EXPECT_EQ(numbers(DenseRule{8, 0, 3, {}}.expand(7), 7), (List{0, 1, 3, 4, 6}));
  EXPECT_EQ(numbers(DenseRule{8, 3, 1, {}}.expand(61), 61), (List{0, 1, 2})) << "DeepSeek-V3";
  EXPECT_EQ(numbers(DenseRule{8, 1, 2, {5}}.expand(6), 6), (List{0, 2, 4, 5}));
  EXPECT_EQ((DenseRule{8, 0, 1, {}}.expand(6)), DenseLayers()) << "none";
  const DenseLayers dense = DenseRule{8, 0, 2, {}}.expand(6);
  EXPECT_EQ(dense.count(0, 6), 3);
  EXPECT_EQ(dense.count(1, 4), 1);
  EXPECT_EQ(numbers(dense.first(3), 6), (List{0, 2}));
  EXPECT_FALSE(dense.has(-1) || dense.has(6)) << "a model's ends";
  EXPECT_EQ(count_layers(6, dense), "6 layers, 3 MoE");
  EXPECT_EQ(count_layers(1, {}), "1 layer");
}

TEST(LayerSet, AreThoseOfAPatternThatRepeats) {
  EXPECT_EQ(windowed_pattern(whole_layers("10", 5), 5), "10101") << "gpt-oss";
  EXPECT_EQ(windowed_pattern(whole_layers("111110", 8), 8), "11111011") << "five of six";
  EXPECT_EQ(windowed_pattern(whole_layers("0110", 3), 3), "011") << "cut";
  for (const auto& [pattern, layers] : {std::pair{"", 4}, {"1", 4}, {"110", 2}})
    EXPECT_EQ(whole_layers(pattern, layers), LayerSet()) << "none: " << pattern;
  const LayerSet whole = whole_layers("10", 6);
  EXPECT_EQ(whole.count(0, 6), 3);
  EXPECT_EQ(windowed_pattern(whole.first(3), 3), "101");
  EXPECT_EQ(whole.first(1), LayerSet());
  EXPECT_FALSE(whole.has(-1) || whole.has(6)) << "a model's ends";
  const DenseLayers dense = DenseRule{8, 2, 1, {}}.expand(6);
  EXPECT_EQ(layer_kind(dense, whole, 0), LayerKind::dense);
  EXPECT_EQ(layer_kind(dense, whole, 1), LayerKind::whole_dense);
  EXPECT_EQ(layer_kind(dense, whole, 2), LayerKind::moe);
  EXPECT_EQ(layer_kind(dense, whole, 3), LayerKind::whole_moe);
}

// Works differ in attention alone, and hashes tell models apart.
TEST(LayerSet, AttendToAllTokens) {
  LayerCase c = four_ranks();
  c.layer.window = 3;
  ModelShape model{c, 4, 2};
  ModelDecision decision;
  decision.backwards.resize(4);
  const Plan all = build_model_plan(find_schedule("fsmoe"), model, decision);
  model.whole = whole_layers("10", 4);
  const Plan some = build_model_plan(find_schedule("fsmoe"), model, decision);
  ASSERT_EQ(all.tasks().size(), some.tasks().size());
  EXPECT_NE(all.hash(), some.hash());
  int others = 0;
  for (const Task& task : some.tasks()) {
    const bool is_whole = is_attention(task.kind) && computes(task.kind) && task.layer % 2 == 1;
    const double extra = some.works[task.id].flops - all.works[task.id].flops;
    const double flops = scores_flops(whole_case(c)) - scores_flops(c);
    const int passes = !is_whole ? 0 : task.phase == Phase::backward ? 2 : 1;
    EXPECT_NEAR(extra, passes * flops, 1e-6 * flops) << task.name();
    others += is_whole;
  }
  EXPECT_EQ(others, 2 * 2 * 2) << "2 layers, 2 micro-batches, 2 phases";
  model.whole = whole_layers("01", 4);
  EXPECT_NE(build_model_plan(find_schedule("fsmoe"), model, decision).hash(), some.hash());
}

// Attention's weights and those of a feed-forward whose hidden size MP shards; no gate and no experts.
TEST(DenseLayers, HaveAFeedForwardInThePlaceOfExperts) {
  LayerCase c = four_ranks();
  c.layer.shared_hidden = 64;
  const LayerCase dense = dense_case(c, 96);
  const int64_t width = bytes_of(c.layer.dtype), m = c.layer.model_dim, gemms = gemms_of(c.layer.ffn);
  EXPECT_EQ(gradient_bytes(dense), width * (attention_parameters(c) + gemms * m * 96 / c.parallel.mp));
  EXPECT_EQ(expert_gradient_bytes(dense), 0);
  EXPECT_EQ(stage_gradient_bytes(dense), 2 * m * bytes_of(accumulation_type(c.layer.dtype))) << "the norms alone";
  const Work forward = whole_work(TaskKind::ffn, Phase::forward, dense, Flow::sharded),
             backward = whole_work(TaskKind::ffn, Phase::backward, dense, Flow::sharded);
  const auto tokens = static_cast<double>(c.layer.batch * c.layer.seq);
  EXPECT_EQ(forward.flops, 2.0 * static_cast<double>(gemms * m * 96 / c.parallel.mp) * tokens);
  EXPECT_EQ(backward.flops, 2 * forward.flops);
  EXPECT_EQ(std::tuple(forward.gemms, backward.gemms), std::tuple(gemms, 2 * gemms));
  EXPECT_THROW(dense_case(c, 97), BadInput) << "MP = 2 does not divide it";
}

ModelShape three_layers(int pp = 1) {
  LayerCase c = four_ranks();
  c.parallel.nodes *= pp;
  c.parallel.pp = pp;
  ModelShape model{c, 3 * pp, 2};
  model.step = {true, true, OptimizerKind::adamw};
  model.dense = {{}, 96};
  for (int stage = 0; stage < pp; ++stage)
    model.dense.by_layer.insert(model.dense.by_layer.end(), {true, false, stage > 0});
  return model;
}

ModelDecision plain(const ModelShape& model) {
  ModelDecision decision;
  decision.backwards.resize(decided_layers(model));
  return decision;
}

// Where ranks have tokens of their own an AllGather and a ReduceScatter go around attention and around the
// feed-forward; where a rank has its MP group's, one AllReduce behind each. The backward runs them the other way round.
TEST(DenseLayers, ArePlannedAsAttentionIs) {
  using enum TaskKind;
  for (const Schedule& schedule : schedules()) {
    if (!schedule.variants.empty()) continue;
    const ModelShape model = three_layers();
    const Plan plan = build_model_plan(schedule, model, plain(model));
    const bool own = traits_of(schedule.flow).holds == Tokens::own;
    using Kinds = std::vector<TaskKind>;
    const Kinds forward = own ? Kinds{mp_allgather, attention, mp_reducescatter, ffn_allgather, ffn, ffn_reducescatter}
                              : Kinds{attention, mp_allreduce, ffn, ffn_allreduce};
    const TaskKind back = schedule.halves_backward ? attention_dx : attention;
    const Kinds backward = own ? Kinds{ffn_allgather, ffn, ffn_reducescatter, mp_allgather, back, mp_reducescatter}
                               : Kinds{ffn, ffn_allreduce, back, mp_allreduce};
    std::map<std::pair<int, int>, int> halves;  // by layer and micro-batch: the tasks behind which the other stands
    std::map<std::tuple<int, int, Phase>, Kinds> found;
    std::map<std::tuple<int, int, Phase>, int> last;
    for (const Task& task : plan.tasks()) {
      if (!is_of_layer(task.kind)) continue;
      const std::tuple pass{task.layer, task.micro_batch, task.phase};
      if (task.kind == attention_dx) halves[{task.layer, task.micro_batch}] = task.id;
      if (task.kind == attention_dw) {
        EXPECT_EQ(task.after, std::vector{halves.at({task.layer, task.micro_batch})}) << schedule.name;
        continue;
      }
      if (plan.dense.has(task.layer) && last.contains(pass)) {
        EXPECT_EQ(std::ranges::count(task.after, last[pass]), 1) << schedule.name << ": " << task.name();
      }
      last[pass] = task.id;
      found[pass].push_back(task.kind);
    }
    for (const int micro_batch : {0, 1})
      for (const int layer : {0, 1, 2}) {
        const Kinds& f = found[{layer, micro_batch, Phase::forward}];
        const Kinds& b = found[{layer, micro_batch, Phase::backward}];
        if (layer == 1) {
          EXPECT_EQ(std::ranges::count_if(f, is_ffn) + std::ranges::count_if(b, is_ffn), 0) << schedule.name;
          EXPECT_EQ(std::ranges::count(f, gate), 1) << schedule.name;
        } else if (layer == 0) {
          EXPECT_EQ(f, forward) << schedule.name;
          EXPECT_EQ(b, backward) << schedule.name;
        }
      }
    for (const Task& task : plan.tasks()) {
      if (task.kind != expert_gradient && task.kind != expert_weights) continue;
      EXPECT_FALSE(plan.dense.has(task.layer)) << task.name();
    }
  }
}

TEST(DenseLayers, OfDecisionsHaveNoDegree) {
  const ModelShape model = three_layers();
  ModelDecision degree = plain(model), order = plain(model), in_moe = plain(model);
  const Schedule& fsmoe = find_schedule("fsmoe");
  ASSERT_TRUE(decides_dense(model, 2) && !decides_dense(model, 1));
  EXPECT_NO_THROW(build_model_plan(fsmoe, model, plain(model)));
  degree.backwards[2].degree = 2;
  EXPECT_THROW(build_model_plan(fsmoe, model, degree), BadInput);
  in_moe.backwards[2].gar_in_moe_bytes = 400;
  EXPECT_THROW(build_model_plan(fsmoe, model, in_moe), BadInput);
  order.backwards[2].order = "GS";
  EXPECT_THROW(build_model_plan(find_schedule("fsmoe-interleaved"), model, order), BadInput);
  degree.backwards[2].degree = 1;
  degree.backwards[1].degree = 4;
  EXPECT_NO_THROW(build_model_plan(fsmoe, model, degree));
  EXPECT_EQ(backward_degrees(model, degree), std::pair(1, 4));
  ModelShape all = model;
  all.dense.by_layer.assign(3, true);
  EXPECT_THROW(build_model_plan(fsmoe, all, plain(all)), BadInput) << "no layer has experts";
}

// With stages whose layers differ each stage has decisions of its own.
TEST(DenseLayers, OfStagesAreDecidedApart) {
  ModelShape model = three_layers(2);
  EXPECT_TRUE(stages_decide_separately(model));
  EXPECT_EQ(decided_layers(model), 6);
  EXPECT_EQ(std::tuple(first_decision(model, 0), first_decision(model, 1)), std::tuple(0u, 3u));
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(decides_dense(model, i), i == 2 || i == 3 || i == 5) << i;
  ModelDecision decision = plain(model);
  decision.backwards[1].degree = 2;  // layer 1
  decision.backwards[4].degree = 3;  // layer 4
  const Plan plan = build_model_plan(find_schedule("fsmoe"), model, decision);
  std::map<int, int> chunks;
  for (const Task& task : plan.tasks())
    if (task.kind == TaskKind::dispatch && task.phase == Phase::backward && task.micro_batch == 1)
      chunks[task.layer] = task.chunks;
  EXPECT_EQ(chunks, (std::map<int, int>{{1, 2}, {2, 1}, {4, 3}}));
  model.dense = {};
  EXPECT_EQ(decided_layers(model), 3) << "all stages do alike";
}

TEST(DenseLayers, BreakRulesOfTheirOwn) {
  const ModelShape model = three_layers();
  const Plan good = build_model_plan(find_schedule("fsmoe"), model, plain(model));
  EXPECT_EQ(complaint(good), "no complaint");
  const auto first_ffn = [](const Structure& s, Phase phase) {
    return std::ranges::find_if(s.tasks, [&](const Task& t) { return t.kind == TaskKind::ffn && t.phase == phase; })
        ->id;
  };
  Plan others = good;
  others.dense.by_layer[1] = true;
  EXPECT_NE(complaint(others).find("belongs to an MoE part, but its layer is dense"), std::string::npos)
      << complaint(others);
  others = good;
  others.dense.by_layer[0] = false;
  EXPECT_NE(complaint(others), "no complaint");
  const Plan unread = changed(good, [&](Structure& s) {
    std::erase_if(s.tasks[first_ffn(s, kBackward)].reads, [](const Access& a) { return a.phase == kForward; });
  });
  EXPECT_NE(complaint(unread).find("does not read the input of its forward"), std::string::npos) << complaint(unread);
  EXPECT_NE(good.hash(), others.hash());
  ModelShape wider = model;
  wider.dense.hidden = 128;
  EXPECT_NE(good.hash(), build_model_plan(find_schedule("fsmoe"), wider, plain(wider)).hash());
}

// The weights of both kinds of layers, their activations, and of stages the one that needs most.
TEST(DenseLayers, CountInMemory) {
  MemoryRequest r;
  r.shape = four_ranks();
  r.layers = 1;
  const MemoryEstimate moe = estimate_memory(r);
  const LayerCase& c = r.shape;
  r.layers = 4;
  r.dense = {{{true, false, true, false}}, 96};
  const MemoryEstimate both = estimate_memory(r);
  const auto m = static_cast<double>(c.layer.model_dim), width = static_cast<double>(bytes_of(c.layer.dtype));
  const double ffn = static_cast<double>(gemms_of(c.layer.ffn) * c.layer.model_dim * 96 / c.parallel.mp);
  const double dense_weights = static_cast<double>(attention_parameters(c)) + 2 * m + ffn;
  EXPECT_DOUBLE_EQ(both.weights, 2 * moe.weights + 2 * width * dense_weights);
  EXPECT_DOUBLE_EQ(both.optimizer, 2 * moe.optimizer + 4 * width * dense_weights);
  // y, the gathered input, the normed one, q k v and what they mix to, scores; the feed-forward's gathered and normed
  // input, and inside.
  const auto tokens = static_cast<double>(c.layer.batch * c.layer.seq);
  const Heads heads = max_heads(c);
  const double head_dim = m / static_cast<double>(c.layer.heads);
  const double attention = m / c.parallel.mp + 2 * m +
                           2 * static_cast<double>(heads.query + heads.key_value) * head_dim +
                           static_cast<double>(heads.query * c.layer.seq);
  const double inside = static_cast<double>(gemms_of(c.layer.ffn) * 96 / c.parallel.mp);
  EXPECT_DOUBLE_EQ(both.activations, 2 * moe.activations + 2 * width * tokens * (attention + 2 * m + inside));
  r.slots = {{.kept = 3, .kept_dense = 2, .outputs = 2, .outputs_dense = 2}};
  EXPECT_DOUBLE_EQ(estimate_memory(r).activations, moe.activations + 2 * width * tokens * (attention + 2 * m + inside));
  r.slots.clear();
  r.shape.parallel.nodes *= 2;
  r.shape.parallel.pp = 2;
  r.dense = {{{true, true, false, false}}, 8};
  EXPECT_DOUBLE_EQ(estimate_memory(r).weights, 2 * moe.weights) << "the second stage has both with experts";
}

// At once, whatever the schedule, as many layers of each kind as the request says.
TEST(DenseLayers, LiveAsLongAsTheirPasses) {
  const ModelShape model = three_layers();
  const Plan plan = build_model_plan(find_schedule("tutel"), model, plain(model));
  const MemoryRequest request = memory_request(plan);
  ASSERT_EQ(request.slots.size(), 1U);
  EXPECT_EQ(std::tuple(request.slots[0].kept, request.slots[0].kept_dense), std::tuple(6, 2))
      << "all layers of two micro-batches under GPipe";
}

}  // namespace
}  // namespace moe
