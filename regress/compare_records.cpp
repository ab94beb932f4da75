#include "regress/compare_records.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/file_text.h"
#include "moe/base/statistics.h"
#include "moe/record/over_ranks.h"

namespace moe::regress {
namespace {

constexpr double kSameMemory = 0.01;  // a kernel keeps more or less of it for itself
constexpr double kSameDilation = 8;   // disturbed passes are run again, at up to four times their dilation

std::string text_or_none(const Scalar* value) { return value ? scalar_text(*value) : "none"; }

std::string difference(std::string_view name, const std::string& a, const std::string& b) {
  return a == b ? "" : fmt::format("{}: {} against {}", name, a, b);
}

std::string difference(std::string_view name, const Fields& a, const Fields& b) {
  return difference(name, text_or_none(a.find(name)), text_or_none(b.find(name)));
}

/// Returns the first that is not empty.
template <class... Texts>
std::string first_of(Texts&&... texts) {
  std::string found;
  ((found.empty() ? void(found = std::forward<Texts>(texts)) : void()), ...);
  return found;
}

double number_or_nan(const Fields& fields, std::string_view name) {
  const Scalar* found = fields.find(name);
  if (found && std::holds_alternative<int64_t>(*found)) return static_cast<double>(std::get<int64_t>(*found));
  return found && std::holds_alternative<double>(*found) ? std::get<double>(*found) : std::nan("");
}

std::string memory_difference(const Fields& a, const Fields& b) {
  const double bytes_a = number_or_nan(a, "memory_bytes"), bytes_b = number_or_nan(b, "memory_bytes");
  if (std::abs(bytes_a - bytes_b) <= kSameMemory * bytes_a) return {};
  return difference("memory_bytes", a, b);
}

std::string dilation_difference(double a, double b) {
  const bool alike = a == b || (a != 1 && b != 1 && std::max(a, b) <= kSameDilation * std::min(a, b));
  return alike ? "" : fmt::format("dilation: {:.4g} against {:.4g}", a, b);
}

std::string ranks_difference(const RunHeader& a, const RunHeader& b) {
  for (const char* name : {"threads", "backend", "ranks", "nodes", "ranks_per_node", "device", "attention"})
    if (std::string found = difference(name, a.ranks, b.ranks); !found.empty()) return found;
  return a.ranks.has("threads") ? "" : difference("OMP_NUM_THREADS", a.environment, b.environment);
}

}  // namespace

MainTime main_time(const CaseRecord& record) {
  for (const char* name : {"total_s", "seconds"})
    for (const Samples& samples : record.samples) {
      if (samples.name != name) continue;
      MainTime time{name, 0, {}};
      const auto usable = [](double s) { return std::isfinite(s) && s > 0; };
      if (samples.values.empty() || std::ranges::any_of(samples.values, &std::vector<double>::empty))
        time.fault = fmt::format("{}: found no samples of some iteration", name);
      else if (!std::ranges::all_of(samples.values, [&](const auto& v) { return std::ranges::all_of(v, usable); }))
        time.fault = fmt::format("{}: found a sample that is no time above 0", name);
      else
        time.seconds = median(max_over_ranks(samples.values));
      return time;
    }
  return {{}, 0, record.backend == "none" ? "nothing was measured" : "found no samples of total_s or seconds"};
}

std::optional<std::string> value_of(const CaseRecord& record, std::string_view name) {
  if (name == "key") return record.key;
  if (name == "family") return family_of(record);
  if (name == "backend") return record.backend;
  if (!record.schedule.empty()) {
    if (name == "schedule") return record.schedule;
    if (name == "degree_forward") return fmt::format("{}", record.degree_forward);
    if (name == "degree_backward") return fmt::format("{}", record.degree_backward);
  }
  if (const Scalar* found = record.parameters.find(name)) return scalar_text(*found);
  return std::nullopt;
}

std::string family_of(const CaseRecord& record) {
  std::string start = record.key.substr(0, record.key.find('/'));
  for (const char* name : {"schedule", "name", "op", "kernel"})
    if (const auto found = value_of(record, name)) return fmt::format("{} {}", start, *found);
  return start;
}

std::string asked_difference(const CaseRecord& a, const CaseRecord& b) {
  for (const char* name : {"dtype", "algorithm"})
    if (std::string found = difference(name, a.parameters, b.parameters); !found.empty()) return found;
  for (const auto& [name, value] : a.parameters)
    if (b.parameters.has(name))
      if (std::string found = difference(name, a.parameters, b.parameters); !found.empty()) return found;
  const auto degree = [](int d) { return fmt::format("{}", d); };
  return first_of(difference("schedule", a.schedule, b.schedule),
                  difference("degree_forward", degree(a.degree_forward), degree(b.degree_forward)),
                  difference("degree_backward", degree(a.degree_backward), degree(b.degree_backward)));
}

std::string machine_difference(const Fields& a, const Fields& b) {
  if (a.has("fingerprint") && b.has("fingerprint")) return difference("fingerprint", a, b);
  return first_of(difference("cpu", a, b), difference("cores", a, b), memory_difference(a, b),
                  difference("architecture", a, b));
}

std::string measured_difference(const RunHeader& run_a, const CaseRecord& a, const RunHeader& run_b,
                                const CaseRecord& b) {
  return first_of(difference("measurement", fmt::format("{}", run_a.measurement), fmt::format("{}", run_b.measurement)),
                  machine_difference(run_a.machine, run_b.machine), ranks_difference(run_a, run_b),
                  difference("backend", a.backend, b.backend),
                  difference("emulated", a.emulated ? "yes" : "no", b.emulated ? "yes" : "no"),
                  dilation_difference(a.dilation, b.dilation));
}

CaseFilter::CaseFilter(const std::vector<std::string>& items) {
  std::string key;
  for (const std::string& item : items) {
    const size_t equals = item.find('=');
    if (equals != std::string::npos) key = item.substr(0, equals);
    require<BadInput>(!key.empty(), "--filter: found {}, expected KEY=VALUE", shown(item));
    wanted_[key].insert(equals == std::string::npos ? item : item.substr(equals + 1));
  }
}

bool CaseFilter::keeps(const CaseRecord& record) {
  bool kept = true;
  for (const auto& [key, values] : wanted_) {
    const auto found = value_of(record, key);
    if (found) seen_.insert(key);
    kept = kept && found && values.contains(*found);
  }
  return kept;
}

void CaseFilter::require_known() const {
  for (const auto& [key, values] : wanted_)
    require<BadInput>(seen_.contains(key), "--filter: found {}, expected a parameter of some case, or schedule",
                      shown(key));
}

}  // namespace moe::regress
