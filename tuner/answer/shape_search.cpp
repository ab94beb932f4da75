#include "tuner/answer/shape_search.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>

#include "moe/base/check.h"
#include "moe/base/units.h"
#include "moe/cost/model_bound.h"

namespace moe::tuner {
namespace {

/// One question of the search: a shape under a schedule.
struct Open {
  size_t candidate, schedule;
  double bound_s;
};

struct KeptStates {
  int zero;
  Recompute recompute;
};

/// A shape, and what it came to: nothing was tried, or why the last schedule refused it.
struct Candidate {
  ModelShape model;
  size_t kept;          // the first of what a rank may keep under which some schedule may fit
  double memory_bytes;  // of it
  double head_s = 0;    // of one micro-batch
  std::optional<RankedShape> best = {};
  size_t schedule = 0;  // of the best
  bool open = false, planned = false, too_large = false;
  std::string refusal = {};
};

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) found.push_back(d);
  return found;
}

std::vector<int64_t> choices(const std::optional<int>& fixed, int64_t of) {
  return fixed ? std::vector<int64_t>{*fixed} : divisors(of);
}

// What a rank may keep, all first: ZeRO 1 gathers weights once a step, scores are computed again every pass.
std::vector<KeptStates> states_of(const ShapeRequest& request) {
  const ParallelShape& p = request.chosen.model.shape.parallel;
  std::vector<KeptStates> states{{p.zero, p.recompute}};
  if (p.zero == 0 && !request.fixed.zero) states.push_back({1, p.recompute});
  if (p.recompute == Recompute::none && !request.fixed.recompute)
    states.push_back({states.back().zero, Recompute::selective});
  return states;
}

ModelShape keeping(ModelShape model, const KeptStates& states) {
  model.shape.parallel.zero = states.zero;
  model.shape.parallel.recompute = states.recompute;
  return model;
}

// Returns the seconds of one micro-batch.
double head_seconds(const LayerPricer& pricer, const ModelShape& model, int64_t vocabulary) {
  if (vocabulary == 0) return 0;
  double seconds = 0;
  for (const Phase phase : {Phase::forward, Phase::backward})
    seconds += pricer.end_seconds(end_work(TaskKind::head, phase, model.shape, Flow::sharded, vocabulary));
  return seconds;
}

// A pipeline passes all stages once, and its slowest stage once more for every other micro-batch. `pass_s` is the time
// without the head; empty: returns what it is at least.
double all_heads_seconds(const ModelShape& model, double head_s, std::optional<double> pass_s) {
  const auto layers = [&](int stage) {
    const auto [first, last] = layers_of_stage(model, stage);
    return last - first;
  };
  const int most = layers(0), fewer = most - layers(model.shape.parallel.pp - 1), others = model.micro_batches - 1;
  if (fewer == 0) return model.micro_batches * head_s;
  if (!pass_s) return head_s;
  const double layer_s = *pass_s / (others * most + model.layers);
  return head_s + others * std::max(0.0, head_s - fewer * layer_s);
}

class ShapeSearch {
 public:
  explicit ShapeSearch(const ShapeRequest& request)
      : request_(request), capacity_(request.profile.memory_bytes), states_(states_of(request)) {}

  FoundShapes run() {
    found_.global_batch = request_.global_batch;
    check_prices();
    const auto start = std::chrono::steady_clock::now();
    enumerate();
    found_.shapes = static_cast<int>(candidates_.size()) + found_.too_large;
    open_all();
    std::ranges::sort(open_, {}, &Open::bound_s);
    size_t next = 0;
    for (; next < open_.size(); ++next) {
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      if (took.count() > request_.seconds && any_planned()) break;
      const double bound_s = open_[next].bound_s;
      const Candidate& candidate = candidates_[open_[next].candidate];
      const bool beaten = candidate.best && candidate.best->total_s() < bound_s;  // by another schedule
      if (!beaten && !dominated(bound_s, candidate.memory_bytes)) plan(open_[next]);
    }
    settle(next);
    return std::move(found_);
  }

 private:
  // What no group size changes is refused before shapes are counted.
  void check_prices() const {
    const LayerPricer pricer(request_.profile, request_.chosen.model.shape, request_.pricing);
    head_seconds(pricer, request_.chosen.model, request_.chosen.vocabulary);
  }

