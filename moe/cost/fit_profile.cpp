#include <algorithm>
#include <array>
#include <map>

#include "moe/base/check.h"
#include "moe/cost/fit.h"
#include "moe/cost/modules.h"

namespace moe {
namespace {

constexpr std::array<std::string_view, 7> kCommOps{"alltoall",   "allgather", "reducescatter", "allreduce", "sendrecv",
                                                   "a2a-ep-esp", "saa"};

/// What tells the rows of a profile apart; the first field orders them.
struct RowKey {
  enum class Table { comm, compute, module } table = Table::comm;
  std::string op;  // or the module's name
  Network network = Network::none;
  int ranks = 0;
  std::string algorithm;
  DType dtype = DType::float32;
  Phase phase = Phase::forward;
  std::optional<int64_t> seq;
  auto operator<=>(const RowKey&) const = default;
};

std::string text_or(const CaseRecord& record, std::string_view name, std::string_view otherwise) {
  return record.parameters.has(name) ? record.parameters.text(name, record.where) : std::string(otherwise);
}

/// One of two texts; true for the first.
bool first_of(const CaseRecord& record, std::string_view name, std::string_view first, std::string_view second) {
  const std::string& found = record.parameters.text(name, record.where);
  require<BadInput>(found == first || found == second, "{}: {}: found '{}', expected {} or {}", record.where, name,
                    found, first, second);
  return found == first;
}

RowKey key_of(const CaseRecord& record) {
  const Fields& parameters = record.parameters;
  RowKey key;
  key.op = parameters.text("op", record.where);
  if (key.op == "gemm") {
    key.table = RowKey::Table::compute;
    key.dtype = dtype_from(parameters.text("dtype", record.where), record.where + ": dtype");
  } else if (key.op == "module") {
    key.table = RowKey::Table::module;
    key.op = parameters.text("name", record.where);
    key.phase = first_of(record, "phase", "forward", "backward") ? Phase::forward : Phase::backward;
    if (parameters.has("seq")) key.seq = parameters.whole("seq", record.where);
  } else {
    const bool known = std::find(kCommOps.begin(), kCommOps.end(), key.op) != kCommOps.end();
    require<BadInput>(known, "{}: op: found '{}', expected a collective, gemm or module", record.where, key.op);
    key.network = first_of(record, "network", "inter", "intra") ? Network::inter : Network::intra;
    const int64_t ranks = parameters.whole("ranks", record.where);
    require<BadInput>(ranks >= 2 && ranks <= INT32_MAX, "{}: ranks: found {}, expected at least 2", record.where,
                      ranks);
    key.ranks = static_cast<int>(ranks);
    key.algorithm = text_or(record, "algorithm", CommRow{}.algorithm);
  }
  return key;
}

FitSample sample_of(const CaseRecord& record, const RowKey& key) {
  const Fields& parameters = record.parameters;
  FitSample sample;
  const bool bytes =
      key.table == RowKey::Table::comm || (key.table == RowKey::Table::module && is_priced_by_byte(key.op));
  sample.size = parameters.number(bytes ? "bytes" : "flops", record.where);
  sample.seconds = record.summary.number("median_s", record.where);
  if (key.table == RowKey::Table::compute && parameters.has("gemms"))
    sample.starts = parameters.number("gemms", record.where);
  const bool usable = sample.size > 0 && sample.seconds > 0 && sample.starts > 0;  // false for NaN too
  require<BadInput>(usable, "{}: found size {}, starts {} and median_s {}, expected all > 0", record.where, sample.size,
                    sample.starts, sample.seconds);
  return sample;
}

std::string describe(const RowKey& key) {
  if (key.table == RowKey::Table::compute) return fmt::format("{} {}", key.op, name_of(key.dtype));
  if (key.table == RowKey::Table::module)
    return fmt::format("{} {}{}", key.op, name_of(key.phase), key.seq ? fmt::format(" {}", *key.seq) : "");
  const std::string algorithm = key.algorithm == CommRow{}.algorithm ? "" : " " + key.algorithm;
  return fmt::format("{} {} {}{}", key.op, name_of(key.network), key.ranks, algorithm);
}

void add_row(Profile& profile, const RowKey& key, const LinearFit& fit) {
  switch (key.table) {
    case RowKey::Table::comm:
      profile.comm.push_back({key.op,
                              key.network,
                              key.ranks,
                              fit.alpha_s,
                              fit.beta,
                              key.algorithm,
                              fit.r_squared,
                              fit.held_out_error,
                              fit.range,
                              {}});
      break;
    case RowKey::Table::compute:
      profile.compute.push_back({.op = key.op,
                                 .ffn = {},
                                 .dtype = key.dtype,
                                 .alpha_s = fit.alpha_s,
                                 .beta_s_per_flop = fit.beta,
                                 .r_squared = fit.r_squared,
                                 .held_out_error = fit.held_out_error,
                                 .range_flops = fit.range});
      break;
    case RowKey::Table::module:
      profile.modules.push_back(
          {key.op, key.phase, key.seq, fit.alpha_s, 0, 0, fit.r_squared, fit.held_out_error, fit.range});
      (is_priced_by_byte(key.op) ? profile.modules.back().beta_s_per_byte : profile.modules.back().beta_s_per_flop) =
          fit.beta;
      break;
  }
}

/// A lane's slowdown by another; one so small is as likely the machine's mood.
constexpr double kLeastSlowdown = 1.05;

double& factor_of(Contention& contention, const CaseRecord& record) {
  const std::string &lane = record.parameters.text("lane", record.where),
                    &by = record.parameters.text("by", record.where);
  for (const ContentionPair& pair : contention_pairs())
    if (name_of(pair.slowed) == lane && name_of(pair.by) == by) return contention.*pair.factor;
  bad_input("{}: slowdown: found '{} by {}', expected two of inter, intra, compute, copy", record.where, lane, by);
}

/// Cases that are no sample of a row: what lanes do to each other, and what a task costs beside its work.
bool take_whole(Profile& profile, const CaseRecord& record) {
  const std::string& op = record.parameters.text("op", record.where);
  if (op == "overhead") {
    profile.task_overhead_s = record.summary.number("crossing_s", record.where);
  } else if (op == "slowdown") {
    const double factor = record.summary.number("factor", record.where);
    require<BadInput>(factor >= 1, "{}: factor: found {}, expected at least 1", record.where, factor);
    if (factor >= kLeastSlowdown) factor_of(profile.contention, record) = factor;
  } else {
    return op == "overlap";
  }
  return true;
}

/// Takes name and size of the measured cluster from a case; all cases must agree.
void set_topology(Profile& profile, const CaseRecord& record, std::string& cluster) {
  const std::string& name = record.parameters.text("cluster", record.where);
  const auto nodes = static_cast<int>(record.parameters.whole("nodes", record.where));
  const auto ranks_per_node = static_cast<int>(record.parameters.whole("ranks_per_node", record.where));
  const bool same =
      cluster.empty() || (cluster == name && nodes == profile.nodes && ranks_per_node == profile.ranks_per_node);
  require<BadInput>(same, "{}: cluster: found {} ({} x {}), expected {} ({} x {}) as in the cases before", record.where,
                    name, nodes, ranks_per_node, cluster, profile.nodes, profile.ranks_per_node);
  require<BadInput>(nodes >= 1 && ranks_per_node >= 1, "{}: nodes: found {} x {} ranks, expected at least 1 x 1",
                    record.where, nodes, ranks_per_node);
  cluster = name;
  profile.nodes = nodes;
  profile.ranks_per_node = ranks_per_node;
}

}  // namespace

FittedProfile fit_profile(const std::vector<CaseRecord>& cases, const std::string& name, const std::string& source) {
  FittedProfile out;
  out.profile.name = name;
  out.profile.source = source;
  std::string cluster;
  std::map<RowKey, std::vector<FitSample>> samples;
  for (const CaseRecord& record : cases) {
    if (record.status != CaseStatus::ok) continue;
    set_topology(out.profile, record, cluster);
    require<BadInput>(record.backend == cases.front().backend,
                      "{}: backend: found {}, expected {} as in the cases before", record.where, record.backend,
                      cases.front().backend);
    if (take_whole(out.profile, record)) continue;
    const RowKey key = key_of(record);
    samples[key].push_back(sample_of(record, key));
  }
  require<BadInput>(!samples.empty(), "fit: found no measured case, expected records of a microbench");
  for (auto& [key, of_key] : samples) {
    const LinearFit fit = fit_linear(std::move(of_key), describe(key));
    add_row(out.profile, key, fit);
    out.rows.push_back({describe(key), fit});
  }
  return out;
}

}  // namespace moe
