#include "microbench/kernel_bench.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "microbench/kernels.h"
#include "moe/base/progress.h"
#include "moe/base/table.h"
#include "moe/record/writer.h"

namespace moe::microbench {
namespace {

constexpr double kGroups = 12;  // of a CPU's kernels

double number(const CaseRecord& record, std::string_view name) { return record.summary.number(name, record.key); }

std::string text(const CaseRecord& record, std::string_view name) { return record.parameters.text(name, record.key); }

nlohmann::ordered_json to_json(const CaseRecord& record) {
  nlohmann::ordered_json row{{"key", record.key}, {"status", name_of(record.status)}};
  if (record.status != CaseStatus::ok) row["reason"] = record.reason;
  for (const auto* fields : {&record.parameters, &record.summary})
    for (const auto& [name, value] : *fields) std::visit([&](const auto& v) { row[name] = v; }, value);
  return row;
}

std::vector<std::string> row_of(const CaseRecord& record) {
  std::vector<std::string> row{text(record, "kernel"),
                               fmt::format("{}", record.parameters.whole("model_dim", record.key))};
  if (record.status != CaseStatus::ok) {
    row.insert(row.end(), {"-", "-", "-", fmt::format("{}: {}", name_of(record.status), record.reason)});
    return row;
  }
  const bool moves = record.summary.has("bytes_per_s"), bound = record.summary.has("share");
  row.insert(row.end(), {fmt::format("{:.3f}", number(record, "least_s") * 1e3),
                         moves ? fmt::format("{:.2f}", number(record, "bytes_per_s") * 1e-9) : "-",
                         bound ? fmt::format("{:.1f} %", 100 * number(record, "share")) : "-",
                         bound ? text(record, "bound") : ""});
  return row;
}

}  // namespace

int report_kernels(std::span<const CaseRecord> records, const std::string& path, bool json) {
  auto list = nlohmann::ordered_json::array();
  Table table({"kernel", "M", "ms", "GB/s", "share", "of"});
  for (const CaseRecord& record : records) {
    list.push_back(to_json(record));
    table.add(row_of(record));
  }
  if (json)
    fmt::print("{}\n", nlohmann::ordered_json{{"records", path}, {"kernels", list}}.dump(1));
  else
    fmt::print("float32, one thread; a kernel's fastest sample\n{}\nrecords: {}\n", table.text(), path);
  const auto wrong = [](const CaseRecord& record) { return record.status == CaseStatus::wrong; };
  return std::ranges::any_of(records, wrong) ? 3 : 0;
}

int run_kernel_bench(const MicrobenchOptions& options) {
  const std::string path = options.out.empty() ? "results/microbench-kernels.jsonl" : options.out;
  RecordWriter writer(path, {options.asked, {}, {}});
  KernelBench bench(writer, options.repetitions);
  const KernelSizes sizes;
  Progress progress("microbench --kernels", 60);
  double groups = 0;
  for (const auto& kernels : {order_kernels, expert_kernels, gate_kernels, gpu_kernels})
    kernels(sizes, [&](std::span<const Kernel> group) {
      bench.run(group);
      progress.at(std::min(1.0, ++groups / kGroups));
    });
  writer.end();
  progress.done();
  return report_kernels(bench.records(), path, options.json);
}

}  // namespace moe::microbench
