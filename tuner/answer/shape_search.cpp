#include "tuner/answer/shape_search.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "moe/base/check.h"
#include "moe/base/units.h"
#include "moe/search/model_search.h"
#include "moe/search/wave.h"
#include "moe/simulator/model_bound.h"

namespace moe::tuner {
namespace {

constexpr double kSearchShare = 0.6;      // share of the time for the search; the ranking has the rest
constexpr double kFrameworksShare = 0.2;  // share of the search's time for the searches of all frameworks
constexpr double kFrontShare = 0.03;      // least share of the time for plans with less memory
constexpr double kNone = std::numeric_limits<double>::infinity();
constexpr size_t kStates = 3;        // number of recompute choices whose lane bounds are cached
constexpr size_t kStagedShapes = 3;  // number of multi-stage shapes also planned by schedules that order iterations
constexpr int kBoundedAtFirst = 32;  // number of shapes to bound before the first plan; doubles for each later one

/// An open entry of the search with its lower bound: a shape without bounded schedules, or one of its schedules.
struct Open {
  size_t candidate, schedule;
  double bound_s;
  bool is_close = false;  // true: the bound comes from replayed passes
  bool operator>(const Open& other) const {
    return std::tie(bound_s, candidate, schedule) > std::tie(other.bound_s, other.candidate, other.schedule);
  }
};
using OpenQueue = std::priority_queue<Open, std::vector<Open>, std::greater<>>;  // the least bound first

/// The result for a shape. If its schedules have different results, the last one in this list counts.
enum class CandidateStatus { refused, unpriced, too_large, ruled_out, not_reached, planned };

/// Reasons with their counts, the most frequent first.
using Reasons = std::vector<std::pair<Refusal, int>>;

Reasons reasons_by_count(const std::map<Refusal, int>& counts) {
  Reasons reasons(counts.begin(), counts.end());
  std::ranges::stable_sort(reasons, std::greater<>(), &Reasons::value_type::second);
  return reasons;
}

// Returns the reason that applies to all shapes or, if none does, the most frequent one.
Refusal commonest(const Reasons& reasons, size_t shapes) {
  if (reasons.empty()) return {.reason = "none of the shapes that it runs fits into memory"};
  auto [refusal, count] = reasons.front();
  if (static_cast<size_t>(count) < shapes)
    (refusal.detail.empty() ? refusal.reason : refusal.detail) += " (most shapes)";
  return refusal;
}

/// A shape (by its index in the list), its best time, its result, and the distinct reasons why schedules refused it.
struct Candidate {
  size_t place;
  const ModelShape& model;
  double memory_bytes;  // lower bound of a rank's memory
  double best_s = std::numeric_limits<double>::infinity();
  CandidateStatus status = CandidateStatus::refused;
  std::set<Refusal> refusals = {};

  void raise_status(CandidateStatus other) { status = std::max(status, other); }
  void refuse(const Refusal& refusal) {
    refusals.insert(refusal);
    if (refusal.kind == Refusal::Kind::unpriced) raise_status(CandidateStatus::unpriced);
    if (refusal.kind == Refusal::Kind::too_large) raise_status(CandidateStatus::too_large);
  }
};

/// The least lane bound of a layer on its groups, and the first candidate for which it was computed.
struct LaneBound {
  LayerCase shape;
  int virtual_stages;
  double min_s;
  const Candidate* first;
};

/// A planned schedule of a candidate.
struct PlannedShape {
  size_t candidate, schedule;
  RankedShape shape;
  double total_s() const { return shape.total_s(); }
};

/// The Pareto front of time and memory of the plans so far.
class MemoryFront {
 public:
  void add(double seconds, double bytes) {
    if (min_bytes(seconds) <= bytes) return;
    auto slower = bytes_.insert_or_assign(seconds, bytes).first;
    for (++slower; slower != bytes_.end() && slower->second >= bytes;) slower = bytes_.erase(slower);
  }
  /// Returns the least memory of a plan that takes at most `seconds`; infinity if no plan does.
  double min_bytes(double seconds) const {
    const auto slower = bytes_.upper_bound(seconds);
    return slower == bytes_.begin() ? std::numeric_limits<double>::infinity() : std::prev(slower)->second;
  }
  /// Returns the time of the fastest plan; infinity if there is none.
  double fastest_s() const { return bytes_.empty() ? std::numeric_limits<double>::infinity() : bytes_.begin()->first; }

 private:
  std::map<double, double> bytes_;
};

// Returns schedules, or their variants, that differ in the properties that lane_bound_s and beside_s depend on.
std::vector<const Schedule*> distinct_schedules(const std::vector<const Schedule*>& schedules) {
  std::vector<const Schedule*> found;
  const auto alike = [](const Schedule* a, const Schedule* b) {
    return a->flow == b->flow && a->lanes == b->lanes && a->moe_part == b->moe_part &&
           a->halves_backward == b->halves_backward && a->packs_experts == b->packs_experts &&
           a->in_sequence == b->in_sequence;
  };
  const auto add = [&](const Schedule* schedule) {
    if (std::ranges::none_of(found, [&](const Schedule* other) { return alike(schedule, other); }))
      found.push_back(schedule);
  };
  for (const Schedule* schedule : schedules) {
    if (schedule->variants.empty()) add(schedule);
    for (const Schedule* variant : schedule->variants) add(variant);
  }
  return found;
}

using Clock = std::chrono::steady_clock;

/// The shapes of a request and their plans. Each plan is made once, for all searches over the shapes (ShapeWalk).
class ShapePlans {
 public:
  ShapePlans(const ShapeRequest& request, ShapeCandidates candidates)
      : request_(request), candidates_(std::move(candidates)) {}

