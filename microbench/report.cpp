#include "microbench/report.h"

#include <algorithm>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/json.h"
#include "moe/base/table.h"
#include "moe/base/units.h"
#include "moe/plan/op.h"
#include "moe/prices/profile.h"
#include "moe/record/pass_times.h"
#include "moe/record/record_json.h"

namespace moe::microbench {
namespace {

double number(const CaseRecord& record, const Fields& fields, std::string_view name) {
  return fields.number(name, record.key);
}

std::string text_of(const CaseRecord& record, std::string_view name) {
  return record.parameters.text(name, record.key);
}

double median_of(const CaseRecord& record) { return number(record, record.summary, "median_s"); }

std::string spread_of(const CaseRecord& record) {
  const double most = number(record, record.summary, "most_s"), least = number(record, record.summary, "least_s");
  std::optional<Interval> within;
  if (record.summary.has("median_low_s"))
    within = {number(record, record.summary, "median_low_s"), number(record, record.summary, "median_high_s")};
  return spread_text(least, most, median_of(record), within);
}

std::string modelled_ratio_text(const CaseRecord& record) {
  if (!record.emulated) return "-";
  return fmt::format("{:.4f}", median_of(record) / number(record, record.prediction, "median_s"));
}

// Returns " 2dh" for an AlltoAll in two steps; empty for a direct one, and for other operations.
std::string algorithm_of(const CaseRecord& record) {
  if (!record.parameters.has("algorithm") || text_of(record, "algorithm") == CommRow{}.algorithm) return "";
  return " " + text_of(record, "algorithm");
}

// Returns the table of bandwidths as nccl-tests defines them: volume over time (algbw), bytes on a link over time
// (busbw).
std::string collectives_table(const std::vector<CaseRecord>& records, bool check) {
  Table table({"op", "ranks", "size B", "count", "type", "time us", "spread", "algbw GB/s", "busbw GB/s", "#wrong",
               "over modelled"});
  for (const CaseRecord& record : records) {
    if (!record.parameters.has("wire_bytes")) continue;
    const double bytes = number(record, record.parameters, "bytes");
    const DType dtype = dtype_from(text_of(record, "dtype"), record.key);
    std::vector<std::string> row{
        fmt::format("{} {}{}", text_of(record, "op"), text_of(record, "network"), algorithm_of(record)),
        fmt::format("{:.0f}", number(record, record.parameters, "ranks")), fmt::format("{:.0f}", bytes),
        fmt::format("{:.0f}", bytes / static_cast<double>(bytes_of(dtype))), std::string(name_of(dtype))};
    if (record.status == CaseStatus::ok) {
      const double seconds = median_of(record), wire = number(record, record.parameters, "wire_bytes");
      row.insert(
          row.end(),
          {fmt::format("{:.1f}", seconds * 1e6), spread_of(record), fmt::format("{:.3f}", bytes / seconds * 1e-9),
           fmt::format("{:.3f}", wire / seconds * 1e-9), check ? "0" : "-", modelled_ratio_text(record)});
    } else {
      row.insert(row.end(), {"-", "-", "-", "-", record.reason, "-"});
    }
    table.add(std::move(row));
  }
  return table.empty() ? "" : table.text();
}

// Returns a key without its size: "gemm float32".
std::string series_of(const CaseRecord& record) { return record.key.substr(3, record.key.rfind('/') - 3); }

std::string compute_table(const std::vector<CaseRecord>& records) {
  Table table({"op", "size", "time us", "spread", "rate", "over modelled", "status"});
  for (const CaseRecord& record : records) {
    const auto op = find_op(text_of(record, "op"));
    if (op != Op::gemm && op != Op::host_copy && op != Op::module) continue;
    const bool bytes = record.parameters.has("bytes");
    const double size = number(record, record.parameters, bytes ? "bytes" : "flops");
    const std::string shown = bytes ? human_bytes(size) : fmt::format("{:.3g} GFLOP", size * 1e-9);
    if (record.status == CaseStatus::ok)
      table.add({series_of(record), shown, fmt::format("{:.1f}", median_of(record) * 1e6), spread_of(record),
                 fmt::format("{:.3f} {}", size / median_of(record) * 1e-9, bytes ? "GB/s" : "GFLOP/s"),
                 modelled_ratio_text(record), "ok"});
    else
      table.add(
          {series_of(record), shown, "-", "-", "-", "-", fmt::format("{}: {}", name_of(record.status), record.reason)});
  }
  return table.empty() ? "" : fmt::format("\n{}", table.text());
}

// Returns the times of layers' tasks on a GPU: one row for each module and phase of a layer at one degree.
std::string tasks_table(const std::vector<CaseRecord>& records) {
  Table table({"task", "phase", "type", "of", "time us", "rate"});
  for (const CaseRecord& record : records) {
    if (find_op(text_of(record, "op")) != Op::task) continue;
    const double seconds = median_of(record);
    const bool has_flops = record.parameters.has("flop");
    table.add({text_of(record, "name"), text_of(record, "phase"), text_of(record, "dtype"),
               fmt::format("{} {}", text_of(record, "layer"), record.key.substr(record.key.find("/r") + 1, 2)),
               fmt::format("{:.1f}", seconds * 1e6),
               has_flops ? fmt::format("{:.3f} GFLOP/s", number(record, record.parameters, "flop") / seconds * 1e-9)
                         : std::string("-")});
  }
  return table.empty() ? "" : fmt::format("\n{}", table.text());
}

std::string lanes_tables(const std::vector<CaseRecord>& records) {
  Table table({"lane", "beside", "alone us", "beside us", "slower by"});
  for (const CaseRecord& record : records) {
    if (text_of(record, "op") != "slowdown") continue;
    const auto us = [&](const char* name) { return fmt::format("{:.1f}", number(record, record.summary, name) * 1e6); };
    const double factor = number(record, record.summary, "factor");
    table.add({text_of(record, "lane"), text_of(record, "by"), us("alone_s"), us("beside_s"),
               factor > 1 ? fmt::format("{:.2f}x", factor) : "not slower"});
  }
  Table overlaps({"lanes", "alone us", "", "both us", "overlap"});
  for (const CaseRecord& record : records) {
    if (text_of(record, "op") != "overlap") continue;
    const auto us = [&](const char* name) { return fmt::format("{:.1f}", number(record, record.summary, name) * 1e6); };
    overlaps.add({fmt::format("{} + {}", text_of(record, "lane"), text_of(record, "other")), us("alone_s"),
                  us("other_alone_s"), us("both_s"), percent(number(record, record.summary, "overlap"), 0)});
  }
  return table.empty() ? "" : fmt::format("\n{}\n{}", table.text(), overlaps.text());
}

Json to_json(const std::vector<CaseRecord>& records) {
  auto list = Json::array();
  for (const CaseRecord& record : records) {
    Json row{{"key", record.key},
             {"status", name_of(record.status)},
             {"emulated", record.emulated},
             {"dilation", record.dilation}};
    for (const auto* fields : {&record.parameters, &record.summary}) row.update(to_json(*fields));
    list.push_back(std::move(row));
  }
  return list;
}

}  // namespace

void sort_by_series(std::vector<CaseRecord>& records) {
  std::ranges::stable_sort(records, {}, [](const CaseRecord& record) {
    if (!record.key.starts_with("op/")) return std::pair(std::string("~"), 0.0);
    const char* size = record.parameters.has("bytes") ? "bytes" : "flops";
    return std::pair(series_of(record), number(record, record.parameters, size));
  });
}

std::string text_of(const MicrobenchResults& results) {
  std::string text = fmt::format("operations on {}{}\n\n{}{}{}{}", results.place, results.emulated ? ", emulated" : "",
                                 collectives_table(results.records, results.checked), compute_table(results.records),
                                 tasks_table(results.records), lanes_tables(results.records));
  if (!results.overheads.empty()) text += "\nexecutor, empty tasks, unpaced:\n";
  for (const auto& [ranks, device, o] : results.overheads) {
    text += fmt::format("  {}, {} a process: {:.2f} us a task, {:.1f} us a hand-over between lanes\n", name_of(device),
                        counted(ranks, "rank"), o.task_s * 1e6, o.crossing_s * 1e6);
    if (o.replayed_task_s > 0)
      text += fmt::format("    a task of one kernel: {:.2f} us launched, {:.2f} us in a CUDA graph\n",
                          o.kernel_task_s * 1e6, o.replayed_task_s * 1e6);
  }
  return text + fmt::format("\nrecords: {}", results.records_path);
}

std::string json_of(const MicrobenchResults& results) {
  Json json{{"cluster", results.cluster},
            {"backend", results.backend},
            {"records", results.records_path},
            {"ops", to_json(results.records)}};
  for (const auto& [ranks, device, o] : results.overheads)
    json["overhead"].push_back(
        {{"ranks", ranks}, {"device", name_of(device)}, {"task_s", o.task_s}, {"crossing_s", o.crossing_s}});
  return document_text(json);
}

}  // namespace moe::microbench
