#include "moe/search/partition.h"

#include <algorithm>
#include <limits>
#include <map>

#include "moe/base/check.h"

namespace moe {

int64_t PartitionProblem::total_bytes() const {
  int64_t total = waiting_bytes;
  for (const PartitionLayer& layer : layers) total += layer.made_bytes;
  return total;
}

void check_problem(const PartitionProblem& problem) {
  require<BadInput>(problem.element_bytes > 0, "partition: element of {} bytes, expected more than 0",
                    problem.element_bytes);
  require<BadInput>(problem.allreduce_seconds != nullptr, "partition: no allreduce_seconds");
  const auto check = [&](int64_t bytes, std::string_view of, size_t layer) {
    require<BadInput>(bytes >= 0 && bytes % problem.element_bytes == 0,
                      "partition: {} of layer {}: found {} bytes, expected whole elements of {} bytes", of, layer,
                      bytes, problem.element_bytes);
  };
  check(problem.waiting_bytes, "gradients before the backward", 0);
  for (size_t i = 0; i < problem.layers.size(); ++i) {
    const PartitionLayer& layer = problem.layers[i];
    require<BadInput>(layer.seconds != nullptr, "partition: layer {} has no seconds", i);
    check(layer.made_bytes, "gradients", i);
    for (const auto* bends : {&layer.moe_breakpoints, &layer.dense_breakpoints})
      for (const int64_t bend : *bends) check(bend, "a bend", i);
  }
}

void check_partition(const PartitionProblem& problem, const Partition& partition) {
  require_equal(partition.layers.size(), problem.layers.size(), "partition: layers");
  int64_t waiting = problem.waiting_bytes;
  for (size_t i = 0; i < problem.layers.size(); ++i) {
    const LayerSlices& slices = partition.layers[i];
    for (const int64_t bytes : {slices.moe_bytes, slices.dense_bytes})
      require<WrongResult>(bytes >= 0 && bytes % problem.element_bytes == 0,
                           "partition: layer {} sends a slice of {} bytes, expected whole elements of {} bytes", i,
                           bytes, problem.element_bytes);
    require<WrongResult>(slices.bytes() <= waiting, "partition: layer {} sends {} bytes where {} bytes wait", i,
                         slices.bytes(), waiting);
    waiting += problem.layers[i].made_bytes - slices.bytes();
  }
  require_equal(partition.tail_bytes, waiting, "partition: bytes in the tail");
}

double partition_seconds(const PartitionProblem& problem, const Partition& partition) {
  double seconds = problem.allreduce_seconds(partition.tail_bytes);
  for (size_t i = 0; i < problem.layers.size(); ++i)
    seconds += problem.layers[i].seconds(partition.layers[i].moe_bytes, partition.layers[i].dense_bytes);
  return seconds;
}

Partition search::PartitionSearch::finish(std::vector<LayerSlices> slices) const {
  Partition p;
  p.layers = std::move(slices);
  p.tail_bytes = problem_.total_bytes();
  for (const LayerSlices& layer : p.layers) p.tail_bytes -= layer.bytes();
  check_partition(problem_, p);
  p.seconds = partition_seconds(problem_, p);
  p.evaluations = evaluations_;
  p.search_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  return p;
}

Partition partition_none(const PartitionProblem& problem) {
  return search::PartitionSearch(problem).finish(std::vector<LayerSlices>(problem.layers.size()));
}

// The exact partition of gradients over a model's layers (FSMoE, section 5, solved without its heuristics).
//
// Idea: dynamic programming over layers in backward order. A state is a number of gradient bytes that wait before a
// layer, with the least cost of the previous layers; a layer's curve f(z) is the cost of sending z of these bytes.
// Invariant: states have exact bytes and exact costs. Grains only limit their number: of the states in one grain, two
// are kept, the cheapest and the one with the smallest cost plus largest possible later cost of its waiting bytes. So
// the result is at most one grain's bytes per layer away from the best, and every cost is that of a replay. States that
// another state beats for all possible costs of later layers are dropped (`undominated`).

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kTie = 1e-12;  // smaller relative differences of costs are rounding errors

struct Split {
  LayerSlices slices;
  double seconds = kInfinity;
};

// The curve f(z) of one layer: its least seconds over all sizes of its two slices with z bytes in total.
class LayerCurve {
 public:
  // Tabulates f at its possible bends and at every grain, up to the largest useful size.
  LayerCurve(const PartitionProblem& problem, size_t layer, search::PartitionSearch& search, int64_t grain,
             int64_t most)
      : of_(problem.layers[layer]), layer_(layer), element_(problem.element_bytes), grain_(grain), search_(search) {
    bytes_ = {0, element_};
    const auto add = [&](int64_t bend, int elements) {
      for (int i = 0; i <= elements; ++i) bytes_.push_back(bend + i * element_);
    };
    for (const int64_t a : of_.moe_breakpoints) add(a, 1);
    for (const int64_t b : of_.dense_breakpoints) add(b, 1);
    for (const int64_t a : of_.moe_breakpoints)
      for (const int64_t b : of_.dense_breakpoints) add(a + b, 2);
    const int64_t last = of_.breakpoints_known && problem.is_straight ? std::min(std::ranges::max(bytes_), most) : most;
    std::erase_if(bytes_, [last](int64_t bytes) { return bytes >= last; });
    for (int64_t bytes = 0; bytes < last; bytes += grain_) bytes_.push_back(bytes);
    bytes_.insert(bytes_.end(), {last, last + grain_});  // the second point gives the slope beyond
    std::ranges::sort(bytes_);
    bytes_.erase(std::unique(bytes_.begin(), bytes_.end()), bytes_.end());
    for (const int64_t bytes : bytes_) seconds_.push_back(split(bytes).seconds);
    // A point is useless if the next one costs no more, because sending more leaves fewer bytes.
    for (size_t k = 0; k + 1 < bytes_.size(); ++k)
      if (seconds_[k] < seconds_[k + 1] * (1 - kTie)) worthwhile_.push_back(k);
  }

