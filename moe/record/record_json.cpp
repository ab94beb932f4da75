// Writes records as lines.
#include "moe/record/record_json.h"

#include <algorithm>

#include "moe/base/json.h"
#include "moe/record/fields_json.h"

namespace moe {
namespace {

Json json_of(const RunHeader& run) {
  Json out{{"kind", "run"},
           {"schema", run.schema},
           {"measurement", run.measurement},
           {"started", run.started},
           {"argv", run.argv},
           {"config_digest", run.config_digest},
           {"version", run.version},
           {"git", to_json(run.git)},
           {"build", run.build},
           {"compiler", run.compiler},
           {"libraries", to_json(run.libraries)},
           {"machine", to_json(run.machine)},
           {"conditions", to_json(run.conditions)},
           {"environment", to_json(run.environment)}};
  if (!run.ranks.empty()) out["ranks"] = to_json(run.ranks);
  return out;
}

Json json_of(const TaskTimes& task) {
  return {{"name", task.name},     {"kind", task.kind},       {"phase", task.phase},
          {"lane", task.lane},     {"layer", task.layer},     {"chunk", task.chunk},
          {"chunks", task.chunks}, {"start_s", task.start_s}, {"end_s", task.end_s}};
}

Json json_of(const MeasuredTimeline& timeline) {
  Json rows = Json::array();
  for (const MeasuredTask& task : timeline.tasks) {
    rows.push_back({task.kind, task.phase, task.lane, task.chunk, task.chunks, task.start_s, task.end_s});
    if (timeline.predicted) rows.back().insert(rows.back().end(), {task.predicted_start_s, task.predicted_end_s});
  }
  Json columns{"kind", "phase", "lane", "chunk", "chunks", "start_s", "end_s"};
  if (timeline.predicted) columns.insert(columns.end(), {"predicted_start_s", "predicted_end_s"});
  return {{"rank", timeline.rank}, {"columns", std::move(columns)}, {"rows", std::move(rows)}};
}

Json json_of(const CaseRecord& record) {
  Json out = {{"kind", "case"}, {"key", record.key}, {"status", name_of(record.status)}};
  if (!record.reason.empty()) out["reason"] = record.reason;
  out["parameters"] = to_json(record.parameters);
  if (!record.schedule.empty()) {
    out["schedule"] = record.schedule;
    out["degree_forward"] = record.degree_forward;
    out["degree_backward"] = record.degree_backward;
  }
  out["backend"] = record.backend;
  out["emulated"] = record.emulated;
  out["dilation"] = record.dilation;
  Json samples = Json::object();
  for (const Samples& s : record.samples) samples[s.name] = s.values;
  out["samples"] = std::move(samples);
  out["summary"] = to_json(record.summary);
  out["prediction"] = to_json(record.prediction);
  if (record.bound_s) out["bound_s"] = *record.bound_s;
  for (const TaskTimes& task : record.timeline) out["timeline"].push_back(json_of(task));
  if (!record.measured_timeline.tasks.empty()) out["measured_timeline"] = json_of(record.measured_timeline);
  return out;
}

/// Holds the keys of a case line but for key and parameters, and their values; a field of a part is PART.NAME.
using FlatCase = std::vector<std::pair<std::string, Json>>;

FlatCase flat(const CaseRecord& record) {
  FlatCase out;
  out.emplace_back("status", name_of(record.status));
  if (!record.reason.empty()) out.emplace_back("reason", record.reason);
  if (!record.schedule.empty()) {
    out.emplace_back("schedule", record.schedule);
    out.emplace_back("degree_forward", record.degree_forward);
    out.emplace_back("degree_backward", record.degree_backward);
  }
  out.emplace_back("backend", record.backend);
  out.emplace_back("emulated", record.emulated);
  out.emplace_back("dilation", record.dilation);
  const auto add = [&](const char* part, const Fields& fields) {
    for (const auto& [name, scalar] : fields)
      std::visit([&, &of = name](const auto& value) { out.emplace_back(part + of, value); }, scalar);
  };
  add("summary.", record.summary);
  add("prediction.", record.prediction);
  if (record.bound_s) out.emplace_back("bound_s", *record.bound_s);
  return out;
}

/// Returns what all keys of the group begin with, up to a '/'.
std::string common_start(const CaseGroup& group) {
  std::string_view start = group.cases.front().key;
  for (const CaseRecord& record : group.cases) {
    const auto [differs, ignored] = std::ranges::mismatch(start, record.key);
    start = start.substr(0, static_cast<size_t>(differs - start.begin()));
  }
  return std::string(start.substr(0, start.rfind('/') + 1));
}

/// Holds cases with the same keys, each with its record's key.
using CaseTable = std::vector<std::pair<std::string_view, FlatCase>>;

Json json_of(const CaseTable& table) {
  const FlatCase& first = table.front().second;
  Json columns = {"key"}, rows = Json::array();
  std::vector<size_t> own;
  for (size_t c = 0; c < first.size(); ++c) {
    const auto& [name, value] = first[c];
    if (std::ranges::all_of(table, [&, &shared = value](const auto& row) { return row.second[c].second == shared; })) {
      if (!columns.back().is_object()) columns.push_back(Json::object());
      columns.back()[name] = value;
    } else {
      columns.push_back(name);
      own.push_back(c);
    }
  }
  for (const auto& [key, values] : table) {
    Json row = Json::array({key});
    for (const size_t c : own) row.push_back(values[c].second);
    rows.push_back(std::move(row));
  }
  return {{"columns", std::move(columns)}, {"rows", std::move(rows)}};
}

Json json_of(const CaseGroup& group) {
  const std::string start = common_start(group);
  std::vector<CaseTable> tables;
  for (const CaseRecord& record : group.cases) {
    FlatCase values = flat(record);
    const auto same_keys = [&](const CaseTable& table) {
      return std::ranges::equal(table.front().second, values, {}, &FlatCase::value_type::first,
                                &FlatCase::value_type::first);
    };
    auto table = std::ranges::find_if(tables, same_keys);
    if (table == tables.end()) table = tables.emplace(tables.end());
    table->emplace_back(std::string_view(record.key).substr(start.size()), std::move(values));
  }
  Json out{{"kind", "cases"}, {"parameters", to_json(group.parameters)}, {"key", start}};
  for (const CaseTable& table : tables) out["tables"].push_back(json_of(table));
  return out;
}

Json json_of(const ResumeMark& mark) { return {{"kind", "resume"}, {"started", mark.started}}; }
Json json_of(const EndMark& mark) {
  return {{"kind", "end"}, {"ended", mark.ended}, {"conditions", to_json(mark.conditions)}};
}

}  // namespace

std::string to_json_line(const RecordLine& line) {
  const Json json = std::visit([](const auto& value) { return json_of(value); }, line);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';  // never throws for broken UTF-8
}

bool is_complete_json(std::string_view text) { return Json::accept(text); }

}  // namespace moe
