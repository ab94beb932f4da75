#include "moe/measure/op_records.h"

#include "moe/exec/overhead.h"
#include "moe/measure/proxy.h"
#include "moe/measure/statistics.h"
#include "moe/search/selection.h"

namespace moe {
namespace {

double expected_seconds(const OpCase& c, int repetitions) {
  const double unpaced_guess = 1e-3 + c.bytes * 1e-9 + c.flops * 4e-11;
  return (repetitions + 1) * (c.modelled_s > 0 ? c.modelled_s * c.dilation : unpaced_guess);
}

}  // namespace

CaseRecord record_of(const OpCase& c, const OpResult& result, const Profile& cluster) {
  CaseRecord record;
  record.key = "op/" + c.key();
  record.parameters = c.parameters(cluster);
  record.backend = "local";
  record.emulated = c.modelled_s > 0;
  record.dilation = c.dilation;
  if (!result.wrong.empty()) {
    record.status = CaseStatus::wrong;
    record.reason = result.wrong;
    return record;
  }
  record.samples = {{"seconds", result.seconds}};
  const std::vector<double> slowest = max_over_ranks(result.seconds);
  const double runs = static_cast<double>(slowest.size() * result.seconds.front().size());
  const double overruns = static_cast<double>(result.overruns) / runs;
  record.summary = {{"median_s", median(slowest)},
                    {"least_s", quantile(slowest, 0)},
                    {"most_s", quantile(slowest, 1)},
                    {"overrun_share", overruns}};
  if (record.emulated) record.prediction = {{"median_s", c.modelled_s}};
  return record;
}
Profile host_cluster() {
  Profile host;
  host.name = kHostCluster;
  host.source = "this machine's threads";
  host.nodes = kProxyNodes;
  host.ranks_per_node = kProxyRanksPerNode;
  return host;
}

Profile running_cluster(const std::string& name) { return name == kHostCluster ? host_cluster() : find_profile(name); }
bool is_host(const Profile& cluster) { return cluster.name == kHostCluster; }

std::vector<CaseRecord> measure_ops(const Profile& cluster, RecordWriter& writer, const OpSettings& settings,
                                    const std::function<void(double share)>& progress) {
  std::vector<CaseRecord> records;
  std::vector<OpCase> open;
  double all = 0, done = 0;
  const int repetitions = settings.repetitions;
  auto cases = is_host(cluster) ? host_cases(cluster) : emulated_cases(cluster);
  std::ranges::move(module_cases(settings.modules, cluster), std::back_inserter(cases));
  for (const OpCase& c : cases) {
    const CaseRecord* known = writer.find("op/" + c.key());
    if (known != nullptr)
      records.push_back(*known);
    else
      open.push_back(c), all += expected_seconds(c, repetitions);
  }
  bench_ops(open, repetitions, settings.timeout_s, [&](const OpCase& c, const OpResult& result) {
    records.push_back(record_of(c, result, cluster));
    writer.append(records.back());
    done += expected_seconds(c, repetitions);
    progress(done / all);
  });
  return records;
}

FittedProfile measure_and_fit(const Profile& cluster, RecordWriter& writer, int repetitions, double timeout_s,
                              const std::function<void(double share)>& progress) {
  const auto records = measure_ops(cluster, writer, {repetitions, timeout_s}, progress);
  for (const CaseRecord& record : records)
    require<WrongResult>(record.status != CaseStatus::wrong, "{}: {}", record.key, record.reason);
  FittedProfile fitted = fit_profile(records, cluster.name + "-fitted", "fitted from " + writer.path());
  fitted.profile.memory_bytes = cluster.memory_bytes;
  if (is_host(cluster))
    fitted.profile.task_overhead_s = measure_overhead(cluster.nodes * cluster.ranks_per_node).crossing_s;
  return fitted;
}

}  // namespace moe
