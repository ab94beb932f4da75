#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <fmt/ranges.h>
#include <map>
#include <ostream>
#include <sstream>

#include "commands/exchange/csv.h"
#include "commands/exchange/formats.h"
#include "commands/exchange/tuned_layer.h"
#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/files.h"
#include "moe/base/json.h"
#include "moe/base/log.h"
#include "moe/base/registry.h"
#include "moe/base/statistics.h"
#include "moe/record/pass_times.h"

namespace moe::exchange {
namespace {

struct ExportFormat {
  std::string_view name;
  void (*write)(const ExportOptions&, std::ostream&);
  std::string_view flags;  // the flags that the format takes, beside --out
};

constexpr std::array<ExportFormat, 13> kExportFormats{{
    {"csv", write_csv, "--per-element"},
    {"tutel", write_tutel, "--only"},
    {"fsmoe", write_fsmoe, "--only"},
    {"megatron", write_megatron, "--only"},
    {"megatron-overlap", write_megatron_overlap, "--only"},
    {"megatron-bridge", write_megatron_bridge, "--only"},
    {"nemo", write_nemo, "--only"},
    {"deepspeed", write_deepspeed, "--only"},
    {"google-benchmark", write_google_benchmark, "--samples"},
    {"otava", write_otava_csv, ""},
    {"otava-json", write_otava_json, ""},
    {"plan", write_plan_document, "--cluster --only --schedule"},
    {"chakra", write_chakra, "--cluster --only --schedule"},
}};

// Refuses flags that the format does not read.
void check_read(const ExportFormat& format, const ExportOptions& o) {
  const std::pair<std::string_view, bool> given[] = {{"--cluster", !o.cluster.empty()},
                                                     {"--only", !o.only.empty()},
                                                     {"--schedule", !o.schedule.empty()},
                                                     {"--per-element", o.per_element},
                                                     {"--samples", o.samples}};
  for (const auto& [flag, is_given] : given)
    require<BadInput>(!is_given || format.flags.find(flag) != std::string_view::npos, "{} has no effect for format {}",
                      flag, format.name);
}

// Refuses a file that no format can read, and a plan if the format needs records.
void check_file(const ExportFormat& format, const ExportOptions& o) {
  const bool of_plans = format.flags.find("--schedule") != std::string_view::npos;
  require<BadInput>(of_plans || !is_plan(o.file),
                    "{}: found a plan, expected records; of a plan export makes chakra or plan", o.file);
  require_other_file(o.out, {o.file, o.cluster});
}

}  // namespace

std::string export_formats() { return fmt::format("{}", fmt::join(row_names(kExportFormats), "|")); }

int run_export(const ExportOptions& options) {
  const ExportFormat& format = find_named(kExportFormats, options.format, "export");
  check_read(format, options);
  check_file(format, options);
  std::ostringstream text;
  format.write(options, text);
  const std::string all = text.str();
  if (options.out.empty()) {
    std::fwrite(all.data(), 1, all.size(), stdout);
  } else {
    make_folders_above(options.out);
    write_whole_file(options.out, "a file for the export", [&](std::ostream& out) { out << all; });
  }
  return 0;
}

void write_csv(const ExportOptions& options, std::ostream& out) {
  const bool records = without_gz_suffix(options.file).ends_with(".jsonl") || first_letter(options.file) == '{';
  if (!records) return write_profile_csv(options, out);
  require<BadInput>(!options.per_element, "--per-element: found records, expected a profile with it");
  const Run run = read_last_run(options.file);
  require<BadInput>(!run.cases.empty(), "{}: found a run without cases, expected one with cases", options.file);
  write_record_csv(run, out);
}

std::vector<double> samples_of(const CaseRecord& record) {
  for (const char* name : {"total_s", "seconds"})
    for (const Samples& samples : record.samples)
      if (samples.name == name) return max_over_ranks(samples.values);
  return {};
}

double seconds_of(const CaseRecord& record) {
  for (const char* name : {"total_s", "median_s"})
    if (record.summary.has(name)) return record.summary.number(name, record.where);
  if (const std::vector<double> samples = samples_of(record); !samples.empty()) return median(samples);
  return record.prediction.has("total_s") ? record.prediction.number("total_s", record.where) : 0;
}

// Google Benchmark's JSON, in the form that its tools/compare.py, github-action-benchmark and bencher read.

namespace {

constexpr double kNanoseconds = 1e9;

double number_or_zero(const Fields& fields, std::string_view name) {
  return fields.has(name) ? fields.number(name, name) : 0;
}

Json context_of(const RunHeader& header) {
  const double load = number_or_zero(header.conditions, "load1");
  return {{"date", header.started},
          {"host_name", ""},  // records have no host name
          {"executable", "moetune"},
          {"num_cpus", static_cast<int64_t>(number_or_zero(header.machine, "cores"))},
          {"mhz_per_cpu", static_cast<int64_t>(number_or_zero(header.conditions, "mhz"))},
          {"cpu_scaling_enabled", false},
          {"caches", Json::array()},
          {"load_avg", Json::array({load})},
          {"library_version", header.version},
          {"library_build_type", "release"},
          {"comment", "real_time is the slowest rank's; cpu_time repeats it: no record has the processors' time"}};
}

Json row_of(const CaseRecord& record, double seconds, size_t place, size_t repetitions) {
  return {{"name", record.key},
          {"run_name", record.key},
          {"run_type", "iteration"},
          {"repetitions", repetitions},
          {"repetition_index", place},
          {"threads", 1},
          {"iterations", 1},
          {"real_time", seconds * kNanoseconds},
          {"cpu_time", seconds * kNanoseconds},
          {"time_unit", "ns"}};
}

}  // namespace

void write_google_benchmark(const ExportOptions& options, std::ostream& out) {
  const Run run = read_last_run(options.file);
  Json rows = Json::array();
  int failed = 0, without = 0;
  for (const CaseRecord& record : run.cases) {
    if (record.status != CaseStatus::ok) {
      ++failed;
      continue;
    }
    std::vector<double> seconds = options.samples ? samples_of(record) : std::vector<double>{};
    if (seconds.empty()) seconds = {seconds_of(record)};
    if (seconds.front() <= 0) {
      ++without;
      continue;
    }
    for (size_t i = 0; i < seconds.size(); ++i) rows.push_back(row_of(record, seconds[i], i, seconds.size()));
  }
  require<BadInput>(!rows.empty(), "{}: found no case with a time, expected one", options.file);
  if (failed > 0) log_info(fmt::format("google-benchmark: {} cases that are not ok are left out", failed));
  if (without > 0) log_info(fmt::format("google-benchmark: {} cases without a time are left out", without));
  out << document_text(Json{{"context", context_of(run.header)}, {"benchmarks", rows}}) << "\n";
}

// A history for Apache Otava: one row for each run and one metric for each case, as its CSV and JSON importers expect.

namespace {

struct HistoryRow {
  std::string started, commit, version;
  std::map<std::string, double> seconds;  // seconds by metric
};

struct MetricHistory {
  std::vector<std::string> metrics;  // metrics that every run has
  std::vector<HistoryRow> rows;      // sorted by time
};

// Otava passes names of metrics on unchanged, so only letters, digits and _ - . are kept.
std::string metric_name(const std::string& key) {
  std::string name = key;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '-' && c != '.') c = '.';
  return name;
}

HistoryRow row_of(const Run& run, const std::string& file) {
  HistoryRow row{run.header.started, "", run.header.version, {}};
  if (run.header.git.has("commit")) row.commit = run.header.git.text("commit", "git");
  std::map<std::string, std::string> keys;  // keys by metric
  for (const CaseRecord& record : run.cases) {
    const double seconds = seconds_of(record);
    if (record.status != CaseStatus::ok || !(seconds > 0) || is_regression_gate_launch(record) || is_repeat(record))
      continue;
    const std::string metric = metric_name(record.key);
    const auto [known, fresh] = keys.try_emplace(metric, record.key);
    require<BadInput>(fresh, "{}: found the cases {} and {}, both {} as Otava names metrics, expected different names",
                      file, quoted_text(known->second), quoted_text(record.key), metric);
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

// Returns the seconds since 1970 of a time such as "2025-01-31T12:00:00Z".
int64_t epoch_seconds(const std::string& utc) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  const int read = std::sscanf(utc.c_str(), "%d-%d-%dT%d:%d:%dZ", &year, &month, &day, &hour, &minute, &second);
  require<BadInput>(read == 6, "started: found '{}', expected a time such as 2025-01-31T12:00:00Z", utc);
  namespace chrono = std::chrono;
  const chrono::sys_days date =
      chrono::year(year) / chrono::month(static_cast<unsigned>(month)) / chrono::day(static_cast<unsigned>(day));
  const chrono::sys_seconds time = date + chrono::hours(hour) + chrono::minutes(minute) + chrono::seconds(second);
  return time.time_since_epoch().count();
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
