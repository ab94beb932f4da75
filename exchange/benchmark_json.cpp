// Google Benchmark's JSON, as its tools/compare.py, github-action-benchmark and bencher read it.
#include <ostream>

#include "exchange/formats.h"
#include "moe/base/check.h"
#include "moe/base/json.h"
#include "moe/base/log.h"
#include "moe/base/statistics.h"

namespace moe::exchange {
namespace {

constexpr double kNanoseconds = 1e9;

double number_or_zero(const Fields& fields, std::string_view name) {
  return fields.has(name) ? fields.number(name, name) : 0;
}

Json context_of(const RunHeader& header) {
  const double load = number_or_zero(header.conditions, "load1");
  return {{"date", header.started},
          {"host_name", ""},  // which no record has
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

}  // namespace moe::exchange
