#include "moe/schedule/schedule.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "moe/base/registry.h"
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/schedules.h"

namespace moe {
namespace {

int64_t first_bytes(const Schedule& schedule, const Decision& d) {
  return schedule.gradients == GradientPolicy::adaptive ? d.gar_in_moe_bytes : d.gar_beside_dense_bytes;
}

void check_degrees(const Schedule& schedule, const Decision& d) {
  const bool one = schedule.degrees == DegreePolicy::one, apart = schedule.degrees == DegreePolicy::apart;
  require<BadInput>(!one || (d.degree_forward == 1 && d.degree_backward == 1),
                    "schedule {} has degree 1 only, found {} and {}", schedule.name, d.degree_forward,
                    d.degree_backward);
  require<BadInput>(apart || d.degree_forward == d.degree_backward,
                    "schedule {} has one degree for both phases, found {} and {}", schedule.name, d.degree_forward,
                    d.degree_backward);
}

void check_order(const Schedule& schedule, const LaneOrder& order, int degree) {
  if (order.empty()) return;
  require<BadInput>(schedule.searched_order, "schedule {} has one lane order, found {}", schedule.name, order);
  int gathers = 0, scatters = 0;
  for (const char task : order) {
    require<BadInput>(task == 'G' || task == 'S', "lane order {}: found '{}', expected G or S", order, task);
    ++(task == 'G' ? gathers : scatters);
    require<BadInput>(scatters <= gathers, "lane order {}: found S {} before its G", order, scatters);
  }
  require<BadInput>(gathers == degree && scatters == degree, "lane order {}: found {} G and {} S, expected {} of each",
                    order, gathers, scatters, degree);
}

// Returns the gap of a piece for which the decision has no entry.
int default_gap(GradientPolicy policy) {
  if (policy == GradientPolicy::micro_ops) return kAtEnd;
  return policy == GradientPolicy::fixed ? kAfterMoe : 0;
}

}  // namespace

bool splits_gradients(const Schedule& schedule) {
  return schedule.gradients == GradientPolicy::adaptive || schedule.gradients == GradientPolicy::beside_dense;
}

bool sends_pieces(const Schedule& schedule) {
  return schedule.gradients == GradientPolicy::micro_ops || schedule.gradients == GradientPolicy::fixed ||
         schedule.gradients == GradientPolicy::own_lane;
}

namespace {

std::vector<const Schedule*> rows_where(bool orders_iterations) {
  std::vector<const Schedule*> rows;
  for (const Schedule* schedule : kSchedules)
    if (schedule->orders_iterations() == orders_iterations) rows.push_back(schedule);
  return rows;
}

}  // namespace

ScheduleTable all_schedules() { return ScheduleTable(kSchedules); }
ScheduleTable schedules() {
  static const std::vector<const Schedule*> rows = rows_where(false);
  return ScheduleTable(rows);
}
ScheduleTable iteration_schedules() {
  static const std::vector<const Schedule*> rows = rows_where(true);
  return ScheduleTable(rows);
}

const Schedule& find_schedule(std::string_view name) { return find_named(all_schedules(), name, "schedule"); }

void check_decision(const Schedule& schedule, const Decision& d) {
  check_degrees(schedule, d);
  check_order(schedule, d.order_forward, d.degree_forward);
  check_order(schedule, d.order_backward, d.degree_backward);
  require<BadInput>(schedule.gradients == GradientPolicy::adaptive || d.gar_in_moe_bytes == 0,
                    "schedule {} puts no gradients into the MoE part, found {} bytes", schedule.name,
                    d.gar_in_moe_bytes);
  require<BadInput>(schedule.gradients == GradientPolicy::adaptive || d.gar_after_bytes == 0,
                    "schedule {} has no gradients behind those beside the dense part, found {} bytes", schedule.name,
                    d.gar_after_bytes);
  require<BadInput>(schedule.gradients == GradientPolicy::beside_dense || d.gar_beside_dense_bytes == 0,
                    "schedule {} splits no gradients off beside the dense part, found {} bytes", schedule.name,
                    d.gar_beside_dense_bytes);
  require<BadInput>(d.micro_op_bytes > 0, "micro-op: found {} bytes, expected > 0", d.micro_op_bytes);
  require<BadInput>(schedule.gradients == GradientPolicy::micro_ops || d.gaps.empty(),
                    "schedule {} has no micro-ops, found {} places for them", schedule.name, d.gaps.size());
  require<BadInput>(d.packing == 1 || (schedule.packs_experts && d.packing > 1),
                    "schedule {}: found packing {}, expected {}", schedule.name, d.packing,
                    schedule.packs_experts ? ">= 1" : "1");
}

void check_one_layer(const Schedule& schedule) {
  require_usable(!schedule.orders_iterations(), schedule,
                 "found a layer alone, expected a model, whose passes it orders");
}

void check_shape(const Schedule& schedule, const LayerCase& shape) {
  const ParallelShape& p = shape.parallel;
  check_offload(shape);
  require_usable(p.offload == Offload::none || !schedule.orders_iterations(), schedule,
                 "found offloaded experts, expected a schedule that orders layers one by one");
  if (traits_of(schedule.flow).fused())
    require_usable(shape.layer.dispatcher == "alltoall", schedule,
                   "found dispatcher {}, expected alltoall, since it exchanges over EP and ESP at once",
                   shape.layer.dispatcher);
  if (!traits_of(schedule.flow).one_group) return;
  require_usable(p.mp == p.esp, schedule, "found mp {} and esp {}, expected one size: MP ranks shard its experts", p.mp,
                 p.esp);
  require_usable(!p.ep_inside || p.ep == 1 || p.esp == 1, schedule,
                 "found EP inside the node, expected MP there: MP ranks shard its experts");
}

Decision with_split(const Schedule& schedule, int degree_forward, int degree_backward, int64_t bytes) {
  Decision decision{degree_forward, degree_backward};
  if (schedule.gradients == GradientPolicy::adaptive) decision.gar_in_moe_bytes = bytes;
  if (schedule.gradients == GradientPolicy::beside_dense) decision.gar_beside_dense_bytes = bytes;
  return decision;
}

std::span<const SplitPlaces> split_places(const Schedule& schedule, bool contended) {
  static constexpr std::array kAll{SplitPlaces::moe_dense, SplitPlaces::moe_after, SplitPlaces::dense_after};
  const std::span<const SplitPlaces> all(kAll);
  if (schedule.gradients == GradientPolicy::beside_dense) return all.last(1);
  return contended ? all : all.first(1);
}

void split_gradients(const Schedule& schedule, SplitPlaces places, int64_t first, int64_t all, Decision& decision) {
  const bool in_moe = places != SplitPlaces::dense_after, adaptive = schedule.gradients == GradientPolicy::adaptive;
  decision.gar_in_moe_bytes = in_moe ? first : 0;
  decision.gar_beside_dense_bytes = adaptive ? 0 : first;
  decision.gar_after_bytes = adaptive && places != SplitPlaces::moe_dense ? all - first : 0;
}

StructureKey structure_key(const Schedule& schedule, const LayerOutline& layer, const Decision& decision,
                           const GradientPlacement& gradients, Phases phases) {
  StructureKey key{&schedule, phases, 1, 1, gradients, {}, {}, {}, 1, layer.shared_expert, layer.dense};
  key.recomputes = layer.recomputes && phases == Phases::both;
  key.ring_blocks = layer.ring_blocks;
  if (phases != Phases::backward) key.degree_forward = decision.degree_forward;
  if (phases != Phases::backward) key.order_forward = decision.order_forward;
  if (phases != Phases::forward) key.degree_backward = decision.degree_backward;
  if (phases != Phases::forward) key.order_backward = decision.order_backward;
  key.networks = networks_of(layer.groups);
  if (traits_of(schedule.flow).home_by_peers) key.peers = layer.groups[GroupKind::ep].size;
  return key;
}

std::shared_ptr<const Structure> build_structure(const StructureKey& key) {
  require<BadInput>(key.degree_forward >= 1 && key.degree_backward >= 1,
                    "degree: found {} forward and {} backward, expected >= 1", key.degree_forward, key.degree_backward);
  LayerBuilder builder(*key.schedule, {.networks = key.networks,
                                       .peers = key.peers,
                                       .shared_expert = key.shared_expert,
                                       .recomputes = key.recomputes,
                                       .ring_blocks = key.ring_blocks});
  if (key.phases != Phases::backward)
    builder.add(
        {.phase = Phase::forward, .dense = key.dense, .degree = key.degree_forward, .order = key.order_forward});
  if (key.phases != Phases::forward)
    builder.add({.phase = Phase::backward,
                 .dense = key.dense,
                 .degree = key.degree_backward,
                 .order = key.order_backward,
                 .gradients = key.gradients});
  return std::make_shared<const Structure>(builder.take());
}

std::vector<int64_t> gradient_tensors(const LayerCase& c) {
  const int64_t bytes = bytes_of(c.layer.dtype);
  std::vector<int64_t> tensors;
  for (const Projection& p : projections(c.layer, max_heads(c)))
    if (!p.is_replicated && p.in > 0) tensors.push_back(p.elements() * bytes);
  const int gemms = c.layer.shared_hidden > 0 ? gemms_of(c.layer.ffn) : 0;
  tensors.insert(tensors.end(), static_cast<size_t>(gemms), shared_parameters(c) / gemms_of(c.layer.ffn) * bytes);
  if (c.layer.bias) tensors.push_back(dense_biases(c) * bytes);
  return tensors;
}

std::vector<int64_t> pieces_of(const Schedule& schedule, const std::vector<int64_t>& tensors, int64_t micro_op_bytes,
                               DType dtype) {
  const int64_t grain = bytes_of(dtype);
  std::vector<int64_t> pieces;
  const int64_t all = std::accumulate(tensors.begin(), tensors.end(), int64_t{0});
  // Each tensor may add one shorter piece.
  const int64_t most = std::max<int64_t>(1, kMaxPieces - std::ssize(tensors));
  require<BadInput>(
      schedule.pieces == Pieces::fused || all / micro_op_bytes < most,
      "micro-op-bytes: found {}, which cuts {} gradient bytes of a layer into {} pieces, expected at least "
      "{} ({} pieces at most)",
      micro_op_bytes, all, all / micro_op_bytes, all / most + 1, kMaxPieces);
  int64_t bucket = 0;
  for (const int64_t tensor : tensors) {
    if (schedule.pieces == Pieces::fused) {
      bucket += tensor;
      if (bucket >= kBucketBytes) pieces.push_back(std::exchange(bucket, 0));
      continue;
    }
    // A tensor's pieces have equal sizes, as in Lina.
    const int64_t count = (tensor + micro_op_bytes - 1) / micro_op_bytes;
    for (int64_t i = 0; i < count; ++i)
      if (const Rows r = chunk_rows(tensor / grain, static_cast<int>(count), static_cast<int>(i)); r.count() > 0)
        pieces.push_back(r.count() * grain);
  }
  if (bucket > 0) pieces.push_back(bucket);
  return pieces;
}

std::vector<int64_t> gradient_pieces(const Schedule& schedule, const LayerCase& shape, int64_t micro_op_bytes) {
  return pieces_of(schedule, gradient_tensors(shape), micro_op_bytes, shape.layer.dtype);
}

std::vector<int64_t> expert_gradient_pieces(const Schedule& schedule, const LayerCase& shape, int64_t micro_op_bytes) {
  if (!schedule.packs_experts || shape.parallel.edp == 1) return {};
  const int64_t tensors = shape.layer.experts / shape.parallel.ep * gemms_of(shape.layer.ffn);
  if (tensors == 0) return {};
  const int64_t biases = expert_biases(shape) * bytes_of(shape.layer.dtype);
  std::vector<int64_t> all(tensors, (expert_gradient_bytes(shape) - biases) / tensors);
  if (biases > 0) all.push_back(biases);
  return pieces_of(schedule, all, micro_op_bytes, shape.layer.dtype);
}

GradientPlacement placement_of(const Schedule& schedule, const Groups& groups, const LayerCase& shape,
                               const Decision& decision) {
  const auto spans = [&](GroupKind kind) { return groups[kind].network != Network::none; };
  const int64_t bytes = spans(GroupKind::dp) ? gradient_bytes(shape) : 0;
  if (sends_pieces(schedule)) {
    const size_t dense = bytes == 0 ? 0 : gradient_pieces(schedule, shape, decision.micro_op_bytes).size();
    const size_t all = dense + expert_gradient_pieces(schedule, shape, decision.micro_op_bytes).size();
    if (all == 0) return {};
    const std::span<const int> gaps(decision.gaps), first = gaps.first(std::min(gaps.size(), dense));
    require<BadInput>(
        gaps.size() <= all && std::ranges::is_sorted(first) && std::ranges::is_sorted(gaps.subspan(first.size())),
        "gaps: found {}, expected at most {}, ascending", gaps.size(), all);
    GradientPlacement placement{{}, decision.gaps, {}};
    placement.gaps.resize(all, default_gap(schedule.gradients));
    if (all > dense) placement.experts.resize(dense);
    if (all > dense) placement.experts.resize(all, true);
    return placement;
  }
  if (bytes == 0) return {};
  if (schedule.gradients == GradientPolicy::after) return {{.after = true}, {}, {}};
  const int64_t first = first_bytes(schedule, decision), last = decision.gar_after_bytes;
  require<BadInput>(first >= 0 && last >= 0 && first <= bytes - last,
                    "gradient split: found {} and {} bytes, expected 0 to {} in all", first, last, bytes);
  const bool others = first + last < bytes;
  if (schedule.gradients == GradientPolicy::adaptive)
    return {{.in_moe = first > 0, .beside_dense = others, .after = last > 0}, {}, {}};
  return {{.beside_dense = first > 0, .after = others}, {}, {}};
}

int last_expert(const Structure& structure) {
  int last = -1;
  for (const Task& task : structure.tasks)
    if (makes_expert_gradients(task.kind)) last = task.id;
  return last;
}

std::vector<GradientSlice> slices_of(const Schedule& schedule, const LayerCase& shape, const Decision& decision) {
  std::vector<GradientSlice> slices;
  if (sends_pieces(schedule)) {
    int gradient = 0;
    const auto add = [&](const std::vector<int64_t>& pieces) {
      int64_t begin = 0;
      for (const int64_t piece : pieces) slices.push_back({gradient, begin, begin + piece}), begin += piece;
      if (!pieces.empty()) ++gradient;
    };
    if (shape.parallel.replicas() > 1) add(gradient_pieces(schedule, shape, decision.micro_op_bytes));
    add(expert_gradient_pieces(schedule, shape, decision.micro_op_bytes));
    return slices;
  }
  const int64_t bytes = gradient_bytes(shape), first = first_bytes(schedule, decision);
  const int64_t last = bytes - decision.gar_after_bytes;
  if (first > 0) slices.push_back({0, 0, first});
  if (first < last) slices.push_back({0, first, last});
  if (last < bytes) slices.push_back({0, last, bytes});
  return slices;
}

LayerCase decided_case(const LayerCase& shape, const Decision& decision) {
  LayerCase decided = shape;
  if (decision.packing > 1) {
    require<Unsupported>(shape.parallel.ep % decision.packing == 0,
                         "packing {}: an EP group of {} does not divide by it", decision.packing, shape.parallel.ep);
    decided.parallel.ep /= decision.packing;
    decided.parallel.edp = 0;
    decided = complete(decided.layer, decided.parallel, decided.rounding);
    decided.row_multiple = shape.row_multiple;
  }
  if (shape.rounding != Rounding::lcm || shape.row_multiple > 1) return decided;
  decided.row_multiple =
      std::max<int64_t>(1, std::lcm(int64_t{decision.degree_forward}, int64_t{decision.degree_backward}));
  const double bytes = moe_volumes(decided, static_cast<double>(padded_rows(decided))).alltoall_bytes;
  require<BadInput>(bytes <= static_cast<double>(kMaxBytes),
                    "capacity-rounding lcm: degrees {} and {} pad {} rows an expert to a multiple of {}, {:.3g} bytes "
                    "in all, expected at most {}",
                    decision.degree_forward, decision.degree_backward, capacity_rows(decided), decided.row_multiple,
                    bytes, kMaxBytes);
  return decided;
}

Plan build_plan(const Schedule& schedule, const LayerCase& shape, const Decision& decision) {
  check_one_layer(schedule);
  require<Unsupported>(shape.layer.parts == 1, "parts: found {} of a layer alone, expected 1, or layers of a model",
                       shape.layer.parts);
  require<Unsupported>(shape.layer.first_stage_layers == 0 && shape.layer.last_stage_layers == 0,
                       "layers of the first or the last stage: found a layer alone, expected layers of a model");
  require<Unsupported>(shape.parallel.offload == Offload::none,
                       "offload: found {} of a layer alone, expected none, or layers of a model",
                       name_of(shape.parallel.offload));
  if (!schedule.variants.empty()) {
    require<BadInput>(std::ranges::count(schedule.variants, decision.variant) == 1,
                      "schedule {}: found a decision without a variant, expected one of its variants", schedule.name);
    Plan plan = build_plan(*decision.variant, shape, decision);
    plan.schedule = schedule.name;
    return plan;
  }
  check_decision(schedule, decision);
  check_shape(schedule, shape);
  Plan plan;
  plan.schedule = schedule.name;
  plan.degree_forward = decision.degree_forward;
  plan.degree_backward = decision.degree_backward;
  plan.shape = decided_case(shape, decision);
  const LayerOutline outline = outline_of(plan.shape);
  plan.groups = outline.groups;
  plan.rows = padded_rows(plan.shape);
  const GradientPlacement placement = placement_of(schedule, plan.groups, plan.shape, decision);
  plan.structure = build_structure(structure_key(schedule, outline, decision, placement, Phases::both));
  if (placement != GradientPlacement{}) {
    if (plan.shape.parallel.replicas() > 1)  // gradients of the next layer, in the steady state
      plan.gradients.push_back({1, gradient_bytes(plan.shape), -1, false});
    if (!placement.experts.empty())
      plan.gradients.push_back({0, expert_gradient_bytes(plan.shape), last_expert(*plan.structure), true});
    plan.slices = slices_of(schedule, plan.shape, decision);
  }
  set_works(plan);
  check_plan(plan);
  return plan;
}

}  // namespace moe
