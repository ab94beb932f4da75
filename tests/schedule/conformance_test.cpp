// What holds for every schedule of the registry, over parallel shapes and degrees.
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "moe/base/check.h"
#include "moe/schedule/schedule.h"

namespace moe {
namespace {

std::vector<ParallelShape> parallel_shapes() {
  std::vector<ParallelShape> all;
  for (const int nodes : {1, 2, 3, 4, 8})
    for (const int ranks_per_node : {1, 2, 4})
      for (const int mp : {1, 2, 4, 8})
        for (const int ep : {1, 2, 3, 4, 8})
          for (const int esp : {1, 2, 4}) {
            const int ranks = nodes * ranks_per_node;
            if (ranks % mp != 0 || ranks % (ep * esp) != 0 || mp > ranks) continue;
            all.push_back({.nodes = nodes, .ranks_per_node = ranks_per_node, .mp = mp, .ep = ep, .esp = esp});
            for (const int cp : {2, 3})  // samples of 12 tokens are 4 or 6 pieces
              if (ranks % (cp * mp) == 0 && 24 / cp % mp == 0) {
                all.push_back(
                    {.nodes = nodes, .ranks_per_node = ranks_per_node, .mp = mp, .ep = ep, .esp = esp, .cp = cp});
                if (cp == 3) all.push_back(all.back());
                if (cp == 3) all.back().cp_exchange = CpExchange::ring;
              }
          }
  return all;
}

LayerCase case_of(const ParallelShape& parallel) {
  LayerShape layer{.batch = 2, .seq = 12, .model_dim = 16, .hidden = 32, .heads = 8, .experts = 24, .top_k = 2};
  layer.shared_hidden = parallel.ep % 2 == 0 ? 8 : 0;
  return complete(layer, parallel, Rounding::ragged);
}

std::vector<Decision> decisions(const Schedule& schedule, const LayerCase& shape) {
  std::vector<Decision> all;
  for (const int forward : {1, 3, 9})
    for (const int backward : {1, 2, 3, 7}) {
      if (schedule.degrees == DegreePolicy::one && forward * backward > 1) continue;
      const bool apart = schedule.degrees == DegreePolicy::apart;
      if (!apart && schedule.degrees != DegreePolicy::one && forward != backward) continue;
      all.push_back({forward, backward, 0});
      if (schedule.gradients == GradientPolicy::micro_ops) {  // at the end, and spread from the start
        all.back().micro_op_bytes = 512;
        all.push_back(all.back());
        const size_t pieces = gradient_pieces(schedule, shape, 512).size();
        for (size_t i = 0; i < pieces; ++i) all.back().gaps.push_back(static_cast<int>(i / 2));
      }
      if (schedule.gradients != GradientPolicy::adaptive && schedule.gradients != GradientPolicy::beside_dense)
        continue;
      all.push_back(with_split(schedule, forward, backward, 4));
      all.push_back(with_split(schedule, forward, backward, gradient_bytes(shape)));
    }
  return all;
}

bool allows(const Schedule& schedule, const ParallelShape& parallel) {
  const bool one_group = traits_of(schedule.flow).one_group;
  return !one_group || parallel.mp == parallel.esp;
}

void for_every_plan(const std::function<void(const Schedule&, const Plan&)>& check) {
  int plans = 0;
  for (const Schedule& schedule : schedules())
    for (const ParallelShape& parallel : parallel_shapes()) {
      if (!schedule.variants.empty()) continue;  // it has the plans of those
      const LayerCase shape = case_of(parallel);
      if (!allows(schedule, parallel)) {
        ASSERT_THROW(build_plan(schedule, shape, {}), Unsupported) << schedule.name;
        continue;
      }
      for (const Decision& d : decisions(schedule, shape)) {
        SCOPED_TRACE(fmt::format("{} r {} {}, {} + {} bytes split, {} nodes x {} mp {} ep {} esp {}", schedule.name,
                                 d.degree_forward, d.degree_backward, d.gar_in_moe_bytes, d.gar_beside_dense_bytes,
                                 parallel.nodes, parallel.ranks_per_node, parallel.mp, parallel.ep, parallel.esp));
        Plan plan;
        ASSERT_NO_THROW(plan = build_plan(schedule, shape, d));
        check(schedule, plan);
        if (testing::Test::HasFailure()) return;
        ++plans;
      }
    }
  EXPECT_GT(plans, 2000);
}

// FSMoE's own flow with every stage cut by degree, whose tasks and orders are counted below.
bool in_chunks(const Schedule& schedule) { return schedule.flow == Flow::sharded && schedule.name != "lina-partition"; }

bool spans(const Plan& plan, GroupKind kind) { return plan.groups[kind].size > 1; }

// How many tasks end if each lane starts the first of its queue once all that it waits for has ended.
size_t tasks_that_end(const Plan& plan) {
  std::vector<bool> ended(plan.tasks().size(), false);
  const auto has_ended = [&](int task) { return ended[task]; };
  std::vector<size_t> next(plan.structure->lanes.size(), 0);
  for (bool some_ended = true; some_ended;) {
    some_ended = false;
    for (size_t lane = 0; lane < next.size(); ++lane) {
      const std::vector<int>& queue = plan.structure->lanes[lane].queue;
      for (; next[lane] < queue.size(); ++next[lane], some_ended = true) {
        const auto task = static_cast<size_t>(queue[next[lane]]);
        if (ended[task] || !std::ranges::all_of(plan.tasks()[task].after, has_ended)) break;
        ended[task] = true;
      }
    }
  }
  return static_cast<size_t>(std::ranges::count(ended, true));
}

TEST(Schedules, PlansRunToTheirEndOnEveryShape) {
  for_every_plan([](const Schedule&, const Plan& plan) { ASSERT_EQ(tasks_that_end(plan), plan.tasks().size()); });
}

// Counts, not trust in check_plan: each stage has r tasks a phase where its group has several ranks, else none.
TEST(Schedules, HaveTheTasksOfTheirDegrees) {
  for_every_plan([](const Schedule& schedule, const Plan& plan) {
    if (!in_chunks(schedule)) return;
    std::map<std::pair<Phase, TaskKind>, int> found;
    for (const Task& task : plan.tasks()) ++found[{task.phase, task.kind}];
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      const int r = phase == Phase::forward ? plan.degree_forward : plan.degree_backward;
      const auto expect = [&](TaskKind kind, int count) {
        ASSERT_EQ((found[{phase, kind}]), count) << name_of(phase) << " " << name_of(kind);
      };
      expect(TaskKind::dispatch, spans(plan, GroupKind::ep) ? r : 0);
      expect(TaskKind::combine, spans(plan, GroupKind::ep) ? r : 0);
      expect(TaskKind::allgather, spans(plan, GroupKind::esp) ? r : 0);
      expect(TaskKind::reducescatter, spans(plan, GroupKind::esp) ? r : 0);
      const bool halves = schedule.halves_backward && phase == Phase::backward;
      expect(TaskKind::expert, halves ? 0 : r);
      expect(TaskKind::expert_dx, halves ? r : 0);
      expect(TaskKind::expert_dw, halves ? r : 0);
      expect(TaskKind::mp_allgather, spans(plan, GroupKind::mp) ? 1 : 0);
      expect(TaskKind::mp_reducescatter, spans(plan, GroupKind::mp) ? 1 : 0);
      expect(TaskKind::attention, halves ? 0 : 1);
      expect(TaskKind::attention_dx, halves ? 1 : 0);
      expect(TaskKind::attention_dw, halves ? 1 : 0);
      const int ranks = plan.groups[GroupKind::cp].size, blocks = plan.shape.parallel.ring_blocks();
      const bool backward = phase == Phase::backward;
      expect(TaskKind::keys_values, ranks > 1 ? 1 : 0);
      expect(TaskKind::cp_allgather, ranks > 1 && blocks == 0 && !backward ? 1 : 0);
      expect(TaskKind::cp_reducescatter, ranks > 1 && blocks == 0 && backward ? 1 : 0);
      expect(TaskKind::heads, blocks);
      expect(TaskKind::cp_send, std::max(0, blocks - 1));
      expect(TaskKind::cp_gradient_send, backward ? blocks : 0);
      for (const TaskKind kind : {TaskKind::gate, TaskKind::order, TaskKind::i_order}) expect(kind, 1);
      const int shared = plan.shape.layer.shared_hidden > 0 ? 1 : 0;
      expect(TaskKind::shared, shared);
      for (const TaskKind kind : {TaskKind::shared_allgather, TaskKind::shared_reducescatter})
        expect(kind, spans(plan, GroupKind::mp) ? shared : 0);
      expect(TaskKind::shared_allreduce, 0);
      const auto experts = std::ranges::count_if(
          plan.slices, [&](const GradientSlice& slice) { return plan.gradients[slice.gradient].experts; });
      expect(TaskKind::gradient, phase == Phase::forward ? 0 : static_cast<int>(plan.slices.size() - experts));
      expect(TaskKind::expert_gradient, phase == Phase::forward ? 0 : static_cast<int>(experts));
    }
  });
}

// The orders of FSMoE's figure 3: of each lane's MoE tasks, in the words D G E S C and chunk numbers.
TEST(Schedules, KeepTheirLaneOrders) {
  for_every_plan([](const Schedule& schedule, const Plan& plan) {
    if (!in_chunks(schedule)) return;
    const Network ep = plan.groups[GroupKind::ep].network;
    const Network esp = plan.groups[GroupKind::esp].network;
    const bool one_lane =
        ep != Network::none && (schedule.lanes == LaneLayout::one_comm ? esp != Network::none : ep == esp);
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      const int r = phase == Phase::forward ? plan.degree_forward : plan.degree_backward;
      std::string together, alltoalls, gathers, experts;
      for (const Lane& lane : plan.structure->lanes)
        for (const int id : lane.queue) {
          const Task& task = plan.tasks()[id];
          const TaskKind kind = is_expert_stage(task.kind) ? TaskKind::expert : task.kind;
          if (task.phase != phase || !is_chunked(kind) || kind == TaskKind::expert_dw) continue;
          const std::string word = fmt::format("{}{} ", traits_of(kind).letter, task.chunk + 1);
          const bool alltoall = task.group == GroupKind::ep;
          (kind == TaskKind::expert ? experts : alltoall ? alltoalls : gathers) += word;
          if (kind != TaskKind::expert) together += word;
        }
      const auto row = [&](std::string_view letters) {
        std::string text;
        for (int c = 1; c <= r; ++c)
          for (const char letter : letters) text += fmt::format("{}{} ", letter, c);
        return text;
      };
      ASSERT_EQ(experts, row("E"));
      ASSERT_EQ(alltoalls, ep == Network::none ? "" : row("D") + row("C"));
      ASSERT_EQ(gathers, esp == Network::none ? "" : row("G") + row("S"));
      if (one_lane) {
        ASSERT_EQ(together, row("DG") + row("SC"));
      }
    }
  });
}