  const ShapeRequest& request() const { return request_; }
  const ShapeCandidates& candidates() const { return candidates_; }
  BoundShapes& bound_shapes() { return bound_shapes_; }

  const RankedSchedule& plan(size_t candidate, const Schedule& schedule) {
    const auto [known, is_new] = plans_.try_emplace({candidate, &schedule});
    if (is_new) try {
        known->second = ranked_as(candidates_.fitting[candidate].model, schedule, false);
      } catch (const BadInput& error) {  // too many tasks
        known->second.refusal = refusal_of(error);
      }
    return known->second;
  }

  RankedSchedule ranked_as(const ModelShape& model, const Schedule& schedule, bool checked) const {
    commands::ChosenModel chosen = request_.chosen;
    chosen.model = model;
    RankingRequest request{chosen, request_.profile, request_.degrees, request_.pricing};
    request.checked = checked;
    return ranked(request, schedule);
  }

 private:
  const ShapeRequest& request_;
  const ShapeCandidates candidates_;
  BoundShapes bound_shapes_;
  std::map<std::pair<size_t, const Schedule*>, RankedSchedule> plans_;
};

// Moves schedules that order iterations behind the others and returns the number of the others. If the schedule of any
// order is listed, those of restricted orders are removed.
size_t sort_iterations_last(std::vector<const Schedule*>& schedules) {
  const auto is_free = [](const Schedule* schedule) { return schedule->iteration == IterationOrder::any; };
  if (std::ranges::any_of(schedules, is_free))
    std::erase_if(schedules, [&](const Schedule* s) { return s->orders_iterations() && !is_free(s); });
  const auto iterations = std::stable_partition(
      schedules.begin(), schedules.end(), [](const Schedule* schedule) { return !schedule->orders_iterations(); });
  return static_cast<size_t>(iterations - schedules.begin());
}

bool differ_in_trainer_alone(const ModelShape& a, const ModelShape& b) {
  LayerCase as_a = b.shape;
  as_a.parallel.trainer = a.shape.parallel.trainer;
  return a.shape == as_a && a.micro_batches == b.micro_batches && a.order == b.order &&
         a.virtual_stages == b.virtual_stages;
}

/// Walks through shapes by their lower bounds. Over all shapes it finds the whole front of time and memory; for a
/// framework it only finds the preferred plan. Schedules of iterations come last because their plans take longer to
/// make, so an answer exists before.
class ShapeWalk {
 public:
  ShapeWalk(ShapePlans& plans, std::vector<const Schedule*> schedules, const commands::Framework* framework)
      : plans_(plans),
        request_(plans.request()),
        schedules_(std::move(schedules)),
        others_(sort_iterations_last(schedules_)),
        distinct_schedules_(
            distinct_schedules({schedules_.begin(), schedules_.begin() + static_cast<std::ptrdiff_t>(others_)})),
        framework_(framework) {
    std::map<Refusal, int> counts;
    const std::vector<ShapeCandidate>& all = plans.candidates().fitting;
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<std::string> refusals;
      if (framework != nullptr) refusals = commands::refusals_of(*framework, all[i].model);
      if (refusals.empty()) candidates_.push_back({i, all[i].model, all[i].memory_bytes});
      for (const std::string& reason : refusals) ++counts[{.reason = reason}];
    }
    not_run_ = reasons_by_count(counts);
  }

  /// Plans a shape that another search found, and its schedule there, before all others.
  void begin_with(const RankedShape& found) {
    const auto same = [&](const Candidate& c) { return differ_in_trainer_alone(c.model, found.model); };
    const auto candidate = std::ranges::find_if(candidates_, same);
    if (candidate == candidates_.end()) return;  // too large by this search's rules of memory
    const auto place = static_cast<size_t>(candidate - candidates_.begin());
    found_before_.insert(place);
    const auto schedule = static_cast<size_t>(std::ranges::find(schedules_, found.best.schedule) - schedules_.begin());
    if (schedule < others_) plan({place, schedule, 0});
  }

  /// Walks until the preferred plan is certain, or until `end` if a plan exists then. It searches as long again, or for
  /// `least` if that is longer, for slower plans with less memory. Schedules of iterations come last.
  void run(Clock::time_point end, Clock::duration least) {
    const Clock::time_point start = Clock::now();
    if (others_ > 0) open_all();
    const Clock::time_point first_end = end - least;
    decide(first_end, true);
    if (others_ < schedules_.size()) {
      open_iterations();
      plan_iterations_of_found(first_end);
      decide(first_end, true);
      attempt_stages(first_end);
    }
    const Clock::time_point now = Clock::now();
    decide(std::min(end, now + std::max(now - start, least)), false);
    update_bound();
  }

