// Orders of whole iterations: random layers and models against rules written by hand, planted faults, replays computed
// twice, and the best of all other schedules.
#include "moe/search/wave.h"

#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <memory>
#include <string_view>

#include "moe/base/random.h"
#include "moe/search/model_search.h"
#include "moe/simulator/fluid_replay.h"
#include "tests/prices/random_layer.h"
#include "tests/properties/any_model.h"
#include "tests/search/wave_rules.h"

namespace moe {
namespace {

using wave_rules::faults_of;

long cases = 40;

struct Draws {
  uint64_t seed, index = 0;
  int below(int n) { return static_cast<int>(random_bits(seed, 177, index++) % static_cast<uint64_t>(n)); }
  double uniform() { return random_uniform(seed, 178, index++); }
};

// In every fifth a norm stands behind the MoE part, and its gradients are summed there.
random_layer::RandomLayer drawn_layer(uint64_t seed, bool contends) {
  random_layer::RandomLayer layer = random_layer::random_layer(seed, seed % 4 >= 2);
  if (contends) layer = random_layer::contended(std::move(layer), seed);
  if (seed % 5 == 0) layer.shape.layer.norm = Norm::post_layernorm;
  return layer;
}

struct Drawn {
  explicit Drawn(uint64_t seed, bool contends = false, bool cuts = false)
      : draws{seed},
        layer(drawn_layer(seed, contends)),
        model{layer.shape, 1 + draws.below(4), 1 + draws.below(4)},
        pricer(layer.profile, cut(with_stages(seed % 3 == 0), cuts)) {
    if (model.micro_batches > 1) model.order = PipelineOrder::one_f_one_b;
    keep = min_kept_layers(model, IterationOrder::any) + draws.below(model.layers + 1);
    const int most = std::min(kMaxWaveDegree, largest_degree(pricer));
    for (int* degree : {&degrees.first_forward, &degrees.forward, &degrees.backward, &degrees.last_backward})
      *degree = 1 + draws.below(most);
  }

  // Makes it two or three stages of the same ranks each, if asked, some with several chunks of layers.
  const LayerCase& with_stages(bool several) {
    if (!several) return layer.shape;
    ParallelShape parallel = layer.shape.parallel;
    parallel.pp = 2 + draws.below(2);
    parallel.nodes *= parallel.pp;
    parallel.dp = parallel.edp = 0;
    layer.shape = complete(layer.shape.layer, parallel, layer.shape.rounding);
    model.shape = layer.shape;
    model.layers += parallel.pp - 1;
    if (draws.below(2) == 0) {
      model.virtual_stages = 2;
      model.layers = 2 * parallel.pp * (1 + draws.below(2));
      model.micro_batches = parallel.pp * (1 + draws.below(2));
    }
    layer.profile.nodes = parallel.nodes;
    for (const Network network : {Network::intra, Network::inter}) {
      CommRow& row = layer.profile.comm.emplace_back();
      row.op = Op::sendrecv;
      row.network = network;
      row.ranks = 2;
      row.alpha_s = 1e-5;
      row.beta_s_per_byte = 1e-9 * std::pow(10.0, 3 * draws.uniform());
    }
    return layer.shape;
  }

  // Cuts samples into 2 to 4 parts, if asked and if that can be.
  const LayerCase& cut(const LayerCase& whole, bool cuts) {
    if (!cuts || model.virtual_stages > 1) return whole;
    LayerShape matching_parts = whole.layer;
    for (matching_parts.parts = 2 + draws.below(3); matching_parts.parts > 1; --matching_parts.parts) {
      try {
        layer.shape = complete(matching_parts, whole.parallel, whole.rounding);
      } catch (const BadInput&) {
        continue;
      }
      model.shape = layer.shape;
      model.micro_batches *= static_cast<int>(matching_parts.parts);
      model.order = PipelineOrder::one_f_one_b;
      break;
    }
    return layer.shape;
  }

