#include "verbs/run/lane_records.h"

#include <algorithm>

#include "moe/base/statistics.h"
#include "moe/exec/overhead.h"
#include "moe/measure/ops/lane_bench.h"

namespace moe::verbs {
namespace {

using Numbers = std::vector<std::vector<double>>;

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

CaseRecord record_of(const measure::LaneSlowdown& slowdown, const Target& target) {
  CaseRecord record = record_for(target, fmt::format("slowdown/{}/{}", slowdown.lane, slowdown.by), "slowdown");
  record.parameters.set("lane", slowdown.lane);
  record.parameters.set("by", slowdown.by);
  record.samples = {{"alone_s", samples_of(slowdown.alone_s)}, {"beside_s", samples_of(slowdown.beside_s)}};
  record.summary = {
      {"alone_s", median(slowdown.alone_s)}, {"beside_s", median(slowdown.beside_s)}, {"factor", slowdown.factor()}};
  if (slowdown.out_of_time) record.summary.set("out_of_time", int64_t{1});
  return record;
}

CaseRecord record_of(const measure::LaneOverlap& overlap, const Target& target) {
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
  if (overlap.out_of_time) record.summary.set("out_of_time", int64_t{1});
  return record;
}

// Records what handing over between lanes costs the slowest process.
CaseRecord overhead_record(const Target& target) {
  const int here = target.ranks.processes ? 1 : target.cluster.nodes * target.cluster.ranks_per_node;
  Overhead overhead = measure_overhead(here, kOverheadRuns, target.ranks.device);
  if (target.ranks.processes)
    for (const auto& rank : gather(*target.ranks.processes, Numbers{{overhead.task_s, overhead.crossing_s}})) {
      overhead.task_s = std::max(overhead.task_s, rank.at(0));
      overhead.crossing_s = std::max(overhead.crossing_s, rank.at(1));
    }
  CaseRecord record = record_for(target, "overhead", "overhead");
  record.summary = {{"task_s", overhead.task_s}, {"crossing_s", overhead.crossing_s}};
  if (overhead.replayed_task_s > 0) {
    record.summary.set("kernel_task_s", overhead.kernel_task_s);
    record.summary.set("replayed_task_s", overhead.replayed_task_s);
  }
  return record;
}

// Takes records from `writer`, or measures them now.
class LaneRecords {
 public:
  LaneRecords(const Target& target, RecordWriter& writer) : target_(target), writer_(writer) {}

  void add(const std::vector<measure::OpCase>& cases, const measure::OpSettings& settings,
           std::vector<CaseRecord>& records) {
    if (target_.measured) return;
    const bool known = broadcast_flag(writer_.find("overhead") != nullptr);
    if (known) return take_known(records);
    const measure::LaneTimes lanes = measure::bench_lanes(target_.ranks, cases, settings);
    for (const measure::LaneSlowdown& slowdown : lanes.slowdowns) keep(record_of(slowdown, target_), records);
    for (const measure::LaneOverlap& overlap : lanes.overlaps) keep(record_of(overlap, target_), records);
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

}  // namespace

void add_lane_records(const Target& target, RecordWriter& writer, const std::vector<measure::OpCase>& cases,
                      const measure::OpSettings& settings, std::vector<CaseRecord>& records) {
  LaneRecords(target, writer).add(cases, settings, records);
}

}  // namespace moe::verbs
