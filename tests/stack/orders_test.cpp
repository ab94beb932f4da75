// A plan says all that its tasks wait for: in any order that its dependencies allow, whatever its tasks' delays, a
// stack ends, and computes the same.
#include <algorithm>
#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <thread>

#include "moe/base/random.h"
#include "moe/schedule/model_plan.h"
#include "moe/stack/stack_errors.h"
#include "tests/properties/any_model.h"
#include "tests/schedule/any_decision.h"
#include "tests/stack/local_stacks.h"

namespace moe {
namespace {

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  size_t below(size_t n) { return random_bits(seed_, 5, next_++) % n; }

 private:
  uint64_t seed_, next_ = 0;
};

// The plan with its tasks in another order that their dependencies allow.
Plan reordered(const Plan& plan, Draws& draws) {
  const std::vector<Task>& tasks = plan.tasks();
  std::vector<std::vector<int>> followers(tasks.size());
  std::vector<size_t> waits(tasks.size());
  std::vector<int> ready, place(tasks.size());
  for (const Task& task : tasks) {
    waits[task.id] = task.after.size();
    for (const int before : task.after) followers[before].push_back(task.id);
    if (task.after.empty()) ready.push_back(task.id);
  }
  Structure structure = *plan.structure;
  structure.tasks.clear();
  for (Lane& lane : structure.lanes) lane.queue.clear();
  while (!ready.empty()) {
    const auto drawn = ready.begin() + static_cast<std::ptrdiff_t>(draws.below(ready.size()));
    Task task = tasks[*drawn];
    ready.erase(drawn);
    for (const int follower : followers[task.id])
      if (--waits[follower] == 0) ready.push_back(follower);
    const int id = static_cast<int>(structure.tasks.size());
    place[task.id] = id;
    task.id = id;
    for (int& before : task.after) before = place[before];
    std::ranges::sort(task.after);
    structure.lanes[task.lane].queue.push_back(id);
    structure.tasks.push_back(std::move(task));
  }
  Plan other = plan;
  for (Gradient& gradient : other.gradients)
    if (gradient.made_by >= 0) gradient.made_by = place[gradient.made_by];
  other.structure = std::make_shared<const Structure>(std::move(structure));
  set_works(other);
  return other;
}

Plan drawn_plan(uint64_t seed) {
  Draws draws(seed);
  ModelShape model;
  LayerShape layer{.batch = 2, .seq = 8, .model_dim = 16, .hidden = 12, .heads = 8, .experts = 4, .top_k = 2};
  layer.capacity_factor = 1.2;
  layer.dtype = DType::float64;
  if (draws.below(4) == 0) layer.capacity_factor.reset();
  if (draws.below(4) == 0) layer.aux_loss = 0.1;
  if (draws.below(2) == 0) layer.norm = draws.below(3) == 0 ? Norm::post_layernorm : Norm::rmsnorm;
  if (draws.below(4) == 0 && !is_post_norm(layer.norm)) layer.shared_hidden = 8;
  if (draws.below(6) == 0) layer.order = "gshard";
  ParallelShape parallel{.nodes = 2, .ranks_per_node = 2, .mp = draws.below(2) == 0 ? 1 : 2, .ep = 2, .esp = 2};
  parallel.pp = 1 + static_cast<int>(draws.below(2));
  if (parallel.pp == 1 && draws.below(2) == 0) parallel.esp = 1, parallel.edp = 0;
  parallel.nodes *= parallel.pp;
  if (draws.below(3) == 0) parallel.recompute = Recompute::full;
  model.shape = complete(layer, parallel, Rounding::ragged);
  model.layers = parallel.pp * (1 + static_cast<int>(draws.below(2)));
  const bool interleaves = parallel.pp == 2 && seed % 3 == 0;
  if (interleaves) model.virtual_stages = 2, model.layers = 4;
  if (model.layers > 1 && !is_post_norm(layer.norm) && draws.below(3) == 0)
    model.dense = DenseLayers{{{true}}, 16}.first(model.layers);
  model.micro_batches = 1 + static_cast<int>(draws.below(3));
  model.order = draws.below(2) == 0 ? PipelineOrder::gpipe : PipelineOrder::one_f_one_b;
  if (interleaves) model.micro_batches = 2, model.order = PipelineOrder::one_f_one_b;
  model.step.planned = true;
  const auto fitting = any_decision::fitting(model.shape);
  const auto halves = std::ranges::find_if(fitting, &Schedule::halves_backward);
  const bool halved = halves != fitting.end() && draws.below(4) == 0;
  const Schedule& schedule = halved ? **halves : *fitting[draws.below(fitting.size())];
  return build_model_plan(schedule, model, any_model::any_model_decision(schedule, model, seed));
}

// Delays tasks at random.
class Delayed : public Binding {
 public:
  Delayed(Binding& inner, uint64_t seed) : inner_(inner), draws_(seed) {}
  void issue(const Task& task, Stream& stream, Pace pace) override {
    if (draws_.below(4) == 0)
      stream.launch([us = draws_.below(300)](void*) { std::this_thread::sleep_for(std::chrono::microseconds(us)); });
    inner_.issue(task, stream, pace);
  }
  void finish_task(const Task& task, Stream& stream) override { inner_.finish_task(task, stream); }

