// The search against every degree and every split, each replayed.
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "moe/base/random.h"
#include "moe/search/layer_search.h"
#include "tests/prices/random_layer.h"

namespace moe {
namespace {

using random_layer::contended;
using random_layer::random_layer;
using random_layer::RandomLayer;

constexpr uint64_t kContended = 60;

// Replays phases from structures built here, not by the search.
class Everything {
 public:
  Everything(const Schedule& schedule, const LayerPricer& pricer) : schedule_(schedule), pricer_(pricer) {}

  double seconds(const Decision& d, Phases phases) {
    const GradientPlacement places =
        phases == Phases::forward ? GradientPlacement{} : placement_of(schedule_, pricer_.groups(), pricer_.shape(), d);
    auto& entry = structures_[structure_key(schedule_, pricer_.outline(), d, places, phases)];
    if (!entry) entry.emplace(structure_key(schedule_, pricer_.outline(), d, places, phases));
    pricer_.price(*entry->structure, slices_of(schedule_, pricer_.shape(), d), seconds_);
    return entry->makespan(seconds_, pricer_.profile().contention, ends_);
  }

  double least_forward(int least, int most) {
    double best = std::numeric_limits<double>::infinity();
    for (int r = least; r <= most; ++r) best = std::min(best, seconds({r, r, 0}, Phases::forward));
    return best;
  }

  // Over every split between two places, element by element; behind everything else may pay under contention.
  double least_backward(int r) {
    const int64_t bytes =
        schedule_.gradients == GradientPolicy::after || !pricer_.has(GroupKind::dp) ? 0 : pricer_.gradient_bytes();
    double best = std::numeric_limits<double>::infinity();
    const bool adaptive = schedule_.gradients == GradientPolicy::adaptive;
    for (int64_t first = 0; first <= bytes; first += 4) {
      Decision d = with_split(schedule_, r, r, first);
      best = std::min(best, seconds(d, Phases::backward));
      if (!adaptive || pricer_.profile().contention.none()) continue;
      d.gar_after_bytes = bytes - first;  // all that is not in the MoE part
      best = std::min(best, seconds(d, Phases::backward));
      d.gar_in_moe_bytes = 0;
      d.gar_after_bytes = first;  // none in the MoE part
      best = std::min(best, seconds(d, Phases::backward));
    }
    return best;
  }

  double least_total(int most) {
    if (schedule_.degrees == DegreePolicy::one) return least_forward(1, 1) + least_backward(1);
    double best = std::numeric_limits<double>::infinity(), backward = best;
    for (int r = 1; r <= most; ++r) {
      if (schedule_.degrees == DegreePolicy::shared)
        best = std::min(best, least_forward(r, r) + least_backward(r));
      else
        backward = std::min(backward, least_backward(r));
    }
    return schedule_.degrees == DegreePolicy::shared ? best : least_forward(1, most) + backward;
  }

