#include "verbs/run/op_records.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "moe/base/log.h"
#include "moe/base/progress.h"
#include "moe/base/statistics.h"
#include "moe/device/gpu_settings.h"
#include "moe/exec/overhead.h"
#include "moe/measure/ops/lane_bench.h"
#include "moe/record/machine.h"
#include "moe/record/over_ranks.h"
#include "moe/record/record_json.h"
#include "moe/record/stamp.h"
#include "verbs/run/task_records.h"

namespace moe {
namespace {

using Numbers = std::vector<std::vector<double>>;

double expected_seconds(const OpCase& c, int repetitions) {
  const double unpaced_guess = 1e-3 + c.bytes * 1e-9 + c.flops * 4e-11;
  return c.modelled_s > 0 ? repetitions * c.modelled_s * c.dilation : (repetitions + 1) * unpaced_guess;
}

// Each rank has the buffers of two ops, since one is timed beside another; threads share one GPU.
void leave_out_too_large(const Target& target, std::vector<OpCase>& cases) {
  constexpr double kShareOfFree = 0.8;  // the rest is for workspaces, and what is in pieces
  World* processes = target.ranks.processes;
  auto left = static_cast<double>(free_gpu_bytes(processes ? processes->topology().local_rank : 0));
  if (processes)
    for (const auto& rank : gather(*processes, Numbers{{left}})) left = std::min(left, rank.front());
  const double ranks = processes ? 1 : target.cluster.nodes * target.cluster.ranks_per_node;
  std::erase_if(cases, [&](const OpCase& c) { return 2 * ranks * buffer_bytes(c) > kShareOfFree * left; });
}

std::vector<OpCase> cases_of(const Target& target, const OpRequest& request) {
  auto cases = target.emulated ? emulated_cases(target.cluster, request.sizes)
                               : real_cases(target.cluster, target.backend(), request.sizes, target.ranks.device);
  std::ranges::move(module_cases(request.modules, target.cluster), std::back_inserter(cases));
  if (!target.emulated && target.ranks.device == DeviceKind::cuda) leave_out_too_large(target, cases);
  return cases;
}

CaseRecord record_for(const Target& target, std::string key, std::string op) {
  CaseRecord record;
  record.key = std::move(key);
  record.backend = target.backend();
  record.parameters = {{"cluster", target.cluster.name},
                       {"nodes", int64_t{target.cluster.nodes}},
                       {"ranks_per_node", int64_t{target.cluster.ranks_per_node}},
                       {"op", std::move(op)}};
  return record;
}

std::vector<std::vector<double>> samples_of(const std::vector<double>& seconds) {
  std::vector<std::vector<double>> rows;
  for (const double s : seconds) rows.push_back({s});
  return rows;
}

CaseRecord record_of(const LaneSlowdown& slowdown, const Target& target) {
  CaseRecord record = record_for(target, fmt::format("slowdown/{}/{}", slowdown.lane, slowdown.by), "slowdown");
  record.parameters.set("lane", slowdown.lane);
  record.parameters.set("by", slowdown.by);
  record.samples = {{"alone_s", samples_of(slowdown.alone_s)}, {"beside_s", samples_of(slowdown.beside_s)}};
  record.summary = {
      {"alone_s", median(slowdown.alone_s)}, {"beside_s", median(slowdown.beside_s)}, {"factor", slowdown.factor()}};
  return record;
}

CaseRecord record_of(const LaneOverlap& overlap, const Target& target) {
  CaseRecord record = record_for(target, fmt::format("overlap/{}/{}", overlap.lane, overlap.other), "overlap");
  record.parameters.set("lane", overlap.lane);
  record.parameters.set("other", overlap.other);
  record.samples = {{"alone_s", samples_of(overlap.alone_s)},
                    {"other_alone_s", samples_of(overlap.other_alone_s)},
                    {"both_s", samples_of(overlap.both_s)}};
  record.summary = {{"alone_s", median(overlap.alone_s)},
                    {"other_alone_s", median(overlap.other_alone_s)},
                    {"both_s", median(overlap.both_s)},
                    {"overlap", overlap.overlap()}};
  return record;
}

// Records what handing over between lanes costs the slowest process.
CaseRecord overhead_record(const Target& target) {
  const int here = target.ranks.processes ? 1 : target.cluster.nodes * target.cluster.ranks_per_node;
  Overhead overhead = measure_overhead(here);
  if (target.ranks.processes)
    for (const auto& rank : gather(*target.ranks.processes, Numbers{{overhead.task_s, overhead.crossing_s}})) {
      overhead.task_s = std::max(overhead.task_s, rank.at(0));
      overhead.crossing_s = std::max(overhead.crossing_s, rank.at(1));
    }
  CaseRecord record = record_for(target, "overhead", "overhead");
  record.summary = {{"task_s", overhead.task_s}, {"crossing_s", overhead.crossing_s}};
  return record;
}

// Gives all processes what the leader has.
std::vector<CaseRecord> share(const Target& target, std::vector<CaseRecord> records) {
  if (!target.ranks.processes) return records;
  std::string lines;
  for (const CaseRecord& record : records) lines += to_json_line(record);
  std::istringstream all(broadcast(*target.ranks.processes, lines));
  records.clear();
  for (std::string line; std::getline(all, line);)
    records.push_back(std::get<CaseRecord>(record_line_from(line, "rank 0's records")));
  return records;
}

// Records that no case has: slowdowns, overlaps and the overhead, taken from `writer` or measured now.
class Extras {
 public:
  Extras(const Target& target, RecordWriter& writer) : target_(target), writer_(writer) {}

