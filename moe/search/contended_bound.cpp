// Idea: at any time, some set of lanes is busy, at rates given by contention. To choose how long each set is busy so
// that all work is completed in the least total time is a linear program, and every feasible point of its dual is a
// lower bound.
// Invariant: every simplification lowers the bound. Tasks may be interrupted, and chunks don't wait for earlier ones;
// `load_of` only keeps that the MoE part's first and last tasks can't overlap with others. Any price of gradients gives
// a bound, so the search for the best price need not be exact.
// Source: lower bounds by sets of activities that can run at the same time (Mingozzi et al. 1998), here with rates.
#include "moe/search/contended_bound.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "moe/simulator/contended_work.h"
#include "moe/simulator/slowdown.h"

namespace moe::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Use {
  Resource resource = Resource::none;
  int lane = -1;
};

// Kinds of work in the MoE part that may overlap. exchanges: dispatches except the first, combines except the last;
// gathers: AllGathers and ReduceScatters except the next; ends: the first AllGather and the last ReduceScatter, which
// no expert overlaps with; experts.
enum Work : size_t { exchanges, gathers, ends, experts, kWorks };

struct Load {
  std::vector<std::pair<Use, double>> alone;  // works that overlap only with gradients
  std::array<double, kWorks> together{};
  std::array<Use, kWorks> uses{};
  LinearProgram program;               // a row for each set of works that can run together, with and without gradients
  std::vector<double> gradient_rates;  // rate of gradients in each row
};

// Returns the works of a pass. The first dispatch and the last combine overlap with no other task of the MoE part,
// because all tasks wait for the former and the latter waits for all. A shared expert overlaps with every task, and so
// do weight gradients of experts. Collectives of the shared expert, weight gradients of attention and sends of its ring
// are ignored.
Load load_of(const PricedPass& pass, const GroupNetworks& networks) {
  Load load;
  const bool beside = std::ranges::any_of(
      pass.structure->tasks, [](const Task& task) { return is_shared(task.kind) || task.kind == TaskKind::expert_dw; });
  for (const Task& task : pass.structure->tasks) {
    const Lane& lane = pass.structure->lanes[task.lane];
    const Use use{resource_of(task, lane, networks), task.lane};
    const double seconds = pass.seconds[task.id];
    if ((is_shared(task.kind) && task.kind != TaskKind::shared) || task.kind == TaskKind::attention_dw) continue;
    if (is_ring_attention_task(task.kind) && task.kind != TaskKind::heads) continue;  // these overlap with the heads
    const bool first = task.chunk == 0 && !beside, last = task.chunk + 1 == task.chunks && !beside;
    const bool opens = task.kind == TaskKind::dispatch && first, closes = task.kind == TaskKind::combine && last;
    if ((!is_chunked(task.kind) && task.kind != TaskKind::shared) || opens || closes) {
      load.alone.emplace_back(use, seconds);
      continue;
    }
    Work work = gathers;
    if (task.kind == TaskKind::dispatch || task.kind == TaskKind::combine) work = exchanges;
    if (is_expert(task.kind) || task.kind == TaskKind::shared) work = experts;
    if ((task.kind == TaskKind::allgather && first) || (task.kind == TaskKind::reducescatter && last)) work = ends;
    load.together[work] += seconds;
    load.uses[work] = use;
  }
  return load;
}

class Prices {
 public:
  Prices(const LayerPricer& pricer, const Structure& structure)
      : slowdown_(pricer.profile().contention), network_(pricer.groups()[GroupKind::dp].network) {
    for (size_t lane = structure.lanes.size(); gradients_.lane < 0 && lane-- > 1;)
      if (structure.lanes[lane].owns(network_)) gradients_.lane = static_cast<int>(lane);
    gradients_.resource = network_ == Network::intra ? Resource::intra : Resource::inter;
  }

  // Returns a lower bound on the seconds of a pass minus `price` times the seconds of gradients that are sent in it.
  double least(Load& load, double price) const {
    double seconds = 0;
    for (const auto& [use, alone] : load.alone) seconds += alone * worth(use, price);
    if (load.program.rows.empty()) add_sets(load);
    for (size_t row = 0; row < load.gradient_rates.size(); ++row)
      load.program.limits[row] = std::max(0.0, 1 - price * load.gradient_rates[row]);
    return seconds + maximum(load.program, load.together);
  }

 private:
  double rate(std::span<const Use> running, const Use& of) const {
    return slowdown_.rate(running, &Use::resource, of.resource);
  }

