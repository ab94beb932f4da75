// Offloaded experts in plans of random models: what the window holds while experts compute, what goes over the link,
// how long that takes and how much memory it leaves.
#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "moe/base/random.h"
#include "moe/plan/memory.h"
#include "moe/search/model_search.h"
#include "moe/simulator/model_bound.h"
#include "moe/simulator/simulator.h"
#include "tests/base/error_of.h"
#include "tests/plan/broken_plan.h"
#include "tests/properties/any_model.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using any_model::any_model;
using any_model::any_model_decision;
using any_model::AnyModel;

bool of_offload(const Task& task) { return part_of(task.kind) == TaskPart::offload; }

// A random model whose experts the host keeps.
AnyModel offloaded(uint64_t seed) {
  AnyModel any = any_model(seed);
  any.model.shape.parallel.offload = Offload::experts;
  any.profile.compute.push_back({.op = Op::host_copy, .alpha_s = 1e-5, .beta_s_per_byte = 1e-10});
  return any;
}

std::vector<double> drawn_seconds(const Plan& plan, uint64_t seed) {
  std::vector<double> seconds;
  for (const Task& task : plan.tasks()) {
    const double longest = of_offload(task) && seed % 3 == 0 ? 20 : 1;
    seconds.push_back(longest * random_uniform(seed, 91, static_cast<uint64_t>(task.id)));
  }
  return seconds;
}

// What a place of a stage's window holds, by the times of a run.
struct Fetched {
  int layer;
  double start_s, end_s;
};

// Whatever tasks take: while experts of a layer compute, one place holds their weights whole and no fetch writes there.
TEST(Offload, ExpertsComputeWithTheirOwnWeights) {
  int plans = 0, reads = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const AnyModel any = offloaded(seed);
    for (const Schedule* schedule : any_decision::fitting(any.model.shape)) {
      if (schedule->orders_iterations()) continue;
      SCOPED_TRACE(fmt::format("{}, {}", schedule->name, any.text));
      const Plan plan = build_model_plan(*schedule, any.model, any_model_decision(*schedule, any.model, seed));
      const Timeline times = simulate(*plan.structure, drawn_seconds(plan, seed));
      const std::vector<double> starts = starts_of(*plan.structure, times.end_s);
      std::map<std::pair<int, int>, std::vector<Fetched>> places;  // by stage and place
      const auto stage_of = [&](const Task& task) { return plan.structure->lanes[task.lane].stage; };
      for (const Task& task : plan.tasks())
        if (task.kind == TaskKind::fetch)
          places[{stage_of(task), task.chunk}].push_back({task.layer, starts[task.id], times.end_s[task.id]});
      ASSERT_LE(std::ssize(places), 2 * plan.shape.parallel.pp);
      for (const Task& task : plan.tasks()) {
        if (!is_expert(task.kind)) continue;
        int with = 0;
        for (int place = 0; place < 2; ++place) {
          const Fetched* held = nullptr;
          bool overwritten = false;
          for (const Fetched& fetch : places[{stage_of(task), place}]) {
            if (fetch.end_s <= starts[task.id]) held = &fetch;
            overwritten |= fetch.start_s < times.end_s[task.id] && fetch.end_s > starts[task.id];
          }
          with += held != nullptr && held->layer == task.layer && !overwritten ? 1 : 0;
        }
        ASSERT_EQ(with, 1) << task.name();
        ++reads;
      }
      ++plans;
    }
  }
  EXPECT_GT(plans, 1000);
  EXPECT_GT(reads, 50'000);
}

// Without the tasks of offloading, the plan is that of the same model without it.
TEST(Offload, OnlyAddsTasks) {
  int plans = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    AnyModel any = offloaded(seed);
    for (const Schedule* schedule : any_decision::fitting(any.model.shape)) {
      if (schedule->orders_iterations()) continue;
      const ModelDecision decision = any_model_decision(*schedule, any.model, seed);
      const Plan with = build_model_plan(*schedule, any.model, decision);
      ModelShape plain = any.model;
      plain.shape.parallel.offload = Offload::none;
      const Plan without = build_model_plan(*schedule, plain, decision);
      EXPECT_NE(with.hash(), without.hash());
      std::vector<int> known(with.tasks().size(), -1);
      int next = 0;
      for (const Task& task : with.tasks())
        if (!of_offload(task)) known[task.id] = next++;
      ASSERT_EQ(next, std::ssize(without.tasks())) << any.text;
      for (const Task& task : with.tasks()) {
        if (of_offload(task)) continue;
        const Task& other = without.tasks()[known[task.id]];
        std::vector<int> after;
        for (const int id : task.after)
          if (known[id] >= 0) after.push_back(known[id]);
        ASSERT_EQ(task.kind, other.kind);
        ASSERT_EQ(task.pass(), other.pass());
        ASSERT_EQ(after, other.after) << task.name() << ", " << any.text;
      }
      ++plans;
    }
  }
  EXPECT_GT(plans, 400);
}

