#include "microbench/microbench.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "microbench/kernel_bench.h"
#include "moe/base/progress.h"
#include "moe/base/table.h"
#include "moe/exec/overhead.h"
#include "moe/measure/module_run.h"
#include "moe/measure/op_records.h"

namespace moe {
namespace {

double number(const CaseRecord& record, const Fields& fields, std::string_view name) {
  return fields.number(name, record.key);
}

// Names separated by commas, or all; each is one of the registries'.
std::vector<std::string> modules_of(const std::string& asked, const Profile& cluster) {
  require<BadInput>(is_host(cluster) || asked.empty(),
                    "--modules: cluster {} is emulated and times the [[module]] rows of its profile, expected host",
                    cluster.name);
  const auto known = registered_modules();
  if (asked == "all") return known;
  std::vector<std::string> names;
  std::istringstream list(asked);
  for (std::string name; std::getline(list, name, ',');) {
    require<BadInput>(std::ranges::find(known, name) != known.end(), "--modules: unknown '{}', expected one of: {}",
                      name, fmt::join(known, ", "));
    names.push_back(std::move(name));
  }
  return names;
}

// "alltoall inter 8": all of a key but its size.
std::string series_of(const CaseRecord& record) { return record.key.substr(3, record.key.rfind('/') - 3); }

std::string result_table(const std::vector<CaseRecord>& records) {
  Table table({"op", "size", "median us", "spread", "GB/s or GFLOP/s", "over modelled", "status"});
  for (const CaseRecord& record : records) {
    const bool comm = record.parameters.has("bytes");
    const double size = number(record, record.parameters, comm ? "bytes" : "flops");
    const std::string shown = comm ? human_bytes(size) : fmt::format("{:.3g} GFLOP", size * 1e-9);
    if (record.status != CaseStatus::ok) {
      table.add(
          {series_of(record), shown, "-", "-", "-", "-", fmt::format("{}: {}", name_of(record.status), record.reason)});
      continue;
    }
    const double seconds = number(record, record.summary, "median_s");
    const double spread =
        (number(record, record.summary, "most_s") - number(record, record.summary, "least_s")) / seconds;
    table.add({series_of(record), shown, fmt::format("{:.1f}", seconds * 1e6), fmt::format("{:.1f} %", 100 * spread),
               fmt::format("{:.3f}", size / seconds * 1e-9),
               record.emulated ? fmt::format("{:.4f}", seconds / number(record, record.prediction, "median_s")) : "-",
               "ok"});
  }
  return table.text();
}

nlohmann::ordered_json to_json(const std::vector<CaseRecord>& records) {
  auto list = nlohmann::ordered_json::array();
  for (const CaseRecord& record : records) {
    nlohmann::ordered_json row{{"key", record.key},
                               {"status", name_of(record.status)},
                               {"emulated", record.emulated},
                               {"dilation", record.dilation}};
    for (const auto* fields : {&record.parameters, &record.summary})
      for (const auto& [name, value] : *fields) std::visit([&](const auto& v) { row[name] = v; }, value);
    list.push_back(std::move(row));
  }
  return list;
}

struct MeasuredOverhead {
  int ranks = 1;
  DeviceKind device = DeviceKind::cpu;
  Overhead overhead;
};

CaseRecord record_of(const MeasuredOverhead& o) {
  CaseRecord record;
  const bool cpu = o.device == DeviceKind::cpu;
  record.key = cpu ? fmt::format("overhead/{}", o.ranks) : fmt::format("overhead/{}/{}", name_of(o.device), o.ranks);
  record.backend = "local";
  record.parameters = {{"ranks", int64_t{o.ranks}}, {"device", std::string(name_of(o.device))}};
  record.summary = {{"task_s", o.overhead.task_s}, {"crossing_s", o.overhead.crossing_s}};
  return record;
}

/// On the CPU and, where there is one, on a GPU.
std::vector<MeasuredOverhead> measure_overheads(RecordWriter& writer) {
  std::vector<MeasuredOverhead> all;
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    if (device == DeviceKind::cuda && gpu_count() == 0) continue;
    for (const int ranks : {1, 4}) {
      all.push_back({ranks, device, measure_overhead(ranks, 20, device)});
      const CaseRecord record = record_of(all.back());
      if (writer.find(record.key) == nullptr) writer.append(record);
    }
  }
  return all;
}

}  // namespace

int run_microbench(const MicrobenchOptions& options) {
  if (options.kernels) return run_kernel_bench({options.repetitions, options.json});
  const Profile cluster = running_cluster(options.cluster);
  const auto modules = modules_of(options.modules, cluster);
  const std::string path = options.out.empty() ? "results/microbench-" + cluster.name + ".jsonl" : options.out;
  RecordWriter writer(path, options.argv,
                      digest_of(fmt::format("microbench {} {}{}", cluster.name, options.repetitions, options.modules)));
  Progress progress(fmt::format("microbench {}{}", cluster.name, is_host(cluster) ? "" : " (emulated)"), 15);
  const auto records = measure_ops(cluster, writer, {options.repetitions, options.timeout_s, modules},
                                   [&](double share) { progress.at(share); });
  const std::vector<MeasuredOverhead> overheads = measure_overheads(writer);
  writer.end();
  progress.done();
  bool wrong = false;
  for (const CaseRecord& record : records) wrong = wrong || record.status == CaseStatus::wrong;
  if (options.json) {
    nlohmann::ordered_json json{{"cluster", cluster.name}, {"records", path}, {"ops", to_json(records)}};
    for (const auto& [ranks, device, o] : overheads)
      json["overhead"].push_back(
          {{"ranks", ranks}, {"device", name_of(device)}, {"task_s", o.task_s}, {"crossing_s", o.crossing_s}});
    fmt::print("{}\n", json.dump(1));
  } else {
    fmt::print("{}\nexecutor, empty tasks, unpaced:\n", result_table(records));
    for (const auto& [ranks, device, o] : overheads)
      fmt::print("  {}, {} rank{}: {:.2f} us a task, {:.1f} us a hand-over between lanes\n", name_of(device), ranks,
                 ranks > 1 ? "s" : "", o.task_s * 1e6, o.crossing_s * 1e6);
    fmt::print("\nrecords: {}\n", path);
  }
  return wrong ? 3 : 0;
}

}  // namespace moe
