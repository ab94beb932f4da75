#include "commands/regress/output_metric.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <fmt/ranges.h>

#include "moe/base/check.h"
#include "moe/base/json.h"
#include "moe/base/statistics.h"
#include "moe/record/pass_times.h"

namespace moe::regress {
namespace {

constexpr size_t kMaxLineLength = 4096;  // bytes of a line that are searched
constexpr std::string_view kNumberAlone = R"(^\s*([-+0-9.eE]+)\s*$)";

/// A line of a training's log.
struct LogLine {
  std::string_view log, pattern, unit, teraflops = {};
};
// Source: megatron/training/training.py; NeMo's TimingCallback, in progress bars and lines; Megatron-Bridge's
// train_utils.py;
// deepspeed/runtime/pipe/engine.py and deepspeed/utils/timer.py, with wall_clock_breakdown and without.
constexpr std::array<LogLine, 6> kLogLines{
    {{"megatron", R"(elapsed time per iteration \(ms\):\s*([-+0-9.eE]+))", "ms",
      R"(throughput per GPU \(TFLOP/s/GPU\):\s*([-+0-9.eE]+))"},
     {"nemo", R"(train_step_timing in s"?\s*[:=]\s*([-+0-9.eE]+))", "s"},
     {"megatron-bridge", R"(Step Time\s*:\s*([-+0-9.eE]+)\s*s)", "s",
      R"(GPU utilization:\s*([-+0-9.eE]+)\s*MODEL_TFLOP/s/GPU)"},
     {"deepspeed", R"(iter time \(s\):\s*([-+0-9.eE]+))", "s"},
     {"deepspeed", R"(\| fwd: ([-+0-9.eE]+) \| bwd: ([-+0-9.eE]+) \|.*\| step: ([-+0-9.eE]+))", "ms"},
     {"deepspeed", R"(CurrSamplesPerSec=([-+0-9.eE]+))", "1/s"}}};

// Returns the seconds of a unit; none for an unknown unit.
std::optional<double> seconds_of(std::string_view unit) {
  if (unit == "s" || unit == "1/s") return 1;
  if (unit == "ms") return 1e-3;
  if (unit == "us") return 1e-6;
  if (unit == "ns") return 1e-9;
  return std::nullopt;
}

std::optional<double> number_of(const std::string& text) {
  try {
    size_t used = 0;
    const double number = std::stod(text, &used);
    if (used == text.size() && std::isfinite(number) && number > 0) return number;
  } catch (const std::logic_error&) {
  }
  return std::nullopt;
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

double CaseTimes::seconds() const { return median(max_over_ranks(samples)); }

std::optional<std::string> range_of_metric(const std::string& metric) {
  constexpr std::string_view kNsys = "nsys:";
  return metric.starts_with(kNsys) ? std::optional(metric.substr(kNsys.size())) : std::nullopt;
}

CaseTimes range_times(const commands::NsysExport& from, const std::string& range) {
  const std::vector<std::vector<double>> by_rank = commands::range_seconds(from, range);
  require<BadInput>(!by_rank.empty(),
                    "{}: found no kernel that was launched inside the range {}, expected at least one", from.path,
                    quoted_text(range));
  const auto [least, most] = std::ranges::minmax_element(by_rank, {}, &std::vector<double>::size);
  require<BadInput>(least->size() == most->size(),
                    "{}: found {} and {} occurrences of {}, expected the same number on every rank", from.path,
                    least->size(), most->size(), quoted_text(range));
  CaseTimes times;
  for (size_t i = 0; i < least->size(); ++i) {
    std::vector<double>& ranks = times.samples.emplace_back();
    for (const std::vector<double>& rank : by_rank) ranks.push_back(rank[i]);
  }
  return times;
}

std::vector<std::string> known_log_formats() {
  std::vector<std::string> logs;
  for (const LogLine& line : kLogLines)
    if (logs.empty() || logs.back() != line.log) logs.emplace_back(line.log);
  return logs;
}

OutputMetric::OutputMetric(const std::string& text, const std::string& unit, const std::string& where) : text_(text) {
  range_ = range_of_metric(text);
  const auto regex_of = [](std::string_view pattern) {
    return std::regex(pattern.begin(), pattern.end(), std::regex::ECMAScript | std::regex::optimize);
  };
  const auto add = [&](std::string_view pattern, std::string_view named) {
    const std::optional<double> seconds = seconds_of(named);
    require<BadInput>(seconds.has_value(), "{}: found unit {}, expected s, ms, us, ns or 1/s", where,
                      quoted_text(unit));
    lines_.push_back({regex_of(pattern), *seconds, named == "1/s"});
  };
  for (const LogLine& line : kLogLines) {
    if (line.log != text) continue;
    add(line.pattern, line.unit);
    if (!line.teraflops.empty()) lines_.back().teraflops = regex_of(line.teraflops);
  }
  first_warms_ = !lines_.empty();
  const bool has_unit = text == "gbench" || range_ || first_warms_;
  require<BadInput>(!has_unit || unit.empty(), "{}: found unit {}, expected none: metric {} has a fixed unit", where,
                    quoted_text(unit), text);
  require<BadInput>(!range_ || !range_->empty(), "{}: found {}, expected nsys:RANGE, the name of an NVTX range", where,
                    quoted_text(text));
  if (has_unit) return;
  try {
    add(text == "number" ? kNumberAlone : text, unit.empty() ? "s" : unit);
  } catch (const std::regex_error&) {
  }
  require<BadInput>(lines_.size() == 1 && lines_.front().pattern.mark_count() == 1,
                    "{}: found {}, expected gbench, {}, nsys:RANGE, number, or a regular expression with one group",
                    where, quoted_text(text), fmt::join(known_log_formats(), ", "));
}

OutputMetric::CommandTimes OutputMetric::in(const std::string& output, const Place& place) const {
  if (range_) return ranges_in(output, place);
  if (lines_.empty()) return benchmarks_in(output);
  for (const Line& line : lines_)
    if (CommandTimes found = numbers_in(output, line); !found.cases.empty() || !found.not_ok.empty()) return found;
  return {.not_ok = {{"", fmt::format("found no time for metric {} in the output", quoted_text(text_))}}};
}

// Returns an empty result for an output without such lines. A carriage return also ends a line, as in progress bars.
OutputMetric::CommandTimes OutputMetric::numbers_in(std::string_view output, const Line& expected) const {
  CaseTimes times;
  std::vector<double> flops_per_s;
  const auto drop_first = [&](auto& values) {
    if (first_warms_ && values.size() > 1) values.erase(values.begin());
  };
  while (!output.empty()) {
    const size_t end = output.find_first_of("\r\n");
    const std::string line(output.substr(0, std::min(end, kMaxLineLength)));
    output.remove_prefix(end == std::string_view::npos ? output.size() : end + 1);
    for (auto found = std::sregex_iterator(line.begin(), line.end(), expected.pattern); found != std::sregex_iterator();
         ++found) {
      double sum = 0;
      for (size_t group = 1; group < found->size(); ++group) {
        const std::string text = (*found)[group];
        const std::optional<double> number = number_of(text);
        if (!number) return {.not_ok = {{"", fmt::format("found {}, expected a number above 0", quoted_text(text))}}};
        sum += *number;
      }
      times.samples.push_back({expected.is_rate ? 1 / sum : expected.unit_s * sum});
    }
    std::smatch rate;
    if (!expected.teraflops || !std::regex_search(line, rate, *expected.teraflops)) continue;
    if (const std::optional<double> number = number_of(rate[1])) flops_per_s.push_back(1e12 * *number);
  }
  if (times.samples.empty()) return {};
  drop_first(times.samples);
  drop_first(flops_per_s);
  return {.cases = {{"", std::move(times)}}, .is_rate = expected.is_rate, .flops_per_s = std::move(flops_per_s)};
}

// Reads the last *.sqlite that the output names, because nsys lists the files that it generated.
OutputMetric::CommandTimes OutputMetric::ranges_in(std::string_view output, const Place& place) const {
  constexpr std::string_view kExtension = ".sqlite", kBlanks = " \t\r\n'\"[]";
  const size_t end = output.rfind(kExtension);
  if (end == std::string_view::npos)
    return {.not_ok = {{"", "found no file *.sqlite in the output (nsys profile --export sqlite)"}}};
  const std::string_view before = output.substr(0, end + kExtension.size());
  const size_t blank = before.find_last_of(kBlanks);
  const std::filesystem::path file =
      std::filesystem::path(place.folder) / before.substr(blank == std::string_view::npos ? 0 : blank + 1);
  std::error_code ignored;
  if (std::filesystem::last_write_time(file, ignored) < place.started - std::chrono::seconds(1) && !ignored)
    return {.not_ok = {{"", fmt::format("found {}, which is older than the launch, expected one that it wrote (nsys "
                                        "profile --force-overwrite true)",
                                        file.string())}}};
  try {
    return {.cases = {{"", range_times(commands::read_nsys_export(file), *range_)}}};
  } catch (const BadInput& error) {
    return {.not_ok = {{"", error.what()}}};
  }
}

// Every repetition is a sample; if only aggregates are printed, the median is the one sample.
OutputMetric::CommandTimes OutputMetric::benchmarks_in(std::string_view output) const {
  const size_t begin = output.find('{');
  const std::optional<Json> json = begin == std::string_view::npos ? std::nullopt : json_if_valid(output.substr(begin));
  const std::string fault = "found no JSON of google/benchmark on stdout (--benchmark_format=json)";
  if (!json || !json->is_object() || !json->contains("benchmarks") || !(*json)["benchmarks"].is_array())
    return {.not_ok = {{"", fault}}};
  CommandTimes found;
  std::map<std::string, CaseTimes> medians;
  for (const Json& benchmark : (*json)["benchmarks"]) {
    if (!benchmark.is_object()) return {.not_ok = {{"", fault}}};
    const std::string run = text_at(benchmark, "run_name"), name = run.empty() ? text_at(benchmark, "name") : run;
    const std::string aggregate = text_at(benchmark, "aggregate_name");
    if (!aggregate.empty() && aggregate != "median") continue;
    const auto time = benchmark.find("real_time");
    const std::string unit = text_at(benchmark, "time_unit");
    const std::optional<double> seconds = seconds_of(unit.empty() ? "ns" : unit);
    const bool usable = time != benchmark.end() && time->is_number() && seconds && time->get<double>() > 0;
    if (benchmark.value("error_occurred", false) || !usable) {
      const std::string error = text_at(benchmark, "error_message");
      found.not_ok[name] = error.empty() ? "found no real_time above 0" : error;
      continue;
    }
    (aggregate.empty() ? found.cases : medians)[name].samples.push_back({*seconds * time->get<double>()});
  }
  found.cases.merge(medians);  // keeps the repetitions of names that have both
  for (const auto& [name, why] : found.not_ok) found.cases.erase(name);
  return found;
}

}  // namespace moe::regress