  void add(const std::vector<OpCase>& cases, const OpSettings& settings, std::vector<CaseRecord>& records) {
    if (target_.measured) return;
    const bool known = broadcast_flag(writer_.find("overhead") != nullptr);
    if (known) return take_known(records);
    const LaneTimes lanes = bench_lanes(target_.ranks, cases, settings);
    for (const LaneSlowdown& slowdown : lanes.slowdowns) keep(record_of(slowdown, target_), records);
    for (const LaneOverlap& overlap : lanes.overlaps) keep(record_of(overlap, target_), records);
    keep(overhead_record(target_), records);
  }

 private:
  bool broadcast_flag(bool flag) const {
    return target_.ranks.processes ? broadcast(*target_.ranks.processes, flag ? "y" : "n") == "y" : flag;
  }
  void keep(CaseRecord record, std::vector<CaseRecord>& records) {
    if (!target_.leads()) return;
    if (writer_.find(record.key) == nullptr) writer_.append(record);
    records.push_back(std::move(record));
  }
  void take_known(std::vector<CaseRecord>& records) {
    for (const char* lane : {"inter", "intra", "compute"})
      for (const char* by : {"inter", "intra", "compute"})
        for (const char* what : {"slowdown", "overlap"})
          if (const CaseRecord* record = writer_.find(fmt::format("{}/{}/{}", what, lane, by)))
            records.push_back(*record);
    if (const CaseRecord* record = writer_.find("overhead")) records.push_back(*record);
  }

  const Target& target_;
  RecordWriter& writer_;
};

// The cases' records, with those of an earlier run.
class Attempts {
 public:
  Attempts(const Target& target, const std::vector<OpCase>& cases, RecordWriter& writer)
      : target_(target), cases_(cases), writer_(writer), records_(cases.size()) {
    for (size_t i = 0; i < cases.size(); ++i)
      for (int attempt = 0; attempt <= kMostRepeats; ++attempt)
        if (const CaseRecord* known = writer.find(key_of(i, attempt))) {
          records_[i].push_back(*known);
          records_[i].back().where.clear();
        }
  }

  std::vector<size_t> open() const {
    std::vector<size_t> open;
    for (size_t i = 0; i < records_.size(); ++i)
      if (records_[i].empty()) open.push_back(i);
    return open;
  }

