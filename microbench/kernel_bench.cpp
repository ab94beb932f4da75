#include "microbench/kernel_bench.h"

#include <algorithm>

#include "commands/shared/run/target.h"
#include "commands/shared/sweep.h"
#include "microbench/kernels.h"
#include "moe/base/check.h"
#include "moe/base/json.h"
#include "moe/base/table.h"
#include "moe/base/terminal.h"
#include "moe/base/units.h"
#include "moe/device/device.h"
#include "moe/record/record_json.h"
#include "moe/record/writer.h"

namespace moe::microbench {
namespace {

constexpr double kGroups = 14;  // approximate number of kernel groups, on a CPU or a GPU

double number(const CaseRecord& record, std::string_view name) { return record.summary.number(name, record.key); }

std::string text(const CaseRecord& record, std::string_view name) { return record.parameters.text(name, record.key); }

Json to_json(const CaseRecord& record) {
  Json row{{"key", record.key}, {"status", name_of(record.status)}};
  if (record.status != CaseStatus::ok) row["reason"] = record.reason;
  for (const auto* fields : {&record.parameters, &record.summary}) row.update(to_json(*fields));
  return row;
}

std::vector<std::string> row_of(const CaseRecord& record) {
  std::vector<std::string> row{text(record, "kernel"),
                               fmt::format("{}", record.parameters.whole("model_dim", record.key))};
  if (record.status != CaseStatus::ok) {
    row.insert(row.end(), {"-", "-", "-", "-", fmt::format("{}: {}", name_of(record.status), record.reason)});
    return row;
  }
  const bool moves = record.summary.has("bytes_per_s"), bound = record.summary.has("share");
  const auto ms = [&](std::string_view name) { return fmt::format("{:.3f}", number(record, name) * 1e3); };
  row.insert(row.end(), {ms("least_s"), record.summary.has("warm_s") ? ms("warm_s") : "-",
                         moves ? fmt::format("{:.2f}", number(record, "bytes_per_s") * 1e-9) : "-",
                         bound ? percent(number(record, "share")) : "-", bound ? text(record, "bound") : ""});
  return row;
}

bool has_gpu_kernels(std::span<const CaseRecord> records) {
  return std::ranges::any_of(records, [](const CaseRecord& record) {
    return record.parameters.has("device") && text(record, "device") == name_of(DeviceKind::cuda);
  });
}

}  // namespace

int report_kernels(std::span<const CaseRecord> records, const std::string& path, bool json) {
  auto list = Json::array();
  Table table({"kernel", "M", "ms", "warm ms", "GB/s", "share", "of"});
  for (const CaseRecord& record : records) {
    list.push_back(to_json(record));
    table.add(row_of(record));
  }
  if (json)
    fmt::print("{}\n", document_text(Json{{"records", path}, {"kernels", list}}));
  else
    fmt::print("{}; a kernel's fastest sample\n{}\nrecords: {}\n",
               has_gpu_kernels(records) ? "one GPU" : "float32, one thread", table.text(), path);
  for (const CaseRecord& record : records) require_right(record);
  return kOk;
}

int run_kernel_bench(const MicrobenchOptions& options) {
  const bool of_gpu = options.device == DeviceKind::cuda;
  if (of_gpu) make_device(DeviceKind::cuda);  // throws with the reason if no GPU is usable
  const std::string path = commands::records_path(options.out, "microbench", of_gpu ? "kernels-cuda" : "kernels");
  RecordWriter writer(path, {options.invocation, {}, of_gpu ? commands::gpu_fields(0) : Fields()});
  measure::KernelBench bench(writer, options.repetitions);
  const KernelSizes sizes;
  Progress progress("microbench --kernels");
  double groups = 0;
  const auto take = [&](std::span<const measure::Kernel> group) {
    bench.run(group);
    progress.at(std::min(1.0, ++groups / kGroups));
  };
  if (of_gpu)
    gpu_kernels(sizes, take);
  else
    for (const auto& kernels : {order_kernels, expert_kernels, gate_kernels}) kernels(sizes, take);
  writer.end();
  progress.finish();
  return report_kernels(bench.records(), path, options.json);
}

}  // namespace moe::microbench
