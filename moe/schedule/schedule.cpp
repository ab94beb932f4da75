#include "moe/schedule/schedule.h"

#include "moe/base/registry.h"
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {
namespace {

int64_t first_bytes(const Schedule& schedule, const Decision& d) {
  return schedule.gradients == GradientPolicy::adaptive ? d.gar_in_moe_bytes : d.gar_beside_dense_bytes;
}

}  // namespace

std::span<const Schedule> schedules() {
  static const std::array kRows{kDsMoe, kTutel, kTutelImproved, kFsmoeNoIio, kFsmoeNoPartition, kFsmoe};
  return kRows;
}

const Schedule& find_schedule(std::string_view name) { return find_named(schedules(), name, "schedule"); }

void check_decision(const Schedule& schedule, const Decision& d) {
  const bool one = schedule.degrees == DegreePolicy::one, shared = schedule.degrees == DegreePolicy::shared;
  require<BadInput>(!one || (d.degree_forward == 1 && d.degree_backward == 1),
                    "schedule {} has degree 1 only, found {} and {}", schedule.name, d.degree_forward,
                    d.degree_backward);
  require<BadInput>(!shared || d.degree_forward == d.degree_backward,
                    "schedule {} has one degree for both phases, found {} and {}", schedule.name, d.degree_forward,
                    d.degree_backward);
  require<BadInput>(schedule.gradients == GradientPolicy::adaptive || d.gar_in_moe_bytes == 0,
                    "schedule {} puts no gradients into the MoE part, found {} bytes", schedule.name,
                    d.gar_in_moe_bytes);
  require<BadInput>(schedule.gradients == GradientPolicy::beside_dense || d.gar_beside_dense_bytes == 0,
                    "schedule {} splits no gradients off beside the dense part, found {} bytes", schedule.name,
                    d.gar_beside_dense_bytes);
}

Decision with_split(const Schedule& schedule, int degree_forward, int degree_backward, int64_t bytes) {
  Decision decision{degree_forward, degree_backward};
  if (schedule.gradients == GradientPolicy::adaptive) decision.gar_in_moe_bytes = bytes;
  if (schedule.gradients == GradientPolicy::beside_dense) decision.gar_beside_dense_bytes = bytes;
  return decision;
}

StructureKey structure_key(const Schedule& schedule, const Groups& groups, const Decision& decision,
                           GradientSlots slots, Phases phases) {
  StructureKey key{&schedule, phases, 1, 1, slots, {}};
  if (phases != Phases::backward) key.degree_forward = decision.degree_forward;
  if (phases != Phases::forward) key.degree_backward = decision.degree_backward;
  for (size_t k = 0; k < groups.size(); ++k) key.networks[k] = groups[k].network;
  return key;
}

std::shared_ptr<const Structure> build_structure(const StructureKey& key) {
  return std::make_shared<const Structure>(LayerBuilder(key).build());
}

GradientSlots slots_of(const Schedule& schedule, const Groups& groups, const Decision& decision, int64_t bytes) {
  if (groups[static_cast<size_t>(GroupKind::dp)].network == Network::none || bytes == 0) return {};
  if (schedule.gradients == GradientPolicy::after) return {.after = true};
  const int64_t first = first_bytes(schedule, decision);
  require<BadInput>(first >= 0 && first <= bytes, "gradient split: found {} bytes, expected 0 to {}", first, bytes);
  if (schedule.gradients == GradientPolicy::adaptive) return {.in_moe = first > 0, .beside_dense = first < bytes};
  return {.beside_dense = first > 0, .after = first < bytes};
}

std::vector<GradientSlice> slices_of(const Schedule& schedule, const Decision& decision, int64_t bytes) {
  const int64_t first = first_bytes(schedule, decision);
  std::vector<GradientSlice> slices;
  if (first > 0) slices.push_back({0, 0, first});
  if (first < bytes) slices.push_back({0, first, bytes});
  return slices;
}

Plan build_plan(const Schedule& schedule, const Case& shape, const Decision& decision) {
  check_decision(schedule, decision);
  Plan plan;
  plan.schedule = schedule.name;
  plan.degree_forward = decision.degree_forward;
  plan.degree_backward = decision.degree_backward;
  plan.shape = shape;
  plan.groups = groups_of(shape.parallel);
  plan.rows = capacity_rows(shape);
  const int64_t bytes = gradient_bytes(shape);
  const GradientSlots slots = slots_of(schedule, plan.groups, decision, bytes);
  if (slots != GradientSlots{}) {
    plan.gradients.push_back({1, bytes, -1});  // of the layer after this one, in the steady state
    plan.slices = slices_of(schedule, decision, bytes);
  }
  plan.structure = build_structure(structure_key(schedule, plan.groups, decision, slots, Phases::both));
  for (const WorkClass& wc : plan.structure->classes) plan.works.push_back(work_of(wc, shape, plan.slices));
  check_plan(plan);
  return plan;
}

}  // namespace moe