  // Groups first, then how the global batch is cut among and in time.
  void enumerate() {
    const ModelShape& given = request_.chosen.model;
    const ParallelShape& p = given.shape.parallel;
    const int64_t samples = request_.global_batch;
    const LayerFlags& fixed = request_.fixed;
    for (const int64_t pp : choices(fixed.pp, given.layers == 1 ? 1 : p.ranks()))
      for (const int64_t mp : choices(fixed.mp, p.ranks() / pp))
        for (const int64_t ep : choices(fixed.ep, given.shape.layer.experts))
          for (const int64_t esp : choices(fixed.esp, p.ranks() / pp))
            for (const bool inside : {false, true}) {
              if (p.ranks() % (pp * mp) != 0 || pp > given.layers) continue;
              const bool alike = ep == 1 || esp == 1 || p.nodes == 1;
              if (fixed.placement ? inside != p.ep_inside : inside && alike) continue;
              const int64_t dp = p.ranks() / (pp * mp);
              if (samples % dp != 0 || (fixed.dp && *fixed.dp != dp)) continue;
              ModelShape model = given;
              model.shape.parallel = {.nodes = p.nodes,
                                      .ranks_per_node = p.ranks_per_node,
                                      .dp = 0,
                                      .mp = static_cast<int>(mp),
                                      .ep = static_cast<int>(ep),
                                      .esp = static_cast<int>(esp),
                                      .pp = static_cast<int>(pp),
                                      .ep_inside = inside};
              add_batches(model, samples / dp);
            }
  }

  void add_batches(const ModelShape& groups, int64_t samples_a_replica) {
    const bool one = !request_.chosen.stack && groups.shape.parallel.pp == 1;
    for (const int64_t micro_batches : divisors(samples_a_replica)) {
      if (request_.fixed_micro_batches ? micro_batches != groups.micro_batches : one && micro_batches > 1) continue;
      for (const PipelineOrder order : {PipelineOrder::gpipe, PipelineOrder::one_f_one_b}) {
        const bool one_order = request_.fixed_order || micro_batches == 1;
        if (one_order && order != groups.order) continue;
        ModelShape model = groups;
        model.micro_batches = static_cast<int>(micro_batches);
        model.order = order;
        model.shape.layer.batch = samples_a_replica / micro_batches;
        add(std::move(model));
      }
    }
  }

  void add(ModelShape model) {
    try {
      model.shape = complete(model.shape.layer, model.shape.parallel, model.shape.rounding);
    } catch (const BadInput&) {  // it does not divide
      return;
    }
    model.head_gradient_bytes = model.embedding_gradient_bytes = 0;
    add_ends(model, request_.chosen.vocabulary, request_.chosen.tied_embedding);
    for (size_t kept = 0; kept < states_.size(); ++kept) {
      const ModelShape keeps = keeping(model, states_[kept]);
      const MemoryEstimate needed = memory_of(request_.chosen, memory_request(keeps, keeps.shape, Flow::sharded));
      least_memory_ = std::min(least_memory_, needed.total());
      if (capacity_ && misfit(needed, *capacity_)) continue;
      candidates_.push_back({keeps, kept, needed.total()});
      return;
    }
    ++found_.too_large;
  }

  void open_all() {
    const LayerShape& layer = request_.chosen.model.shape.layer;
    require<Unsupported>(found_.shapes > 0,
                         "--shape: found no groups of {} ranks, as far as flags leave them open, that divide {} "
                         "experts, {} heads, hidden {} and {} samples; expected others, or fewer fixed",
                         request_.chosen.model.shape.parallel.ranks(), layer.experts, layer.heads, layer.hidden,
                         request_.global_batch);
    require<Unsupported>(!candidates_.empty(), "--shape: none of {} shapes fits: the least needs {}, a rank has {}",
                         found_.shapes, human_bytes(least_memory_), human_bytes(capacity_.value_or(0)));
    for (size_t i = 0; i < candidates_.size(); ++i) {
      Candidate& c = candidates_[i];
      const LayerPricer pricer(request_.profile, c.model.shape, request_.pricing);
      c.head_s = head_seconds(pricer, c.model, request_.chosen.vocabulary);
      for (size_t schedule = 0; schedule < request_.schedules.size(); ++schedule) try {
          const Schedule& asked = *request_.schedules[schedule];
          const double beside_s = expert_sums_s(asked, pricer, c.model) + all_heads_seconds(c.model, c.head_s, {});
          open_.push_back({i, schedule, bound_of(asked, pricer, c.model) + beside_s});
          c.open = true;
        } catch (const Unsupported& error) {
          c.refusal = error.what();
        } catch (const BadInput& error) {  // too many tasks
          c.refusal = error.what();
        }
    }
  }

