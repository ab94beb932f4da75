#include "commands/shared/results_json.h"

#include "moe/formats/plan_json.h"

namespace moe::commands {

Json to_json(const LayerResult& r) {
  Json json{{"schedule", r.schedule},
            {"degree_forward", r.decision.degree_forward},
            {"degree_backward", r.decision.degree_backward},
            {"forward_s", r.forward_s},
            {"backward_s", r.backward_s},
            {"moe_forward_s", r.moe_forward_s},
            {"moe_backward_s", r.moe_backward_s},
            {"gar_in_moe_bytes", r.decision.gar_in_moe_bytes},
            {"bound_s", r.bound.total_s()},
            {"degree_bound_s", r.degree_bound.total_s()},
            {"efficiency", r.bound.total_s() / r.total_s()},
            {"bound_forward", r.bound.forward_term},
            {"bound_backward", r.bound.backward_term},
            {"memory_bytes", r.memory.total()}};
  const Decision& d = r.decision;  // decisions of a few schedules are only included if they were made
  if (d.gar_after_bytes > 0) json["gar_after_bytes"] = d.gar_after_bytes;
  if (d.gar_beside_dense_bytes > 0) json["gar_beside_dense_bytes"] = d.gar_beside_dense_bytes;
  if (d.variant != nullptr) json["variant"] = d.variant->name;
  if (d.packing > 1) json["packing"] = d.packing;
  if (!d.gaps.empty()) json["micro_op_bytes"] = d.micro_op_bytes;
  if (!d.gaps.empty()) json["gaps"] = d.gaps;
  if (!d.order_forward.empty()) json["order_forward"] = d.order_forward;
  if (!d.order_backward.empty()) json["order_backward"] = d.order_backward;
  if (!r.exact_order) {
    json["order_exact"] = false;
    json["order_gap"] = r.gap;
  }
  return json;
}

Json to_json(const LayerCase& c) {
  Json json = layer_json(c.layer);
  json["capacity_rounding"] = name_of(c.rounding);
  json.update(group_sizes(c.parallel));
  json["placement"] = placement_name(c.parallel);
  return json;
}

void add_layer_kinds(Json& json, const DenseLayers& dense, const LayerSet& whole, int layers) {
  if (!whole.has_none(layers)) json["windowed_layers"] = windowed_pattern(whole, layers);
  if (dense.has_none(layers)) return;
  json["dense_layers"] = Json::array();
  for (int layer = 0; layer < layers; ++layer)
    if (dense.has(layer)) json["dense_layers"].push_back(layer);
  json["dense_hidden"] = dense.hidden;
}

void add_timeline(Json& json, const Plan& plan, const Timeline& timeline) {
  const auto& lanes = plan.structure->lanes;
  for (size_t i = 0; i < lanes.size(); ++i)
    json["lanes"].push_back(
        {{"name", name_of(lanes[i].kind)}, {"stage", lanes[i].stage}, {"busy_s", timeline.lane_busy_s[i]}});
  for (const Task& task : plan.tasks()) {
    json["tasks"].push_back({{"name", name_of(task.kind)},
                             {"phase", name_of(task.execution_phase())},
                             {"stage", lanes[task.lane].stage},
                             {"micro_batch", task.micro_batch},
                             {"layer", task.layer},
                             {"chunk", task.chunk},
                             {"lane", name_of(lanes[task.lane].kind)},
                             {"start_s", timeline.start_s[task.id]},
                             {"end_s", timeline.end_s[task.id]}});
  }
}

Json to_json(const std::vector<SweepRow>& rows) {
  Json layers = Json::array();
  for (const SweepRow& row : rows) {
    Json layer{{"layer", row.layer}, {"status", name_of(row.is_planned() ? CaseStatus::ok : CaseStatus::unsupported)}};
    if (row.refusal) layer["reason"] = row.refusal->text();
    if (!row.notes.empty()) layer["notes"] = texts_of(row.notes);
    if (row.memory_bytes > 0) layer["memory_bytes"] = row.memory_bytes;
    for (const auto& [schedule, refusal] : row.refusals) layer["unsupported"][std::string(schedule)] = refusal.text();
    layer["schedules"] = Json::array();
    for (const LayerResult& result : row.results) layer["schedules"].push_back(to_json(result));
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace moe::commands