  FrameworkPlans best() && {
    FrameworkPlans plans{.framework = framework_};
    if (planned_.empty()) {
      const bool in_time = plans_.candidates().counted_all;
      plans.refusal = !in_time ? Refusal{.kind = Refusal::Kind::not_in_time, .reason = "no shape was found in time"}
                      : candidates_.empty() ? commonest(not_run_, plans_.candidates().fitting.size())
                                            : commonest(refusals(), candidates_.size());
      return plans;
    }
    plans.rows.push_back(std::move(planned_[preferred_plan()].shape));
    plans.gap = plans_.candidates().counted_all ? plans.rows.front().total_s() / at_least_s_ - 1 : kNone;
    return plans;
  }

  void report(FoundShapes& found) && {
    count_statuses(found);
    require<Unsupported>(
        !planned_.empty(), "{}: none of {} shapes can be planned: {} too large{}", request_.flag, found.shapes,
        found.too_large,
        found.refused > 0 ? fmt::format(", {} refused: {}", found.refused, found.refusals.front().first.text()) : "");
    found.at_least_s = at_least_s_;
    found.staged_iterations = staged_iterations_;
    show(preferred_plan(), found);
    RankedShape& first = found.ranked.front();
    first.best = plans_.ranked_as(first.model, *first.best.schedule, true);
  }

 private:
  // `fastest_alone`: stops once no open plan can be as fast as the fastest, up to kEquallyFast.
  void decide(Clock::time_point end, bool fastest_alone) {
    while (!(shapes_.empty() && bounded_schedules_.empty())) {
      if (fastest_alone && min_open_s() > front_.fastest_s() * (1 + kEquallyFast)) break;
      if (!planned_.empty() && Clock::now() >= end) break;
      step();
    }
  }

  // Takes the entry with the least bound. Some plans are made early, so that an answer exists if the search stops.
  void step() {
    const bool plans =
        shapes_.empty() || (!bounded_schedules_.empty() && (bounded_ >= bounded_before_plan_ ||
                                                            bounded_schedules_.top().bound_s <= shapes_.top().bound_s));
    OpenQueue& queue = plans ? bounded_schedules_ : shapes_;
    const Open next = queue.top();
    queue.pop();
    Candidate& candidate = candidates_[next.candidate];
    const bool beaten = candidate.best_s * (1 + kEquallyFast) < next.bound_s;  // by another schedule of this shape
    if (beaten || is_ruled_out(next.bound_s, candidate.memory_bytes)) {
      candidate.raise_status(CandidateStatus::ruled_out);
    } else if (plans && !next.is_close) {
      bound_closely(next);
    } else if (plans) {
      if (bounded_ >= bounded_before_plan_) bounded_before_plan_ *= 2;
      plan(next);
    } else {
      ++bounded_;
      bound(next.candidate, 0, others_);
    }
  }

  // Returns a lower bound on the seconds of all open plans; infinity if all are decided.
  double min_open_s() const {
    double min_s = kNone;
    for (const OpenQueue* queue : {&shapes_, &bounded_schedules_})
      if (!queue->empty()) min_s = std::min(min_s, queue->top().bound_s);
    return min_s;
  }

  void open_all() {
    for (size_t i = 0; i < candidates_.size(); ++i) {
      Candidate& c = candidates_[i];
      const LayerPricer pricer(request_.profile, c.model.shape, request_.pricing);
      const double in_plan_s = min_on_lanes_s(c, pricer);
      if (in_plan_s == kNone) continue;
      // The least over schedules is taken separately for the work in plans and the work beside them. A schedule with
      // variants has the same work beside its plan as its first variant.
      double beside_plan_s = kNone;
      for (const Schedule* schedule : distinct_schedules_) try {
          const double step_s = c.model.step.planned ? min_step_seconds(*schedule, pricer, c.model) : 0;
          beside_plan_s = std::min(beside_plan_s, step_s + unplanned_seconds(*schedule, pricer, c));
        } catch (const BadInput& error) {
          c.refuse(refusal_of(error));
        }
      if (beside_plan_s < kNone) shapes_.push({i, 0, in_plan_s + beside_plan_s});
    }
  }

  // Opens every shape of one stage under the schedules of iterations, or all shapes if there are no other schedules.
  void open_iterations() {
    for (size_t i = 0; i < candidates_.size(); ++i)
      if (others_ == 0 || candidates_[i].model.shape.parallel.pp == 1) bound(i, others_, schedules_.size());
  }

  // Plans, by the schedules of iterations, the shapes of one stage that other searches found.
  void plan_iterations_of_found(Clock::time_point end) {
    for (const size_t candidate : found_before_)
      for (size_t schedule = others_; schedule < schedules_.size(); ++schedule)
        if (candidates_[candidate].model.shape.parallel.pp == 1 && Clock::now() < end) plan({candidate, schedule, 0});
  }

  // Plans, by the schedules of iterations, the shapes of several stages that are fastest under other schedules. Their
  // bound is too loose to decide the other shapes.
  void attempt_stages(Clock::time_point end) {
    if (others_ == 0) return;
    std::vector<std::pair<double, size_t>> fastest;
    for (size_t i = 0; i < candidates_.size(); ++i)
      if (candidates_[i].status == CandidateStatus::planned && candidates_[i].model.shape.parallel.pp > 1)
        fastest.emplace_back(candidates_[i].best_s, i);
    std::ranges::sort(fastest);
    if (fastest.empty()) return;
    staged_iterations_ = 0;
    for (size_t n = 0; n < std::min(kStagedShapes, fastest.size()) && Clock::now() < end; ++n, ++*staged_iterations_)
      for (size_t schedule = others_; schedule < schedules_.size(); ++schedule)
        plan({fastest[n].second, schedule, fastest[n].first});
  }