TEST(Offload, WhatBreaksTheWindowIsRefused) {
  using namespace broken_plan;
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 4, .top_k = 1};
  const ModelShape model{
      complete(layer, {.nodes = 2, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2, .offload = Offload::experts},
               Rounding::ragged),
      4, 2};
  ModelShape stepped = model;
  stepped.step = {true, true, OptimizerKind::adamw};
  const Schedule& schedule = find_schedule("fsmoe");
  for (const ModelShape& of : {model, stepped}) {
    const Plan good = build_model_plan(schedule, of, any_model_decision(schedule, of, 3));
    EXPECT_EQ(complaint(good), "no complaint");
    std::vector<const Task*> fetches, stores, experts, steps;
    for (const Task& task : good.tasks()) {
      if (task.kind == TaskKind::fetch) fetches.push_back(&task);
      if (task.kind == TaskKind::store) stores.push_back(&task);
      if (is_expert(task.kind)) experts.push_back(&task);
      if (task.kind == TaskKind::host_optimizer) steps.push_back(&task);
    }
    ASSERT_EQ(fetches.size(), 14U) << "each forward's four, two of the first backward's and four of the second's";
    ASSERT_EQ(stores.size(), 4U);
    EXPECT_EQ(steps.size(), of.step.planned ? 4U : 0U);
    const auto waits_for_nothing = [&](const Task& task) {
      return complaint(changed(good, [&](Structure& s) { s.tasks[task.id].after.clear(); }));
    };
    EXPECT_NE(waits_for_nothing(*fetches[2]).find("overwrites weights that"), std::string::npos);
    EXPECT_NE(waits_for_nothing(*stores[3]).find("stores gradients before the end of"), std::string::npos);
    const std::string early =
        complaint(changed(good, [&](Structure& s) { std::erase(s.tasks[experts[0]->id].after, fetches[0]->id); }));
    EXPECT_NE(early.find(fmt::format("begins before {}", fetches[0]->name())), std::string::npos) << early;
    const std::string other = complaint(changed(good, [&](Structure& s) { s.tasks[fetches[1]->id].chunk = 0; }));
    EXPECT_NE(other.find("overwrites weights that"), std::string::npos) << other;
    Plan kept = good;
    kept.shape.parallel.offload = Offload::none;
    EXPECT_NE(complaint(kept).find("moves experts that are not offloaded"), std::string::npos);
    if (!of.step.planned) continue;
    EXPECT_NE(waits_for_nothing(*steps[0]).find("steps experts before the end of"), std::string::npos);
  }
}

// A stack of N layers on one rank whose experts take F seconds each way, and all else next to nothing. Fetches follow
// each other without a gap: N in the forward, N - 2 in the backward, which finds two layers in the window; then the
// gradients of N layers go back.
TEST(Offload, FetchBoundStackTakesItsFetches) {
  for (const int layers : {1, 2, 3, 6, 9}) {
    LayerShape layer{.batch = 2, .seq = 8, .model_dim = 64, .hidden = 256, .heads = 4, .experts = 8, .top_k = 1};
    const ModelShape model{complete(layer, {.offload = Offload::experts}, Rounding::ragged), layers, 1};
    Profile profile = nominal_profile(model.shape);
    const double experts = 8 * 2 * 64 * 256 * 4, fetch_s = 0.5;  // bytes: E experts of two M x H matrices in float32
    for (ComputeRow& row : profile.compute) {
      row.alpha_s = row.beta_s_per_flop = row.beta_s_per_byte = 1e-30;
      if (row.op == Op::host_copy) row.beta_s_per_byte = fetch_s / experts;
    }
    const LayerPricer pricer(profile, model.shape);
    const Schedule& schedule = find_schedule("tutel");
    const ModelResult result = ModelSearch().tune(schedule, pricer, model, {});
    const int fetches = layers + std::max(0, layers - 2), stores = layers;
    EXPECT_NEAR(result.total_s(), (fetches + stores) * fetch_s, 1e-9) << layers;
    EXPECT_NEAR(result.bound_s, (fetches + stores) * fetch_s, 1e-9) << layers;
  }
}

// Fetches hide behind longer passes.
TEST(Offload, ShortFetchesHideBehindPasses) {
  LayerShape layer{.batch = 2, .seq = 8, .model_dim = 64, .hidden = 256, .heads = 4, .experts = 8, .top_k = 1};
  ModelShape model{complete(layer, {}, Rounding::ragged), 6, 1};
  Profile profile = nominal_profile(model.shape);
  for (ComputeRow& row : profile.compute) {
    row.alpha_s = row.op == Op::host_copy ? 1e-3 : 1;
    row.beta_s_per_byte = row.beta_s_per_flop = 0;
  }
  const Schedule& schedule = find_schedule("tutel");
  const auto seconds = [&] {
    return ModelSearch().tune(schedule, LayerPricer(profile, model.shape), model, {}).total_s();
  };
  const double without = seconds();
  model.shape.parallel.offload = Offload::experts;
  EXPECT_NEAR(seconds(), without, 1e-9) << "attention hides the first fetch and the last store";
}