  double worth(const Use& use, double price) const {
    if (gradients_.lane < 0 || use.lane == gradients_.lane) return 1;
    const std::array both{use, gradients_};
    return std::min(1.0, (1 - price * rate(both, gradients_)) / rate(both, use));
  }

  void add_sets(Load& load) const {
    for (size_t set = 1; set < (2u << kWorks); ++set) {
      const bool with_gradients = (set >> kWorks) != 0;
      std::vector<Use> running;
      for (size_t work = 0; work < kWorks; ++work)
        if ((set >> work & 1) != 0) running.push_back(load.uses[work]);
      if (running.empty() || (with_gradients && gradients_.lane < 0)) continue;
      if (with_gradients) running.push_back(gradients_);
      if (!possible(set, running)) continue;
      std::vector<double>& row = load.program.rows.emplace_back(kWorks, 0.0);
      for (size_t work = 0; work < kWorks; ++work)
        if ((set >> work & 1) != 0) row[work] = rate(running, load.uses[work]);
      load.gradient_rates.push_back(with_gradients ? rate(running, gradients_) : 0);
    }
    load.program.limits.resize(load.program.rows.size());
  }

  static bool possible(size_t set, std::span<const Use> running) {
    if ((set >> ends & 1) != 0 && (set >> experts & 1) != 0) return false;
    for (size_t i = 0; i < running.size(); ++i) {
      // Work that this pass lacks: gets a row alone, so that its variable is bounded.
      if (running[i].lane < 0) return (set & (set - 1)) == 0;
      for (size_t j = 0; j < i; ++j)
        if (running[i].lane == running[j].lane) return false;
    }
    return true;
  }

  Slowdown slowdown_;
  Network network_;
  Use gradients_;
};

// Returns the smallest seconds per byte over slices of all sizes up to `all`; for a straight curve, its slope.
double seconds_per_byte(const LayerPricer& pricer, int64_t all) {
  const int64_t element = bytes_of(pricer.shape().layer.dtype);
  if (pricer.gradient_breakpoints().empty())
    return (pricer.gradient_seconds(all + element) - pricer.gradient_seconds(element)) / static_cast<double>(all);
  double least = pricer.gradient_seconds(all) / static_cast<double>(all);
  for (const double bend : pricer.gradient_breakpoints())
    for (const int64_t step : {-1, 0, 1})  // a curve may jump at its ends
      if (const int64_t x = (static_cast<int64_t>(bend) / element + step) * element; x > 0 && x < all)
        least = std::min(least, pricer.gradient_seconds(x) / static_cast<double>(x));
  return least;
}

// Returns approximately the maximum of a concave function on [0, 1].
template <class Function>
double max_value(const Function& at) {
  double low = 0, high = 1, best = std::max(at(0), at(1));
  for (int i = 0; i < 14; ++i) {
    const double third = (high - low) / 3, left = at(low + third), right = at(high - third);
    best = std::max({best, left, right});
    (left < right ? low : high) = left < right ? low + third : high - third;
  }
  return best;
}

class ModelLowerBound {
 public:
  ModelLowerBound(const LayerPricer& pricer, std::span<const PricedLayers> kinds, const EndGradients& ends)
      : pricer_(pricer), kinds_(kinds), ends_(ends) {
    for (const PricedLayers& kind : kinds) loads_.push_back(loads_of(kind.backward));
  }

  double forward() {
    double seconds = 0;
    for (const PricedLayers& kind : kinds_) {
      if (kind.any_order) {
        std::vector<Load> loads = loads_of(kind.forward);
        seconds += kind.layers * least(loads, kind.forward, 0);
      } else {
        seconds += kind.layers * shortest(kind.forward);
      }
    }
    return seconds;
  }

  double backward() { return ends_.first_bytes > 0 ? std::max(backward(0), backward(ends_.first_bytes)) : backward(0); }

  // Returns the bound if gradients are sent after everything else.
  double in_sequence() const {
    double all = 0;
    for (const PricedLayers& kind : kinds_) {
      double both = kNever;
      if (kind.same_degree) both = kind.forward.beyond_s + kind.backward.beyond_s;
      for (size_t i = 0; kind.same_degree && i < kind.forward.passes.size(); ++i)
        both = std::min(both, kind.forward.passes[i].makespan_s + kind.backward.passes[i].makespan_s);
      if (!kind.same_degree) both = shortest(kind.forward) + shortest(kind.backward);
      all += kind.layers * both;
    }
    return all + pricer_.slice_seconds(made_by_all() + ends_.last_bytes + ends_.first_bytes);
  }