TEST(Schedules, SendEveryGradientByteOnceAndWhereTheyPromise) {
  for_every_plan([](const Schedule& schedule, const Plan& plan) {
    const bool sent = spans(plan, GroupKind::dp), replicas = schedule.packs_experts && spans(plan, GroupKind::edp);
    ASSERT_EQ(plan.gradients.size(), (sent ? 1u : 0u) + (replicas ? 1u : 0u));
    int64_t bytes = 0;
    double priced = 0;
    for (const GradientSlice& slice : plan.slices) {
      ASSERT_GT(slice.bytes(), 0);
      bytes += slice.bytes();
    }
    for (const Task& task : plan.tasks())
      if (sends_gradients(task.kind)) priced += plan.works[task.id].bytes;
    ASSERT_EQ(bytes, (sent ? gradient_bytes(plan.shape) : 0) + (replicas ? expert_gradient_bytes(plan.shape) : 0));
    ASSERT_EQ(priced, static_cast<double>(bytes));
    if (schedule.gradients != GradientPolicy::after || !sent) return;
    ASSERT_EQ(plan.tasks().back().kind, TaskKind::gradient);
    ASSERT_EQ(plan.tasks()[plan.tasks().size() - 2].id, plan.tasks().back().after.at(0)) << "not after everything";
  });
}

