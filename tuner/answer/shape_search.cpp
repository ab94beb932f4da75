#include "tuner/answer/shape_search.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <tuple>

#include "moe/base/check.h"
#include "moe/base/units.h"
#include "tuner/answer/shape_bounds.h"

namespace moe::tuner {
namespace {

/// Holds one question of the search: a shape under a schedule. Its bound is that of its GEMMs alone until it is the
/// least of all.
struct Open {
  size_t candidate, schedule;
  double bound_s;
  bool exact = false;
  bool operator>(const Open& other) const {
    return std::tie(bound_s, candidate, schedule) > std::tie(other.bound_s, other.candidate, other.schedule);
  }
};

constexpr double kSearchShare = 0.6;  // of the time; the ranking has the rest

struct KeptStates {
  int zero;
  Recompute recompute;
};

/// Says what a shape came to: of what it came to under its schedules the last in this list.
enum class Fate { refused, unpriced, too_large, ruled_out, not_reached, planned };

/// Holds a shape, what it came to, and why schedules refused it: each reason once.
struct Candidate {
  ModelShape model;
  size_t kept;          // the first of what a rank may keep under which some schedule may fit
  double memory_bytes;  // of it
  std::optional<RankedShape> best = {};
  size_t schedule = 0;  // of the best
  Fate fate = Fate::refused;
  std::set<std::string> refusals = {};

  void comes_to(Fate other) { fate = std::max(fate, other); }
  void refuse(const BadInput& error) {
    refusals.insert(error.what());
    if (dynamic_cast<const Unpriced*>(&error) != nullptr) comes_to(Fate::unpriced);
  }
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

// Lists what a rank may keep, all first: ZeRO 1 gathers weights once a step, scores are computed again every pass, and
// so are whole forwards at last.
std::vector<KeptStates> states_of(const ShapeRequest& request) {
  const ParallelShape& p = request.chosen.model.shape.parallel;
  std::vector<KeptStates> states{{p.zero, p.recompute}};
  if (p.zero == 0 && !request.fixed.zero) states.push_back({1, p.recompute});
  if (p.recompute == Recompute::none && !request.fixed.recompute)
    for (const Recompute again : {Recompute::selective, Recompute::full}) states.push_back({states.back().zero, again});
  return states;
}

ModelShape keeping(ModelShape model, const KeptStates& states) {
  model.shape.parallel.zero = states.zero;
  model.shape.parallel.recompute = states.recompute;
  return model;
}

class ShapeSearch {
 public:
  explicit ShapeSearch(const ShapeRequest& request)
      : request_(request), capacity_(request.profile.memory_bytes), states_(states_of(request)) {}

  FoundShapes run() {
    const auto start = std::chrono::steady_clock::now();
    const auto after = [&](double seconds) {
      return start +
             std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
    };
    const auto end = after(request_.seconds * kSearchShare);
    found_.due = after(request_.seconds);
    found_.global_batch = request_.global_batch;
    check_prices();
    enumerate();
    found_.shapes = static_cast<int>(candidates_.size()) + found_.too_large;
    open_all();
    while (!open_.empty() && !(any_planned_ && std::chrono::steady_clock::now() > end)) {
      const Open next = open_.top();
      open_.pop();
      Candidate& candidate = candidates_[next.candidate];
      const bool beaten = candidate.best && candidate.best->total_s() < next.bound_s;  // by another schedule
      if (beaten || dominated(next.bound_s, candidate.memory_bytes))
        candidate.comes_to(Fate::ruled_out);
      else
        next.exact ? plan(next) : bound(next);
    }
    settle();
    return std::move(found_);
  }

 private:
  // Refuses what no group size changes, before shapes are counted.
  void check_prices() const {
    const LayerPricer pricer(request_.profile, request_.chosen.model.shape, request_.pricing);
    if (const int64_t vocabulary = request_.chosen.vocabulary; vocabulary > 0)
      pricer.gemm_seconds(
          end_work(TaskKind::head, Phase::forward, request_.chosen.model.shape, Flow::sharded, vocabulary));
  }

  // Enumerates groups first, then how the global batch is cut among replicas and into micro-batches.
  void enumerate() {
    const ModelShape& given = request_.chosen.model;
    const ParallelShape& p = given.shape.parallel;
    const int64_t samples = request_.global_batch;
    const verbs::LayerFlags& fixed = request_.fixed;
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
      if (model.dense.hidden > 0) dense_case(model.shape, model.dense.hidden);
    } catch (const BadInput&) {  // it does not divide
      return;
    }
    model.head_gradient_bytes = model.embedding_gradient_bytes = 0;
    add_ends(model, request_.chosen.vocabulary, request_.chosen.tied_embedding);
    for (size_t kept = 0; kept < states_.size(); ++kept) {
      const ModelShape keeps = keeping(model, states_[kept]);
      const MemoryEstimate needed =
          verbs::memory_of(request_.chosen, memory_request(keeps, keeps.shape, Flow::sharded));
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
      for (size_t schedule = 0; schedule < request_.schedules.size(); ++schedule) try {
          const Schedule& asked = *request_.schedules[schedule];
          open_.push({i, schedule, gemms_s(asked, pricer, c.model) + beside_s(asked, pricer, c)});
        } catch (const BadInput& error) {
          c.refuse(error);
        }
    }
  }