  // Returns the least lane_bound_s. Shapes that differ only in ZeRO and order are adjacent and share it.
  double min_on_lanes_s(Candidate& c, const LayerPricer& pricer) {
    ModelShape model = c.model;
    model.shape.parallel.zero = 1;  // with ZeRO 1 most packings fit
    model.order = PipelineOrder::one_f_one_b;
    for (const LaneBound& known : lane_bounds_) {
      if (known.shape != model.shape || known.virtual_stages != model.virtual_stages) continue;
      for (const Refusal& refusal : known.first->refusals) c.refusals.insert(refusal);
      c.raise_status(known.first->status);
      return known.min_s;
    }
    if (lane_bounds_.size() > kStates) lane_bounds_.clear();
    const DegreeChoice choice = choice_for(model);
    ModelShape any_order = model;  // a bound under GPipe's order is valid for the others
    any_order.order = PipelineOrder::gpipe;
    double min_s = kNone;
    for (const Schedule* schedule : distinct_schedules_) try {
        min_s = std::min(min_s, lane_bound_s(*schedule, pricer, any_order, choice, plans_.bound_shapes()));
      } catch (const BadInput& error) {
        c.refuse(refusal_of(error));
      }
    lane_bounds_.push_back({model.shape, model.virtual_stages, min_s, &c});
    return min_s;
  }

  // Bounds a shape under the schedules [first, last).
  void bound(size_t candidate, size_t first, size_t last) {
    Candidate& c = candidates_[candidate];
    const LayerPricer pricer(request_.profile, c.model.shape, request_.pricing);
    commands::ChosenModel chosen = request_.chosen;
    chosen.model = c.model;
    const DegreeChoice choice = choice_for(c.model);
    for (size_t i = first; i < last; ++i) try {
        const Schedule& schedule = *schedules_[i];
        const double bound_s = plan_bound_s(schedule, pricer, chosen, choice, plans_.bound_shapes());
        bounded_schedules_.push({candidate, i, bound_s + unplanned_seconds(schedule, pricer, c)});
      } catch (const BadInput& error) {  // no price, or too many tasks
        c.refuse(refusal_of(error));
      }
  }

  // Tightens the bound of a shape's schedule by replays of its passes.
  void bound_closely(Open open) {
    const Candidate& c = candidates_[open.candidate];
    const LayerPricer pricer(request_.profile, c.model.shape, request_.pricing);
    commands::ChosenModel chosen = request_.chosen;
    chosen.model = c.model;
    const Schedule& schedule = *schedules_[open.schedule];
    try {
      const double in_plan_s = replayed_bound_s(schedule, pricer, chosen, choice_for(c.model), plans_.bound_shapes());
      open.bound_s = std::max(open.bound_s, in_plan_s + unplanned_seconds(schedule, pricer, c));
    } catch (const BadInput&) {  // the degree is invalid, which the plan will report
    }
    open.is_close = true;
    bounded_schedules_.push(open);
  }

  DegreeChoice choice_for(const ModelShape& model) const {
    commands::ChosenModel chosen = request_.chosen;
    chosen.model = model;
    return commands::within_memory(request_.degrees, request_.profile.memory_bytes, chosen);
  }

  // Returns the seconds of the work that is in no plan.
  double unplanned_seconds(const Schedule& schedule, const LayerPricer& pricer, const Candidate& c) const {
    const double head_s = head_seconds(schedule, pricer, c.model, request_.chosen.vocabulary);
    return expert_sums_s(schedule, pricer, c.model) + all_heads_seconds(c.model, head_s, {});
  }

  // Returns whether some plan is preferred to all that take at least `bound_s` and `memory_bytes`: as fast with less
  // memory, or clearly faster with no more. For a framework, a clearly faster plan is enough.
  bool is_ruled_out(double bound_s, double memory_bytes) const {
    const double clearly_faster_s = bound_s / (1 + kEquallyFast);
    return front_.min_bytes(bound_s) < memory_bytes || front_.min_bytes(clearly_faster_s) <= memory_bytes ||
           (framework_ != nullptr && front_.fastest_s() < clearly_faster_s);
  }

  void plan(const Open& open) {
    if (!attempted_.insert({open.candidate, open.schedule}).second) return;
    Candidate& c = candidates_[open.candidate];
    const RankedSchedule& row = plans_.plan(c.place, *schedules_[open.schedule]);
    if (row.refusal) {
      c.refuse(*row.refusal);
      return;
    }
    planned_.push_back({open.candidate, open.schedule, {c.model, row}});
    c.best_s = std::min(c.best_s, row.total_s());
    front_.add(row.total_s(), row.memory_bytes);
    c.raise_status(CandidateStatus::planned);
  }

