#include "regress/history_series.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/units.h"

namespace moe::regress {
namespace {

/// Holds what one run says of one case.
struct Seen {
  const Run* run;
  std::string key;
  double log_s;
};

std::string text_of(const Fields& fields, std::string_view name) {
  const Scalar* found = fields.find(name);
  return found ? scalar_text(*found) : "";
}

/// Returns what a case is, and how it was measured.
std::string identity_of(const CaseRecord& record) {
  std::string text = fmt::format("{} {} {} {}", record.key, record.backend, record.emulated, record.dilation != 1);
  for (const char* name : {"dtype", "algorithm"}) text += fmt::format(" {}", value_of(record, name).value_or(""));
  return text;
}

/// Returns "AMD EPYC, 2 cores, 24.0 GiB, x86_64, threads 2".
std::string machine_text(const RunHeader& run) {
  std::string text = text_of(run.machine, "cpu");
  if (const std::string cores = text_of(run.machine, "cores"); !cores.empty()) text += ", " + cores + " cores";
  if (run.machine.has("memory_bytes")) text += ", " + human_bytes(run.machine.number("memory_bytes", "machine"));
  if (const std::string kind = text_of(run.machine, "architecture"); !kind.empty()) text += ", " + kind;
  for (const auto& [name, value] : run.ranks)
    if (name != "interface") text += fmt::format(", {} {}", name, text_of(run.ranks, name));
  return text.empty() ? "unknown machine" : text;
}

/// Holds the machines that runs were made on, each once; runs of one machine may say less than others.
class Machines {
 public:
  size_t of(const RunHeader& run) {
    const CaseRecord any;
    const auto same = [&](const RunHeader* known) { return measured_difference(*known, any, run, any).empty(); };
    const auto found = std::ranges::find_if(known_, same);
    if (found != known_.end()) return static_cast<size_t>(found - known_.begin());
    known_.push_back(&run);
    return known_.size() - 1;
  }
  std::string text(size_t machine) const {
    const RunHeader& run = *known_[machine];
    const std::string text = machine_text(run), print = text_of(run.machine, "fingerprint");
    return print.empty() ? text : fmt::format("{}: {}", print, text);
  }

 private:
  std::vector<const RunHeader*> known_;
};

/// Splits runs into parts that have no case in common.
std::vector<std::vector<Seen>> joined(const std::vector<Seen>& all) {
  std::map<std::string, size_t> part_of_case;
  std::map<const Run*, size_t> part_of_run;
  std::vector<size_t> above(all.size());  // parts by their first entry; merged ones point to others
  std::iota(above.begin(), above.end(), size_t{0});
  const auto top = [&](size_t part) {
    while (above[part] != part) part = above[part];
    return part;
  };
  for (size_t i = 0; i < all.size(); ++i) {
    above[top(i)] = top(part_of_run.try_emplace(all[i].run, i).first->second);
    above[top(i)] = top(part_of_case.try_emplace(all[i].key, i).first->second);
  }
  std::map<size_t, std::vector<Seen>> parts;
  for (size_t i = 0; i < all.size(); ++i) parts[top(i)].push_back(all[i]);
  std::vector<std::vector<Seen>> out;
  for (auto& [first, part] : parts) out.push_back(std::move(part));
  return out;
}

/// A mean that values are added to.
struct Mean {
  double sum = 0;
  int count = 0;
  void add(double value) { sum += value, ++count; }
  double value() const { return sum / count; }
};

/// Fits levels of cases and values of runs in turn, each by the means of what the others leave.
Series fitted(const std::vector<Seen>& seen) {
  constexpr int kMostRounds = 10000;
  constexpr double kSettled = 1e-12;
  std::map<std::string, double> level;
  std::map<const Run*, double> value;
  for (const Seen& s : seen) value[s.run] = 0;
  double moved = 1;
  for (int round = 0; round < kMostRounds && moved > kSettled; ++round) {
    std::map<std::string, Mean> of_case;
    for (const Seen& s : seen) of_case[s.key].add(s.log_s - value[s.run]);
    for (const auto& [key, mean] : of_case) level[key] = mean.value();
    std::map<const Run*, Mean> of_run;
    for (const Seen& s : seen) of_run[s.run].add(s.log_s - level[s.key]);
    moved = 0;
    for (const auto& [run, mean] : of_run) {
      moved = std::max(moved, std::abs(mean.value() - value[run]));
      value[run] = mean.value();
    }
  }
  Mean levels;
  for (const auto& [key, of_case] : level) levels.add(of_case);
  Series series;
  series.cases = levels.count;
  for (const auto& [run, of_run] : value) {
    const auto cases = std::ranges::count(seen, run, &Seen::run);
    series.points.push_back({run->header.started, text_of(run->header.git, "commit"),
                             text_of(run->header.git, "dirty") == "true", std::exp(levels.value() + of_run),
                             static_cast<int>(cases)});
  }
  std::ranges::sort(series.points, {}, [](const SeriesPoint& p) { return std::tie(p.started, p.commit, p.value_s); });
  return series;
}

}  // namespace

std::vector<Series> series_of(const std::vector<Run>& runs, CaseFilter& filter, const std::string& by) {
  Machines machines;
  std::map<std::pair<size_t, std::string>, std::vector<Seen>> groups;
  bool known = false, any = false;
  for (const Run& run : runs)
    for (const CaseRecord& record : run.cases) {
      if (is_of_gate(record) || is_repeat(record) || !filter.keeps(record)) continue;
      if (record.status != CaseStatus::ok) continue;
      const MainTime time = main_time(record);
      if (!time.fault.empty()) continue;
      const auto group = value_of(record, by);
      any = true;
      known = known || group;
      groups[{machines.of(run.header), group.value_or("none")}].push_back(
          {&run, identity_of(record), std::log(time.seconds)});
    }
  filter.require_known();
  require<BadInput>(known || !any, "--by: found {}, expected a parameter of some case, or schedule", shown(by));
  std::vector<Series> all;
  for (const auto& [name, seen] : groups)
    for (const std::vector<Seen>& part : joined(seen)) {
      all.push_back(fitted(part));
      all.back().machine = machines.text(name.first);
      all.back().group = name.second;
    }
  return all;
}

}  // namespace moe::regress