  Draws draws;
  random_layer::RandomLayer layer;
  ModelShape model;
  LayerPricer pricer;
  int keep = 1;
  WaveDegrees degrees;
};

// Tasks that take other times than the order was made for: what is ordered by chance alone comes out of order.
std::vector<double> any_seconds(const Plan& plan, Draws& draws) {
  std::vector<double> seconds;
  for (size_t i = 0; i < plan.tasks().size(); ++i) seconds.push_back(std::pow(10.0, 4 * draws.uniform()));
  return seconds;
}

TEST(Wave, KeepsEveryRuleHoweverLongTasksTake) {
  int tasks = 0, cut = 0;
  for (long seed = 1; seed <= cases; ++seed) {
    Drawn drawn(static_cast<uint64_t>(seed), false, seed % 2 == 0);
    cut += drawn.model.shape.layer.parts > 1 ? 1 : 0;
    const Plan plan = wave_plan(drawn.pricer, drawn.model, drawn.keep, drawn.degrees);
    ASSERT_NO_THROW(check_plan(plan)) << drawn.layer.text;
    const std::vector<double> priced = price(drawn.pricer, plan);
    ASSERT_EQ(faults_of(plan, drawn.keep, priced), std::vector<std::string>()) << drawn.layer.text;
    for (int i = 0; i < 3; ++i)
      ASSERT_EQ(faults_of(plan, drawn.keep, any_seconds(plan, drawn.draws)), std::vector<std::string>())
          << drawn.layer.text;
    const double recomputed = wave_rules::times_of(plan, priced).makespan_s();
    ASSERT_NEAR(timeline_of(plan, priced, {}).makespan_s / recomputed, 1, 1e-12) << drawn.layer.text;
    tasks += static_cast<int>(std::ssize(plan.tasks()));
  }
  fmt::print("{} tasks, samples in parts in {} of {} models\n", tasks, cut, cases);
  EXPECT_GT(cut, cases / 10);
}

// Returns the plan without the dependency of one task on another.
Plan without(const Plan& plan, const wave_rules::Rule& rule) {
  Plan faulty = plan;
  auto structure = std::make_shared<Structure>(*plan.structure);
  std::erase(structure->tasks[rule.then].after, rule.before);
  faulty.structure = std::move(structure);
  return faulty;
}

// `slow`: a task that takes longer than all others together; -1: none.
bool is_found(const Plan& plan, int keep, int slow, Draws& draws) {
  for (int i = 0; i < 10; ++i) {
    std::vector<double> seconds = any_seconds(plan, draws);
    if (slow >= 0) seconds[slow] = 1e9;
    if (!faults_of(plan, keep, seconds).empty()) return true;
  }
  return false;
}

// Returns whether the plan orders the rule's tasks otherwise: over other tasks, or on a lane.
bool is_still_ordered(const Plan& plan, const wave_rules::Rule& rule) {
  std::vector<bool> behind(plan.tasks().size());
  behind[rule.before] = true;
  std::vector<bool> lane_behind(plan.structure->lanes.size());
  for (const Task& task : plan.tasks()) {
    bool is = task.id == rule.before || lane_behind[task.lane];
    for (const int id : task.after) is = is || behind[id];
    behind[task.id] = is;
    lane_behind[task.lane] = is;
  }
  return behind[rule.then];
}

TEST(Wave, PlantedFaultsAreFound) {
  int planted = 0, found = 0;
  for (long seed = 1; seed <= cases / 2; ++seed) {
    Drawn drawn(static_cast<uint64_t>(seed), false, seed % 2 == 0);
    const Plan plan = wave_plan(drawn.pricer, drawn.model, drawn.keep, drawn.degrees);
    const auto plant = [&](const Plan& faulty, int slow = -1) {
      ++planted;
      found += is_found(faulty, drawn.keep, slow, drawn.draws) ? 1 : 0;
    };
    std::vector<std::string> none;
    const std::vector<wave_rules::Rule> rules = wave_rules::rules_of(plan, drawn.keep, none);
    for (int i = 0; i < 8; ++i) {  // a dependency is missing
      const wave_rules::Rule& rule = rules[drawn.draws.below(static_cast<int>(rules.size()))];
      const Plan faulty = without(plan, rule);
      if (!is_still_ordered(faulty, rule)) plant(faulty, rule.before);
    }
    Plan faulty = plan;  // a task is there twice, another never
    auto structure = std::make_shared<Structure>(*plan.structure);
    for (Task& task : structure->tasks)
      if (task.kind == TaskKind::expert_dw && task.chunks > 1 && task.chunk > 0) {
        task.chunk = 0;
        faulty.structure = structure;
        plant(faulty);
        break;
      }
    if (plan.slices.empty()) continue;
    faulty = plan;  // bytes are sent twice, or never
    faulty.slices.back().begin += drawn.draws.below(2) == 0 ? 4 : -4;
    plant(faulty);
    faulty = plan;  // a slice is sent twice, another never
    structure = std::make_shared<Structure>(*plan.structure);
    for (Task& task : structure->tasks)
      if (sends_gradients(task.kind)) task.slice = 0;
    faulty.structure = structure;
    if (plan.slices.size() > 1) plant(faulty);
    faulty = plan;  // a slice goes before anything is made
    structure = std::make_shared<Structure>(*plan.structure);
    for (Lane& lane : structure->lanes) {
      const auto slice =
          std::ranges::find_if(lane.queue, [&](int id) { return sends_gradients(plan.tasks()[id].kind); });
      if (slice == lane.queue.end()) continue;
      std::rotate(lane.queue.begin(), slice, slice + 1);
      structure->tasks[lane.queue.front()].after.clear();
    }
    faulty.structure = structure;
    plant(faulty);
  }
  fmt::print("{} of {} faults found\n", found, planted);
  EXPECT_EQ(found, planted);
  EXPECT_GT(planted, cases);
}

// The best of all other schedules is known to the search. Contention counts in every second case.
TEST(Wave, IsNeverSlowerThanTheBestOther) {
  ModelSearch search(false);
  double sum = 0, most = 0;
  int models = 0, faster = 0;
  for (long seed = 1; seed <= cases; ++seed) {
    Drawn drawn(static_cast<uint64_t>(seed), seed % 2 == 0);
    WaveResult known{{}, std::numeric_limits<double>::infinity(), {}};
    for (const char* name : {"fsmoe", "fsmoe-dw", "pipemoe+lina", "tutel-improved"}) {
      const ModelResult found = search.tune(find_schedule(name), drawn.pricer, drawn.model);
      if (found.total_s() < known.seconds) known = {found.plan, found.total_s(), {}};
    }
    const WaveResult best = search_wave(drawn.pricer, drawn.model, {drawn.keep, true}, known);
    ASSERT_LE(best.seconds, known.seconds) << drawn.layer.text;
    const LayerPricer own(drawn.layer.profile, best.plan.shape);
    const Contention& contention = drawn.layer.profile.contention;
    ASSERT_NEAR(timeline_of(best.plan, price(own, best.plan), contention).makespan_s / best.seconds, 1, 1e-12);
    if (best.degrees) {
      ASSERT_GE(best.seconds, wave_bound(drawn.pricer, drawn.model, {drawn.keep, true}) * (1 - 1e-9))
          << drawn.layer.text;
      const std::vector<double> seconds = price(own, best.plan);
      ASSERT_EQ(faults_of(best.plan, drawn.keep * best.plan.micro_batches / drawn.model.micro_batches, seconds),
                std::vector<std::string>())
          << drawn.layer.text;
    }
    const double gain = known.seconds / best.seconds;
    sum += std::log(gain);
    most = std::max(most, gain);
    faster += best.degrees ? 1 : 0;
    ++models;
  }
  fmt::print("{} models: faster in {}, {:.3f} in the mean, {:.3f} at most\n", models, faster, std::exp(sum / models),
             most);
  EXPECT_GT(faster, models / 4);
}

// As a schedule of models: with one micro-batch or several, in either order; some with degrees that are asked for.
TEST(Wave, IsTunedAsASchedule) {
  ModelSearch search;
  const Schedule& wave = find_schedule("wave");
  int faster = 0;
  for (long seed = 1; seed <= cases; ++seed) {
    Drawn drawn(static_cast<uint64_t>(seed), seed % 3 == 0);
    SCOPED_TRACE(drawn.layer.text);
    if (seed % 4 == 0 && drawn.model.virtual_stages == 1) drawn.model.order = PipelineOrder::gpipe;
    DegreeChoice choice;
    if (seed % 2 == 0 && largest_degree(drawn.pricer) > 1) choice.forward = 1, choice.backward = 2;
    const auto tuned = [&](const Schedule& schedule) {
      return search.tune(schedule, drawn.pricer, drawn.model, choice);
    };
    const ModelResult found = tuned(wave), plain = tuned(find_schedule("fsmoe-dw"));
    ASSERT_EQ(found.schedule, "wave");
    ASSERT_EQ(found.plan.schedule, "wave");
    ASSERT_NO_THROW(check_plan(found.plan));
    ASSERT_LE(found.total_s(), plain.total_s() * (1 + 1e-9));
    ASSERT_GE(found.total_s(), found.bound_s * (1 - 1e-9));
    ASSERT_GT(found.last_forward_s, 0);
    ASSERT_LT(found.last_forward_s, found.total_s());
    faster += found.total_s() < plain.total_s() * (1 - 1e-9);
    if (found.variant != nullptr) continue;
    const LayerPricer own(drawn.layer.profile, found.plan.shape);
    const std::vector<double> seconds = price(own, found.plan);
    const int keep = default_kept_layers(drawn.model, wave.iteration);
    ASSERT_EQ(faults_of(found.plan, keep, seconds), std::vector<std::string>());
    if (drawn.layer.profile.contention.none()) {
      const double recomputed = wave_rules::times_of(found.plan, seconds).makespan_s();
      ASSERT_NEAR(found.total_s() / recomputed, 1, 1e-12);
    }
    for (const Task& task : found.plan.tasks()) {
      if (choice.forward == 0 || !is_expert(task.kind)) continue;
      ASSERT_EQ(task.chunks, task.phase == Phase::forward ? 1 : 2) << task.name();
    }
  }
  fmt::print("{} models: faster than fsmoe-dw in {}\n", cases, faster);
  EXPECT_GT(faster, cases / 4);
}

// Returns what a rank needs for a plan.
double bytes_of(const ModelResult& result) { return estimate_memory(memory_request(result.plan)).total(); }

// Of all schedules whose plans fit a rank's memory none is faster, and where one fits, so does this. Contention counts
// in every second case.
TEST(Wave, IsNeverSlowerThanAnyThatFits) {
  ModelSearch search(false);
  int as_others = 0, limited = 0, kept_less = 0;
  for (long seed = 1; seed <= cases; ++seed) {
    Drawn drawn(static_cast<uint64_t>(seed), seed % 2 == 0);
    SCOPED_TRACE(drawn.layer.text);
    const auto tuned = [&](const Schedule& schedule, std::optional<double> capacity,
                           std::map<const Schedule*, double> known_s = {}) {
      return search.tune(schedule, drawn.pricer, drawn.model,
                         within_memory({.known_s = std::move(known_s)}, capacity, drawn.model));
    };
    const Schedule& wave = find_schedule("wave");
    const ModelResult free = tuned(wave, {});
    const double least = estimate_memory(memory_request(drawn.model, drawn.model.shape, Flow::sharded)).total();
    const double capacity = least + (bytes_of(free) - least) * (1.5 * drawn.draws.uniform() - 0.25);
    const ModelResult found = tuned(wave, capacity);
    const bool fits = bytes_of(found) <= capacity;
    std::map<const Schedule*, double> known_s;
    for (const Schedule& schedule : all_schedules()) try {
        const ModelResult other = tuned(schedule, capacity);
        ASSERT_GE(other.total_s(), other.bound_s * (1 - 1e-9)) << schedule.name;
        if (&schedule == &wave) continue;
        ASSERT_LE(free.total_s(), other.total_s() * (1 + 1e-9)) << schedule.name;
        if (bytes_of(other) > capacity) continue;
        known_s[&schedule] = other.total_s();
        ASSERT_TRUE(fits) << schedule.name;
        ASSERT_LE(found.total_s(), other.total_s() * (1 + 1e-9)) << schedule.name;
      } catch (const BadInput&) {  // it does not run the model
      }
    const ModelResult beside = tuned(wave, capacity, known_s);
    ASSERT_EQ(beside.total_s(), found.total_s()) << "what is known of others changes no plan";
    ASSERT_EQ(beside.variant, found.variant);
    as_others += found.variant != nullptr;
    limited += bytes_of(free) > capacity;
    kept_less += fits && found.variant == nullptr && bytes_of(found) < bytes_of(free);
  }
  fmt::print("{} models: {} under another's plan, {} with less memory than is best, {} of these in an own order\n",
             cases, as_others, limited, kept_less);
  EXPECT_GT(limited, cases / 4);
  EXPECT_GT(kept_less, 0);
}

// Others' orders: passes meet within turns alone, however long tasks take, and every other rule holds too.
TEST(Wave, TurnsFollowEachOther) {
  ModelSearch search;
  std::map<std::string_view, int> met;  // plans in which passes run at once
  for (long seed = 1; seed <= cases; ++seed) {
    Drawn drawn(static_cast<uint64_t>(seed), seed % 3 == 0);
    SCOPED_TRACE(drawn.layer.text);
    for (const Schedule& schedule : iteration_schedules()) {
      if (drawn.model.shape.parallel.pp > 1 && schedule.iteration != IterationOrder::any) continue;
      const ModelResult found = search.tune(schedule, drawn.pricer, drawn.model);
      ASSERT_EQ(found.plan.schedule, schedule.name);
      ASSERT_NO_THROW(check_plan(found.plan));
      ASSERT_GE(found.total_s(), found.bound_s * (1 - 1e-9));
      if (found.variant != nullptr) continue;  // `wave` with another's plan
      const LayerPricer own(drawn.layer.profile, found.plan.shape);
      const std::vector<double> priced = price(own, found.plan);
      const int keep = default_kept_layers(drawn.model, schedule.iteration);
      for (int i = 0; i < 3; ++i) {
        const std::vector<double> seconds = i == 0 ? priced : any_seconds(found.plan, drawn.draws);
        ASSERT_EQ(faults_of(found.plan, keep, seconds), std::vector<std::string>()) << schedule.name;
        const wave_rules::Times times = wave_rules::times_of(found.plan, seconds);
        ASSERT_EQ(wave_rules::meetings(found.plan, schedule.iteration, times), std::vector<std::string>())
            << schedule.name;
        if (i == 0) met[schedule.name] += !wave_rules::meetings(found.plan, IterationOrder::in_turn, times).empty();
      }
      if (drawn.layer.profile.contention.none()) {
        const double recomputed = wave_rules::times_of(found.plan, priced).makespan_s();
        ASSERT_NEAR(found.total_s() / recomputed, 1, 1e-12) << schedule.name;
      }
    }
  }
  EXPECT_EQ(met["chunked-ep"], 0);
  for (const char* name : {"wave", "pair-1f1b", "flowmoe", "lancet"}) EXPECT_GT(met[name], cases / 4) << name;
}

// A plan without one dependency between turns lets passes meet.
TEST(Wave, PlantedMeetingsAreFound) {
  int planted = 0, found = 0;
  for (long seed = 1; seed <= cases; ++seed) {
    Drawn drawn(static_cast<uint64_t>(seed));
    const int keep = drawn.model.layers * drawn.model.micro_batches;
    for (const Schedule& schedule : iteration_schedules()) {
      if (schedule.iteration == IterationOrder::any || drawn.model.micro_batches < 2) continue;
      const Plan any = wave_plan(drawn.pricer, drawn.model, keep, {});
      const std::vector<double> seconds = price(drawn.pricer, any);
      ++planted;
      found += !wave_rules::meetings(any, schedule.iteration, wave_rules::times_of(any, seconds)).empty();
    }
  }
  fmt::print("{} of {} free orders break the turns of others\n", found, planted);
  EXPECT_GT(planted, cases);
  EXPECT_GT(found, planted * 8 / 10);
}

// Stages, dense layers, ends of a model, recomputation and planned steps.
TEST(Wave, OrdersAnyModel) {
  int models = 0;
  for (uint64_t seed = 1; models < cases; ++seed) {
    any_model::AnyModel any = any_model::any_model(seed);
    any.model.step.planned = seed % 3 != 0;
    any.model.step.clips = seed % 2 == 0;
    const LayerPricer pricer(any.profile, any.model.shape, {.nearest = true});
    const int most = std::min(kMaxWaveDegree, largest_degree(pricer));
    const int first = 1 + static_cast<int>(seed) % most, second = 1 + static_cast<int>(seed / 2) % most;
    const Plan plan = wave_plan(pricer, any.model, raised_kept_layers(any.model, 0), {first, second, second, first});
    ASSERT_NO_THROW(check_plan(plan)) << any.text;
    ++models;
  }
}

// Whatever the order, degrees, memory and draws: hundreds of models, each under every order of iterations.
TEST(Wave, NoPlanIsFasterThanItsBound) {
  int plans = 0, tight = 0;
  double sum = 0;
  for (uint64_t seed = 1; plans < 25 * cases; ++seed) {
    any_model::AnyModel any = any_model::any_model(seed);
    ModelShape& model = any.model;
    model.shape.parallel.zero = static_cast<int>(seed / 5 % 2);
    if (seed % 5 == 0 && model.micro_batches < 6) model.micro_batches *= 2;
    const LayerPricer pricer(any.profile, model.shape, {.nearest = true});
    const int largest = largest_degree(pricer);
    Draws draws{seed};
    for (const Schedule& schedule : iteration_schedules()) {
      if (model.shape.parallel.pp > 1 && schedule.iteration != IterationOrder::any) continue;
      const int usual = default_kept_layers(model, schedule.iteration);
      WaveChoice choice{.keep = draws.below(2) == 0
                                    ? usual
                                    : min_kept_layers(model, schedule.iteration) + draws.below(2 * model.layers),
                        .order = schedule.iteration};
      if (draws.below(4) == 0) choice.forward = 1 + draws.below(9);
      if (draws.below(4) == 0) choice.backward = 1 + draws.below(9);
      const auto degree = [&](int fixed) {
        return std::min(fixed > 0 ? fixed : 1 + draws.below(kMaxWaveDegree), largest);
      };
      const WaveDegrees degrees{degree(choice.forward), degree(choice.forward), degree(choice.backward),
                                degree(choice.backward)};
      const Plan plan = wave_plan(pricer, model, choice.keep, degrees, {draws.below(3), schedule.iteration});
      const double seconds = timeline_of(plan, price(pricer, plan), any.profile.contention).makespan_s;
      const double bound = wave_bound(pricer, model, choice);
      ASSERT_GE(seconds, bound * (1 - 1e-12)) << schedule.name << ", keep " << choice.keep << ", " << any.text;
      sum += bound / seconds;
      tight += bound > 0.98 * seconds ? 1 : 0;
      ++plans;
    }
  }
  fmt::print("{} plans, the bound has {:.1f} % of their time, of {} plans 98 % or more\n", plans, 100 * sum / plans,
             tight);
  EXPECT_GT(sum / plans, 0.6);
  EXPECT_GT(tight, plans / 20);
}

TEST(Wave, RefusesWhatItCannotOrder) {
  Drawn drawn(1);
  EXPECT_THROW(wave_plan(drawn.pricer, drawn.model, drawn.model.layers - 1, {}), BadInput);
  const Schedule& wave = find_schedule("wave");
  EXPECT_THROW(LayerSearch().tune(wave, drawn.pricer), Unsupported);
  EXPECT_THROW(build_plan(wave, drawn.layer.shape, {}), Unsupported);
  drawn.model.shape.parallel.pp = 2;
  drawn.model.layers = 2;
  EXPECT_THROW(wave_plan(drawn.pricer, drawn.model, drawn.keep + 2, {}, {.order = IterationOrder::pairs}), Unsupported);
  EXPECT_THROW(ModelSearch().tune(find_schedule("lancet"), drawn.pricer, drawn.model), Unsupported);
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with("--cases=")) moe::cases = std::stol(argv[i] + 8);
  return RUN_ALL_TESTS();
}