 private:
  Binding& inner_;
  Draws draws_;
};

struct Results {
  std::vector<std::vector<double>> flowing, gradients;  // [rank, cell, tensor]
};

// Of cells that share memory only what belongs to them alone flows on.
Results results_of(const LocalStacks& stacks, bool shared = false) {
  Results results;
  const auto copy = [](TensorView t) { return std::vector<double>(t.as<double>(), t.as<double>() + t.elements()); };
  for (const RankCells& rank : stacks.cells())
    for (const auto& layer : rank.layers) {
      for (const MoeLayer* cell : layer) {
        if (!shared || cell->ends()) results.flowing.push_back(copy(cell->output()));
        if (!shared || cell->begins()) results.flowing.push_back(copy(cell->input_gradient()));
      }
      for (const Parameter& p : layer.front()->parameters()) results.gradients.push_back(copy(p.gradient));
    }
  return results;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    if (!(d <= worst)) worst = d;
    largest = std::max(largest, std::abs(b[i]));
  }
  return worst / std::max(largest, 1e-3);
}

TEST(Orders, AnyThatThePlanAllowsComputesTheSame) {
  int moved = 0, halved = 0, interleaved = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Plan plain = drawn_plan(seed);
    SCOPED_TRACE(fmt::format("{}: {} layers, {} micro-batches, {} stages, {}", plain.schedule, plain.layers,
                             plain.micro_batches, plain.shape.parallel.pp, seed));
    Draws draws(1000 + seed);
    const Plan other = reordered(plain, draws);
    try {
      check_plan(other);
    } catch (const WrongResult& error) {
      continue;
    }
    ++moved;
    interleaved += plain.virtual_stages > 1;
    halved += std::ranges::count(other.tasks(), TaskKind::attention_dw, &Task::kind) > 0;
    StackShape apart = stack_shape(plain);
    apart.slots = {};
    LocalStacks stacks(apart, {.seed = seed});
    stacks.run(plain);
    const Results expected = results_of(stacks), at_ends = results_of(stacks, true);
    stacks.poison();
    const auto delayed = [&](Binding& binding, int rank) {
      return std::make_unique<Delayed>(binding, 7 * seed + static_cast<uint64_t>(rank));
    };
    stacks.run(other, 1, delayed);
    const auto expect_same = [](const Results& found, const Results& same) {
      EXPECT_EQ(found.flowing, same.flowing);  // no sum over several tasks
      for (size_t i = 0; i < found.gradients.size(); ++i)
        EXPECT_LE(difference(found.gradients[i], same.gradients[i]), 1e-12) << "gradient " << i;
    };
    expect_same(results_of(stacks), expected);
    LocalStacks launches_alternate(stack_shape(other), {.seed = seed});
    launches_alternate.run(other, 1, delayed);
    expect_same(results_of(launches_alternate, true), at_ends);
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GE(moved, 150);
  EXPECT_GE(interleaved, 15);
  EXPECT_GE(halved, 30) << "gradients of experts' weights, anywhere behind those of their inputs";
}

// What check_plan says of the first refused one among random orders of a plan that lacks some dependencies of a kind.
std::string refusal_without(TaskKind kind, const std::function<bool(const Plan&, const Task& before)>& lacks,
                            int stages = 2) {
  LayerShape layer{.batch = 2, .seq = 8, .model_dim = 16, .hidden = 12, .heads = 8, .experts = 4, .top_k = 2};
  const ParallelShape parallel{.nodes = 4, .ranks_per_node = 2, .mp = 1, .ep = 2, .esp = 2, .pp = stages};
  ModelShape model{complete(layer, parallel, Rounding::ragged), 2, 3, PipelineOrder::one_f_one_b};
  model.step.planned = true;
  ModelDecision decision;
  decision.backwards.resize(model.layers / stages);
  const Plan plan = build_model_plan(find_schedule("tutel"), model, decision);
  Structure structure = *plan.structure;
  for (Task& task : structure.tasks)
    if (task.kind == kind) std::erase_if(task.after, [&](int id) { return lacks(plan, plan.tasks()[id]); });
  Plan lacking = plan;
  lacking.structure = std::make_shared<const Structure>(std::move(structure));
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Draws draws(seed);
    try {
      check_plan(reordered(lacking, draws));
    } catch (const WrongResult& error) {
      return error.what();
    }
  }
  return "";
}

TEST(Orders, AnIllegalOneIsRefusedByName) {
  const auto is = [](TaskKind kind) { return [kind](const Plan&, const Task& before) { return before.kind == kind; }; };
  const auto made_none = [](const Plan& plan, const Task& before) {
    return std::ranges::find(plan.gradients, before.id, &Gradient::made_by) == plan.gradients.end();
  };
  const std::string early = refusal_without(TaskKind::gradient, made_none, 1);
  EXPECT_NE(early.find("gradient slice"), std::string::npos) << early;
  EXPECT_NE(early.find("added to them"), std::string::npos) << early;
  const std::string crossed =
      refusal_without(TaskKind::recv, [](const Plan&, const Task& before) { return before.kind != TaskKind::send; });
  EXPECT_NE(crossed.find("recv"), std::string::npos) << crossed;
  EXPECT_NE(crossed.find("is sent before it"), std::string::npos) << crossed;
  const std::string unmade = refusal_without(TaskKind::gradient, [](const Plan&, const Task&) { return true; });
  EXPECT_NE(unmade.find("made them"), std::string::npos) << unmade;
  const std::string unordered = refusal_without(TaskKind::i_order, is(TaskKind::combine));
  EXPECT_NE(unordered.find("i_order"), std::string::npos) << unordered;
  EXPECT_NE(unordered.find("wrote it"), std::string::npos) << unordered;
}

}  // namespace
}  // namespace moe
