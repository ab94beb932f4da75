#include "moe/export/plan_json.h"

#include <ostream>

#include "moe/base/check.h"
#include "moe/base/json.h"
#include "moe/export/layer_json.h"

namespace moe {
namespace {

// Returns the layer's keys, how rows are rounded, and the groups.
Json case_json(const LayerCase& c) {
  Json json = layer_json(c.layer);
  json["capacity_rounding"] = name_of(c.rounding);
  if (c.row_multiple > 1) json["row_multiple"] = c.row_multiple;
  return json;
}

Json parallel_json(const ParallelShape& p) {
  Json json = group_sizes(p);
  json["placement"] = placement_name(p);
  return json;
}

Json groups_json(const Plan& plan) {
  Json groups = Json::array();
  for (const Group& group : plan.groups)
    if (group.network != Network::none)
      groups.push_back({{"name", name_of(group.kind)}, {"ranks", group.size}, {"network", name_of(group.network)}});
  return groups;
}

Json lane_json(const Lane& lane) {
  Json networks = Json::array();
  for (const Network network : {Network::inter, Network::intra})
    if (lane.owns(network)) networks.push_back(name_of(network));
  return {{"kind", name_of(lane.kind)}, {"networks", networks}, {"tasks", lane.queue}};
}

// Returns an access; what is 0 of a single layer is left out.
Json access_json(const Access& a) {
  Json json{{"buffer", name_of(a.buffer)}, {"phase", name_of(a.phase)}};
  if (a.layer != 0) json["layer"] = a.layer;
  if (a.chunks > 1) json["chunk"] = a.chunk;
  if (a.chunks > 1) json["chunks"] = a.chunks;
  if (a.again) json["again"] = true;
  return json;
}

Json accesses_json(const std::vector<Access>& accesses) {
  Json list = Json::array();
  for (const Access& access : accesses) list.push_back(access_json(access));
  return list;
}

Json task_json(const Plan& plan, const Task& task) {
  Json json{{"id", task.id},       {"kind", name_of(task.kind)},  {"phase", name_of(task.phase)},
            {"layer", task.layer}, {"chunk", task.chunk},         {"chunks", task.chunks},
            {"lane", task.lane},   {"group", name_of(task.group)}};
  if (task.again) json["again"] = true;
  if (task.slice >= 0) json["slice"] = task.slice;
  json["after"] = task.after;
  json["reads"] = accesses_json(task.reads);
  json["writes"] = accesses_json(task.writes);
  const bool by_rows = !traits_of(plan.structure->flow).home_by_peers || task.kind <= TaskKind::combine;
  const Rows rows = plan.rows_of(task);
  if (is_chunked(task.kind) && by_rows) json["rows"] = {rows.begin, rows.end};
  const Work& work = plan.works[static_cast<size_t>(task.work_class)];
  if (work.op != Op::none) json["op"] = name_of(work.op);
  if (work.bytes > 0) json["bytes"] = work.bytes;
  if (work.flops > 0) json["flops"] = work.flops;
  if (work.gemms > 0) json["gemms"] = work.gemms;
  return json;
}

Json dense_json(const Plan& plan) {
  Json layers = Json::array();
  for (int layer = 0; layer < plan.layers; ++layer)
    if (plan.dense.has(layer)) layers.push_back(layer);
  return {{"layers", layers}, {"hidden", plan.dense.hidden}};
}

// Writes a list with one item a line.
template <class Items, class ToJson>
std::string lines_of(const Items& items, ToJson&& to_json) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "\n  " : ",\n  ") + to_json(item).dump();
  return "[" + text + "]";
}

}  // namespace

void write_plan(const Plan& plan, std::ostream& out) {
  const auto line = [&](std::string_view key, const std::string& value, std::string_view end = ",") {
    out << fmt::format("\"{}\": {}{}\n", key, value, end);
  };
  out << "{";
  line("format", Json(kPlanFormat).dump());
  line("version", fmt::format("{}", kPlanVersion));
  line("schedule", Json(plan.schedule).dump());
  line("degree_forward", fmt::format("{}", plan.degree_forward));
  line("degree_backward", fmt::format("{}", plan.degree_backward));
  line("layers", fmt::format("{}", plan.layers));
  line("micro_batches", fmt::format("{}", plan.micro_batches));
  line("layer", case_json(plan.shape).dump());
  if (plan.dense.hidden > 0) line("dense", dense_json(plan).dump());
  line("parallel", parallel_json(plan.shape.parallel).dump());
  line("flow", Json(name_of(plan.structure->flow)).dump());
  line("rows", fmt::format("{}", plan.rows));
  line("groups", groups_json(plan).dump());
  line("lanes", lines_of(plan.structure->lanes, lane_json));
  line("tasks", lines_of(plan.tasks(), [&](const Task& task) { return task_json(plan, task); }));
  line("gradients", lines_of(plan.gradients, [](const Gradient& g) {
         return Json{{"layer", g.layer}, {"bytes", g.bytes}, {"made_by", g.made_by}, {"experts", g.experts}};
       }));
  line("slices", lines_of(plan.slices, [](const GradientSlice& s) {
         return Json{{"gradient", s.gradient}, {"begin", s.begin}, {"end", s.end}};
       }));
  line("hash", Json(fmt::format("{:016x}", plan.hash())).dump(), "");
  out << "}\n";
}

}  // namespace moe
