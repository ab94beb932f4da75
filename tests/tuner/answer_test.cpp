// The answer to one layer or model: ranking, neighbours, parallel shapes, and what is made of trials.
#include "tuner/answer/answer.h"

#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <tuple>

#include "commands/shared/sweep.h"
#include "moe/base/check.h"
#include "moe/simulator/model_bound.h"
#include "tuner/answer/shape_search.h"

namespace moe::tuner {
namespace {

using Draw = std::mt19937_64;

int64_t one_of(Draw& draw, std::initializer_list<int64_t> values) {
  return *(values.begin() + std::uniform_int_distribution<size_t>(0, values.size() - 1)(draw));
}

commands::ChosenModel random_model(Draw& draw, int nodes, int ranks_per_node, std::optional<int64_t> experts = {}) {
  commands::Selection selection;
  commands::LayerFlags& l = selection.layer;
  l.fields.set(&LayerShape::batch, one_of(draw, {1, 2, 4}));
  l.fields.set(&LayerShape::seq, one_of(draw, {256, 512, 1024}));
  l.fields.set(&LayerShape::model_dim, one_of(draw, {512, 1024, 2048}));
  l.fields.set(&LayerShape::hidden, one_of(draw, {1024, 4096, 8192}));
  l.fields.set(&LayerShape::heads, 8);
  if (experts) l.fields.set(&LayerShape::experts, *experts);
  l.fields.set(&LayerShape::top_k, one_of(draw, {1, 2}));
  Profile cluster;
  cluster.nodes = nodes;
  cluster.ranks_per_node = ranks_per_node;
  return commands::chosen_model({}, selection, cluster);
}

TEST(RankingOfOneLayer, HasTheTimesOfASweepAndTheFastestFirst) {
  Draw draw(1);
  const Profile profile = find_profile("testbed-b");
  for (int i = 0; i < 20; ++i) {
    const commands::ChosenModel chosen = random_model(draw, profile.nodes, profile.ranks_per_node);
    Grid grid;
    grid.layers = {{"one", chosen.model.shape.layer, chosen.model.shape.parallel}};
    const commands::SweepRow swept =
        commands::sweep({profile, grid, commands::chosen_schedules({}, schedules(), commands::kAllSchedules), {}, {}})
            .front();
    const auto ranking =
        rank({chosen, profile, {}, {}}, commands::chosen_schedules({}, schedules(), commands::kAllSchedules));
    ASSERT_EQ(ranking.size(), schedules().size());
    double last = 0;
    for (const RankedSchedule& row : ranking) {
      const LayerResult* result = swept.find(row.schedule->name);
      ASSERT_EQ(row.is_usable(), result != nullptr) << row.schedule->name;
      if (result == nullptr) continue;
      EXPECT_DOUBLE_EQ(row.total_s(), result->total_s()) << row.schedule->name;
      EXPECT_EQ(row.degree_forward, result->decision.degree_forward);
      if (&row != &ranking.front()) {
        EXPECT_GE(row.total_s(), last * (1 - 1e-8));
      }
      EXPECT_LE(row.bound_s, row.total_s() * (1 + 1e-9));
      if (&row != &ranking.front()) last = row.total_s();
    }
  }
}

// Of plans within 1 % of the fastest, rounding decides nothing.
TEST(Preferred, HasTheLeastMemoryThenTheFewestChunksOfEquallyFastPlans) {
  const auto preferred_of = [](const std::vector<PlanCost>& plans) { return preferred(plans); };
  EXPECT_EQ(preferred_of({{1, 100, 2}}), 0u);
  EXPECT_EQ(preferred_of({{1 - 1e-15, 133, 2}, {1, 88, 2}}), 1u);
  EXPECT_EQ(preferred_of({{1, 100, 2}, {1.0099, 99, 8}}), 1u);
  EXPECT_EQ(preferred_of({{1, 100, 2}, {1.0101, 99, 2}}), 0u);
  EXPECT_EQ(preferred_of({{1, 100, 8}, {1.009, 100, 2}, {1.008, 100, 4}}), 1u);
  EXPECT_EQ(preferred_of({{1.005, 100, 2}, {1, 100, 2}, {1, 100, 2}}), 1u);
  EXPECT_EQ(preferred_of({{1.005, 50, 2}, {1.015, 40, 2}, {1, 100, 2}}), 0u);
}

TEST(Neighbours, OfAnExactDegreeAreNotFaster) {
  Draw draw(2);
  const Profile profile = find_profile("testbed-a");
  int found = 0;
  for (int i = 0; i < 20; ++i) {
    const commands::ChosenModel chosen = random_model(draw, profile.nodes, profile.ranks_per_node);
    const RankingRequest request{chosen, profile, {}, {}};
    for (const RankedSchedule& row :
         rank(request, commands::chosen_schedules({}, schedules(), commands::kAllSchedules))) {
      const bool by_rule = row.schedule->degrees == DegreePolicy::by_size;  // Lina's: not the best one
      if (row.refusal || !row.schedule->variants.empty() || by_rule) continue;
      for (const Neighbour& n : neighbours(request, row)) {
        EXPECT_GE(n.slower, -1e-9) << row.schedule->name << ", degree " << n.degree;
        EXPECT_NE(n.degree, n.phase == Phase::backward ? row.degrees_backward.first : row.degree_forward);
        ++found;
      }
    }
  }
  EXPECT_GT(found, 100);
}

// As the search prices it: a sum over EDP for each layer of the first stage, unless the plan has it.
double sums_s(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model) {
  const int pp = model.shape.parallel.pp, layers = model.layers / pp + (model.layers % pp > 0);
  if (model.shape.parallel.edp == 1 || schedule.name == "lina-packed") return 0;
  return layers * pricer.gradient_seconds(expert_gradient_bytes(model.shape), TaskKind::expert_gradient);
}

// By the rows of testbed-b: inside a node it has no AllReduce, between nodes nothing else, of which the two others take
// half. MP ranks gather and share out B L rows, or add them up, and tell each other 24 bytes a token.
double exchanges_s(const Schedule& schedule, const LayerPricer& pricer, const LayerCase& c) {
  const Network network = pricer.groups()[GroupKind::mp].network;
  if (network == Network::none) return 0;
  const auto seconds = [&](Op op, double bytes) {
    const auto row = std::ranges::find_if(pricer.profile().comm,
                                          [&](const CommRow& r) { return r.op == op && r.network == network; });
    if (row == pricer.profile().comm.end()) throw Unsupported("no such row");
    return row->alpha_s + bytes * row->beta_s_per_byte;
  };
  const bool inside = network == Network::intra;
  const auto half_of = [&](Op op, double bytes) {
    return inside ? seconds(op, bytes) : seconds(Op::allreduce, bytes) / 2;
  };
  const auto gather = [&](double bytes) { return half_of(Op::allgather, bytes); };
  const auto scatter = [&](double bytes) { return half_of(Op::reducescatter, bytes); };
  const auto tokens = static_cast<double>(c.layer.batch * c.layer.seq);
  const double rows = tokens * static_cast<double>(c.layer.model_dim * bytes_of(c.layer.dtype));
  const double told = gather(24 * tokens * c.parallel.mp), task_s = pricer.profile().task_overhead_s;
  const Flow flow = schedule.variants.empty() ? schedule.flow : schedule.variants.front()->flow;
  if (traits_of(flow).holds == Tokens::own) return told + gather(rows) + scatter(rows) + 3 * task_s;
  const double added = inside ? gather(rows) + scatter(rows) : seconds(Op::allreduce, rows);
  return told + added + 2 * task_s;
}

// One GEMM forward and two backward, of a rank's tokens or of its part of the vocabulary.
// Every micro-batch's, less what the last stage's fewer layers leave free beside the first's, but for one micro-batch.
double head_s(const Schedule& schedule, const LayerPricer& pricer, const commands::ChosenModel& chosen, double pass_s) {
  const LayerCase& c = chosen.model.shape;
  const auto gemm = std::ranges::find_if(pricer.profile().compute, [&](const ComputeRow& row) {
    return row.op == Op::gemm && row.dtype == c.layer.dtype;
  });
  const double flops =
      6.0 * static_cast<double>(c.layer.batch * c.layer.seq * c.layer.model_dim * chosen.vocabulary) / c.parallel.mp;
  if (chosen.vocabulary == 0) return 0;
  const double seconds = 3 * gemm->alpha_s + flops * gemm->beta_s_per_flop + 2 * pricer.profile().task_overhead_s +
                         exchanges_s(schedule, pricer, c);
  const int m = chosen.model.micro_batches, pp = c.parallel.pp, layers = chosen.model.layers, free = layers % pp > 0;
  const double layer_s = pass_s / ((m - 1) * (layers / pp + free) + layers);
  return seconds + (m - 1) * std::max(0.0, seconds - free * layer_s);
}

int64_t batch_of(const commands::ChosenModel& chosen) {
  return chosen.model.shape.layer.batch * chosen.model.shape.parallel.dp * chosen.model.micro_batches;
}

struct Tried {
  double total_s, memory_bytes;
  int chunks;
};

// Appends every plan of a shape that fits: each schedule with each of what a rank may keep.
void try_states(const ShapeRequest& request, commands::ChosenModel chosen, std::vector<std::vector<Tried>>& all) {
  ParallelShape& p = chosen.model.shape.parallel;
  for (const int zero : {0, 1})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      if (zero != request.fixed.zero.value_or(zero)) continue;
      if (recompute != Recompute::none && request.fixed.recompute) continue;
      p.zero = zero;
      p.recompute = recompute;
      std::vector<Tried>& plans = all.emplace_back();
      for (const Schedule* schedule : request.schedules) {
        const RankedSchedule row = ranked({chosen, request.profile, request.degrees, {true, "--shape"}}, *schedule);
        if (row.is_usable()) try {
            const LayerPricer pricer(request.profile, chosen.model.shape, {true, "--shape"});
            const double total_s = row.pass_s() + sums_s(*schedule, pricer, chosen.model) +
                                   head_s(*schedule, pricer, chosen, row.pass_s());
            plans.push_back({total_s, row.memory_bytes, row.degree_forward + row.degrees_backward.second});
          } catch (const Unsupported&) {  // no row of any size
          }
      }
      if (plans.empty()) all.pop_back();
    }
}

// Of the plans within 1 % of the fastest the one with the least memory, then chunks, then time.
Tried best_of(const std::vector<std::vector<Tried>>& all) {
  double fastest_s = std::numeric_limits<double>::infinity();
  for (const auto& plans : all)
    for (const Tried& plan : plans) fastest_s = std::min(fastest_s, plan.total_s);
  Tried best{0, std::numeric_limits<double>::infinity(), 0};
  for (const auto& plans : all)
    for (const Tried& plan : plans)
      if (plan.total_s <= 1.01 * fastest_s && std::tie(plan.memory_bytes, plan.chunks, plan.total_s) <
                                                  std::tie(best.memory_bytes, best.chunks, best.total_s))
        best = plan;
  return best;
}

using Runs = std::function<bool(const ModelShape&)>;

// Every shape that divides and that `runs` accepts, by counting up all groups: no list of divisors, no bound, no order.
std::vector<std::vector<Tried>> try_all(
    const ShapeRequest& request, const Runs& runs = [](const ModelShape&) { return true; }) {
  const ModelShape& given = request.chosen.model;
  const ParallelShape& p = given.shape.parallel;
  const int ranks = p.ranks();
  const int64_t samples = request.global_batch;
  std::vector<std::vector<Tried>> all;
  for (int pp = 1; pp <= std::min(ranks, given.layers); ++pp)
    for (int mp = 1; mp * pp <= ranks; ++mp)
      for (int ep = 1; ep <= ranks; ++ep)
        for (int esp = 1; esp <= ranks; ++esp)
          for (int64_t micro_batches = 1; micro_batches <= samples; ++micro_batches)
            for (const bool inside : {false, true})
              for (const PipelineOrder order : {PipelineOrder::gpipe, PipelineOrder::one_f_one_b}) {
                if (request.fixed.ep.value_or(ep) != ep || ranks % (pp * mp) != 0 ||
                    samples % (ranks / (pp * mp) * micro_batches) != 0)
                  continue;
                if (!request.chosen.stack && micro_batches > 1) continue;
                commands::ChosenModel chosen = request.chosen;
                ModelShape& model = chosen.model;
                model.micro_batches = static_cast<int>(micro_batches);
                model.order = order;
                model.shape.layer.batch = samples / (ranks / (pp * mp) * micro_batches);
                try {
                  model.shape = complete(model.shape.layer,
                                         {.nodes = p.nodes,
                                          .ranks_per_node = p.ranks_per_node,
                                          .mp = mp,
                                          .ep = ep,
                                          .esp = esp,
                                          .pp = pp,
                                          .ep_inside = inside},
                                         model.shape.rounding);
                } catch (const BadInput&) {
                  continue;
                }
                if (!runs(model)) continue;
                add_ends(model, chosen.vocabulary, false);
                try_states(request, chosen, all);
              }
  return all;
}

TEST(ShapeSearch, FindsWhatTryingAllFinds) {
  Draw draw(3);
  Profile profile = find_profile("testbed-b");
  const std::vector<const Schedule*> some{&find_schedule("tutel"), &find_schedule("fsmoe"), &find_schedule("ds-moe"),
                                          &find_schedule("parm"), &find_schedule("lina-packed")};
  int several = 0, slower = 0, sharded = 0, again = 0, whole = 0;
  for (int i = 0; i < 60; ++i) {
    profile.nodes = static_cast<int>(one_of(draw, {1, 2}));
    profile.ranks_per_node = 2;
    commands::ChosenModel chosen = random_model(draw, profile.nodes, profile.ranks_per_node, one_of(draw, {4, 8}));
    if (i % 5 == 0) {
      chosen.stack = true;
      chosen.model.shape.layer.batch = std::min<int64_t>(chosen.model.shape.layer.batch, 2);
      chosen.model.layers = static_cast<int>(one_of(draw, {1, 2, 3}));
      chosen.vocabulary = one_of(draw, {0, 1000, 50256});
      add_ends(chosen.model, chosen.vocabulary, false);
    }
    profile.memory_bytes.reset();
    const double needed = memory_of(chosen, memory_request(chosen.model, chosen.model.shape, Flow::sharded)).total();
    if (i % 2 == 1) profile.memory_bytes = needed * static_cast<double>(one_of(draw, {45, 60, 80, 97, 105})) / 100;
    ShapeRequest request{.chosen = chosen, .global_batch = batch_of(chosen), .profile = profile, .schedules = some};
    if (i % 3 == 0) request.fixed.ep = 2;  // what a schedule packs has fewer
    if (i % 5 == 1) request.fixed.zero = 0;
    if (i % 7 == 3) request.fixed.recompute = Recompute::none;
    const std::vector<std::vector<Tried>> all = try_all(request);
    if (all.empty()) {
      EXPECT_THROW(find_shapes(request), Unsupported);
      continue;
    }
    const FoundShapes found = find_shapes(request);
    const RankedShape& use = found.ranked.front();
    const Tried best = best_of(all);
    EXPECT_NEAR(use.total_s() / best.total_s, 1, 1e-9);
    EXPECT_EQ(use.best.memory_bytes, best.memory_bytes);
    EXPECT_EQ(use.best.degree_forward + use.best.degrees_backward.second, best.chunks);
    double fastest_s = std::numeric_limits<double>::infinity();
    for (const std::vector<Tried>& plans : all) {
      const Tried& tried = *std::ranges::min_element(plans, {}, &Tried::total_s);
      fastest_s = std::min(fastest_s, tried.total_s);
      // The front: whatever was tried, one of it is as fast and takes no more memory.
      EXPECT_TRUE(std::ranges::any_of(found.ranked,
                                      [&](const RankedShape& shape) {
                                        return shape.pareto && shape.total_s() <= tried.total_s * (1 + 1e-9) &&
                                               shape.best.memory_bytes <= tried.memory_bytes;
                                      }))
          << tried.total_s << " s, " << tried.memory_bytes << " bytes";
    }
    EXPECT_NEAR(found.at_least_s / fastest_s, 1, 1e-9);
    EXPECT_NEAR((found.fastest ? *found.fastest : use).total_s() / fastest_s, 1, 1e-8);
    slower += found.fastest ? 1 : 0;
    // What is said of the shape is what the ranking says of it.
    commands::ChosenModel preferred = chosen;
    preferred.model = use.model;
    const RankedSchedule known = use.best;
    EXPECT_EQ(rank({preferred, profile, {}, {true, "--shape"}, &known}, some).front().total_s(), use.best.total_s());
    several += found.shapes > 3 ? 1 : 0;
    for (const RankedShape& shape : found.ranked) {
      const ParallelShape& p = shape.model.shape.parallel;
      EXPECT_EQ(shape.model.shape.layer.batch * p.dp * shape.model.micro_batches,
                chosen.model.shape.layer.batch * chosen.model.shape.parallel.dp);
      sharded += p.zero;
      again += p.recompute == Recompute::selective;
      whole += p.recompute == Recompute::full;
      EXPECT_LE(shape.best.memory_bytes, profile.memory_bytes.value_or(std::numeric_limits<double>::max()));
    }
  }
  EXPECT_GT(several, 15);
  EXPECT_GE(slower, 3);
  EXPECT_GT(std::min(sharded, again), 5);
  EXPECT_GE(whole, 3);
}

// As Megatron-Core's arguments.py checks: TP divides heads, groups of keys and tokens, PP layers; order 1F1B.
bool megatron_runs(const ModelShape& model) {
  const LayerShape& l = model.shape.layer;
  const ParallelShape& p = model.shape.parallel;
  const bool divides = l.heads % p.mp == 0 && l.kv_heads % p.mp == 0 && l.seq % p.mp == 0 && model.layers % p.pp == 0;
  const bool is_1f1b = model.micro_batches == 1 || model.order == PipelineOrder::one_f_one_b;
  return divides && is_1f1b && !(p.ep_inside && p.ep > 1 && p.esp > 1);
}

TEST(ShapeSearch, OfAFrameworkFindsWhatTryingAllThatItRunsFinds) {
  Draw draw(11);
  Profile profile = find_profile("testbed-b");
  for (const Network network : {Network::inter, Network::intra})
    profile.comm.push_back(
        {.op = Op::sendrecv, .network = network, .ranks = 2, .alpha_s = 2e-5, .beta_s_per_byte = 1e-10});
  const std::vector<const Schedule*> unpipelined{&find_schedule("ds-moe")};
  int decided = 0, checked = 0;
  for (int i = 0; i < 200 && checked < 30; ++i) {
    profile.nodes = static_cast<int>(one_of(draw, {1, 2}));
    profile.ranks_per_node = 2;
    commands::ChosenModel chosen = random_model(draw, profile.nodes, profile.ranks_per_node, one_of(draw, {4, 8}));
    chosen.stack = true;
    chosen.model.shape.layer.batch = one_of(draw, {1, 2});
    chosen.model.shape.layer.kv_heads = one_of(draw, {1, 2, 8});
    chosen.model.layers = static_cast<int>(one_of(draw, {1, 2, 3}));
    chosen.vocabulary = one_of(draw, {0, 1000});
    add_ends(chosen.model, chosen.vocabulary, false);
    const double needed = memory_of(chosen, memory_request(chosen.model, chosen.model.shape, Flow::sharded)).total();
    profile.memory_bytes = needed * static_cast<double>(one_of(draw, {45, 60, 80, 97, 400})) / 100;
    ShapeRequest request{
        .chosen = chosen, .global_batch = batch_of(chosen), .profile = profile, .schedules = unpipelined};
    const std::vector<std::vector<Tried>> all = try_all(request, megatron_runs);
    request.framework = &commands::framework_of("megatron");
    if (all.empty()) {
      EXPECT_THROW(find_shapes(request), Unsupported);
      continue;
    }
    const FoundShapes found = find_shapes(request);
    const RankedShape& use = found.ranked.front();
    const Tried best = best_of(all);
    EXPECT_NEAR(use.total_s() / best.total_s, 1, 1e-9);
    EXPECT_EQ(use.best.memory_bytes, best.memory_bytes);
    for (const RankedShape& shape : found.ranked) EXPECT_TRUE(megatron_runs(shape.model));
    request.framework = nullptr;
    decided += std::abs(find_shapes(request).ranked.front().total_s() / use.total_s() - 1) > 1e-9;
    ++checked;
  }
  EXPECT_EQ(checked, 30);
  EXPECT_GT(decided, 3) << "else the framework decides nothing";
}

// Models of up to four stages, of two chunks each or one, with dense layers, ZeRO 1, recomputation and whole steps.
TEST(ShapeBounds, AreBelowEveryTunedPlan) {
  Draw draw(8);
  Profile profile = find_profile("testbed-b");
  for (const Network network : {Network::inter, Network::intra})
    profile.comm.push_back(
        {.op = Op::sendrecv, .network = network, .ranks = 2, .alpha_s = 2e-5, .beta_s_per_byte = 1e-10});
  BoundShapes shapes;
  int checked = 0, stages = 0, steps = 0, chunks = 0;
  double close = 0, closest = 0;
  for (int i = 0; i < 150; ++i) {
    commands::ChosenModel chosen = random_model(draw, profile.nodes, profile.ranks_per_node, one_of(draw, {4, 8}));
    chosen.stack = true;
    ModelShape& model = chosen.model;
    model.layers = static_cast<int>(one_of(draw, {4, 5, 8}));
    model.micro_batches = static_cast<int>(one_of(draw, {1, 2, 4}));
    model.order = i % 2 == 0 ? PipelineOrder::gpipe : PipelineOrder::one_f_one_b;
    if (i % 3 == 0)
      model.dense =
          DenseRule{one_of(draw, {1024, 8192}), static_cast<int>(one_of(draw, {1, 2})), 1, {}}.expand(model.layers);
    if (i % 4 > 0) model.step = {.planned = true, .clips = i % 4 > 1, .optimizer = OptimizerKind::adamw};
    ParallelShape groups{.nodes = profile.nodes, .ranks_per_node = profile.ranks_per_node};
    groups.pp = static_cast<int>(one_of(draw, {1, 2, 4}));
    const bool in_chunks = groups.pp > 1 && i % 3 == 1;
    if (in_chunks) model.layers = 8, model.micro_batches = 4, model.order = PipelineOrder::one_f_one_b;
    model.virtual_stages = in_chunks ? 2 : 1;
    groups.mp = static_cast<int>(one_of(draw, {1, 2, 4}));
    groups.ep = static_cast<int>(one_of(draw, {1, 2, 4}));
    groups.esp = static_cast<int>(one_of(draw, {1, 2}));
    groups.zero = static_cast<int>(one_of(draw, {0, 1}));
    groups.recompute = static_cast<Recompute>(one_of(draw, {0, 1, 2}));
    try {
      model.shape = complete(model.shape.layer, groups, Rounding::ragged);
    } catch (const BadInput&) {
      continue;
    }
    const PricingOptions pricing{true, "--shape"};
    const LayerPricer pricer(profile, model.shape, pricing);
    for (const Schedule* schedule : commands::chosen_schedules({}, schedules(), commands::kAllSchedules)) {
      const RankedSchedule row = ranked({chosen, profile, {}, pricing}, *schedule);
      if (row.refusal) continue;
      const double lanes_s = lane_bound_s(*schedule, pricer, model, {}, shapes);
      const double step_s = model.step.planned ? min_step_seconds(*schedule, pricer, model) : 0;
      const double max_s = row.total_s() * (1 + 1e-9);
      EXPECT_LE(lanes_s + step_s, max_s) << i << " " << schedule->name;
      EXPECT_LE(plan_bound_s(*schedule, pricer, chosen, {}, shapes), max_s) << i << " " << schedule->name;
      const double passes_s = replayed_bound_s(*schedule, pricer, chosen, {}, shapes);
      EXPECT_LE(passes_s, max_s) << i << " " << schedule->name;
      ++checked, stages += groups.pp > 1, steps += model.step.planned, chunks += in_chunks;
      close += (lanes_s + step_s) / row.total_s();
      closest += passes_s / row.total_s();
    }
  }
  fmt::print("{} plans, lanes bound {:.0f} % of a plan's time, passes {:.0f} %\n", checked, 100 * close / checked,
             100 * closest / checked);
  EXPECT_GT(closest, close);
  EXPECT_GT(std::min({stages, steps, chunks}), 100);
}

TEST(ShapeSearch, KeepsWhatWasAskedFor) {
  Draw draw(4);
  const Profile profile = find_profile("testbed-b");
  const commands::ChosenModel chosen = random_model(draw, profile.nodes, profile.ranks_per_node);
  commands::LayerFlags fixed;
  fixed.mp = 2;
  const FoundShapes found = find_shapes({.chosen = chosen,
                                         .global_batch = batch_of(chosen),
                                         .profile = profile,
                                         .schedules = {&find_schedule("tutel")},
                                         .fixed = fixed});
  for (const RankedShape& shape : found.ranked) EXPECT_EQ(shape.model.shape.parallel.mp, 2);
  commands::ChosenModel stack = chosen;
  stack.stack = true;
  stack.model.micro_batches = 2;
  stack.model.order = PipelineOrder::one_f_one_b;
  const FoundShapes cut = find_shapes({.chosen = stack,
                                       .global_batch = 2 * batch_of(stack),
                                       .profile = profile,
                                       .schedules = {&find_schedule("tutel")},
                                       .fixed_micro_batches = true});
  for (const RankedShape& shape : cut.ranked) EXPECT_EQ(shape.model.micro_batches, 2);
  const FoundShapes ordered = find_shapes({.chosen = stack,
                                           .global_batch = 4 * batch_of(stack),
                                           .profile = profile,
                                           .schedules = {&find_schedule("tutel")},
                                           .fixed_order = true});
  for (const RankedShape& shape : ordered.ranked) EXPECT_EQ(shape.model.order, PipelineOrder::one_f_one_b);
  EXPECT_TRUE(std::ranges::any_of(ordered.ranked, [](const auto& shape) { return shape.model.micro_batches > 1; }));
}

// Whenever it stops, what it has is a shape, and what it says that none beats is no more than the best of all takes.
TEST(ShapeSearch, HasAnAnswerAndABoundWheneverItStops) {
  Draw draw(6);
  const std::vector<const Schedule*> some{&find_schedule("tutel"), &find_schedule("fsmoe")};
  Profile profile = find_profile("testbed-b");
  profile.nodes = profile.ranks_per_node = 2;
  int stopped = 0;
  for (int i = 0; i < 40; ++i) {
    commands::ChosenModel chosen = random_model(draw, profile.nodes, profile.ranks_per_node, one_of(draw, {4, 8}));
    chosen.stack = i % 2 == 0;
    ShapeRequest request{.chosen = chosen, .global_batch = batch_of(chosen), .profile = profile, .schedules = some};
    const FoundShapes whole = find_shapes(request);
    request.seconds = 0;
    const FoundShapes first = find_shapes(request);
    ASSERT_EQ(first.ranked.size(), 1u);
    EXPECT_LE(first.at_least_s, whole.at_least_s * (1 + 1e-9));
    EXPECT_GE(first.ranked.front().total_s(), whole.at_least_s * (1 - 1e-9));
    EXPECT_EQ(first.shapes, whole.shapes);
    EXPECT_EQ(first.shapes, 1 + first.too_large + first.refused + first.ruled_out + first.not_reached);
    stopped += first.not_reached > 0;
  }
  EXPECT_GT(stopped, 10);
}

// However little time there is, what a framework runs is among what it chooses from, if that fits by its own count.
TEST(ShapeSearch, IsNoSlowerThanWhatItFoundForFrameworks) {
  Draw draw(8);
  Profile profile = find_profile("testbed-b");
  profile.nodes = profile.ranks_per_node = 4;
  std::vector<const Schedule*> all;
  for (const Schedule& schedule : schedules()) all.push_back(&schedule);
  int frameworks = 0;
  for (int i = 0; i < 20; ++i) {
    const commands::ChosenModel chosen = random_model(draw, profile.nodes, profile.ranks_per_node, 4);
    const FoundShapes found = find_shapes({.chosen = chosen,
                                           .global_batch = batch_of(chosen),
                                           .profile = profile,
                                           .schedules = all,
                                           .frameworks = commands::frameworks(),
                                           .seconds = 0.01});
    for (const FrameworkPlans& plans : found.plans_by_framework) {
      if (plans.rows.empty()) continue;
      const RankedShape& best = plans.rows.front();
      if (best.model.shape.parallel.trainer != chosen.model.shape.parallel.trainer) continue;
      ++frameworks;
      EXPECT_LE(found.ranked.front().total_s(), best.total_s() * (1 + kEquallyFast)) << plans.framework->key;
    }
  }
  EXPECT_GT(frameworks, 20);
}

TEST(Ranking, PlansNoMoreSchedulesThanItHasTimeFor) {
  Draw draw(7);
  const Profile profile = find_profile("testbed-b");
  const commands::ChosenModel chosen = random_model(draw, profile.nodes, profile.ranks_per_node);
  const std::vector<const Schedule*> some{&find_schedule("tutel"), &find_schedule("fsmoe"), &find_schedule("ds-moe")};
  RankingRequest request{chosen, profile, {}, {}};
  const auto all = rank(request, some);
  request.deadline = std::chrono::steady_clock::now();
  const auto first = rank(request, some);  // one at least, however late
  const auto not_in_time = [](const RankedSchedule& row) {
    return row.refusal && row.refusal->kind == Refusal::Kind::not_in_time;
  };
  EXPECT_EQ(first[0].schedule->name, "tutel");
  EXPECT_TRUE(not_in_time(first[1]));
  EXPECT_TRUE(not_in_time(first[2]));
  const RankedSchedule known = *std::ranges::find(all, &find_schedule("ds-moe"), &RankedSchedule::schedule);
  request.known = &known;
  const auto late = rank(request, some);
  EXPECT_EQ(late[0].schedule, known.schedule);
  EXPECT_EQ(late[0].total_s(), known.total_s());
  EXPECT_TRUE(not_in_time(late[1]));
  request.deadline.reset();
  const auto again = rank(request, some);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(again[i].total_s(), all[i].total_s()) << i;
}

}  // namespace
}  // namespace moe::tuner
