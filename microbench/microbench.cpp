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
std::vector<std::string> modules_of(const std::string& asked, const Site& site) {
  require<BadInput>(!site.emulated || asked.empty(),
                    "--modules: cluster {} is emulated and times the [[module]] rows of its profile, expected host",
                    site.cluster.name);
  require<BadInput>(site.device == DeviceKind::cpu || asked.empty(),
                    "--modules: they are timed on the CPU, found --device cuda");
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

OpRequest request_of(const MicrobenchOptions& options, const Site& site) {
  OpRequest request;
  request.settings = {options.repetitions, options.timeout_s, options.iterations, options.warm_ups, options.check != 0};
  const int64_t least = options.least_bytes > 0 ? options.least_bytes : options.most_bytes;
  const int64_t most = options.most_bytes > 0 ? options.most_bytes : least;
  request.sizes = {least, most, options.step_bytes, options.step_factor, dtype_from(options.dtype, "--dtype")};
  request.modules = modules_of(options.modules, site);
  return request;
}

std::string text_of(const CaseRecord& record, std::string_view name) {
  return record.parameters.text(name, record.key);
}

double median_of(const CaseRecord& record) { return number(record, record.summary, "median_s"); }

std::string spread_of(const CaseRecord& record) {
  const double most = number(record, record.summary, "most_s"), least = number(record, record.summary, "least_s");
  return fmt::format("{:.1f} %", 100 * (most - least) / median_of(record));
}

std::string over_modelled(const CaseRecord& record) {
  if (!record.emulated) return "-";
  return fmt::format("{:.4f}", median_of(record) / number(record, record.prediction, "median_s"));
}

// As nccl-tests prints it: bandwidths by the volume, and by what a link carries of it.
std::string collectives_table(const std::vector<CaseRecord>& records, bool check) {
  Table table({"op", "ranks", "size B", "count", "type", "time us", "spread", "algbw GB/s", "busbw GB/s", "#wrong",
               "over modelled"});
  for (const CaseRecord& record : records) {
    if (!record.parameters.has("wire_bytes")) continue;
    const double bytes = number(record, record.parameters, "bytes");
    const DType dtype = dtype_from(text_of(record, "dtype"), record.key);
    std::vector<std::string> row{
        fmt::format("{} {}", text_of(record, "op"), text_of(record, "network")),
        fmt::format("{:.0f}", number(record, record.parameters, "ranks")), fmt::format("{:.0f}", bytes),
        fmt::format("{:.0f}", bytes / static_cast<double>(bytes_of(dtype))), std::string(name_of(dtype))};
    if (record.status == CaseStatus::ok) {
      const double seconds = median_of(record), wire = number(record, record.parameters, "wire_bytes");
      row.insert(row.end(), {fmt::format("{:.1f}", seconds * 1e6), spread_of(record),
                             fmt::format("{:.3f}", bytes / seconds * 1e-9),
                             fmt::format("{:.3f}", wire / seconds * 1e-9), check ? "0" : "-", over_modelled(record)});
    } else {
      row.insert(row.end(), {"-", "-", "-", "-", record.reason, "-"});
    }
    table.add(std::move(row));
  }
  return table.text();
}

// "gemm float32": all of a key but its size.
std::string series_of(const CaseRecord& record) { return record.key.substr(3, record.key.rfind('/') - 3); }

std::string compute_table(const std::vector<CaseRecord>& records) {
  Table table({"op", "size", "time us", "spread", "GFLOP/s or GB/s", "over modelled", "status"});
  for (const CaseRecord& record : records) {
    const auto op = find_op(text_of(record, "op"));
    if (op != Op::gemm && op != Op::module) continue;
    const bool bytes = record.parameters.has("bytes");
    const double size = number(record, record.parameters, bytes ? "bytes" : "flops");
    const std::string shown = bytes ? human_bytes(size) : fmt::format("{:.3g} GFLOP", size * 1e-9);
    if (record.status == CaseStatus::ok)
      table.add({series_of(record), shown, fmt::format("{:.1f}", median_of(record) * 1e6), spread_of(record),
                 fmt::format("{:.3f}", size / median_of(record) * 1e-9), over_modelled(record), "ok"});
    else
      table.add(
          {series_of(record), shown, "-", "-", "-", "-", fmt::format("{}: {}", name_of(record.status), record.reason)});
  }
  return table.empty() ? "" : "\n" + table.text();
}

std::string lanes_tables(const std::vector<CaseRecord>& records) {
  Table table({"lane", "beside", "alone us", "beside us", "slower by"});
  for (const CaseRecord& record : records) {
    if (text_of(record, "op") != "slowdown") continue;
    const auto us = [&](const char* name) { return fmt::format("{:.1f}", number(record, record.summary, name) * 1e6); };
    table.add({text_of(record, "lane"), text_of(record, "by"), us("alone_s"), us("beside_s"),
               fmt::format("{:.2f}x", number(record, record.summary, "factor"))});
  }
  Table overlaps({"lanes", "alone us", "", "both us", "overlap"});
  for (const CaseRecord& record : records) {
    if (text_of(record, "op") != "overlap") continue;
    const auto us = [&](const char* name) { return fmt::format("{:.1f}", number(record, record.summary, name) * 1e6); };
    overlaps.add({fmt::format("{} + {}", text_of(record, "lane"), text_of(record, "other")), us("alone_s"),
                  us("other_alone_s"), us("both_s"),
                  fmt::format("{:.0f} %", 100 * number(record, record.summary, "overlap"))});
  }
  return table.empty() ? "" : fmt::format("\n{}\n{}", table.text(), overlaps.text());
}

// Sizes ascending within their series: the samples of a series are taken in turns.
std::pair<std::string, double> order_of(const CaseRecord& record) {
  if (!record.key.starts_with("op/")) return {"~", 0};
  const char* size = record.parameters.has("bytes") ? "bytes" : "flops";
  return {series_of(record), number(record, record.parameters, size)};
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

/// Of threads, on the CPU and, where there is one, on a GPU.
std::vector<MeasuredOverhead> measure_overheads(RecordWriter& writer) {
  std::vector<MeasuredOverhead> all;
  set_cuda_connections();
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

/// Of processes what measure_ops left of it: each one's lanes, the slowest process's time.
std::vector<MeasuredOverhead> taken_overheads(const std::vector<CaseRecord>& records) {
  for (const CaseRecord& record : records)
    if (text_of(record, "op") == "overhead")
      return {{1,
               DeviceKind::cpu,
               {number(record, record.summary, "task_s"), number(record, record.summary, "crossing_s")}}};
  return {};
}

void print_json(const Site& site, const std::vector<CaseRecord>& records,
                const std::vector<MeasuredOverhead>& overheads, const std::string& path) {
  nlohmann::ordered_json json{
      {"cluster", site.cluster.name}, {"backend", site.backend()}, {"records", path}, {"ops", to_json(records)}};
  for (const auto& [ranks, device, o] : overheads)
    json["overhead"].push_back(
        {{"ranks", ranks}, {"device", name_of(device)}, {"task_s", o.task_s}, {"crossing_s", o.crossing_s}});
  fmt::print("{}\n", json.dump(1));
}

void print_text(const MicrobenchOptions& options, const std::vector<CaseRecord>& records,
                const std::vector<MeasuredOverhead>& overheads, const std::string& path) {
  fmt::print("{}{}{}\nexecutor, empty tasks, unpaced:\n", collectives_table(records, options.check != 0),
             compute_table(records), lanes_tables(records));
  for (const auto& [ranks, device, o] : overheads)
    fmt::print("  {}, {} rank{} a process: {:.2f} us a task, {:.1f} us a hand-over between lanes\n", name_of(device),
               ranks, ranks > 1 ? "s" : "", o.task_s * 1e6, o.crossing_s * 1e6);
  fmt::print("\nrecords: {}\n", path);
}

}  // namespace

int run_microbench(const MicrobenchOptions& options, World* processes) {
  if (options.kernels) return processes == nullptr || leads(*processes) ? run_kernel_bench(options) : 0;
  const Site site = site_of(options.cluster, processes, options.device);
  const OpRequest request = request_of(options, site);
  const std::string path = options.out.empty() ? "results/microbench-" + site.cluster.name + ".jsonl" : options.out;
  RecordWriter writer = site.open_records(path, options.asked, {});
  share_done(site, writer);
  std::optional<Progress> progress;
  if (site.leads())
    progress.emplace(fmt::format("microbench {}{}", site.cluster.name, site.emulated ? " (emulated)" : ""), 15);
  auto records = measure_ops(site, writer, request, [&](double share) { progress->at(share); });
  std::ranges::stable_sort(records, {}, [](const CaseRecord& r) { return order_of(r); });
  const std::vector<MeasuredOverhead> overheads = processes ? taken_overheads(records) : measure_overheads(writer);
  writer.end();
  if (site.leads()) {
    progress->done();
    if (options.json)
      print_json(site, records, overheads, path);
    else
      print_text(options, records, overheads, path);
  }
  const auto wrong = [](const CaseRecord& record) { return record.status == CaseStatus::wrong; };
  return std::ranges::any_of(records, wrong) ? 3 : 0;
}

}  // namespace moe