  void add(const OpCase& c, const OpResult& result) {
    const auto i = static_cast<size_t>(&c - cases_.data());
    CaseRecord record = record_of(c, result, target_);
    if (!records_[i].empty()) record.parameters.set("again_of", key_of(i, 0));
    record.key = key_of(i, static_cast<int>(records_[i].size()));
    writer_.append(record);
    records_[i].push_back(std::move(record));
  }

  std::vector<size_t> again(std::span<const size_t> series) const {
    std::vector<CaseRecord> of_series;
    for (const size_t i : series) of_series.insert(of_series.end(), records_[i].begin(), records_[i].end());
    const std::vector<std::string> keys = to_repeat(of_series);
    std::vector<size_t> repeated;
    for (const size_t i : series)
      if (std::ranges::find(keys, key_of(i, 0)) != keys.end()) repeated.push_back(i);
    if (target_.leads())
      for (const size_t i : repeated)
        log_decision(fmt::format("{}: {:.1f} us, to be measured again", key_of(i, 0),
                                 1e6 * records_[i].back().summary.number("median_s", key_of(i, 0))));
    return repeated;
  }

  std::vector<CaseRecord> best() const {
    std::vector<CaseRecord> all;
    for (const auto& attempts : records_) all.insert(all.end(), attempts.begin(), attempts.end());
    return best_attempts(all);
  }

 private:
  std::string key_of(size_t i, int attempt) const {
    return fmt::format("op/{}{}", cases_[i].key(), attempt > 0 ? fmt::format("/again/{}", attempt) : "");
  }

  const Target& target_;
  const std::vector<OpCase>& cases_;
  RecordWriter& writer_;
  std::vector<std::vector<CaseRecord>> records_;  // by case and attempt
};