  /// Returns the useful points, ascending.
  const std::vector<size_t>& worthwhile() const { return worthwhile_; }
  int64_t bytes(size_t point) const { return bytes_[point]; }
  double seconds(size_t point) const { return seconds_[point]; }

  /// Returns f, interpolated between the points and extrapolated beyond them.
  double seconds_between(int64_t bytes) const {
    const auto above = std::ranges::upper_bound(bytes_, bytes) - bytes_.begin();
    const auto k = std::min(static_cast<size_t>(above), bytes_.size() - 1);
    const double share = static_cast<double>(bytes - bytes_[k - 1]) / static_cast<double>(bytes_[k] - bytes_[k - 1]);
    return seconds_[k - 1] + share * (seconds_[k] - seconds_[k - 1]);
  }

  /// Returns the best slices x + y = `bytes`. Along this line the seconds bend where either slice is at one of its
  /// bends, so only these are tried.
  Split split(int64_t bytes) {
    Split best;
    const auto offer = [&](int64_t moe_bytes) {
      if (moe_bytes < 0 || moe_bytes > bytes) return;
      const double seconds = search_.seconds(layer_, moe_bytes, bytes - moe_bytes);
      if (seconds < best.seconds) best = {{moe_bytes, bytes - moe_bytes}, seconds};
    };
    offer(0);
    if (bytes > 0) offer(bytes);
    if (of_.best_splits) {
      for (const int64_t moe_bytes : of_.best_splits(bytes)) offer(moe_bytes);
      return best;
    }
    for (int64_t moe_bytes = grain_; !of_.breakpoints_known && moe_bytes < bytes; moe_bytes += grain_) offer(moe_bytes);
    for (const int64_t bend : of_.moe_breakpoints)
      for (const int64_t moe_bytes : {bend, bend + element_}) offer(moe_bytes);  // a bend may not be a whole element
    for (const int64_t bend : of_.dense_breakpoints)
      for (const int64_t dense_bytes : {bend, bend + element_}) offer(bytes - dense_bytes);
    return best;
  }

 private:
  const PartitionLayer& of_;
  size_t layer_;
  int64_t element_, grain_;
  search::PartitionSearch& search_;
  std::vector<int64_t> bytes_;
  std::vector<double> seconds_;
  std::vector<size_t> worthwhile_;
};

// A state before a layer, in which `waiting` bytes wait.
struct State {
  int64_t waiting = 0, sent = 0;  // sent: bytes that the previous layer sent
  double cost = kInfinity;        // cost of the previous layers
  uint32_t from = 0;              // index of the state before the previous layer
};

class ExactSearch {
 public:
  ExactSearch(const PartitionProblem& problem, const ExactPartition& options, search::PartitionSearch& search)
      : problem_(problem), search_(search), grain_(options.grain_bytes), per_grain_(1.0 / static_cast<double>(grain_)) {
    const int64_t total = problem.total_bytes();
    for (int64_t bytes = problem.element_bytes; bytes < total; bytes += grain_)
      steepest_ = std::max(steepest_, (tail(bytes + grain_) - tail(bytes)) * per_grain_);
    const bool tail_is_certain = !problem.layers.empty() && problem.layers.back().made_bytes > 0;
    tail_start_s_ = tail_is_certain ? 0 : tail(problem.element_bytes);
    cheapest_.resize(static_cast<size_t>(total / grain_) + 1);
    promising_.resize(cheapest_.size());
  }