  // Decides the open entries, and sets the lower bound on all plans.
  void update_bound() {
    at_least_s_ = min_open_s();
    for (OpenQueue* queue : {&shapes_, &bounded_schedules_}) {
      for (; !queue->empty(); queue->pop()) {
        Candidate& c = candidates_[queue->top().candidate];
        c.raise_status(is_ruled_out(queue->top().bound_s, c.memory_bytes) ? CandidateStatus::ruled_out
                                                                          : CandidateStatus::not_reached);
      }
    }
    for (const PlannedShape& p : planned_) at_least_s_ = std::min(at_least_s_, p.total_s());
    std::ranges::sort(planned_, {}, [](const PlannedShape& p) { return std::pair(p.candidate, p.schedule); });
  }

  size_t preferred_plan() const {
    std::vector<PlanCost> costs;
    for (const PlannedShape& p : planned_) costs.push_back(cost_of(p.shape.best));
    return preferred(costs);
  }

  // Returns why shapes were refused under every schedule, with counts.
  Reasons refusals() const {
    std::map<Refusal, int> counts;
    for (const Candidate& c : candidates_)
      if (c.status == CandidateStatus::refused || c.status == CandidateStatus::unpriced)
        for (const Refusal& refusal : c.refusals) ++counts[refusal];
    return reasons_by_count(counts);
  }

  void count_statuses(FoundShapes& found) const {
    std::map<CandidateStatus, int> fates;
    for (const Candidate& c : candidates_) ++fates[c.status];
    found.not_reached = fates[CandidateStatus::not_reached];
    found.ruled_out = fates[CandidateStatus::ruled_out];
    found.too_large += fates[CandidateStatus::too_large];
    found.unpriced = fates[CandidateStatus::unpriced];
    found.refused = found.unpriced + fates[CandidateStatus::refused];
    found.refusals = refusals();
  }

  // Lists the preferred plan, then the others by time: the fastest of each shape, and all plans on the front.
  void show(size_t preferred, FoundShapes& found) {
    std::vector<size_t> order(planned_.size());
    std::iota(order.begin(), order.end(), 0);
    const auto memory = [&](size_t i) { return planned_[i].shape.best.memory_bytes; };
    std::ranges::stable_sort(order, {}, [&](size_t i) { return planned_[i].total_s(); });
    for (auto first = order.begin(); first != order.end();) {  // of equal times, the least memory comes first
      const auto last = std::find_if(first, order.end(), [&](size_t i) {
        return !is_equally_fast(planned_[i].total_s(), planned_[*first].total_s());
      });
      std::stable_sort(first, last, [&](size_t a, size_t b) { return memory(a) < memory(b); });
      first = last;
    }
    if (!is_equally_fast(planned_[order.front()].total_s(), planned_[preferred].total_s()))
      found.fastest = planned_[order.front()].shape;
    found.ranked.push_back(planned_[preferred].shape);
    std::set<size_t> shown{planned_[preferred].candidate};
    double min_memory = std::numeric_limits<double>::infinity();
    for (const size_t i : order) {
      RankedShape& shape = planned_[i].shape;
      shape.pareto = memory(i) < min_memory;
      min_memory = std::min(min_memory, memory(i));
      const bool is_first = shown.insert(planned_[i].candidate).second;
      if (i == preferred)
        found.ranked.front().pareto = shape.pareto;
      else if (is_first || shape.pareto)
        found.ranked.push_back(std::move(shape));
    }
  }

