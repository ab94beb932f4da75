#include "commands/shared/run/op_records.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "commands/shared/run/layer_records.h"
#include "commands/shared/run/layer_run.h"
#include "commands/shared/run/task_records.h"
#include "moe/base/log.h"
#include "moe/base/statistics.h"
#include "moe/base/terminal.h"
#include "moe/base/units.h"
#include "moe/device/stream.h"
#include "moe/measure/layers/proxy.h"
#include "moe/record/machine.h"
#include "moe/record/pass_times.h"
#include "moe/record/record_json.h"
#include "moe/shape/model_file.h"

namespace moe::commands {
namespace {

// Guesses of the relative cost of cases, for progress; MeasuredWork measures the real times.
constexpr double kGuessedCallS = 1e-3, kGuessedByteS = 1e-9, kGuessedTasksS = 0.5;
// Seconds per FLOP; products on a GPU take little time compared with the host's work.
double guessed_flop_s(DeviceKind device) { return device == DeviceKind::cuda ? 4e-14 : 4e-11; }
constexpr double kReadS = 5e-3;  // seconds; a layer takes less if its records are only read

double amount_of(const measure::OpCase& c, const Target& target, int repetitions) {
  const double unpaced = kGuessedCallS + c.bytes * kGuessedByteS + c.flops * guessed_flop_s(target.ranks.device);
  return c.modelled_s > 0 ? repetitions * c.modelled_s * c.dilation : (repetitions + 1) * unpaced;
}

// Returns the relative cost of measure_tasks, which repeats short passes until they fill a minimum time.
double amount_of(const LayerJob& layer, const Target& target) {
  const double passes = static_cast<double>(measure::kPasses * kProfiledDegrees.size());
  const double flops = layer.model.layers * measure::reference_flops(layer.shape());
  return std::max(kGuessedTasksS, passes * flops * guessed_flop_s(target.ranks.device));
}

const char* kind_of(const measure::OpCase& c) { return c.flops > 0 ? "computations" : "collectives"; }
constexpr const char* kTasks = "tasks of layers";

/// A stopwatch: each call returns the seconds since the previous call, or since construction.
class Lap {
 public:
  double operator()() {
    const double begin_s = begin_s_;
    begin_s_ = now_s();
    return begin_s_ - begin_s;
  }

