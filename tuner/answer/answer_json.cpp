#include "tuner/answer/answer.h"
#include "verbs/results_json.h"

namespace moe::tuner {
namespace {

Json json_of(const RankedSchedule& row) {
  Json json{{"schedule", row.schedule->name}, {"status", row.refused.empty() ? "ok" : "unsupported"}};
  if (!row.refused.empty()) {
    json["reason"] = row.refused;
    return json;
  }
  json["variant"] = row.variant ? Json(row.variant->name) : Json(nullptr);
  json["degree_forward"] = row.degree_forward;
  json["degree_backward_least"] = row.degrees_backward.first;
  json["degree_backward_most"] = row.degrees_backward.second;
  json["gar_in_moe_bytes"] = row.gar_in_moe_bytes;
  if (row.gar_after_bytes > 0) json["gar_after_bytes"] = row.gar_after_bytes;
  json["forward_s"] = row.forward_s;
  json["backward_s"] = row.backward_s;
  json["expert_sums_s"] = row.expert_sums_s;
  json["total_s"] = row.total_s();
  json["bound_s"] = row.bound_s;
  json["gap"] = row.gap;
  json["memory_bytes"] = row.memory_bytes;
  json["hidden"] = row.hidden;
  json["critical"] = Json::object();
  for (const auto& [kind, share] : row.critical) json["critical"][kind] = share;
  return json;
}

Json json_of(const Trial& trial) {
  const CaseRecord& record = trial.record;
  Json json{{"schedule", record.schedule},
            {"current", trial.current},
            {"status", name_of(record.status)},
            {"degree_forward", record.degree_forward},
            {"degree_backward", record.degree_backward},
            {"predicted_s", nullptr},
            {"measured_s", nullptr}};
  if (record.prediction.has("total_s")) json["predicted_s"] = predicted_s(record);
  if (was_timed(record)) json["measured_s"] = run_s(record);
  if (!record.reason.empty()) json["reason"] = record.reason;
  return json;
}

}  // namespace

Json json_of(const Answer& answer) {
  const RankedSchedule& use = recommended(answer);
  Json ranking = Json::array(), steps = Json::array(), trials = Json::array();
  for (const RankedSchedule& row : answer.ranking) ranking.push_back(json_of(row));
  for (const Trial& trial : answer.trials) trials.push_back(json_of(trial));
  for (const Neighbour& n : answer.neighbours)
    steps.push_back(
        {{"phase", n.phase ? Json(name_of(*n.phase)) : Json("both")}, {"degree", n.degree}, {"slower", n.slower}});
  const ModelShape& model = answer.chosen->model;
  Json json{{"cluster", answer.cluster},
            {"emulated", answer.emulated},
            {"model", answer.chosen->name},
            {"layers", model.layers},
            {"micro_batches", model.micro_batches},
            {"pipeline", name_of(model.order)},
            {"virtual_stages", model.split().virtual_stages},
            {"layer", verbs::to_json(model.shape)},
            {"shapes", answer.shapes ? json_of(*answer.shapes) : Json(nullptr)},
            {"use", json_of(use)},
            {"notes", use.notes},
            {"doubtful", doubtful(answer)},
            {"ranking", ranking},
            {"current", answer.current ? json_of(*answer.current) : Json(nullptr)},
            {"neighbours", steps},
            {"trial_layers", answer.trial_layers},
            {"trials", trials},
            {"records", answer.records_path},
            {"profile", answer.profile_path},
            {"trace", answer.trace_path}};
  verbs::add_dense(json, model.dense, model.layers);
  return json;
}

}  // namespace moe::tuner