  ShapePlans& plans_;
  const ShapeRequest& request_;
  std::vector<const Schedule*> schedules_;
  const size_t others_;  // number of schedules that order no iterations; the rest follows once these are decided
  const std::vector<const Schedule*> distinct_schedules_;
  const commands::Framework* framework_;  // null: any framework
  Reasons not_run_;                       // reasons why the framework does not run shapes
  std::vector<Candidate> candidates_;
  OpenQueue shapes_, bounded_schedules_;
  std::vector<LaneBound> lane_bounds_;
  int bounded_ = 0, bounded_before_plan_ = kBoundedAtFirst;
  std::set<size_t> found_before_;                  // candidates that other searches found
  std::set<std::pair<size_t, size_t>> attempted_;  // candidates and schedules that were planned or refused
  std::vector<PlannedShape> planned_;
  MemoryFront front_;
  double at_least_s_ = kNone;
  std::optional<int> staged_iterations_;
};

// Throws for missing prices that are the same under all groups, before shapes are counted.
void check_prices(const ShapeRequest& request) {
  const LayerPricer pricer(request.profile, request.chosen.model.shape, request.pricing);
  if (const int64_t vocabulary = request.chosen.vocabulary; vocabulary > 0)
    pricer.gemm_seconds(
        end_work(TaskKind::head, Phase::forward, request.chosen.model.shape, Flow::sharded, vocabulary));
}

void require_any(const ShapeRequest& request, const ShapeCandidates& all) {
  const LayerShape& layer = request.chosen.model.shape.layer;
  const int shapes = static_cast<int>(all.fitting.size()) + all.too_large;
  if (shapes == 0 && all.not_run) throw Unsupported(fmt::format("{}: {}", request.flag, *all.not_run));
  require<Unsupported>(shapes > 0,
                       "{}: found no groups of {} ranks that agree with the flags and divide {} experts, "
                       "{} heads, hidden {} and {} samples; expected other sizes, or fewer flags of groups",
                       request.flag, request.chosen.model.shape.parallel.ranks(), layer.experts, layer.heads,
                       layer.hidden, request.global_batch);
  require<Unsupported>(!all.fitting.empty(), "{}: none of {} shapes fits: the smallest needs {}, a rank has {}",
                       request.flag, shapes, human_bytes(all.min_bytes),
                       human_bytes(request.profile.memory_bytes.value_or(0)));
}

// Returns whether all schedules whose plans `wave` may take are ranked themselves. Those that order iterations do not
// count, because their plans are among the orders of `wave`.
bool includes_rivals(const std::vector<const Schedule*>& schedules) {
  return std::ranges::all_of(rivals_of_wave(), [&](const Schedule* rival) {
    return rival->orders_iterations() || std::ranges::find(schedules, rival) != schedules.end();
  });
}

// Returns whether the shape differs from all others in the states that ranks keep. It does not if it has no
// recomputation and attention's kernel keeps no scores, because selective recomputation is then the same.
bool is_apart(const ShapeRequest& request, const ParallelShape& p) {
  return request.fixed.recompute || p.recompute != Recompute::none || !memory_rules(p.trainer).fused_attention;
}

// Returns the shapes that fit by another trainer's rules of memory. Stops at `end` if at least one shape has been
// found.
ShapeCandidates counted_as(Trainer trainer, const ShapePlans& plans, Clock::time_point end) {
  const ShapeRequest& request = plans.request();
  const ShapeCandidates& all = plans.candidates();
  ShapeCandidates found;
  const auto count = [&](ModelShape model) {
    found.counted_all &= Clock::now() < end;
    if (!found.counted_all && !found.fitting.empty()) return;
    model.shape.parallel.trainer = trainer;
    if (!is_apart(request, model.shape.parallel)) return;
    const MemoryEstimate needed =
        commands::memory_of(request.chosen, memory_request(model, model.shape, Flow::sharded));
    if (request.profile.memory_bytes && memory_refusal(needed, *request.profile.memory_bytes)) return;
    found.fitting.push_back({std::move(model), needed.total()});
  };
  for (const ShapeCandidate& candidate : all.fitting) count(candidate.model);
  for (const ModelShape& model : all.others) count(model);
  return found;
}

// Returns the best plans of the frameworks that do not run every schedule. Each search gets an equal part of the
// remaining time. Frameworks with the same rules of memory share their candidates and plans.
std::vector<FrameworkPlans> plans_of_frameworks(ShapePlans& plans, Clock::time_point end) {
  std::vector<FrameworkPlans> found;
  const Trainer trainer = plans.request().chosen.model.shape.parallel.trainer;
  std::map<Trainer, ShapePlans> others;
  std::span<const commands::Framework> left = plans.request().frameworks;
  for (; !left.empty(); left = left.subspan(1)) {
    const commands::Framework& framework = left.front();
    if (framework.runs_all_schedules()) continue;
    const Clock::time_point now = Clock::now(), own_end = now + (end - now) / static_cast<int>(left.size());
    const Trainer own = framework.trainer.value_or(trainer);
    if (own != trainer && !others.contains(own))
      others.try_emplace(own, plans.request(), counted_as(own, plans, own_end));
    ShapeWalk walk(own == trainer ? plans : others.at(own), framework.schedules(), &framework);
    walk.run(own_end, Clock::duration::zero());
    found.push_back(std::move(walk).best());
  }
  return found;
}

}  // namespace

FoundShapes find_shapes(const ShapeRequest& asked) {
  const Clock::time_point start = Clock::now();
  const auto after = [&](double share) {
    return start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(asked.seconds * share));
  };
  ShapeRequest request = asked;
  request.degrees.considers_rivals = !includes_rivals(asked.schedules);
  check_prices(request);
  ShapePlans plans(request, shape_candidates(request));
  const ShapeCandidates& all = plans.candidates();
  require_any(request, all);
  FoundShapes found{.global_batch = request.global_batch,
                    .ranked = {},
                    .shapes = static_cast<int>(all.fitting.size()) + all.too_large,
                    .too_large = all.too_large,
                    .deadline = after(1)};
  found.plans_by_framework = plans_of_frameworks(plans, after(kFrameworksShare));
  ShapeWalk walk(plans, request.schedules, nullptr);
  for (const FrameworkPlans& framework : found.plans_by_framework)
    if (!framework.rows.empty()) walk.begin_with(framework.rows.front());
  walk.run(after(kSearchShare), after(kFrontShare) - start);
  std::move(walk).report(found);
  return found;
}

namespace {

constexpr int64_t kMinContext = 4096;  // tokens of a sample on a rank of a searched CP group

/// The states that a rank keeps in memory.
struct KeptStates {
  int zero;
  Recompute recompute;
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

// Returns the choices of kept states that flags leave open. ZeRO 1 shards the optimizer's step and gathers
// weights; recomputation repeats the scores, or whole forwards, in every pass.
std::vector<KeptStates> states_of(const ShapeRequest& request) {
  const ParallelShape& p = request.chosen.model.shape.parallel;
  const std::vector<int> zeros = request.fixed.zero ? std::vector<int>{p.zero} : std::vector<int>{0, 1};
  std::vector<Recompute> again{p.recompute};
  if (!request.fixed.recompute) again = {Recompute::none, Recompute::selective};
  if (!request.fixed.recompute && request.chosen.model.split().parts == 1) again.push_back(Recompute::full);
  std::vector<KeptStates> states;
  for (const int zero : zeros)
    for (const Recompute recompute : again) states.push_back({zero, recompute});
  return states;
}

class Enumeration {
 public:
  explicit Enumeration(const ShapeRequest& request) : request_(request), states_(states_of(request)) {}