 private:
  double begin_s_ = now_s();
};

// Returns the leading process's records on every process.
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

// The records of all attempts at the cases, including those of an interrupted run.
class Attempts {
 public:
  Attempts(const Target& target, const std::vector<measure::OpCase>& cases, RecordWriter& writer)
      : target_(target), cases_(cases), writer_(writer), records_(cases.size()) {
    for (size_t i = 0; i < cases.size(); ++i)
      for (int attempt = 0; attempt <= kMaxRepeats; ++attempt)
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

  void add(const measure::OpCase& c, const measure::OpResult& result) {
    const auto i = static_cast<size_t>(&c - cases_.data());
    CaseRecord record = record_of(c, result, target_);
    if (!records_[i].empty()) record.parameters.set("again_of", key_of(i, 0));
    record.key = key_of(i, static_cast<int>(records_[i].size()));
    writer_.append(record);
    records_[i].push_back(std::move(record));
  }

  std::vector<size_t> cases_to_repeat_of(std::span<const size_t> series) const {
    std::vector<CaseRecord> of_series;
    for (const size_t i : series) of_series.insert(of_series.end(), records_[i].begin(), records_[i].end());
    const std::vector<std::string> keys = cases_to_repeat(of_series);
    std::vector<size_t> repeated;
    for (const size_t i : series)
      if (std::ranges::find(keys, key_of(i, 0)) != keys.end()) repeated.push_back(i);
    if (target_.is_leader())
      for (const size_t i : repeated)
        log_decision(fmt::format("{}: {:.1f} us is far from its series' fit; measuring it again", key_of(i, 0),
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
  const std::vector<measure::OpCase>& cases_;
  RecordWriter& writer_;
  std::vector<std::vector<CaseRecord>> records_;  // records by case and attempt
};

// Returns the series (OpCase::series) of a record of a direct collective.
std::string series_of(const CaseRecord& r) {
  const bool states_spread = r.parameters.has("group_ranks_per_node");
  return fmt::format("{} {} {}{}", r.parameters.text("op", r.key), r.parameters.text("network", r.key),
                     r.parameters.whole("ranks", r.key),
                     states_spread ? fmt::format(" {}-a-node", r.parameters.whole("group_ranks_per_node", r.key)) : "");
}

// Returns the series of collectives that the records have at three sizes or more, enough to fit a line.
std::set<std::string> measured_series(const std::vector<CaseRecord>& records) {
  std::map<std::string, std::set<double>> sizes;
  for (const CaseRecord& r : records)
    if (r.parameters.has("network") && !r.parameters.has("algorithm"))
      sizes[series_of(r)].insert(r.parameters.number("bytes", r.key));
  std::set<std::string> series;
  for (const auto& [name, of_series] : sizes)
    if (of_series.size() > 2) series.insert(name);
  return series;
}

// Measures the open cases. `work` has the work done so far, for progress.
std::vector<CaseRecord> measured_ops(const Target& target, RecordWriter& writer, const OpRequest& request,
                                     const std::function<void(double share)>& progress, MeasuredWork& work) {
  const std::vector<measure::OpCase> cases = cases_of(target, request);
  const measure::OpSettings& settings = request.settings;
  Attempts attempts(target, cases, writer);
  std::vector<size_t> open = attempts.open();
  std::erase_if(open, [&](size_t i) { return request.without.contains(cases[i].series()); });
  const auto amount = [&](size_t i) { return amount_of(cases[i], target, settings.repetitions); };
  for (const measure::OpCase& c : cases) work.open(kind_of(c)) = 0;
  for (const size_t i : open) work.open(kind_of(cases[i])) += amount(i);
  Lap lap;
  const auto keep = [&](const measure::OpCase& c, const measure::OpResult& result) {
    attempts.add(c, result);
    work.record_done(kind_of(c), amount_of(c, target, settings.repetitions), lap());
    progress(work.share());
  };
  const auto again = [&](std::span<const size_t> series) {
    std::vector<size_t> repeated = attempts.cases_to_repeat_of(series);
    for (const size_t i : repeated) work.open(kind_of(cases[i])) += amount(i);
    return repeated;
  };
  measure::bench_ops(target.ranks, cases, settings, {keep, again}, open);
  std::vector<CaseRecord> records = attempts.best();
  if (request.has_all()) add_lane_records(target, writer, cases, settings, records);
  return share(target, std::move(records));
}

}  // namespace

CaseRecord record_of(const measure::OpCase& c, const measure::OpResult& result, const Target& target) {
  CaseRecord record;
  record.key = "op/" + c.key();
  record.parameters = c.parameters(target.cluster);
  record.parameters.set("iterations", int64_t{result.iterations});
  record.backend = target.backend();
  record.emulated = c.modelled_s > 0;
  record.dilation = c.dilation;
  if (result.wrong.count > 0) {
    record.status = CaseStatus::wrong;
    record.reason = fmt::format("{}; {}", counted(result.wrong.count, "wrong element"), result.wrong.first);
    return record;
  }
  record.samples = {{"seconds", result.seconds}};
  const std::vector<double> slowest = max_over_ranks(result.seconds);
  const double runs = static_cast<double>(slowest.size() * result.seconds.front().size());
  record.summary = {{"median_s", median(slowest)},
                    {"least_s", quantile(slowest, 0)},
                    {"most_s", quantile(slowest, 1)},
                    {"overrun_share", static_cast<double>(result.overruns) / runs}};
  if (result.out_of_time) record.summary.set("out_of_time", int64_t{1});
  if (const auto interval = median_interval(slowest)) {
    record.summary.set("median_low_s", interval->low);
    record.summary.set("median_high_s", interval->high);
  }
  if (record.emulated) record.prediction = {{"median_s", c.modelled_s}};
  return record;
}

std::vector<std::string> cases_to_repeat(const std::vector<CaseRecord>& of_series) {
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
  for (const SetAsideSample& sample : row.fit.set_aside) keys.push_back(sample.name);
  // If the fit is not good although it sets few samples aside, no line fits the series, so all cases are repeated.
  const bool few = static_cast<double>(keys.size()) <= kMaxSetAside * static_cast<double>(row.fit.samples);
  if (few && !row.good()) {
    keys.clear();
    for (const auto& [key, times] : attempts) keys.push_back(key);
  }
  std::erase_if(keys, [&](const std::string& key) { return attempts[key] > kMaxRepeats; });
  return keys;
}

std::vector<CaseRecord> measure_ops(const Target& target, RecordWriter& writer, const OpRequest& request,
                                    const std::function<void(double share)>& progress) {
  MeasuredWork work;
  return measured_ops(target, writer, request, progress, work);
}

FittedProfile measure_and_fit(const Target& target, RecordWriter& writer, OpRequest request,
                              const std::vector<LayerJob>& layers, const std::function<void(double share)>& progress) {
  std::vector<CaseRecord> records;
  MeasuredWork work;
  const double tasks_begin_s = now_s();
  request.host_copies = std::ranges::any_of(
      layers, [](const LayerJob& layer) { return layer.shape().parallel.offload != Offload::none; });
  if (!target.emulated) {
    const std::vector<LayerJob> tried = profiled(layers);
    request.sums = groups_of_stages(layers);
    require_prices(target, request, layers, tried);
    for (const LayerJob& layer : tried) work.open(kTasks) += amount_of(layer, target);
    for (const measure::OpCase& c : cases_of(target, request))
      work.open(kind_of(c)) += amount_of(c, target, request.settings.repetitions);
    Lap lap;
    for (const LayerJob& layer : tried) {
      std::ranges::move(measure_tasks(target, layer, writer), std::back_inserter(records));
      if (const double took_s = lap(); took_s > kReadS)
        work.record_done(kTasks, amount_of(layer, target), took_s);
      else
        work.open(kTasks) -= amount_of(layer, target);
      progress(work.share());
    }
  }
  const double begin_s = now_s(), tasks_s = begin_s - tasks_begin_s;
  request.without = measured_series(records);
  std::ranges::move(measured_ops(target, writer, request, progress, work), std::back_inserter(records));
  if (target.is_leader() && !target.emulated)
    log_decision(fmt::format("measuring tasks of {} took {:.1f} s, operations and lanes {:.1f} s",
                             counted(static_cast<int64_t>(layers.size()), "layer"), tasks_s, now_s() - begin_s));
  for (const CaseRecord& record : records) require_right(record);
  RunHeader run;
  run.started = utc_now();
  run.machine = machine_of();
  FittedProfile fitted = fit_profile(records, fmt::format("{}{}", target.cluster.name, kFitted),
                                     fitted_from(writer.path(), run, target.emulated));
  fitted.profile.memory_bytes = target.cluster.memory_bytes;
  return fitted;
}

Profile measured_profile(const Target& target, RecordWriter& writer, const OpRequest& request,
                         const std::vector<LayerJob>& layers) {
  std::optional<Progress> progress;
  if (target.is_leader()) progress.emplace("measuring " + target.cluster.name);
  const FittedProfile fitted = measure_and_fit(target, writer, request, layers, [&](double share) {
    if (progress) progress->at(share);
  });
  if (!progress) return fitted.profile;
  progress->finish();
  size_t weak = 0;
  for (const FitWarning& warning : fit_warnings(fitted)) {
    weak += warning.weak;
    if (warning.weak)
      log_decision(warning.text);
    else
      log_warning(warning.text);
  }
  if (weak > 0)
    log_warning(fmt::format(
        "{} of {} rows of the profile have a weak fit; answers label prices that use them (--verbose lists the rows)",
        weak, fitted.rows.size() + fitted.profile.tasks.size()));
  return fitted.profile;
}

namespace {

// Removes cases that exceed the memory. Each rank has the buffers of two ops, because ops are also timed in pairs.
void leave_out_too_large(const Target& target, std::vector<measure::OpCase>& cases) {
  const auto ranks =
      static_cast<double>(ranks_sharing_memory(target.ranks, target.cluster.nodes * target.cluster.ranks_per_node));
  const double room = kUsableFreeMemoryShare * free_bytes(target.ranks);
  std::erase_if(cases, [&](const measure::OpCase& c) { return 2 * ranks * buffer_bytes(c) > room; });
}

// Returns a profile with the rows that the measurements will give, and with arbitrary prices.
Profile expected_profile(const Target& target, const OpRequest& request, const std::vector<LayerJob>& profiled_layers) {
  Profile expected = target.cluster;
  const auto add = [&](CommRow row) {
    row.alpha_s = 1e-6;
    row.beta_s_per_byte = 1e-9;
    expected.comm.push_back(std::move(row));
  };
  const auto add_gemm = [&](DType dtype) {
    expected.compute.push_back({.op = Op::gemm, .dtype = dtype, .alpha_s = 1e-6, .beta_s_per_flop = 1e-9});
  };
  for (const measure::OpCase& c : cases_of(target, request))
    if (c.op == Op::gemm)
      add_gemm(c.dtype);
    else if (c.op == Op::host_copy)
      expected.compute.push_back({.op = c.op, .alpha_s = 1e-6, .beta_s_per_byte = 1e-9});
    else if (c.op != Op::module)
      add({.op = c.op, .network = c.network, .ranks = c.ranks});
  for (const LayerJob& layer : profiled_layers) {
    for (CommRow& row : comm_rows_of_tasks(layer)) add(std::move(row));
    add_gemm(layer.shape().layer.dtype);  // other computations are priced by rows of tasks
  }
  return expected;
}

std::vector<measure::OpCase> dispatcher_cases(const Target& target, const OpRequest& request) {
  auto cases = target.emulated ? measure::emulated_dispatcher_cases(target.cluster, request.dispatchers, request.sizes)
                               : measure::real_dispatcher_cases(target.cluster, target.backend(), request.dispatchers,
                                                                request.sizes, target.ranks.device);
  for (const std::string& dispatcher : request.dispatchers)
    require<BadInput>(std::ranges::find(cases, dispatcher, &measure::OpCase::algorithm) != cases.end(),
                      "op {}: found cluster {}, expected several nodes with several ranks each{}", dispatcher,
                      target.cluster.name, target.emulated ? ", and a row for this op" : "");
  if (!target.emulated && target.ranks.device == DeviceKind::cuda) leave_out_too_large(target, cases);
  return cases;
}

}  // namespace

std::vector<measure::OpCase> cases_of(const Target& target, const OpRequest& request) {
  auto cases = target.emulated ? measure::emulated_cases(target.cluster, request.sizes)
                               : measure::real_cases(target.cluster, target.backend(), request.sizes,
                                                     target.ranks.device, request.sums);
  // Ops that only Parm's cost model reads are timed on request.
  if (request.only.contains(Op::a2a_ep_esp) || request.only.contains(Op::saa))
    std::ranges::move(target.emulated ? measure::emulated_parm_cases(target.cluster, request.sizes)
                                      : measure::real_parm_cases(target.cluster, target.backend(), request.sizes,
                                                                 target.ranks.device),
                      std::back_inserter(cases));
  if (request.host_copies || request.only.contains(Op::host_copy))
    std::ranges::move(target.emulated ? measure::emulated_host_copies(target.cluster, request.sizes)
                                      : measure::real_host_copies(target.backend(), request.sizes, target.ranks.device),
                      std::back_inserter(cases));
  std::ranges::move(measure::module_cases(request.modules, target.cluster), std::back_inserter(cases));
  if (!target.emulated && target.ranks.device == DeviceKind::cuda) leave_out_too_large(target, cases);
  if (request.has_all()) return cases;
  for (const Op op : request.only)
    require<BadInput>(std::ranges::find(cases, op, &measure::OpCase::op) != cases.end(),
                      "op {}: cannot be timed on {}, expected another op", name_of(op), target.cluster.name);
  std::erase_if(cases, [&](const measure::OpCase& c) { return !request.only.contains(c.op); });
  std::ranges::move(dispatcher_cases(target, request), std::back_inserter(cases));
  return cases;
}

std::vector<std::pair<Network, measure::RankGroup>> groups_of_stages(const std::vector<LayerJob>& layers) {
  std::vector<std::pair<Network, measure::RankGroup>> sums;
  for (const LayerJob& layer : layers)
    for (const GroupKind kind : {GroupKind::dp, GroupKind::edp}) {
      const ParallelShape& parallel = layer.shape().parallel;
      const std::vector<int> ranks = members(parallel, kind, 0);
      if (parallel.pp == 1 || ranks.size() == 1) continue;
      sums.push_back({groups_of(parallel)[kind].network, {static_cast<int>(ranks.size()), ranks[1] - ranks[0]}});
    }
  return sums;
}

namespace {

// Returns why a schedule cannot be planned or priced; none: it can be.
std::optional<Unsupported> refusal_of(const LayerJob& layer, const Schedule& schedule, const Profile& expected) {
  try {
    const Plan plan = plan_nominally(layer, schedule, 1).run.plan;
    price(LayerPricer(expected, layer.shape(), layer.pricing), plan);
    return std::nullopt;
  } catch (const Unsupported& error) {
    return error;
  }
}

}  // namespace

void require_prices(const Target& target, const OpRequest& request, const std::vector<LayerJob>& layers,
                    const std::vector<LayerJob>& profiled_layers) {
  const Profile expected = expected_profile(target, request, profiled_layers);
  std::optional<Unsupported> first;
  for (const LayerJob& layer : layers)
    for (const Schedule* schedule : layer.schedules) {
      const std::optional<Unsupported> refusal = refusal_of(layer, *schedule, expected);
      if (!refusal) return;
      if (!first) first = refusal;
    }
  if (first) throw *first;
}

}  // namespace moe::commands