TEST(Offload, NoPlanIsFasterThanItsBound) {
  int plans = 0, bound_by_link = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    AnyModel any = offloaded(seed);
    if (seed % 2 == 0) any.profile.compute.back().beta_s_per_byte = 1e-6;
    const auto fitting = any_decision::fitting(any.model.shape);
    const Schedule& schedule = *fitting[seed % fitting.size()];
    if (schedule.orders_iterations()) continue;
    const LayerPricer pricer(any.profile, any.model.shape, {.nearest = true});
    const Plan plan = build_model_plan(schedule, any.model, any_model_decision(schedule, any.model, seed));
    const double all_s = simulate(*plan.structure, price(pricer, plan)).makespan_s;
    const double bound_s = model_bound(schedule, pricer, any.model);
    EXPECT_GE(all_s, bound_s * (1 - 1e-12)) << schedule.name << ", " << any.text;
    std::map<int, double> link_s;  // by stage
    const std::vector<double> seconds = price(pricer, plan);
    for (const Task& task : plan.tasks())
      if (transfers_offloaded_weights(task.kind)) link_s[task.lane] += seconds[task.id];
    const double busiest = std::ranges::max_element(link_s, {}, [](const auto& lane) { return lane.second; })->second;
    EXPECT_GE(bound_s, busiest * (1 - 1e-12)) << "the bound knows every fetch and store: " << any.text;
    bound_by_link += bound_s < busiest * (1 + 1e-9) ? 1 : 0;
    ++plans;
  }
  EXPECT_GT(plans, 120);
  EXPECT_GT(bound_by_link, 10);
}

// Counted anew from the shape: experts of a layer on a rank, E / EP of them with two or three matrices of M x H / ESP.
TEST(Offload, MemoryHasTheWindowAndNoStates) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const AnyModel any = offloaded(seed);
    const LayerShape& l = any.model.shape.layer;
    const ParallelShape& p = any.model.shape.parallel;
    if (l.bias) continue;
    const auto matrix = static_cast<double>(l.model_dim * (l.hidden / p.esp));
    const double elements = static_cast<double>(l.experts / p.ep) * gemms_of(l.ffn) * matrix;
    const double width = bytes_of(l.dtype), moments = width == 2 ? 12 : 2 * width;
    MemoryRequest request = memory_request(any.model, any.model.shape, Flow::sharded);
    for (int stage = 0; stage < p.pp; ++stage) {
      request.shape.parallel.offload = Offload::experts;
      const MemoryEstimate with = estimate_stage(request, stage);
      request.shape.parallel.offload = Offload::none;
      const MemoryEstimate without = estimate_stage(request, stage);
      int layers = 0;
      for (const int layer : layers_of_stage(any.model.split(), stage)) layers += any.model.dense.has(layer) ? 0 : 1;
      const double left = std::max(0, layers - 2) * elements * width;
      EXPECT_NEAR(without.weights - with.weights, left, 1e-9 * without.weights) << any.text;
      EXPECT_NEAR(without.optimizer - with.optimizer, layers * elements * moments, 1e-9 * without.optimizer);
      EXPECT_EQ(with.gradients, without.gradients);
      EXPECT_EQ(with.activations, without.activations);
      EXPECT_EQ(with.buffers, without.buffers);
      EXPECT_NEAR(with.host, layers * elements * (2 * width + moments), 1e-9 * with.host);
      EXPECT_EQ(without.host, 0);
    }
  }
}

TEST(Offload, RefusesWhatItCannotMove) {
  AnyModel any = offloaded(3);
  const Schedule& schedule = find_schedule("tutel");
  const auto said = [&](const auto& act) { return error_of<Unsupported>(act); };
  const LayerPricer pricer(any.profile, any.model.shape, {.nearest = true});
  EXPECT_NE(said([&] { build_plan(schedule, any.model.shape, {}); }).find("of a layer alone"), std::string::npos);
  EXPECT_NE(
      said([&] { ModelSearch().tune(find_schedule("wave"), pricer, any.model, {}); }).find("orders layers one by"),
      std::string::npos);
  any.profile.compute.pop_back();
  const LayerPricer unpriced(any.profile, any.model.shape, {.nearest = true});
  EXPECT_NE(said([&] { ModelSearch().tune(schedule, unpriced, any.model, {}); }).find("no price for host_copy"),
            std::string::npos);
  LayerCase shared = any.model.shape;
  shared.parallel.zero = 1;
  shared.parallel.edp = 2;
  EXPECT_NE(said([&] { check_offload(shared); }).find("found ZeRO 1"), std::string::npos);
  LayerCase fp8 = any.model.shape;
  fp8.layer.ffn = Ffn::mixtral_fp8;
  EXPECT_NE(said([&] { check_offload(fp8); }).find("FP8 copies"), std::string::npos);
  EXPECT_NE(said([&] { check_offload(dense_case(any.model.shape, 64)); }).find("expected an MoE layer"),
            std::string::npos);
}

}  // namespace
}  // namespace moe