  ShapeCandidates run() {
    enumerate();
    return std::move(found_);
  }

 private:
  // Enumerates the groups and, for each of them, the ways to divide the global batch into micro-batches.
  void enumerate() {
    const ModelShape& given = request_.chosen.model;
    const ParallelShape& p = given.shape.parallel;
    const commands::LayerFlags& fixed = request_.fixed;
    for (const int64_t pp : choices(fixed.pp, given.layers == 1 ? 1 : p.ranks()))
      for (const int64_t cp : context_choices(p.ranks() / pp))
        for (const int64_t mp : choices(fixed.mp, p.ranks() / pp))
          if (p.ranks() % (pp * cp * mp) == 0 && pp <= given.layers) add_expert_groups(pp, cp, mp);
  }

  // Adds the shapes of these groups with all groups of experts, if their replicas divide the global batch.
  void add_expert_groups(int64_t pp, int64_t cp, int64_t mp) {
    const ModelShape& given = request_.chosen.model;
    const ParallelShape& p = given.shape.parallel;
    const commands::LayerFlags& fixed = request_.fixed;
    const int64_t dp = p.ranks() / (pp * cp * mp);
    if (request_.global_batch % dp != 0 || (fixed.dp && *fixed.dp != dp)) return;
    for (const int64_t ep : choices(fixed.ep, given.shape.layer.experts))
      for (const int64_t esp : choices(fixed.esp, p.ranks() / pp))
        for (const bool inside : placements(ep, esp))
          for (const CpExchange exchange : exchanges(cp)) {
            ModelShape model = given;
            model.shape.parallel = {.nodes = p.nodes,
                                    .ranks_per_node = p.ranks_per_node,
                                    .dp = 0,
                                    .mp = static_cast<int>(mp),
                                    .ep = static_cast<int>(ep),
                                    .esp = static_cast<int>(esp),
                                    .pp = static_cast<int>(pp),
                                    .cp = static_cast<int>(cp),
                                    .cp_exchange = exchange,
                                    .ep_inside = inside,
                                    .trainer = p.trainer};
            add_batches(model, request_.global_batch / dp);
          }
  }

  // Returns the values of ep_inside to try: one if it is fixed, or if both place ranks alike.
  std::vector<bool> placements(int64_t ep, int64_t esp) const {
    const ParallelShape& p = request_.chosen.model.shape.parallel;
    if (request_.fixed.placement) return {p.ep_inside};
    if (ep == 1 || esp == 1 || p.nodes == 1) return {false};
    return {false, true};
  }

  // Returns the CP sizes to try: those that leave each rank at least kMinContext tokens of a sample.
  std::vector<int64_t> context_choices(int64_t ranks) const {
    std::vector<int64_t> sizes = choices(request_.fixed.cp, ranks);
    if (request_.fixed.cp) return sizes;
    const int64_t seq = request_.chosen.model.shape.layer.seq;
    std::erase_if(sizes, [&](int64_t cp) { return cp > 1 && (seq % (2 * cp) != 0 || seq / cp < kMinContext); });
    return sizes;
  }

  std::vector<CpExchange> exchanges(int64_t cp) const {
    if (request_.fixed.cp_exchange) return {*request_.fixed.cp_exchange};
    if (cp == 1) return {CpExchange::allgather};
    return {CpExchange::allgather, CpExchange::ring};
  }

  void add_batches(const ModelShape& groups, int64_t samples_a_replica) {
    const bool one = !request_.chosen.stack && groups.shape.parallel.pp == 1;
    for (const int64_t micro_batches : divisors(samples_a_replica)) {
      if (request_.fixed_batch && samples_a_replica / micro_batches != groups.shape.layer.batch) continue;
      if (request_.fixed_micro_batches ? micro_batches != groups.whole_micro_batches() : one && micro_batches > 1)
        continue;
      for (const PipelineOrder order : {PipelineOrder::gpipe, PipelineOrder::one_f_one_b}) {
        const bool one_order = request_.fixed_order || micro_batches == 1;
        if (one_order && order != groups.order) continue;
        ModelShape model = groups;
        model.micro_batches = static_cast<int>(micro_batches) * model.split().parts;
        model.order = order;
        model.shape.layer.batch = samples_a_replica / micro_batches;
        if (model.shape.parallel.pp == 1 || !request_.fixed_virtual_stages) model.virtual_stages = 1;
        add(model);
      }
    }
  }