  std::vector<LayerSlices> best() {
    std::vector<std::vector<State>> states{{{problem_.waiting_bytes, 0, 0, 0}}};
    std::vector<LayerCurve*> curves;
    for (size_t i = 0; i < problem_.layers.size(); ++i) {
      curves.push_back(&curve(i));
      states.push_back(after(states.back(), *curves.back(), problem_.layers[i].made_bytes));
    }
    const auto total = [&](const State& s) { return s.cost + tail(s.waiting); };
    const State* at = &*std::ranges::min_element(states.back(), {}, total);
    std::vector<LayerSlices> slices(problem_.layers.size());
    for (size_t i = slices.size(); i-- > 0;) {
      slices[i] = curves[i]->split(at->sent).slices;
      at = &states[i][at->from];
    }
    return slices;
  }

 private:
  double tail(int64_t bytes) const { return problem_.allreduce_seconds(bytes); }

  LayerCurve& curve(size_t i) {
    const std::string& key = problem_.layers[i].key;
    const std::string name = key.empty() ? fmt::format("layer {}", i) : "key " + key;
    const auto known = curves_.find(name);
    if (known != curves_.end()) return known->second;
    return curves_.try_emplace(name, problem_, i, search_, grain_, problem_.total_bytes()).first->second;
  }

  // Returns an upper bound: the cost if each waiting byte adds the steepest cost in the tail.
  double promise(const State& s) const { return s.cost + steepest_ * static_cast<double>(s.waiting); }

  void offer(const State& s) {
    const auto grain = static_cast<size_t>(static_cast<double>(s.waiting) * per_grain_);
    State& cheapest = cheapest_[std::min(grain, cheapest_.size() - 1)];
    if (s.cost < cheapest.cost || (s.cost == cheapest.cost && s.waiting < cheapest.waiting)) cheapest = s;
    State& promising = promising_[std::min(grain, promising_.size() - 1)];
    if (promise(s) < promise(promising)) promising = s;
  }

  std::vector<State> after(const std::vector<State>& before, const LayerCurve& curve, int64_t made) {
    std::ranges::fill(cheapest_, State{});
    std::ranges::fill(promising_, State{});
    for (uint32_t from = 0; from < before.size(); ++from) {
      const State& s = before[from];
      for (const size_t k : curve.worthwhile()) {
        const int64_t bytes = curve.bytes(k);
        if (bytes >= s.waiting) break;
        offer({s.waiting - bytes + made, bytes, s.cost + curve.seconds(k), from});
      }
      offer({made, s.waiting, s.cost + curve.seconds_between(s.waiting), from});
    }
    return undominated();
  }

  // Returns the states that no other state is certain to beat, by ascending waiting bytes.
  std::vector<State> undominated() {
    std::vector<State> kept;
    double least = kInfinity;
    const auto keep = [&](const State& s) {  // called in ascending order of waiting bytes
      if (s.cost >= least * (1 - kTie)) return;
      least = s.cost;
      kept.push_back(s);
    };
    // In each grain, `promising_` never has more waiting bytes than `cheapest_`.
    for (size_t g = 0; g < cheapest_.size(); ++g) {
      if (promising_[g].waiting < cheapest_[g].waiting) keep(promising_[g]);
      if (cheapest_[g].cost < kInfinity) keep(cheapest_[g]);
    }
    std::vector<State> undominated;
    double best = kInfinity;
    for (size_t i = kept.size(); i-- > 0;) {  // in descending order of waiting bytes
      if (promise(kept[i]) >= (best + tail_start_s_) * (1 - kTie)) continue;
      best = std::min(best, promise(kept[i]));
      undominated.push_back(kept[i]);
    }
    return undominated;
  }

  const PartitionProblem& problem_;
  search::PartitionSearch& search_;
  int64_t grain_;
  double per_grain_;
  double steepest_ = 0;      // largest cost in seconds of one more byte in the tail
  double tail_start_s_ = 0;  // start-up seconds of a tail, if there may be no tail
  std::map<std::string, LayerCurve> curves_;
  std::vector<State> cheapest_, promising_;  // for each grain of waiting bytes
};

// Returns the default grain: 1 MiB, or more to limit the number of states (layers x grains) and, if AllReduce is not
// linear, of priced sizes.
int64_t grain_of(const PartitionProblem& problem) {
  constexpr int64_t kMaxStates = int64_t{1} << 26, kMaxPriced = int64_t{1} << 13;
  int64_t most = std::max<int64_t>(1, kMaxStates / std::max<int64_t>(1, std::ssize(problem.layers)));
  if (!problem.is_straight) most = std::min(most, kMaxPriced);
  const int64_t element = problem.element_bytes;
  return (std::max(kMiB, problem.total_bytes() / most) + element - 1) / element * element;
}

}  // namespace