 private:
  const Schedule& schedule_;
  const LayerPricer& pricer_;
  std::map<StructureKey, std::optional<search::CompiledStructure>> structures_;
  std::vector<double> seconds_, ends_;
};

// Degrees and a split between two places, and nothing else, are what is searched.
bool has_only_degrees_and_splits(const Schedule& schedule) {
  return schedule.variants.empty() && !sends_pieces(schedule) && !schedule.searched_order;
}

void expect_least(const RandomLayer& layer, LayerSearch& search) {
  const LayerPricer pricer(layer.profile, layer.shape);
  const int most = largest_degree(pricer);
  for (const Schedule& schedule : schedules()) {
    if (!has_only_degrees_and_splits(schedule)) continue;
    const bool one_group = traits_of(schedule.flow).one_group;
    if (one_group && layer.shape.parallel.mp != layer.shape.parallel.esp) {
      EXPECT_THROW(search.tune(schedule, pricer), Unsupported) << schedule.name << ", " << layer.text;
      continue;
    }
    const LayerResult result = search.tune(schedule, pricer);
    const double least = Everything(schedule, pricer).least_total(most);
    EXPECT_LE(result.total_s(), least * (1 + 1e-9))
        << schedule.name << ", " << layer.text << ": degrees " << result.decision.degree_forward << " "
        << result.decision.degree_backward << ", " << result.decision.gar_in_moe_bytes << " of "
        << pricer.gradient_bytes() << " bytes";
    EXPECT_GE(result.total_s(), least * (1 - 1e-9)) << schedule.name << ", " << layer.text << ": a time nothing has";
  }
}

TEST(BruteForce, TuneFindsTheLeastOfAllDegreesAndSplits) {
  LayerSearch search;
  std::set<std::pair<Network, Network>> layouts;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const RandomLayer layer = random_layer(seed);
    const Groups groups = groups_of(layer.shape.parallel);
    layouts.emplace(groups[GroupKind::dp].network, groups[GroupKind::mp].network);
    expect_least(layer, search);
  }
  EXPECT_GE(layouts.size(), 7u) << "networks of the gradients and of the dense part";
}

TEST(BruteForce, TuneFindsTheLeastOnMeasuredCurves) {
  LayerSearch search;
  for (uint64_t seed = 1; seed <= 150; ++seed) expect_least(random_layer(seed, true), search);
}

// Long sequences whose chunks start nearly free: the best degrees are beyond what most layers have rows for. Each is
// asked for by itself, so that no bound rules one out.
TEST(BruteForce, TuneFindsTheLeastOfAllDegreesOfLongSequences) {
  LayerSearch search;
  std::map<std::string_view, int> beyond;  // 64
  int compared = 0;
  for (uint64_t seed = 1; seed <= 60 && compared < 28; ++seed) {
    RandomLayer layer = random_layer(seed, seed % 3 == 0);
    layer.shape.layer.seq *= 32;
    for (CommRow& row : layer.profile.comm) row.alpha_s /= 2000;
    for (ComputeRow& row : layer.profile.compute) row.alpha_s /= 2000;
    layer.profile.task_overhead_s /= 2000;
    if (seed % 4 == 0) layer = contended(layer, seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    if (pricer.rows() <= 64 || pricer.rows() > 240) continue;
    for (const std::string_view name : {"tutel", "fsmoe-no-partition", "fsmoe-no-iio", "fsmoe"}) {
      const Schedule& schedule = find_schedule(name);
      double forward = std::numeric_limits<double>::infinity(), backward = forward, total = forward;
      for (int r = 1; r <= pricer.rows(); ++r) {
        const LayerResult at = search.tune(schedule, pricer, {r, r});
        forward = std::min(forward, at.forward_s);
        backward = std::min(backward, at.backward_s);
        total = std::min(total, at.total_s());
      }
      if (schedule.degrees == DegreePolicy::apart) total = forward + backward;
      const LayerResult best = search.tune(schedule, pricer);
      EXPECT_NEAR(best.total_s(), total, 1e-9 * total) << schedule.name << ", " << layer.text;
      beyond[name] += std::max(best.decision.degree_forward, best.decision.degree_backward) > 64;
      ++compared;
    }
  }
  EXPECT_GE(compared, 28);
  for (const auto& [name, count] : beyond) {
    fmt::print("{}: {} layers with a degree above 64\n", name, count);
    EXPECT_GE(count, 2) << name;
  }
}

TEST(BruteForce, TuneFindsTheLeastUnderContention) {
  LayerSearch search;
  for (uint64_t seed = 1; seed <= kContended; ++seed)
    expect_least(contended(random_layer(seed, seed % 3 == 0), seed), search);
}

// Ranks that sum no gradients send none, whatever a task costs.
TEST(BruteForce, TuneFindsTheLeastUnderContentionWhereNothingIsSummed) {
  LayerSearch search;
  int compared = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    RandomLayer layer = contended(random_layer(seed), seed);
    if (layer.shape.parallel.dp > 1) continue;
    const LayerPricer pricer(layer.profile, layer.shape);
    const double share = 0.001 * static_cast<double>(1 + seed % 64);
    layer.profile.task_overhead_s = share * search.tune(find_schedule("tutel"), pricer).total_s();
    expect_least(layer, search);
    ++compared;
  }
  EXPECT_GE(compared, 100);
}

}  // namespace
}  // namespace moe
