// A history for Apache Otava: one row a run, one metric a case, as its CSV and JSON importers read them.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <map>
#include <ostream>

#include "exchange/csv.h"
#include "exchange/formats.h"
#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/file_text.h"
#include "moe/base/json.h"
#include "moe/base/log.h"
#include "moe/base/out_file.h"

namespace moe::exchange {
namespace {

struct HistoryRow {
  std::string started, commit, version;
  std::map<std::string, double> seconds;  // by metric
};

struct MetricHistory {
  std::vector<std::string> metrics;  // that every run has
  std::vector<HistoryRow> rows;      // by time
};

// Otava gives names of metrics to others as they are: letters, digits and _ - . alone.
std::string metric_name(const std::string& key) {
  std::string name = key;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '-' && c != '.') c = '.';
  return name;
}

HistoryRow row_of(const Run& run, const std::string& file) {
  HistoryRow row{run.header.started, "", run.header.version, {}};
  if (run.header.git.has("commit")) row.commit = run.header.git.text("commit", "git");
  std::map<std::string, std::string> keys;  // by metric
  for (const CaseRecord& record : run.cases) {
    const double seconds = seconds_of(record);
    if (record.status != CaseStatus::ok || !(seconds > 0) || is_of_gate(record) || is_repeat(record)) continue;
    const std::string metric = metric_name(record.key);
    const auto [known, fresh] = keys.try_emplace(metric, record.key);
    require<BadInput>(fresh, "{}: found the cases {} and {}, both {} as Otava names metrics, expected different names",
                      file, shown(known->second), shown(record.key), metric);
    row.seconds[metric] = seconds;
  }
  return row;
}

std::string print_of(const Fields& machine) {
  const Scalar* print = machine.find("fingerprint");
  return print == nullptr ? "of no name" : scalar_text(*print);
}

MetricHistory history_of(const ExportOptions& options) {
  const std::string& path = options.file;
  const std::vector<std::string> files = record_files(path, true);
  require_other_file(options.out, files);
  MetricHistory history;
  std::map<std::string, size_t> runs_of;
  Fields machine;
  for (const std::string& file : files)
    for (const Run& run : read_runs(file)) {
      HistoryRow row = row_of(run, file);
      if (row.seconds.empty()) continue;
      if (history.rows.empty()) machine = run.header.machine;
      require<BadInput>(print_of(run.header.machine) == print_of(machine),
                        "{}: found runs of machines {} and {}, expected those of one: another machine is no change",
                        path, print_of(machine), print_of(run.header.machine));
      for (const auto& [metric, seconds] : row.seconds) ++runs_of[metric];
      history.rows.push_back(std::move(row));
    }
  std::ranges::stable_sort(history.rows, {}, &HistoryRow::started);
  for (const auto& [metric, runs] : runs_of)
    if (runs == history.rows.size()) history.metrics.push_back(metric);
  require<BadInput>(!history.metrics.empty(), "{}: found {} runs and no case that all have, expected one", path,
                    history.rows.size());
  if (runs_of.size() > history.metrics.size())
    log_info(fmt::format("otava: {} cases that some of the {} runs lack are left out",
                         runs_of.size() - history.metrics.size(), history.rows.size()));
  return history;
}

// Returns the seconds since 1970 of "2025-01-31T12:00:00Z".
int64_t epoch_seconds(const std::string& utc) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  const int read = std::sscanf(utc.c_str(), "%d-%d-%dT%d:%d:%dZ", &year, &month, &day, &hour, &minute, &second);
  require<BadInput>(read == 6, "started: found '{}', expected a time such as 2025-01-31T12:00:00Z", utc);
  using namespace std::chrono;
  const sys_days date = std::chrono::year(year) / std::chrono::month(static_cast<unsigned>(month)) /
                        std::chrono::day(static_cast<unsigned>(day));
  return duration_cast<std::chrono::seconds>(date.time_since_epoch()).count() + 3600 * hour + 60 * minute + second;
}

}  // namespace

void write_otava_csv(const ExportOptions& options, std::ostream& out) {
  const MetricHistory history = history_of(options);
  std::vector<std::string> cells{"time", "commit", "version"};
  cells.insert(cells.end(), history.metrics.begin(), history.metrics.end());
  out << csv_line(cells);
  for (const HistoryRow& row : history.rows) {
    cells = {row.started, row.commit, row.version};
    for (const std::string& metric : history.metrics) cells.push_back(fmt::format("{}", row.seconds.at(metric)));
    out << csv_line(cells);
  }
}

void write_otava_json(const ExportOptions& options, std::ostream& out) {
  const MetricHistory history = history_of(options);
  Json runs = Json::array();
  for (const HistoryRow& row : history.rows) {
    Json run{{"timestamp", epoch_seconds(row.started)},
             {"metrics", Json::array()},
             {"attributes", {{"commit", row.commit}, {"version", row.version}}}};
    for (const std::string& metric : history.metrics)
      run["metrics"].push_back({{"name", metric}, {"value", row.seconds.at(metric)}});
    runs.push_back(std::move(run));
  }
  out << document_text(runs) << "\n";
}

}  // namespace moe::exchange