// Nothing runs beside anything, so that any two tasks are ordered.
TEST(Schedules, InSequenceIsOneChain) {
  for_every_plan([](const Schedule& schedule, const Plan& plan) {
    static const std::set<std::string_view> kChains{"ds-moe",      "ds-moe-replicated", "parm-s1",
                                                    "parm-s2-aas", "monta-baseline",    "monta-o1"};
    ASSERT_EQ(schedule.in_sequence, kChains.contains(schedule.name));
    if (!schedule.in_sequence || plan.shape.parallel.ring_blocks() > 0) return;  // sends of a ring are beside its heads
    for (size_t i = 1; i < plan.tasks().size(); ++i) {
      const Task& task = plan.tasks()[i];
      const int before = static_cast<int>(i) - 1;
      const bool same_lane = plan.tasks()[i - 1].lane == task.lane;
      ASSERT_TRUE(same_lane || std::ranges::find(task.after, before) != task.after.end()) << task.name();
    }
  });
}

TEST(Schedules, AreFoundByNameOrRefusedWithTheNames) {
  std::set<std::string_view> names;
  for (const Schedule& schedule : schedules()) {
    EXPECT_EQ(&find_schedule(schedule.name), &schedule);
    for (const Schedule* variant : schedule.variants) EXPECT_EQ(&find_schedule(variant->name), variant);
    EXPECT_EQ(schedule.moe_part == nullptr, !schedule.variants.empty()) << schedule.name;
    EXPECT_FALSE(schedule.summary.empty());
    EXPECT_TRUE(names.insert(schedule.name).second) << schedule.name << " stands twice in the registry";
  }
  try {
    find_schedule("fastmoe");
    FAIL() << "found a schedule that does not exist";
  } catch (const BadInput& error) {
    for (const std::string_view name : names)
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
  }
}