Partition partition_exact(const PartitionProblem& problem, ExactPartition options) {
  search::PartitionSearch search(problem);
  if (options.grain_bytes == 0) options.grain_bytes = grain_of(problem);
  require<BadInput>(options.grain_bytes > 0 && options.grain_bytes % problem.element_bytes == 0,
                    "partition: grain: found {} bytes, expected whole elements of {} bytes", options.grain_bytes,
                    problem.element_bytes);
  return search.finish(ExactSearch(problem, options, search).best());
}

// FSMoE's two steps (sections 5.2 and 5.3).

namespace {

// Returns the largest number of the `waiting` bytes, in whole elements, whose AllReduce takes at most `window_s`
// (FSMoE's g_inv).
int64_t hidden_bytes(const PartitionProblem& problem, double window_s, int64_t waiting) {
  int64_t most = 0, too_long = waiting / problem.element_bytes + 1;  // elements
  while (too_long - most > 1) {
    const int64_t n = most + (too_long - most) / 2;
    (problem.allreduce_seconds(n * problem.element_bytes) <= window_s ? most : too_long) = n;
  }
  return most * problem.element_bytes;
}

// Step 2 with variables in [0, 1]: for each layer with a choice, the share of its spare bytes that it sends.
class Step2 {
 public:
  Step2(const PartitionProblem& problem, const Partition& first, search::PartitionSearch& search)
      : problem_(problem), first_(first), search_(search), spare_(problem.layers.size()) {
    int64_t waiting = problem.waiting_bytes;
    for (size_t i = 0; i < spare_.size(); ++i) {
      spare_[i] = waiting -= first.layers[i].bytes();
      waiting += problem.layers[i].made_bytes;
    }
    for (size_t i = spare_.size(); i-- > 1;) spare_[i - 1] = std::min(spare_[i - 1], spare_[i]);
    for (size_t i = 0; i < spare_.size(); ++i) dimensions_ += is_open(i);
  }

  int dimensions() const { return dimensions_; }

  std::vector<LayerSlices> slices(std::span<const double> shares) const {
    std::vector<LayerSlices> slices = first_.layers;
    int64_t put = 0;
    size_t next = 0;
    for (size_t i = 0; i < slices.size(); ++i) {
      if (!is_open(i)) continue;
      const double most = static_cast<double>((spare_[i] - put) / problem_.element_bytes);
      const int64_t bytes = static_cast<int64_t>(shares[next++] * most) * problem_.element_bytes;
      slices[i].moe_bytes += bytes;
      put += bytes;
    }
    return slices;
  }

  double seconds(std::span<const double> shares) {
    const std::vector<LayerSlices> chosen = slices(shares);
    int64_t tail = problem_.total_bytes();
    double seconds = 0;
    for (size_t i = 0; i < chosen.size(); ++i) {
      seconds += search_.seconds(i, chosen[i].moe_bytes, chosen[i].dense_bytes);
      tail -= chosen[i].bytes();
    }
    return seconds + problem_.allreduce_seconds(tail);
  }

 private:
  bool is_open(size_t layer) const { return spare_[layer] > 0 && problem_.layers[layer].has_moe_part; }

  const PartitionProblem& problem_;
  const Partition& first_;
  search::PartitionSearch& search_;
  std::vector<int64_t> spare_;  // for each layer: waiting bytes that no later window of step 1 needs
  int dimensions_ = 0;
};

}  // namespace

Partition partition_step1(const PartitionProblem& problem) {
  const search::PartitionSearch search(problem);
  std::vector<LayerSlices> slices;
  int64_t waiting = problem.waiting_bytes;
  for (const PartitionLayer& layer : problem.layers) {
    LayerSlices s;
    s.dense_bytes = hidden_bytes(problem, layer.dense_window_s, waiting);
    s.moe_bytes = hidden_bytes(problem, layer.moe_window_s, waiting - s.dense_bytes);
    waiting += layer.made_bytes - s.bytes();
    slices.push_back(s);
  }
  return search.finish(std::move(slices));
}

Partition partition_step2(const PartitionProblem& problem, const Partition& first,
                          const DifferentialEvolution& settings) {
  search::PartitionSearch search(problem);
  check_partition(problem, first);
  Step2 step(problem, first, search);
  const auto size = static_cast<size_t>(step.dimensions());
  const EvolutionResult best =
      minimise(settings, step.dimensions(), [&](std::span<const double> shares) { return step.seconds(shares); },
               {std::vector<double>(size, 0.0), std::vector<double>(size, 1.0)});
  return search.finish(step.slices(best.x));
}

Partition partition_paper(const PartitionProblem& problem, const DifferentialEvolution& settings) {
  const Partition first = partition_step1(problem);
  Partition both = partition_step2(problem, first, settings);
  both.search_s += first.search_s;
  return both;
}

}  // namespace moe
