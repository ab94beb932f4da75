// The hash that ranks compare: equal for equal plans, different after any one change.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>

#include "tests/plan/broken_plan.h"

namespace moe {
namespace {

using namespace broken_plan;

using Change = std::function<void(Plan&, Structure&)>;

std::vector<std::pair<std::string, Change>> task_changes(size_t id) {
  const auto with = [id](void (*change)(Task&)) -> Change { return [=](Plan&, Structure& s) { change(s.tasks[id]); }; };
  return {
      {"kind", with([](Task& t) { t.kind = t.kind == TaskKind::gate ? TaskKind::order : TaskKind::gate; })},
      {"phase", with([](Task& t) { t.phase = t.phase == kForward ? kBackward : kForward; })},
      {"micro-batch", with([](Task& t) { ++t.micro_batch; })},
      {"layer", with([](Task& t) { ++t.layer; })},
      {"chunk", with([](Task& t) { ++t.chunk; })},
      {"chunks", with([](Task& t) { ++t.chunks; })},
      {"lane", with([](Task& t) { t.lane += 7; })},
      {"group", with([](Task& t) { t.group = GroupKind::edp; })},
      {"slice", with([](Task& t) { t.slice += 5; })},
      {"after", with([](Task& t) { t.after.push_back(11); })},
      {"reads", with([](Task& t) { t.reads.push_back({}); })},
      {"writes", with([](Task& t) { t.writes.push_back({}); })},
  };
}

std::vector<std::pair<std::string, Change>> shape_changes() {
  const auto layer = [](auto LayerShape::*member, auto value) -> Change {
    return [=](Plan& p, Structure&) { p.shape.layer.*member = value; };
  };
  const auto parallel = [](int ParallelShape::*member) -> Change {
    return [=](Plan& p, Structure&) { p.shape.parallel.*member += 1; };
  };
  return {
      {"batch", layer(&LayerShape::batch, 3)},
      {"seq", layer(&LayerShape::seq, 65)},
      {"model_dim", layer(&LayerShape::model_dim, 36)},
      {"hidden", layer(&LayerShape::hidden, 66)},
      {"heads", layer(&LayerShape::heads, 2)},
      {"shared_hidden", layer(&LayerShape::shared_hidden, 64)},
      {"node_limit", layer(&LayerShape::node_limit, 64)},
      {"router_groups", layer(&LayerShape::router_groups, 4)},
      {"kv_heads", layer(&LayerShape::kv_heads, 2)},
      {"head_dim", layer(&LayerShape::head_dim, 5)},
      {"window", layer(&LayerShape::window, 7)},
      {"q_lora_rank", layer(&LayerShape::q_lora_rank, 7)},
      {"kv_lora_rank", layer(&LayerShape::kv_lora_rank, 7)},
      {"qk_nope_head_dim", layer(&LayerShape::qk_nope_head_dim, 7)},
      {"qk_rope_head_dim", layer(&LayerShape::qk_rope_head_dim, 7)},
      {"v_head_dim", layer(&LayerShape::v_head_dim, 7)},
      {"parts", layer(&LayerShape::parts, 2)},
      {"first_stage_layers", layer(&LayerShape::first_stage_layers, 2)},
      {"last_stage_layers", layer(&LayerShape::last_stage_layers, 2)},
      {"rope_theta", layer(&LayerShape::rope_theta, 1e4)},
      {"causal", layer(&LayerShape::causal, false)},
      {"bias", layer(&LayerShape::bias, true)},
      {"experts", layer(&LayerShape::experts, 4)},
      {"top_k", layer(&LayerShape::top_k, 2)},
      {"f", layer(&LayerShape::capacity_factor, 1.25)},
      {"no f", layer(&LayerShape::capacity_factor, std::optional<double>())},
      {"ffn", layer(&LayerShape::ffn, Ffn::mixtral)},
      {"dtype", layer(&LayerShape::dtype, DType::float64)},
      {"gate", layer(&LayerShape::gate, std::string("switch"))},
      {"order", layer(&LayerShape::order, std::string("gshard"))},
      {"dispatcher", layer(&LayerShape::dispatcher, std::string("2dh"))},
      {"hook", layer(&LayerShape::hook, std::string("bf16"))},
      {"rounding", [](Plan& p, Structure&) { p.shape.rounding = Rounding::exact; }},
      {"nodes", parallel(&ParallelShape::nodes)},
      {"ranks_per_node", parallel(&ParallelShape::ranks_per_node)},
      {"dp", parallel(&ParallelShape::dp)},
      {"mp", parallel(&ParallelShape::mp)},
      {"ep", parallel(&ParallelShape::ep)},
      {"esp", parallel(&ParallelShape::esp)},
      {"pp", parallel(&ParallelShape::pp)},
      {"edp", parallel(&ParallelShape::edp)},
      {"cp", parallel(&ParallelShape::cp)},
      {"ring",
       [](Plan& p, Structure&) {
         ++p.shape.parallel.cp;
         p.shape.parallel.cp_exchange = CpExchange::ring;
       }},
  };
}

std::vector<std::pair<std::string, Change>> plan_changes() {
  return {
      {"schedule", [](Plan& p, Structure&) { p.schedule = "tutel"; }},
      {"rows", [](Plan& p, Structure&) { ++p.rows; }},
      {"gradient bytes", [](Plan& p, Structure&) { ++p.gradients[0].bytes; }},
      {"gradient layer", [](Plan& p, Structure&) { ++p.gradients[0].layer; }},
      {"gradient maker", [](Plan& p, Structure&) { ++p.gradients[0].made_by; }},
      {"gradient of experts", [](Plan& p, Structure&) { p.gradients[0].experts = true; }},
      {"gradients", [](Plan& p, Structure&) { p.gradients.push_back({}); }},
      {"slice begin", [](Plan& p, Structure&) { p.slices[1].begin += 4; }},
      {"slice end", [](Plan& p, Structure&) { p.slices[1].end += 4; }},
      {"slice gradient", [](Plan& p, Structure&) { p.slices[0].gradient = 1; }},
      {"slices", [](Plan& p, Structure&) { p.slices.push_back({}); }},
      {"lane kind", [](Plan&, Structure& s) { s.lanes[1].kind = LaneKind::comm; }},
      {"lane stage", [](Plan&, Structure& s) { s.lanes[1].stage = 1; }},
      {"lane owns inter", [](Plan&, Structure& s) { s.lanes[1].owns_inter = false; }},
      {"lane owns intra", [](Plan&, Structure& s) { s.lanes[1].owns_intra = true; }},
      {"queue order", [](Plan&, Structure& s) { std::swap(s.lanes[1].queue[0], s.lanes[1].queue[1]); }},
      {"empty lane", [](Plan&, Structure& s) { s.lanes.push_back({}); }},
      {"queue end moved to the next lane",
       [](Plan&, Structure& s) {
         s.lanes[2].queue.insert(s.lanes[2].queue.begin(), s.lanes[1].queue.back());
         s.lanes[1].queue.pop_back();
       }},
      {"task gone", [](Plan&, Structure& s) { s.tasks.pop_back(); }},
      {"access chunk", [](Plan&, Structure& s) { ++s.tasks[7].reads[0].chunk; }},
      {"access chunks", [](Plan&, Structure& s) { ++s.tasks[7].reads[0].chunks; }},
      {"access buffer", [](Plan&, Structure& s) { s.tasks[7].reads[0].buffer = Buffer::gradient; }},
      {"access phase", [](Plan&, Structure& s) { s.tasks[7].reads[0].phase = kBackward; }},
      {"access layer", [](Plan&, Structure& s) { ++s.tasks[7].reads[0].layer; }},
  };
}

TEST(PlanHash, EqualPlansAreEqual) {
  EXPECT_EQ(good_plan().hash(), good_plan().hash());
  EXPECT_EQ(good_plan("tutel", {2, 2, 0}).hash(), good_plan("tutel", {2, 2, 0}).hash());
}

TEST(PlanHash, AnyChangeDiffersFromAllOthers) {
  const Plan good = good_plan();
  auto changes = shape_changes();
  for (auto& change : plan_changes()) changes.push_back(std::move(change));
  for (size_t id = 0; id < good.tasks().size(); ++id)
    for (auto& [name, change] : task_changes(id)) changes.emplace_back(name + " of task " + std::to_string(id), change);
  std::map<uint64_t, std::string> seen{{good.hash(), "no change"}};
  for (const auto& [name, change] : changes) {
    Plan plan = good;
    Structure structure = *good.structure;
    change(plan, structure);
    plan.structure = std::make_shared<const Structure>(std::move(structure));
    const auto [other, fresh] = seen.emplace(plan.hash(), name);
    EXPECT_TRUE(fresh) << name << " hashes as " << other->second;
  }
  EXPECT_GT(seen.size(), 300u);
}

TEST(PlanHash, DecisionsDiffer) {
  std::map<uint64_t, std::string> seen;
  int plans = 0;
  for (const Schedule& schedule : schedules())
    for (int forward = 1; forward <= 3; ++forward)
      for (int backward = 1; backward <= 3; ++backward)
        for (const int64_t first : {0, 4, 8192}) {
          if (schedule.degrees == DegreePolicy::one && forward * backward > 1) continue;
          const bool apart = schedule.degrees == DegreePolicy::apart,
                     adaptive = schedule.gradients == GradientPolicy::adaptive;
          if (!schedule.variants.empty()) continue;
          if (!apart && forward != backward) continue;
          if (!adaptive && schedule.gradients != GradientPolicy::beside_dense && first > 0) continue;
          const std::string name = fmt::format("{} {} {} {}", schedule.name, forward, backward, first);
          const Decision decision = with_split(schedule, forward, backward, first);
          const auto [other, fresh] = seen.emplace(good_plan(schedule.name, decision).hash(), name);
          EXPECT_TRUE(fresh) << name << " hashes as " << other->second;
          ++plans;
        }
  EXPECT_GT(plans, 100);
}

}  // namespace
}  // namespace moe