 private:
  std::vector<Load> loads_of(const PricedDegrees& degrees) const {
    std::vector<Load> loads;
    for (const PricedPass& pass : degrees.passes) loads.push_back(load_of(pass, networks_of(pricer_.groups())));
    return loads;
  }

  // Returns the bound of one backward of a kind of layers, without gradients.
  double backward_seconds(size_t kind) {
    const PricedLayers& layers = kinds_[kind];
    return layers.any_order ? least(loads_[kind], layers.backward, 0) : shortest(layers.backward);
  }

  // Returns the bound of all backwards with gradients. Those of the last layer, and those made after it, are sent after
  // everything else. The first layer can only send the `waiting` gradients of the head.
  double backward(int64_t waiting) {
    double seconds = 0;
    if (made_by_all() == 0) {
      for (size_t kind = 0; kind < kinds_.size(); ++kind) seconds += kinds_[kind].layers * backward_seconds(kind);
      return seconds;
    }
    std::vector<int> beside;  // for each kind, its backwards that may send gradients
    int64_t of_last = 0;
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      const bool is_first = kinds_[kind].first && waiting == 0;
      if (is_first) seconds += backward_seconds(kind);
      beside.push_back(kinds_[kind].layers - (is_first ? 1 : 0));
      if (kinds_[kind].last) of_last = kinds_[kind].made_bytes;
    }
    const int64_t last = of_last + ends_.last_bytes;
    const double a_byte = seconds_per_byte(pricer_, made_by_all() + ends_.last_bytes + ends_.first_bytes);
    seconds +=
        pricer_.gradient_breakpoints().empty() ? pricer_.gradient_seconds(last) : a_byte * static_cast<double>(last);
    const double sent = a_byte * static_cast<double>(made_by_all() - of_last + waiting);
    const auto at = [&](double price) {
      double all = seconds + price * sent;
      for (size_t kind = 0; kind < kinds_.size(); ++kind)
        if (beside[kind] > 0) all += beside[kind] * least(loads_[kind], kinds_[kind].backward, price);
      return all;
    };
    return std::ranges::max(beside) == 0 ? at(0) : max_value(at);
  }

  int64_t made_by_all() const {
    int64_t bytes = 0;
    for (const PricedLayers& kind : kinds_) bytes += kind.layers * kind.made_bytes;
    return pricer_.has(GroupKind::dp) ? bytes : 0;
  }

  // Returns the smallest value over all degrees. At degrees without passes, gradients may be sent whenever their lane
  // is idle.
  double least(std::span<Load> loads, const PricedDegrees& degrees, double price) const {
    const Prices prices(pricer_, *degrees.passes.front().structure);
    double least = kNever;
    if (degrees.beyond_s < kNever) least = degrees.beyond_s - price * (degrees.beyond_s - degrees.busy_beyond_s);
    for (Load& load : loads) least = std::min(least, prices.least(load, price));
    return least;
  }

  static double shortest(const PricedDegrees& degrees) {
    return std::min(degrees.beyond_s,
                    std::ranges::min_element(degrees.passes, {}, &PricedPass::makespan_s)->makespan_s);
  }

  const LayerPricer& pricer_;
  const std::span<const PricedLayers> kinds_;
  const EndGradients ends_;
  std::vector<std::vector<Load>> loads_;  // of backwards, by kind and degree
};

}  // namespace

double min_pass_seconds(const LayerPricer& pricer, const PricedPass& pass, double gradients_s) {
  Load load = load_of(pass, networks_of(pricer.groups()));
  const Prices prices(pricer, *pass.structure);
  if (gradients_s == 0) return prices.least(load, 0);
  return max_value([&](double price) { return price * gradients_s + prices.least(load, price); });
}

double min_gradient_seconds(const LayerPricer& pricer, int64_t bytes) {
  if (bytes == 0) return 0;
  if (pricer.gradient_breakpoints().empty()) return pricer.gradient_seconds(bytes);
  return seconds_per_byte(pricer, bytes) * static_cast<double>(bytes);
}

double min_model_seconds(const LayerPricer& pricer, std::span<const PricedLayers> kinds, const EndGradients& ends,
                         bool overlaps) {
  ModelLowerBound model(pricer, kinds, ends);
  return overlaps ? model.forward() + model.backward() : model.in_sequence();
}

}  // namespace moe::search