  if (const auto interval = median_interval(slowest)) {
    record.summary.set("median_low_s", interval->low);
    record.summary.set("median_high_s", interval->high);
  }
// Returns the series of collectives that the records have at sizes enough to judge a line by.
std::set<std::string> measured_series(const std::vector<CaseRecord>& records) {
  std::map<std::string, std::set<double>> sizes;
  for (const CaseRecord& r : records)
    if (r.parameters.has("network") && !r.parameters.has("algorithm"))
      sizes[fmt::format("{} {} {}", r.parameters.text("op", r.key), r.parameters.text("network", r.key),
                        r.parameters.whole("ranks", r.key))]
          .insert(r.parameters.number("bytes", r.key));
  std::set<std::string> series;
  for (const auto& [name, of_series] : sizes)
    if (of_series.size() > 2) series.insert(name);
  return series;
}

}  // namespace

CaseRecord record_of(const OpCase& c, const OpResult& result, const Target& target) {
  CaseRecord record;
  record.key = "op/" + c.key();
  record.parameters = c.parameters(target.cluster);
  record.parameters.set("iterations", int64_t{result.iterations});
  record.backend = target.backend();
  record.emulated = c.modelled_s > 0;
  record.dilation = c.dilation;
  if (result.wrong.count > 0) {
    record.status = CaseStatus::wrong;
    record.reason = fmt::format("{} wrong element{}; {}", result.wrong.count, result.wrong.count > 1 ? "s" : "",
                                result.wrong.first);
    return record;
  }
  record.samples = {{"seconds", result.seconds}};
  const std::vector<double> slowest = max_over_ranks(result.seconds);
  const double runs = static_cast<double>(slowest.size() * result.seconds.front().size());
  record.summary = {{"median_s", median(slowest)},
                    {"least_s", quantile(slowest, 0)},
                    {"most_s", quantile(slowest, 1)},
                    {"overrun_share", static_cast<double>(result.overruns) / runs}};
  if (record.emulated) record.prediction = {{"median_s", c.modelled_s}};
  return record;
}

std::vector<std::string> to_repeat(const std::vector<CaseRecord>& of_series) {
  std::map<std::string, int> attempts;
  std::set<double> sizes;
  for (const CaseRecord& record : of_series) {
    if (record.status == CaseStatus::wrong) return {};
    const bool again = record.parameters.has("again_of");
    ++attempts[again ? record.parameters.text("again_of", record.key) : record.key];
    sizes.insert(record.parameters.number(record.parameters.has("bytes") ? "bytes" : "flops", record.key));
  }
  if (sizes.size() < 2) return {};
  const FittedProfile fitted = fit_profile(of_series, "series", "one series");
  const FittedRow& row = fitted.rows.front();
  std::vector<std::string> keys;
  for (const SetAside& sample : row.fit.set_aside) keys.push_back(sample.name);
  // With few aside, it is the rest that no sound line fits.
  const bool few = static_cast<double>(keys.size()) <= kMostSetAside * static_cast<double>(row.fit.samples);
  if (few && !row.good()) {
    keys.clear();
    for (const auto& [key, times] : attempts) keys.push_back(key);
  }
  std::erase_if(keys, [&](const std::string& key) { return attempts[key] > kMostRepeats; });
  return keys;
}

std::vector<CaseRecord> measure_ops(const Target& target, RecordWriter& writer, const OpRequest& request,
                                    const std::function<void(double share)>& progress) {
  const std::vector<OpCase> cases = cases_of(target, request);
  const OpSettings& settings = request.settings;
  Attempts attempts(target, cases, writer);
  std::vector<size_t> open = attempts.open();
  std::erase_if(open, [&](size_t i) { return request.without.contains(cases[i].series()); });
  double all = 0, done = 0;
  for (const size_t i : open) all += expected_seconds(cases[i], settings.repetitions);
  const auto keep = [&](const OpCase& c, const OpResult& result) {
    attempts.add(c, result);
    done += expected_seconds(c, settings.repetitions);
    if (all > 0) progress(std::min(1.0, done / all));
  };
  bench_ops(target.ranks, cases, settings, {keep, [&](auto series) { return attempts.again(series); }}, open);
  std::vector<CaseRecord> records = attempts.best();
  Extras(target, writer).add(cases, settings, records);
  return share(target, std::move(records));
}

FittedProfile measure_and_fit(const Target& target, RecordWriter& writer, OpRequest request,
                              const std::vector<LayerJob>& layers, const std::function<void(double share)>& progress) {
  constexpr double kShareOfTasks = 0.6;  // of the time, as a guess
  std::vector<CaseRecord> records;
  for (size_t i = 0; i < layers.size() && !target.emulated; ++i) {
    std::ranges::move(measure_tasks(target, layers[i], writer), std::back_inserter(records));
    progress(kShareOfTasks * static_cast<double>(i + 1) / static_cast<double>(layers.size()));
  }
  request.without = measured_series(records);
  const double before = records.empty() ? 0 : kShareOfTasks;
  std::ranges::move(
      measure_ops(target, writer, request, [&](double share) { progress(before + (1 - before) * share); }),
      std::back_inserter(records));
  for (const CaseRecord& record : records)
    require<WrongResult>(record.status != CaseStatus::wrong, "{}: {}", record.key, record.reason);
  RunHeader run;
  run.started = utc_now();
  run.machine = machine_of();
  FittedProfile fitted =
      fit_profile(records, target.cluster.name + "-fitted", fitted_from(writer.path(), run, target.emulated));
  fitted.profile.memory_bytes = target.cluster.memory_bytes;
  return fitted;
}

Profile measured_profile(const Target& target, RecordWriter& writer, const OpRequest& request,
                         const std::vector<LayerJob>& layers) {
  constexpr double kGuessedS = 10;
  std::optional<Progress> progress;
  if (target.leads()) progress.emplace("measuring " + target.cluster.name, kGuessedS);
  const FittedProfile fitted = measure_and_fit(target, writer, request, layers, [&](double share) {
    if (progress) progress->at(share);
  });
  if (!progress) return fitted.profile;
  progress->done();
  for (const std::string& line : fit_warnings(fitted)) log_warning(line);
  return fitted.profile;
}

}  // namespace moe
