#include "microbench/microbench.h"

#include <algorithm>
#include <sstream>

#include "commands/shared/run/module_jobs.h"
#include "commands/shared/run/op_records.h"
#include "commands/shared/run/task_records.h"
#include "commands/shared/sweep.h"
#include "microbench/kernel_bench.h"
#include "microbench/report.h"
#include "moe/base/check.h"
#include "moe/base/terminal.h"
#include "moe/measure/modules/module_run.h"
#include "moe/train/token_source.h"

namespace moe::microbench {
namespace {

// Returns whether --modules is given and ranks run on a GPU, where modules are timed as the tasks of whole layers.
bool times_tasks(const MicrobenchOptions& options, const commands::Target& target) {
  if (options.modules.empty()) return false;
  if (!options.ops.empty() && std::ranges::find(options.ops, name_of(Op::module)) == options.ops.end()) return false;
  require<BadInput>(!target.emulated,
                    "--modules: cluster {} is emulated and times the [[module]] rows of its profile, expected host",
                    target.cluster.name);
  if (target.ranks.device == DeviceKind::cpu) return false;
  const int processes = target.ranks.processes ? target.ranks.processes->ranks() : 1;
  require<BadInput>(processes == 1, "--modules: found {} processes on GPUs, expected one, which has its GPU alone",
                    processes);
  return true;
}

// Reads the value of --modules: registered names separated by commas, or "all".
std::vector<std::string> modules_of(const std::string& asked) {
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

// Adds the names of --op to the request: ops, or dispatchers that compose an AlltoAll of other collectives.
void take_ops(const std::vector<std::string>& names, commands::OpRequest& request) {
  const std::vector<std::string_view> algorithms = moe::algorithms();
  for (const std::string& name : names) {
    if (name != CommRow().algorithm && std::ranges::find(algorithms, name) != algorithms.end()) {
      request.dispatchers.insert(name);
      continue;
    }
    const auto op = find_op(name);
    const OpTable table = op ? facts_of(*op).table : OpTable::none;
    require<BadInput>(table == OpTable::comm || op == Op::gemm || op == Op::host_copy || op == Op::module,
                      "--op: unknown '{}', expected one of: {}, gemm, host_copy, module, {}", name,
                      fmt::join(names_of(OpTable::comm), ", "),
                      fmt::join(algorithms.begin() + 1, algorithms.end(), ", "));
    request.only.insert(*op);
  }
}

commands::OpRequest request_of(const MicrobenchOptions& options, const commands::Target& target) {
  commands::OpRequest request;
  request.settings = {options.repetitions, options.timeout_s, options.iterations, options.warm_ups, options.check != 0};
  const int64_t least = options.min_bytes > 0 ? options.min_bytes : options.max_bytes;
  const int64_t most = options.max_bytes > 0 ? options.max_bytes : least;
  request.sizes = {least, most, options.step_bytes, options.step_factor, dtype_from(options.dtype, "--dtype")};
  take_ops(options.ops, request);
  if (times_tasks(options, target))
    request.only.erase(Op::module);
  else
    request.modules = modules_of(options.modules);
  return request;
}

// Measures the tasks of the layers that --modules selects on a GPU, with a single rank.
std::vector<CaseRecord> measure_modules(const MicrobenchOptions& options, const commands::Target& target,
                                        const std::vector<commands::LayerJob>& jobs, RecordWriter& writer,
                                        const std::function<void(double share)>& progress) {
  std::vector<CaseRecord> records;
  for (size_t i = 0; i < jobs.size(); ++i) {
    std::ranges::move(commands::measure_tasks(target, jobs[i], writer), std::back_inserter(records));
    progress(static_cast<double>(i + 1) / static_cast<double>(jobs.size()));
  }
  require<BadInput>(!records.empty(), "--modules: found no layer of {} that runs on this GPU (--verbose says why)",
                    options.modules);
  return records;
}

CaseRecord record_of(const MeasuredOverhead& o) {
  CaseRecord record;
  const bool cpu = o.device == DeviceKind::cpu;
  record.key = cpu ? fmt::format("overhead/{}", o.ranks) : fmt::format("overhead/{}/{}", name_of(o.device), o.ranks);
  record.backend = "local";
  record.parameters = {{"ranks", int64_t{o.ranks}}, {"device", std::string(name_of(o.device))}};
  record.summary = {{"task_s", o.overhead.task_s}, {"crossing_s", o.overhead.crossing_s}};
  if (o.overhead.replayed_task_s > 0) {
    record.summary.set("kernel_task_s", o.overhead.kernel_task_s);
    record.summary.set("replayed_task_s", o.overhead.replayed_task_s);
  }
  return record;
}

/// Measures the overheads of ranks that are threads, on the CPU and, if a GPU exists, on the GPU.
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

/// Reads the overheads between the lanes of a process, in the slowest process, from the record of measure_ops.
std::vector<MeasuredOverhead> read_overheads(const std::vector<CaseRecord>& records, DeviceKind device) {
  for (const CaseRecord& record : records)
    if (record.key == "overhead") {
      const auto seconds = [&](const char* name) { return record.summary.number(name, record.key); };
      return {{1, device, {seconds("task_s"), seconds("crossing_s")}}};
    }
  return {};
}

}  // namespace

int run_microbench(const MicrobenchOptions& options, World* processes) {
  if (options.kernels) return processes == nullptr || is_leader(*processes) ? run_kernel_bench(options) : 0;
  const commands::Target target = commands::target_of(options.cluster, commands::ranks_of(options, processes));
  const commands::OpRequest request = request_of(options, target);
  const bool has_tasks = times_tasks(options, target), has_ops = options.ops.empty() || !request.has_all();
  const std::unique_ptr<TokenSource> text = make_markov_source({});
  std::vector<commands::LayerJob> jobs;
  if (has_tasks) jobs = commands::module_jobs(target, options.modules, dtype_from(options.dtype, "--dtype"), *text);
  const std::string path = commands::records_path(options.out, "microbench", target.file_name());
  RecordWriter writer = target.open_records(path, options.invocation, {});
  commands::broadcast_finished_cases(target, writer);
  std::optional<Progress> progress;
  if (target.is_leader())
    progress.emplace(fmt::format("microbench {}{}", target.cluster.name, target.emulated ? " (emulated)" : ""));
  const auto show = [&](double share) {
    if (progress) progress->at(share);
  };
  std::vector<CaseRecord> records;
  if (has_ops) records = commands::measure_ops(target, writer, request, show);
  sort_by_series(records);
  if (has_tasks) std::ranges::move(measure_modules(options, target, jobs, writer, show), std::back_inserter(records));
  std::vector<MeasuredOverhead> overheads;
  if (options.ops.empty())
    overheads = processes ? read_overheads(records, target.ranks.device) : measure_overheads(writer);
  const MicrobenchResults results{.cluster = target.cluster.name,
                                  .place = target.place(),
                                  .emulated = target.emulated,
                                  .backend = std::string(target.backend()),
                                  .records_path = path,
                                  .checked = options.check != 0,
                                  .records = std::move(records),
                                  .overheads = std::move(overheads)};
  writer.end();
  if (target.is_leader()) {
    progress->finish();
    fmt::print("{}\n", options.json ? json_of(results) : text_of(results));
  }
  for (const CaseRecord& record : results.records) require_right(record);
  return kOk;
}

}  // namespace moe::microbench
