#include "moe/measure/op_records.h"

#include <algorithm>
#include <sstream>

#include "moe/exec/overhead.h"
#include "moe/measure/lane_bench.h"
#include "moe/measure/statistics.h"
#include "moe/record/record_json.h"

namespace moe {
namespace {

using Numbers = std::vector<std::vector<double>>;

double expected_seconds(const OpCase& c, int repetitions) {
  const double unpaced_guess = 1e-3 + c.bytes * 1e-9 + c.flops * 4e-11;
  return c.modelled_s > 0 ? repetitions * c.modelled_s * c.dilation : (repetitions + 1) * unpaced_guess;
}

std::vector<OpCase> cases_of(const Site& site, const OpRequest& request) {
  auto cases = site.emulated ? emulated_cases(site.cluster, request.sizes)
                             : real_cases(site.cluster, site.backend(), request.sizes, site.device);
  std::ranges::move(module_cases(request.modules, site.cluster), std::back_inserter(cases));
  return cases;
}

CaseRecord record_for(const Site& site, std::string key, std::string op) {
  CaseRecord record;
  record.key = std::move(key);
  record.backend = site.backend();
  record.parameters = {{"cluster", site.cluster.name},
                       {"nodes", int64_t{site.cluster.nodes}},
                       {"ranks_per_node", int64_t{site.cluster.ranks_per_node}},
                       {"op", std::move(op)}};
  return record;
}

std::vector<std::vector<double>> samples_of(const std::vector<double>& seconds) {
  std::vector<std::vector<double>> rows;
  for (const double s : seconds) rows.push_back({s});
  return rows;
}

CaseRecord record_of(const LaneSlowdown& slowdown, const Site& site) {
  CaseRecord record = record_for(site, fmt::format("slowdown/{}/{}", slowdown.lane, slowdown.by), "slowdown");
  record.parameters.set("lane", slowdown.lane);
  record.parameters.set("by", slowdown.by);
  record.samples = {{"alone_s", samples_of(slowdown.alone_s)}, {"beside_s", samples_of(slowdown.beside_s)}};
  record.summary = {
      {"alone_s", median(slowdown.alone_s)}, {"beside_s", median(slowdown.beside_s)}, {"factor", slowdown.factor()}};
  return record;
}

CaseRecord record_of(const LaneOverlap& overlap, const Site& site) {
  CaseRecord record = record_for(site, fmt::format("overlap/{}/{}", overlap.lane, overlap.other), "overlap");
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

// What handing over between lanes costs; its slowest process's.
CaseRecord overhead_record(const Site& site) {
  const int here = site.processes ? 1 : site.cluster.nodes * site.cluster.ranks_per_node;
  Overhead overhead = measure_overhead(here);
  if (site.processes)
    for (const auto& rank : gather(*site.processes, Numbers{{overhead.task_s, overhead.crossing_s}})) {
      overhead.task_s = std::max(overhead.task_s, rank.at(0));
      overhead.crossing_s = std::max(overhead.crossing_s, rank.at(1));
    }
  CaseRecord record = record_for(site, "overhead", "overhead");
  record.summary = {{"task_s", overhead.task_s}, {"crossing_s", overhead.crossing_s}};
  return record;
}

// All processes get what the leader has.
std::vector<CaseRecord> share(const Site& site, std::vector<CaseRecord> records) {
  if (!site.processes) return records;
  std::string lines;
  for (const CaseRecord& record : records) lines += to_json_line(record);
  std::istringstream all(broadcast(*site.processes, lines));
  records.clear();
  for (std::string line; std::getline(all, line);)
    records.push_back(std::get<CaseRecord>(record_line_from(line, "rank 0's records")));
  return records;
}

// What no case of its own is, taken from `writer` or measured now.
class Extras {
 public:
  Extras(const Site& site, RecordWriter& writer) : site_(site), writer_(writer) {}

  void add(const std::vector<OpCase>& cases, const OpSettings& settings, std::vector<CaseRecord>& records) {
    if (site_.measured) return;
    const bool known = broadcast_flag(writer_.find("overhead") != nullptr);
    if (known) return take_known(records);
    const LaneTimes lanes = bench_lanes(site_, cases, settings);
    for (const LaneSlowdown& slowdown : lanes.slowdowns) keep(record_of(slowdown, site_), records);
    for (const LaneOverlap& overlap : lanes.overlaps) keep(record_of(overlap, site_), records);
    keep(overhead_record(site_), records);
  }

 private:
  bool broadcast_flag(bool flag) const {
    return site_.processes ? broadcast(*site_.processes, flag ? "y" : "n") == "y" : flag;
  }
  void keep(CaseRecord record, std::vector<CaseRecord>& records) {
    if (!site_.leads()) return;
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

  const Site& site_;
  RecordWriter& writer_;
};

}  // namespace

CaseRecord record_of(const OpCase& c, const OpResult& result, const Site& site) {
  CaseRecord record;
  record.key = "op/" + c.key();
  record.parameters = c.parameters(site.cluster);
  record.parameters.set("iterations", int64_t{result.iterations});
  record.backend = site.backend();
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

std::vector<CaseRecord> measure_ops(const Site& site, RecordWriter& writer, const OpRequest& request,
                                    const std::function<void(double share)>& progress) {
  const std::vector<OpCase> cases = cases_of(site, request);
  const OpSettings& settings = request.settings;
  std::vector<CaseRecord> records;
  std::vector<size_t> open;
  double all = 0, done = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const CaseRecord* known = writer.find("op/" + cases[i].key());
    if (known != nullptr)
      records.push_back(*known);
    else
      open.push_back(i), all += expected_seconds(cases[i], settings.repetitions);
  }
  bench_ops(
      site, cases, settings,
      [&](const OpCase& c, const OpResult& result) {
        records.push_back(record_of(c, result, site));
        writer.append(records.back());
        done += expected_seconds(c, settings.repetitions);
        progress(done / all);
      },
      open);
  Extras(site, writer).add(cases, settings, records);
  return share(site, std::move(records));
}

FittedProfile measure_and_fit(const Site& site, RecordWriter& writer, const OpRequest& request,
                              const std::function<void(double share)>& progress) {
  const auto records = measure_ops(site, writer, request, progress);
  for (const CaseRecord& record : records)
    require<WrongResult>(record.status != CaseStatus::wrong, "{}: {}", record.key, record.reason);
  FittedProfile fitted = fit_profile(records, site.cluster.name + "-fitted", "fitted from " + writer.path());
  fitted.profile.memory_bytes = site.cluster.memory_bytes;
  return fitted;
}

}  // namespace moe
