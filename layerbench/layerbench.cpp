#include "layerbench/layerbench.h"

#include <nlohmann/json.hpp>

#include "moe/base/progress.h"
#include "moe/base/table.h"
#include "moe/cost/fit.h"
#include "moe/measure/layer_records.h"
#include "moe/measure/op_records.h"
#include "moe/record/writer.h"

namespace moe {
namespace {

std::string text_of(const std::vector<CaseRecord>& records) {
  Table table({"schedule", "r_f", "r_b", "predicted ms", "measured ms", "forward ms", "backward ms", "spread", "error",
               "overruns", "grad err", "status"});
  for (const CaseRecord& r : records) {
    const auto ms = [&](const Fields& fields, std::string_view name) {
      return fields.has(name) ? fmt::format("{:.3f}", 1e3 * fields.number(name, r.key)) : "-";
    };
    const auto spread = [&] {
      return (r.summary.number("most_total_s", r.key) - r.summary.number("least_total_s", r.key)) /
             r.summary.number("total_s", r.key);
    };
    const auto degree = [](int of) { return of > 0 ? fmt::format("{}", of) : "-"; };
    table.add(
        {r.schedule, degree(r.degree_forward), degree(r.degree_backward), ms(r.prediction, "total_s"),
         ms(r.summary, "total_s"), ms(r.summary, "forward_s"), ms(r.summary, "backward_s"),
         !r.summary.has("total_s") ? "-" : fmt::format("{:.2f} %", 100 * spread()),
         !r.summary.has("total_s") ? "-" : fmt::format("{:+.2f} %", 100 * (measured_over_predicted(r) - 1)),
         r.summary.has("overrun_share") ? fmt::format("{:.2f} %", 100 * r.summary.number("overrun_share", r.key)) : "-",
         r.summary.has("worst_error") ? fmt::format("{:.1e}", r.summary.number("worst_error", r.key)) : "-",
         std::string(name_of(r.status)) + (r.reason.empty() ? "" : ": " + r.reason)});
  }
  return table.text();
}

nlohmann::ordered_json to_json(const std::vector<CaseRecord>& records) {
  auto list = nlohmann::ordered_json::array();
  for (const CaseRecord& r : records) {
    nlohmann::ordered_json row{
        {"schedule", r.schedule}, {"status", name_of(r.status)},        {"emulated", r.emulated},
        {"dilation", r.dilation}, {"degree_forward", r.degree_forward}, {"degree_backward", r.degree_backward}};
    for (const auto& [part, fields] : {std::pair{"measured", &r.summary}, {"predicted", &r.prediction}})
      for (const auto& [name, value] : *fields) std::visit([&](const auto& v) { row[part][name] = v; }, value);
    list.push_back(std::move(row));
  }
  return list;
}

}  // namespace

int run_layerbench(const LayerbenchOptions& options) {
  const Profile cluster = running_cluster(options.selection.cluster);
  LayerJob job;
  job.shape = chosen_case(options.selection, cluster.nodes, cluster.ranks_per_node);
  job.name = describe(job.shape.layer);
  job.schedules = chosen_schedules(options.selection);
  job.degrees = options.selection.degrees;
  job.pricing = {options.selection.nearest};
  job.settings = {!is_host(cluster), options.iterations, options.seed,
                  options.timeout_s, options.check_only, Workload(options.workload)};
  const std::string path = options.out.empty() ? "results/layerbench-" + cluster.name + ".jsonl" : options.out;
  RecordWriter writer(path, options.argv,
                      digest_of(fmt::format("layerbench {} {} {}", cluster.name, job.name, options.workload)));
  job.predicted_by = cluster;
  if (is_host(cluster)) {
    Progress progress("measuring host", 10);
    job.predicted_by = measure_and_fit(cluster, writer, options.iterations, options.timeout_s, [&](double share) {
                         progress.at(share);
                       }).profile;
    progress.done();
  } else {
    job.paced_by = cluster;
  }
  Fields parameters{{"cluster", cluster.name}, {"layer", job.name}, {"workload", options.workload}};
  const LayerOutcome outcome = run_layer_job(job, parameters);
  for (const CaseRecord& record : outcome.records)
    if (writer.find(record.key) == nullptr) writer.append(record);
  writer.end();
  if (!options.trace.empty() && !options.check_only) write_layer_trace(outcome, options.trace);
  if (options.json)
    fmt::print(
        "{}\n",
        nlohmann::ordered_json{
            {"cluster", cluster.name}, {"layer", job.name}, {"records", path}, {"schedules", to_json(outcome.records)}}
            .dump(1));
  else
    fmt::print("{} on {}{}, dilation {:.2f}\n\n{}\nrecords: {}\n", job.name, cluster.name,
               is_host(cluster) ? "" : " (emulated by 2 x 2 threads)", outcome.records.front().dilation,
               text_of(outcome.records), path);
  for (const CaseRecord& record : outcome.records)
    require<WrongResult>(record.status != CaseStatus::wrong, "{}: {}", record.key, record.reason);
  return 0;
}

}  // namespace moe
