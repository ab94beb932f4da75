// Records as flat columns: what is nested is dotted.
#include <algorithm>
#include <map>
#include <ostream>

#include "exchange/csv.h"
#include "exchange/formats.h"
#include "moe/base/check.h"
#include "moe/base/log.h"

namespace moe::exchange {
namespace {

using Cells = std::map<std::string, std::string>;

// Returns one case's cells by column; new columns are appended in the order in which they come.
Cells cells_of(const CaseRecord& record, std::vector<std::string>& columns) {
  Cells cells;
  const auto set = [&](const std::string& column, std::string text) {
    if (std::ranges::find(columns, column) == columns.end()) columns.push_back(column);
    cells[column] = std::move(text);
  };
  set("key", record.key);
  set("status", std::string(name_of(record.status)));
  set("reason", record.reason);
  set("schedule", record.schedule);
  set("degree_forward", fmt::format("{}", record.degree_forward));
  set("degree_backward", fmt::format("{}", record.degree_backward));
  set("backend", record.backend);
  set("emulated", record.emulated ? "true" : "false");
  set("dilation", fmt::format("{}", record.dilation));
  for (const auto& [name, value] : record.parameters) set(name, scalar_text(value));
  for (const auto& [name, value] : record.summary) set("summary." + name, scalar_text(value));
  for (const auto& [name, value] : record.prediction) set("prediction." + name, scalar_text(value));
  if (record.bound_s) set("bound_s", fmt::format("{}", *record.bound_s));
  return cells;
}

}  // namespace

void write_record_csv(const Run& run, std::ostream& out) {
  std::vector<std::string> columns;
  std::vector<Cells> rows;
  bool samples = false, timelines = false;
  for (const CaseRecord& record : run.cases) {
    rows.push_back(cells_of(record, columns));
    samples |= !record.samples.empty();
    timelines |= !record.timeline.empty() || !record.measured_timeline.tasks.empty();
  }
  if (samples) log_info("csv: samples are left out, their medians are in summary.*");
  if (timelines) log_info("csv: timelines are left out");
  out << csv_line(columns);
  for (Cells& row : rows) {
    std::vector<std::string> cells;
    for (const std::string& column : columns) cells.push_back(row[column]);
    out << csv_line(cells);
  }
}

}  // namespace moe::exchange