  void add(const ModelShape& shape) {
    std::optional<ModelShape> found = divided(shape, request_.chosen);
    if (!found) return;
    ModelShape& model = *found;
    const bool shards = model.shape.parallel.replicas() > 1 || model.shape.parallel.edp > 1;
    for (const auto& [zero, recompute] : states_) {
      if (zero > 0 && !shards && !request_.fixed.zero) continue;  // equals no sharding
      model.shape.parallel.zero = zero;
      model.shape.parallel.recompute = recompute;
      if (offload_refusal(model.shape)) continue;
      if (request_.framework != nullptr)
        if (std::vector<std::string> refusals = commands::refusals_of(*request_.framework, model); !refusals.empty()) {
          found_.not_run = std::move(refusals.front());
          continue;
        }
      if (!is_apart(request_, model.shape.parallel)) {
        found_.others.push_back(model);
        continue;
      }
      const MemoryEstimate needed =
          commands::memory_of(request_.chosen, memory_request(model, model.shape, Flow::sharded));
      found_.min_bytes = std::min(found_.min_bytes, needed.total());
      if (request_.profile.memory_bytes && memory_refusal(needed, *request_.profile.memory_bytes)) {
        ++found_.too_large;
        found_.others.push_back(model);
      } else {
        found_.fitting.push_back({model, needed.total()});
      }
    }
  }

  const ShapeRequest& request_;
  const std::vector<KeptStates> states_;
  ShapeCandidates found_;
};

}  // namespace

std::optional<ModelShape> divided(ModelShape model, const commands::ChosenModel& chosen) {
  try {
    model.shape = complete(model.shape.layer, model.shape.parallel, model.shape.rounding);
    if (model.dense.hidden > 0) dense_case(model.shape, model.dense.hidden);
    check_stages(model.split(), model.order, model.micro_batches);
  } catch (const BadInput&) {
    return std::nullopt;
  }
  add_ends(model, chosen.vocabulary, chosen.tied_embedding);
  return model;
}

ShapeCandidates shape_candidates(const ShapeRequest& request) { return Enumeration(request).run(); }

namespace {

/// A lower bound on the time of a model under a schedule that has no variants and does not pack experts.
using PlainBound = std::function<double(const Schedule&, const LayerPricer&, const ModelShape&)>;

// Returns the least bound over the options of a schedule: variants, packings of experts that fit, and the rivals whose
// plans `wave` may take. A schedule that orders whole iterations has a bound of its own, because its passes do not wait
// for the previous one.
double min_of(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, const DegreeChoice& choice,
              const PlainBound& bound) {
  if (schedule.orders_iterations()) {
    DegreeChoice fixed = within_rows(choice, pricer);
    check_choice(schedule, fixed);
    const double min_s = wave_bound(pricer, model,
                                    {.keep = default_kept_layers(model, schedule.iteration),
                                     .forward = fixed.forward,
                                     .backward = fixed.backward,
                                     .order = schedule.iteration});
    if (schedule.iteration != IterationOrder::any || !choice.considers_rivals) return min_s;
    double rivals_s = min_s;
    for (const Schedule* rival : rivals_of_wave()) try {
        rivals_s = std::min(rivals_s, min_of(*rival, pricer, model, choice, bound));
      } catch (const BadInput&) {  // a missing price or degree, so this option is not available
      }
    return rivals_s;
  }
  double least = std::numeric_limits<double>::infinity();
  for (const Schedule* variant : schedule.variants)
    least = std::min(least, min_of(*variant, pricer, model, choice, bound));
  if (!schedule.variants.empty()) return least;
  least = bound(schedule, pricer, model);
  if (!schedule.packs_experts) return least;
  for (int packing = 2; model.shape.parallel.ep % packing == 0; packing *= 2) try {
      ModelShape packed = model;
      packed.shape = decided_case(model.shape, {.packing = packing});
      if (choice.fits && !choice.fits(packed.shape, schedule.flow)) break;
      least = std::min(least, bound(schedule, LayerPricer(pricer.profile(), packed.shape, pricer.options()), packed));
    } catch (const Unsupported&) {  // no such packing, or no price for its groups
      break;
    }
  return least;
}

}  // namespace

double lane_bound_s(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                    const DegreeChoice& choice, BoundShapes& shapes) {
  return min_of(schedule, pricer, model, choice,
                [&](const Schedule& plain, const LayerPricer& of, const ModelShape& m) {
                  return busiest_bound(plain, of, m, shapes);
                });
}

double plan_bound_s(const Schedule& schedule, const LayerPricer& pricer, const commands::ChosenModel& chosen,
                    const DegreeChoice& choice, BoundShapes& shapes) {
  const bool layer = is_one_layer(chosen);
  return min_of(schedule, pricer, chosen.model, choice,
                [&](const Schedule& plain, const LayerPricer& of, const ModelShape& m) {
                  return layer ? degree_free_bound(plain, of).total_s() : model_bound(plain, of, m, {}, shapes);
                });
}

double replayed_bound_s(const Schedule& schedule, const LayerPricer& pricer, const commands::ChosenModel& chosen,
                        const DegreeChoice& choice, BoundShapes& shapes) {
  if (is_one_layer(chosen) || pricer.shape().rounding == Rounding::lcm) return 0;  // degrees change the padding of rows
  return min_of(schedule, pricer, chosen.model, choice,
                [&](const Schedule& plain, const LayerPricer& of, const ModelShape& m) {
                  DegreeChoice fixed = within_rows(choice, of);
                  if (!schedule.variants.empty()) fixed.forward = fixed.backward = 0;
                  check_choice(plain, fixed);
                  const std::vector<int> forward = tried_degrees(fixed.forward, of);
                  const std::vector<int> backward = tried_degrees(fixed.backward, of);
                  return replayed_bound(plain, of, m, {forward, backward}, shapes);
                });
}

}  // namespace moe::tuner