TEST(Schedules, RefuseDecisionsTheyDoNotHave) {
  const LayerCase shape = case_of({.nodes = 2, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2});
  const int64_t bytes = gradient_bytes(shape);
  const auto refused = [&](std::string_view schedule, Decision decision) {
    EXPECT_THROW(build_plan(find_schedule(schedule), shape, decision), BadInput)
        << schedule << " " << decision.degree_forward << " " << decision.degree_backward << " "
        << decision.gar_in_moe_bytes;
  };
  for (const Schedule& schedule : schedules()) {
    refused(schedule.name, {0, 1, 0});
    refused(schedule.name, {1, 0, 0});
    refused(schedule.name, {-1, -1, 0});
    refused(schedule.name, {1, 1, -4});
    refused(schedule.name, {1, 1, bytes + 4});
  }
  refused("ds-moe", {2, 2, 0});
  refused("ds-moe", {1, 1, 4});
  refused("tutel", {2, 3, 0});
  refused("tutel", {2, 2, 4});
  refused("tutel", {2, 2, 0, 4});
  refused("tutel-improved", {2, 3, 0});
  refused("tutel-improved", {2, 2, 4});
  refused("fsmoe", {2, 2, 0, 4});
  refused("fsmoe-no-partition", {2, 3, 4});
}

}  // namespace
}  // namespace moe