  void bound(Open next) {
    Candidate& c = candidates_[next.candidate];
    try {
      const Schedule& asked = *request_.schedules[next.schedule];
      verbs::ChosenModel chosen = request_.chosen;
      chosen.model = c.model;
      const LayerPricer pricer(request_.profile, c.model.shape, request_.pricing);
      next.bound_s = std::max(next.bound_s, plan_bound_s(asked, pricer, chosen) + beside_s(asked, pricer, c));
      next.exact = true;
      open_.push(next);
    } catch (const BadInput& error) {  // no price, or too many tasks
      c.refuse(error);
    }
  }

  // Returns the seconds of what is in no plan.
  double beside_s(const Schedule& schedule, const LayerPricer& pricer, const Candidate& c) const {
    return expert_sums_s(schedule, pricer, c.model) + all_heads_seconds(c.model, head_s(schedule, pricer, c.model), {});
  }

  // Returns the seconds of a micro-batch's output projection, which a schedule's variants do alike.
  double head_s(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model) const {
    const Flow flow = schedule.variants.empty() ? schedule.flow : schedule.variants.front()->flow;
    return head_seconds(pricer, model, request_.chosen.vocabulary, flow);
  }

  // Returns whether some planned shape is as fast as that bound and takes as little memory.
  bool dominated(double bound_s, double memory_bytes) const {
    return std::ranges::any_of(candidates_, [&](const Candidate& c) {
      return c.best && c.best->total_s() <= bound_s && c.best->best.memory_bytes <= memory_bytes;
    });
  }

  void plan(const Open& open) {
    Candidate& c = candidates_[open.candidate];
    verbs::ChosenModel chosen = request_.chosen;
    RankedSchedule row;
    for (size_t kept = c.kept; kept < states_.size(); ++kept) {
      chosen.model = keeping(c.model, states_[kept]);
      try {
        row = ranked_as(chosen, *request_.schedules[open.schedule], false);
      } catch (const BadInput& error) {  // too many tasks
        row.refused = error.what();
      }
      if (!row.too_large) break;  // this schedule may need more than others
    }
    if (!row.refused.empty()) {
      c.refusals.insert(row.refused);
      if (row.too_large) c.comes_to(Fate::too_large);
      return;
    }
    // The schedule that comes first wins among those that take equally long.
    if (c.best) {
      const double best_s = c.best->best.total_s();
      if (same_time(best_s, row.total_s()) ? c.schedule < open.schedule : best_s < row.total_s()) return;
    }
    c.schedule = open.schedule;
    const LayerPricer pricer(request_.profile, chosen.model.shape, request_.pricing);
    const double of_one_s = head_s(*request_.schedules[open.schedule], pricer, chosen.model);
    const double heads_s = all_heads_seconds(chosen.model, of_one_s, row.pass_s());
    c.best = RankedShape{chosen.model, std::move(row), heads_s};
    c.comes_to(Fate::planned);
    any_planned_ = true;
  }

  RankedSchedule ranked_as(const verbs::ChosenModel& chosen, const Schedule& schedule, bool checked) const {
    RankingRequest request{chosen, request_.profile, request_.degrees, request_.pricing};
    request.checked = checked;
    return ranked(request, schedule);
  }

  void settle() {
    const double least_open_s = open_.empty() ? std::numeric_limits<double>::infinity() : open_.top().bound_s;
    for (; !open_.empty(); open_.pop()) candidates_[open_.top().candidate].comes_to(Fate::not_reached);
    std::map<std::string, int> refusals;
    std::map<Fate, int> fates;
    for (Candidate& c : candidates_) {
      ++fates[c.fate];
      if (c.fate == Fate::planned) found_.ranked.push_back(*std::move(c.best));
      if (c.fate == Fate::refused || c.fate == Fate::unpriced)
        for (const std::string& reason : c.refusals) ++refusals[reason];
    }
    found_.not_reached = fates[Fate::not_reached];
    found_.ruled_out = fates[Fate::ruled_out];
    found_.too_large += fates[Fate::too_large];
    found_.unpriced = fates[Fate::unpriced];
    found_.refused = found_.unpriced + fates[Fate::refused];
    found_.refusals.assign(refusals.begin(), refusals.end());
    std::ranges::stable_sort(found_.refusals, std::greater<>(), &std::pair<std::string, int>::second);
    require<Unsupported>(
        !found_.ranked.empty(), "--shape: none of {} shapes can be planned: {} too large{}", found_.shapes,
        found_.too_large,
        found_.refused > 0 ? fmt::format(", {} refused: {}", found_.refused, found_.refusals.front().first) : "");
    std::ranges::stable_sort(found_.ranked, {}, &RankedShape::total_s);
    verbs::ChosenModel chosen = request_.chosen;
    chosen.model = found_.ranked.front().model;
    RankedSchedule& best = found_.ranked.front().best;
    best = ranked_as(chosen, *best.schedule, true);
    const double least_s = found_.ranked.front().total_s();
    found_.at_least_s = std::min(least_s, least_open_s);
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
  std::priority_queue<Open, std::vector<Open>, std::greater<>> open_;  // the least bound first
  bool any_planned_ = false;
  double least_memory_ = std::numeric_limits<double>::infinity();
  FoundShapes found_;
};

}  // namespace

FoundShapes find_shapes(const ShapeRequest& request) { return ShapeSearch(request).run(); }

}  // namespace moe::tuner