  // Of all that the schedule may choose: variants, and how many experts a device holds.
  double bound_of(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model) const {
    double least = std::numeric_limits<double>::infinity();
    for (const Schedule* variant : schedule.variants) least = std::min(least, bound_of(*variant, pricer, model));
    if (!schedule.variants.empty()) return least;
    least = bound_as_it_is(schedule, pricer, model);
    if (!schedule.packs_experts) return least;
    for (int packing = 2; model.shape.parallel.ep % packing == 0; packing *= 2) try {
        ModelShape packed = model;
        packed.shape = decided_case(model.shape, {.packing = packing});
        least = std::min(least, bound_as_it_is(schedule, {pricer.profile(), packed.shape, request_.pricing}, packed));
      } catch (const Unsupported&) {  // no such packing, or no price for its groups
        break;
      }
    return least;
  }

  double bound_as_it_is(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model) const {
    ChosenModel chosen = request_.chosen;
    chosen.model = model;
    return one_layer(chosen) ? degree_free_bound(schedule, pricer).total_s() : model_bound(schedule, pricer, model);
  }

  bool any_planned() const {
    return std::ranges::any_of(candidates_, [](const Candidate& c) { return c.best.has_value(); });
  }

  // Whether some planned shape is as fast as that bound and takes as little memory.
  bool dominated(double bound_s, double memory_bytes) const {
    return std::ranges::any_of(candidates_, [&](const Candidate& c) {
      return c.best && c.best->total_s() <= bound_s && c.best->best.memory_bytes <= memory_bytes;
    });
  }

  void plan(const Open& open) {
    Candidate& c = candidates_[open.candidate];
    ChosenModel chosen = request_.chosen;
    RankedSchedule row;
    for (size_t kept = c.kept; kept < states_.size(); ++kept) {
      chosen.model = keeping(c.model, states_[kept]);
      row = ranked({chosen, request_.profile, request_.degrees, request_.pricing}, *request_.schedules[open.schedule]);
      if (!row.too_large) break;  // this schedule may need more than others
    }
    c.planned = true;
    if (!row.refused.empty()) {
      c.too_large |= row.too_large;
      c.refusal = row.refused;
      return;
    }
    // Of schedules that take equally long the one that comes first.
    if (c.best) {
      const double best_s = c.best->best.total_s();
      if (same_time(best_s, row.total_s()) ? c.schedule < open.schedule : best_s < row.total_s()) return;
    }
    c.schedule = open.schedule;
    const double heads_s = all_heads_seconds(chosen.model, c.head_s, row.pass_s());
    c.best = RankedShape{chosen.model, std::move(row), heads_s};
  }

  void settle(size_t next) {
    std::vector<bool> reached(candidates_.size(), true);
    for (size_t i = next; i < open_.size(); ++i) reached[open_[i].candidate] = false;
    std::map<std::string, int> refusals;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      Candidate& c = candidates_[i];
      if (c.best)
        found_.ranked.push_back(*std::move(c.best));
      else if (!reached[i])
        ++found_.not_reached;
      else if (c.open && !c.planned)
        ++found_.ruled_out;
      else if (c.too_large)
        ++found_.too_large;
      else
        ++found_.refused, ++refusals[c.refusal];
    }
    if (!refusals.empty())
      found_.refusal = std::ranges::max_element(refusals, {}, [](const auto& r) { return r.second; })->first;
    require<Unsupported>(!found_.ranked.empty(), "--shape: none of {} shapes can be planned: {} too large{}",
                         found_.shapes, found_.too_large,
                         found_.refused > 0 ? fmt::format(", {} refused: {}", found_.refused, found_.refusal) : "");
    std::ranges::stable_sort(found_.ranked, {}, &RankedShape::total_s);
    const double least_s = found_.ranked.front().total_s();
    found_.at_least_s = next < open_.size() ? std::min(least_s, open_[next].bound_s) : least_s;
    double least_memory = std::numeric_limits<double>::infinity();
    for (RankedShape& shape : found_.ranked) {
      shape.pareto = shape.best.memory_bytes < least_memory;
      least_memory = std::min(least_memory, shape.best.memory_bytes);
    }
  }

  const ShapeRequest& request_;
  const std::optional<double> capacity_;
  const std::vector<KeptStates> states_;
  std::vector<Candidate> candidates_;
  std::vector<Open> open_;
  double least_memory_ = std::numeric_limits<double>::infinity();
  FoundShapes found_;
};

}  // namespace

FoundShapes find_shapes(const ShapeRequest& request) { return ShapeSearch(request).run(); }

}  // namespace moe::tuner
