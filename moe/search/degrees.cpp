#include "moe/search/degrees.h"

#include <algorithm>
#include <limits>

#include "moe/search/micro_ops.h"

namespace moe {
namespace {

constexpr double kNever = std::numeric_limits<double>::max();

// As many chunks as keep an AlltoAll's within the size of a micro-op.
int degree_by_size(const LayerPricer& pricer, int64_t micro_op_bytes) {
  const double bytes = whole_work(TaskKind::dispatch, Phase::forward, pricer.shape(), Flow::sharded).bytes;
  const double chunks = std::ceil(bytes / static_cast<double>(micro_op_bytes));
  return static_cast<int>(std::clamp(chunks, 1.0, static_cast<double>(largest_degree(pricer))));
}

int lane_of(const Structure& structure, Network network) {
  return static_cast<int>(std::ranges::find_if(structure.lanes, [&](const Lane& lane) { return lane.owns(network); }) -
                          structure.lanes.begin());
}

// Ascending; where a split costs many replays to find, those first that do well with all gradients in one place, so
// that the others are soon ruled out.
std::vector<int> backward_degrees(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer, int fixed) {
  std::vector<std::pair<double, int>> order;
  const bool split = splits_gradients(schedule) && !pricer.profile().contention.none();
  for (const int r : tried_degrees(fixed, pricer)) {
    const Decision decision = with_split(schedule, schedule.degrees == DegreePolicy::apart ? 1 : r, r, 0);
    order.emplace_back(split ? search.backward_seconds(schedule, pricer, decision) : 0, r);
  }
  std::ranges::sort(order);
  std::vector<int> degrees;
  for (const auto& [seconds, r] : order) degrees.push_back(r);
  return degrees;
}

}  // namespace

void check_choice(const Schedule& schedule, DegreeChoice& choice) {
  require<BadInput>(choice.forward >= 0 && choice.backward >= 0, "degree: found {} and {}, expected >= 0 (0: tuned)",
                    choice.forward, choice.backward);
  require<BadInput>(choice.micro_op_bytes >= 0, "micro-op: found {} bytes, expected >= 0 (0: tuned)",
                    choice.micro_op_bytes);
  if (schedule.degrees == DegreePolicy::one) {
    require<Unsupported>(choice.forward <= 1 && choice.backward <= 1, "schedule {} has degree 1 only, found {} and {}",
                         schedule.name, choice.forward, choice.backward);
    choice.forward = choice.backward = 1;
  } else if (schedule.degrees != DegreePolicy::apart) {
    if (choice.forward == 0) choice.forward = choice.backward;
    if (choice.backward == 0) choice.backward = choice.forward;
    require<Unsupported>(choice.forward == choice.backward,
                         "schedule {} has one degree for both phases, found {} and {}", schedule.name, choice.forward,
                         choice.backward);
  }
}

int largest_degree(const LayerPricer& pricer) {
  return static_cast<int>(std::min<int64_t>(kMaxDegree, capacity_rows(pricer.shape())));
}

std::vector<int> tried_degrees(int fixed, const LayerPricer& pricer) {
  if (fixed > 0) return {fixed};
  std::vector<int> tried;
  for (int r = 1; r <= largest_degree(pricer); ++r)
    if (pricer.shape().row_multiple == 1 || pricer.rows() % r == 0) tried.push_back(r);
  return tried;
}

bool too_small(const Schedule& schedule, const LayerPricer& pricer, int degree, int64_t min_chunk_bytes) {
  if (schedule.flow != Flow::dropped || degree == 1) return false;
  for (const TaskKind kind : {TaskKind::dispatch, TaskKind::allgather})
    if (whole_work(kind, Phase::forward, pricer.shape(), schedule.flow).bytes / degree <
        static_cast<double>(min_chunk_bytes))
      return true;
  return false;
}

std::vector<DegreeChoice> sized_choices(const Schedule& schedule, const LayerPricer& pricer,
                                        const DegreeChoice& choice) {
  const bool micro_ops = schedule.gradients == GradientPolicy::micro_ops && schedule.pieces == Pieces::cut;
  std::vector<int64_t> sizes{choice.micro_op_bytes};
  if (choice.micro_op_bytes == 0) sizes = {kMicroOpBytes};
  if (choice.micro_op_bytes == 0 && micro_ops)
    for (const int64_t megabytes : {1, 2, 5, 10, 20, 50, 100}) sizes.push_back(megabytes * 1'000'000);
  std::vector<DegreeChoice> sized;
  for (const int64_t size : sizes) {
    DegreeChoice& of = sized.emplace_back(choice);
    of.micro_op_bytes = size;
    if (schedule.degrees == DegreePolicy::by_size && choice.forward == 0)
      of.forward = of.backward = degree_by_size(pricer, size);
  }
  return sized;
}

DegreeChoice within_rows(DegreeChoice choice, const LayerPricer& pricer) {
  const int64_t rows = capacity_rows(pricer.shape());
  for (int* degree : {&choice.forward, &choice.backward}) {
    if (*degree <= rows) continue;
    pricer.note(fmt::format("degree above T_rank: found {}, treated as {}, one row a chunk", *degree, rows));
    *degree = static_cast<int>(rows);
  }
  return choice;
}

const CompiledStructure& LayerSearch::compiled(const Schedule& schedule, const LayerPricer& pricer,
                                               const Decision& decision, Phases phases) {
  const GradientPlacement placement = phases == Phases::forward
                                          ? GradientPlacement{}
                                          : placement_of(schedule, pricer.groups(), pricer.shape(), decision);
  return compiled(structure_key(schedule, pricer.groups(), decision, placement, phases));
}

const CompiledStructure& LayerSearch::compiled(const StructureKey& key) {
  if (key.order_forward.empty() && key.order_backward.empty()) return cache_.get(key);
  if (!ordered_ || ordered_key_ != key) ordered_ = std::make_unique<CompiledStructure>(key);
  ordered_key_ = key;
  return *ordered_;
}

double LayerSearch::makespan(const CompiledStructure& c, const LayerPricer& pricer) {
  return c.makespan(seconds_, pricer.profile().contention, ends_);
}

double LayerSearch::replay(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision,
                           Phases phases) {
  const CompiledStructure& c = compiled(schedule, pricer, decision, phases);
  std::vector<GradientSlice> slices;
  if (c.structure->slices > 0) slices = slices_of(schedule, pricer.shape(), decision);
  pricer.price(*c.structure, slices, seconds_);
  return makespan(c, pricer);
}

LayerSearch::Bounds LayerSearch::bounds(const Schedule& schedule, const LayerPricer& pricer) {
  const auto of_phase = [&](Phase phase) {
    const StructureKey key = structure_key(schedule, pricer.groups(), {}, {}, Phases::both);
    const auto [it, fresh] = bound_shapes_.try_emplace({key, phase});
    if (fresh) it->second = bound_shape(schedule, pricer.groups(), phase);
    return PhaseBound(schedule, it->second, pricer);
  };
  return {of_phase(Phase::forward), of_phase(Phase::backward)};
}

double LayerSearch::moe_seconds(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision,
                                Phases phases) {
  const CompiledStructure& c = compiled(schedule, pricer, decision, phases);
  replay(schedule, pricer, decision, phases);
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  std::vector<double> lane_end(c.structure->lanes.size());
  for (const Task& task : c.structure->tasks) {
    double& before = lane_end[static_cast<size_t>(task.lane)];
    if (is_chunked(task.kind)) {
      double start = before;
      for (const int id : task.after) start = std::max(start, ends_[static_cast<size_t>(id)]);
      begin = std::min(begin, start);
      end = std::max(end, ends_[static_cast<size_t>(task.id)]);
    }
    before = ends_[static_cast<size_t>(task.id)];
  }
  return end - begin;
}

// Micro-ops go where the replay without them leaves their lane idle.
LayerSearch::Candidate LayerSearch::best_micro_ops(const Schedule& schedule, const LayerPricer& pricer, int degree,
                                                   const DegreeChoice& choice) {
  Decision decision{degree, degree};
  decision.micro_op_bytes = choice.micro_op_bytes;
  const StructureKey key = structure_key(schedule, pricer.groups(), decision, {}, Phases::backward);
  const CompiledStructure& c = cache_.get(key);
  pricer.price(*c.structure, {}, seconds_);
  std::vector<MicroOp> pieces;
  const auto add = [&](TaskKind kind, int made_by, const std::vector<int64_t>& all) {
    const GroupKind group = group_of(schedule.flow, kind);
    if (!pricer.has(group)) return;
    const int lane = lane_of(*c.structure, pricer.groups()[static_cast<size_t>(group)].network);
    for (const int64_t bytes : all) pieces.push_back({pricer.gradient_seconds(bytes, kind), lane, made_by});
  };
  add(TaskKind::gradient, -1, gradient_pieces(schedule, pricer.shape(), decision.micro_op_bytes));
  add(TaskKind::expert_gradient, last_expert(*c.structure),
      expert_gradient_pieces(schedule, pricer.shape(), decision.micro_op_bytes));
  const MicroOps frozen = freeze_micro_ops(*c.structure, seconds_, pieces, schedule.holds_micro_ops);
  for (const MicroOps::Place& place : frozen.places) decision.gaps.push_back(place.gap);
  if (pricer.profile().contention.none()) return {decision, frozen.seconds};
  return {decision, replay(schedule, pricer, decision, Phases::backward)};
}

// The least of its splits; any of them where none beats `to_beat`.
LayerSearch::Candidate LayerSearch::best_backward(const Schedule& schedule, const LayerPricer& pricer, int degree,
                                                  double to_beat, const DegreeChoice& choice) {
  if (schedule.gradients == GradientPolicy::micro_ops) return best_micro_ops(schedule, pricer, degree, choice);
  const Decision decision{schedule.degrees == DegreePolicy::apart ? 1 : degree, degree};
  if (splits_gradients(schedule) && pricer.has(GroupKind::dp) && pricer.gradient_bytes() > 0)
    return best_split_of(schedule, pricer, decision, to_beat);
  return {decision, replay(schedule, pricer, decision, Phases::backward)};
}

LayerSearch::Candidate LayerSearch::best_forward(const Schedule& schedule, const LayerPricer& pricer,
                                                 const DegreeChoice& choice) {
  const PhaseBound bound = bounds(schedule, pricer).forward;
  Candidate best{{}, kNever};
  for (const int r : tried_degrees(choice.forward, pricer)) {
    if (best.seconds < kNever && !better(bound.at(r).seconds, best.seconds)) continue;
    const double seconds = replay(schedule, pricer, {r, 1}, Phases::forward);
    if (better(seconds, best.seconds)) best = {{r, 1}, seconds};
  }
  return best;
}

// r_f and r_b apart: each phase by itself.
LayerSearch::Candidate LayerSearch::search(const Schedule& schedule, const LayerPricer& pricer,
                                           const DegreeChoice& choice) {
  const Candidate forward = best_forward(schedule, pricer, choice);
  const PhaseBound bound = bounds(schedule, pricer).backward;
  Candidate best{{}, kNever};
  for (const int r : backward_degrees(*this, schedule, pricer, choice.backward)) {
    if (best.seconds < kNever && !better(bound.at(r).seconds, best.seconds)) continue;
    const Candidate c = best_backward(schedule, pricer, r, best.seconds, choice);
    const bool tie = !better(best.seconds, c.seconds) && r < best.decision.degree_backward;
    if (better(c.seconds, best.seconds) || tie) best = c;
  }
  best.decision.degree_forward = forward.decision.degree_forward;
  best.decision.order_forward = forward.decision.order_forward;
  best.seconds += forward.seconds;
  return best;
}

LayerSearch::Candidate LayerSearch::search_together(const Schedule& schedule, const LayerPricer& pricer,
                                                    const DegreeChoice& choice) {
  const Bounds bound = bounds(schedule, pricer);
  Candidate best{{}, kNever};
  for (const int r : tried_degrees(choice.forward, pricer)) {
    if (best.seconds < kNever && (!better(bound.forward.at(r).seconds + bound.backward.at(r).seconds, best.seconds) ||
                                  too_small(schedule, pricer, r, choice.min_chunk_bytes)))
      continue;
    const double forward = replay(schedule, pricer, {r, r}, Phases::forward);
    Candidate c = best_backward(schedule, pricer, r, best.seconds - forward, choice);
    c.seconds += forward;
    if (better(c.seconds, best.seconds)) best = c;
  }
  return best;
}

LayerResult LayerSearch::tune(const Schedule& schedule, const LayerPricer& pricer, DegreeChoice choice) {
  check_choice(schedule, choice);
  choice = within_rows(choice, pricer);
  if (!schedule.variants.empty()) return tune_variants(schedule, pricer, choice);
  check_shape(schedule, pricer.shape());
  if (schedule.packs_experts) return tune_packed(schedule, pricer, choice);
  return tune_one(schedule, pricer, choice);
}

LayerResult LayerSearch::tune_one(const Schedule& schedule, const LayerPricer& pricer, const DegreeChoice& choice) {
  const Case& shape = pricer.shape();  // a single row has degree 1 alone
  if (shape.rounding == Rounding::lcm && shape.row_multiple == 1 && pricer.rows() > 1)
    return tune_padded(schedule, pricer, choice);
  Candidate best{{}, kNever};
  for (const DegreeChoice& sized : sized_choices(schedule, pricer, choice)) {
    const Candidate c = schedule.degrees == DegreePolicy::apart ? search(schedule, pricer, sized)
                                                                : search_together(schedule, pricer, sized);
    if (better(c.seconds, best.seconds)) best = c;
  }
  LayerResult result = evaluate(schedule, pricer, best.decision);
  if (!schedule.searched_order) return result;
  improve_orders(schedule, pricer, choice, result);
  const bool exact = result.exact_order;
  const double gap = result.gap;
  result = evaluate(schedule, pricer, result.decision);
  result.exact_order = exact;
  result.gap = gap;
  return result;
}

LayerResult LayerSearch::evaluate(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision) {
  if (!schedule.variants.empty() || decided_case(pricer.shape(), decision) != pricer.shape())
    return evaluate_chosen(schedule, pricer, decision);
  check_decision(schedule, decision);
  LayerResult result;
  result.schedule = schedule.name;
  result.decision = decision;
  result.forward_s = replay(schedule, pricer, decision, Phases::forward);
  result.backward_s = replay(schedule, pricer, decision, Phases::backward);
  result.memory = layer_memory(pricer.shape(), schedule.flow);
  result.moe_forward_s = moe_seconds(schedule, pricer, decision, Phases::forward);
  result.moe_backward_s = moe_seconds(schedule, pricer, decision, Phases::backward);
  const Bounds bound = bounds(schedule, pricer);
  const auto f = bound.forward.degree_free(), b = bound.backward.degree_free();
  result.bound = {f.seconds, b.seconds, f.name, b.name};
  const auto f_at = bound.forward.at(decision.degree_forward), b_at = bound.backward.at(decision.degree_backward);
  result.degree_bound = {f_at.seconds, b_at.seconds, f_at.name, b_at.name};
  return result;
}

}  // namespace moe
