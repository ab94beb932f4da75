#include "microbench/microbench.h"

#include <algorithm>
#include <sstream>

#include "commands/shared/run/op_records.h"
#include "commands/shared/sweep.h"
#include "microbench/kernel_bench.h"
#include "microbench/report.h"
#include "moe/base/check.h"
#include "moe/base/terminal.h"
#include "moe/measure/modules/module_run.h"

namespace moe::microbench {
namespace {

// Reads names separated by commas, or all; each must be one of the registries'.
std::vector<std::string> modules_of(const std::string& asked, const commands::Target& target) {
  require<BadInput>(!target.emulated || asked.empty(),
                    "--modules: cluster {} is emulated and times the [[module]] rows of its profile, expected host",
                    target.cluster.name);
  require<BadInput>(target.ranks.device == DeviceKind::cpu || asked.empty(),
                    "--modules: they are timed on the CPU, found --device cuda");
  auto known = measure::registered_modules();
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

std::set<Op> ops_of(const std::vector<std::string>& names) {
  std::set<Op> ops;
  for (const std::string& name : names) {
    const auto op = find_op(name);
    const OpTable table = op ? facts_of(*op).table : OpTable::none;
    require<BadInput>(table == OpTable::comm || op == Op::gemm || op == Op::module,
                      "--op: unknown '{}', expected one of: {}, gemm, module", name,
                      fmt::join(names_of(OpTable::comm), ", "));
    ops.insert(*op);
  }
  return ops;
}

commands::OpRequest request_of(const MicrobenchOptions& options, const commands::Target& target) {
  commands::OpRequest request;
  request.settings = {options.repetitions, options.timeout_s, options.iterations, options.warm_ups, options.check != 0};
  const int64_t least = options.least_bytes > 0 ? options.least_bytes : options.most_bytes;
  const int64_t most = options.most_bytes > 0 ? options.most_bytes : least;
  request.sizes = {least, most, options.step_bytes, options.step_factor, dtype_from(options.dtype, "--dtype")};
  request.modules = modules_of(options.modules, target);
  request.only = ops_of(options.ops);
  return request;
}

CaseRecord record_of(const MeasuredOverhead& o) {
  CaseRecord record;
  const bool cpu = o.device == DeviceKind::cpu;
  record.key = cpu ? fmt::format("overhead/{}", o.ranks) : fmt::format("overhead/{}/{}", name_of(o.device), o.ranks);
  record.backend = "local";
  record.parameters = {{"ranks", int64_t{o.ranks}}, {"device", std::string(name_of(o.device))}};
  record.summary = {{"task_s", o.overhead.task_s}, {"crossing_s", o.overhead.crossing_s}};
  return record;
}

/// Measures threads, on the CPU and, where there is one, on a GPU.
std::vector<MeasuredOverhead> measure_overheads(RecordWriter& writer) {
  std::vector<MeasuredOverhead> all;
  set_cuda_connections();
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    if (device == DeviceKind::cuda && gpu_count() == 0) continue;
    for (const int ranks : {1, 4}) {
      all.push_back({ranks, device, measure_overhead(ranks, kOverheadRuns, device)});
      const CaseRecord record = record_of(all.back());
      if (writer.find(record.key) == nullptr) writer.append(record);
    }
  }
  return all;
}

/// Takes what measure_ops left of processes: each one's lanes, the slowest one's time.
std::vector<MeasuredOverhead> taken_overheads(const std::vector<CaseRecord>& records, DeviceKind device) {
  for (const CaseRecord& record : records)
    if (record.key == "overhead") {
      const auto seconds = [&](const char* name) { return record.summary.number(name, record.key); };
      return {{1, device, {seconds("task_s"), seconds("crossing_s")}}};
    }
  return {};
}

}  // namespace

int run_microbench(const MicrobenchOptions& options, World* processes) {
  if (options.kernels) return processes == nullptr || leads(*processes) ? run_kernel_bench(options) : 0;
  const commands::Target target = commands::target_of(options.cluster, commands::ranks_of(options, processes));
  const commands::OpRequest request = request_of(options, target);
  const std::string path = commands::records_path(options.out, "microbench", target.file_name());
  RecordWriter writer = target.open_records(path, options.asked, {});
  commands::share_done(target, writer);
  std::optional<Progress> progress;
  if (target.leads())
    progress.emplace(fmt::format("microbench {}{}", target.cluster.name, target.emulated ? " (emulated)" : ""));
  auto records = commands::measure_ops(target, writer, request, [&](double share) { progress->at(share); });
  sort_by_series(records);
  std::vector<MeasuredOverhead> overheads;
  if (request.only.empty())
    overheads = processes ? taken_overheads(records, target.ranks.device) : measure_overheads(writer);
  const MicrobenchResults results{.cluster = target.cluster.name,
                                  .place = target.place(),
                                  .emulated = target.emulated,
                                  .backend = std::string(target.backend()),
                                  .records_path = path,
                                  .checked = options.check != 0,
                                  .records = std::move(records),
                                  .overheads = std::move(overheads)};
  writer.end();
  if (target.leads()) {
    progress->done();
    fmt::print("{}\n", options.json ? json_of(results) : text_of(results));
  }
  for (const CaseRecord& record : results.records) require_right(record);
  return kOk;
}

}  // namespace moe::microbench
