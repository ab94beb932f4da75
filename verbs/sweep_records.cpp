#include "verbs/sweep_records.h"

namespace moe::verbs {
namespace {

std::string key_of(const SweepRow& row, std::string_view schedule) {
  return fmt::format("plan/{}/{}", row.layer, schedule);
}

CaseRecord record_of(const SweepRow& row, const LayerResult& r) {
  CaseRecord record = planned_record(key_of(row, r.schedule), r);
  record.prediction.set("degree_bound_s", r.degree_bound.total_s());
  record.prediction.set("memory_bytes", r.memory.total());
  if (const std::string weak = weak_rows(row.notes); !weak.empty()) record.prediction.set("weak_rows", weak);
  return record;
}

CaseRecord unsupported_record(const SweepRow& row, std::string_view schedule) {
  CaseRecord record;
  record.key = key_of(row, schedule);
  record.schedule = schedule;
  record.backend = "none";
  const auto refused = row.refused.find(schedule);
  record.status = CaseStatus::unsupported;
  record.reason = refused == row.refused.end() ? row.reason : refused->second;
  return record;
}

}  // namespace

CaseRecord planned_record(std::string key, const LayerResult& r) {
  CaseRecord record;
  record.key = std::move(key);
  record.schedule = r.schedule;
  record.degree_forward = r.decision.degree_forward;
  record.degree_backward = r.decision.degree_backward;
  record.backend = "none";
  record.prediction = {{"forward_s", r.forward_s},         {"backward_s", r.backward_s},
                       {"moe_forward_s", r.moe_forward_s}, {"moe_backward_s", r.moe_backward_s},
                       {"total_s", r.total_s()},           {"gar_in_moe_bytes", r.decision.gar_in_moe_bytes}};
  if (const int64_t after = r.decision.gar_after_bytes; after > 0) record.prediction.set("gar_after_bytes", after);
  record.bound_s = r.bound.total_s();
  return record;
}

std::string records_path(const std::string& out, const std::string& verb, const std::string& cluster) {
  return out.empty() ? fmt::format("results/{}-{}.jsonl", verb, cluster) : out;
}

void append_rows(RecordWriter& writer, const std::vector<SweepRow>& rows, const std::vector<const Schedule*>& schedules,
                 const std::string& cluster, const DegreeChoice& degrees) {
  for (const SweepRow& row : rows) {
    CaseGroup group{parameters_of(row.shape, cluster, row.layer, degrees), {}};
    for (const LayerResult& result : row.results) group.cases.push_back(record_of(row, result));
    for (const Schedule* schedule : schedules)
      if (row.find(schedule->name) == nullptr) group.cases.push_back(unsupported_record(row, schedule->name));
    std::erase_if(group.cases, [&](const CaseRecord& record) { return writer.find(record.key) != nullptr; });
    writer.append(group);
  }
}

}  // namespace moe::verbs
