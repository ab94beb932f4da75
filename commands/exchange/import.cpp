#include "commands/exchange/import.h"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <set>
#include <string>
#include <vector>

#include "commands/exchange/formats.h"
#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/files.h"
#include "moe/base/log.h"
#include "moe/base/registry.h"
#include "moe/base/statistics.h"
#include "moe/base/text.h"
#include "moe/base/units.h"
#include "moe/prices/fit.h"
#include "moe/prices/profile.h"
#include "moe/record/pass_times.h"
#include "moe/record/reader.h"
#include "moe/record/writer.h"

namespace moe::exchange {
namespace {

struct ImportFormat {
  std::string_view name;
  void (*read)(const ImportOptions&);
  std::string_view flags;  // the flags that the format takes, beside --out and --overwrite
};

constexpr std::array<ImportFormat, 8> kImportFormats{{
    {"nccl-tests", import_nccl_tests, "--cluster --op --network --nodes --ranks --ranks-per-node --in-place"},
    {"kineto", import_kineto, "--cluster --network --nodes --ranks-per-node --map"},
    {"nsys", import_nsys, "--cluster --network --nodes --ranks --ranks-per-node --map --dtype"},
    {"deepep", import_expert_parallel, "--cluster --network --nodes --ranks --ranks-per-node --experts"},
    {"ep-bench", import_expert_parallel, "--cluster --network --nodes --ranks-per-node"},
    {"aisimulate", import_aisimulate, "--cluster --network --nodes --ranks-per-node"},
    {"csv", import_csv, "--cluster --nodes --ranks-per-node"},
    {"csv-profile", import_csv_profile, ""},
}};

// Returns whether the flag is one of the words.
bool has_flag(std::string_view flags, std::string_view flag) {
  return fmt::format(" {} ", flags).find(fmt::format(" {} ", flag)) != std::string::npos;
}

// Refuses flags that the format does not read.
void check_read(const ImportFormat& format, const ImportOptions& o) {
  const std::pair<std::string_view, bool> given[] = {{"--cluster", o.cluster != ImportOptions().cluster},
                                                     {"--op", !o.op.empty()},
                                                     {"--network", !o.network.empty()},
                                                     {"--nodes", o.nodes.has_value()},
                                                     {"--ranks", o.ranks.has_value()},
                                                     {"--ranks-per-node", o.ranks_per_node.has_value()},
                                                     {"--in-place", o.in_place},
                                                     {"--map", !o.map.empty()},
                                                     {"--dtype", !o.dtype.empty()},
                                                     {"--experts", o.experts.has_value()},
                                                     {"--overwrite", o.invocation.overwrite && format.flags.empty()}};
  for (const auto& [flag, is_given] : given)
    require<BadInput>(!is_given || has_flag(format.flags, flag), "{} has no effect for format {}", flag, format.name);
  require<BadInput>(o.network.empty() || o.network == "inter" || o.network == "intra",
                    "--network: found '{}', expected inter or intra", o.network);
  if (!o.dtype.empty()) dtype_from(o.dtype, "--dtype");
  require<BadInput>(is_profile_name(o.cluster), "--cluster: found '{}', expected {}", o.cluster, kProfileName);
  require<BadInput>(!o.out.empty(), "--out: found none, expected a file for the imported records");
  require_other_file(o.out, o.files);
  require_other_file(o.out, {o.map});
}

}  // namespace

std::string import_formats() { return fmt::format("{}", fmt::join(row_names(kImportFormats), "|")); }

int run_import(const ImportOptions& options) {
  const ImportFormat& format = find_named(kImportFormats, options.format, "import");
  check_read(format, options);
  format.read(options);
  return 0;
}

namespace {

std::string key_of(const ImportedSample& s) {
  if (s.op == Op::gemm) return fmt::format("op/gemm/{}/{:.0f}", s.dtype, s.flops);
  return fmt::format("op/{}/{}/{}/{:.0f}", name_of(s.op), s.network, s.ranks, s.bytes);
}

}  // namespace

void ImportedSamples::add(const ImportedSample& sample) {
  const auto [place, fresh] = by_key_.try_emplace(key_of(sample), Case{sample, {}});
  place->second.seconds.push_back(sample.seconds);
  if (sample.op == Op::gemm) return;
  if (sample.network == "intra") note_cluster_size({0, sample.ranks});
}

void ImportedSamples::note_cluster_size(const ClusterSize& size) {
  size_.nodes = std::max(size_.nodes, size.nodes);
  size_.ranks_per_node = std::max(size_.ranks_per_node, size.ranks_per_node);
}

void ImportedSamples::write(const ImportOptions& options) const {
  const int nodes = options.nodes.value_or(size_.nodes),
            ranks_per_node = options.ranks_per_node.value_or(size_.ranks_per_node);
  require<BadInput>(nodes > 0, "--nodes: found none, and no file says how many the cluster has; expected their number");
  require<BadInput>(ranks_per_node > 0,
                    "--ranks-per-node: found none, and no file says how many a node has; expected their number");
  for (const auto& [key, of_key] : by_key_) {
    const int most = of_key.first.network == "intra" ? ranks_per_node : nodes * ranks_per_node;
    require<BadInput>(of_key.first.op == Op::gemm || of_key.first.ranks <= most,
                      "--{}: found {} nodes x {} ranks, expected at least the {} ranks of {}",
                      of_key.first.network == "intra" ? "ranks-per-node" : "nodes", nodes, ranks_per_node,
                      of_key.first.ranks, key);
  }
  RecordWriter writer(options.out, {options.invocation, options.files, {}});
  std::set<std::string> series;
  for (const auto& [key, of_key] : by_key_) {
    const ImportedSample& s = of_key.first;
    series.insert(key.substr(0, key.rfind('/')));
    if (writer.find(key) != nullptr) continue;
    CaseRecord record;
    record.key = key;
    record.backend = backend_;
    record.parameters = {{"cluster", options.cluster},
                         {"nodes", int64_t{nodes}},
                         {"ranks_per_node", int64_t{ranks_per_node}},
                         {"op", std::string(name_of(s.op))}};
    if (s.op == Op::gemm) {
      record.parameters.set("dtype", s.dtype);
      record.parameters.set("flops", s.flops);
    } else {
      record.parameters.set("network", s.network);
      record.parameters.set("ranks", int64_t{s.ranks});
      record.parameters.set("bytes", s.bytes);
      if (facts_of(s.op).wire_passes > 0) record.parameters.set("wire_bytes", s.bytes * wire_share(s.op, s.ranks));
    }
    record.samples = {{"seconds", single_rank_samples(of_key.seconds)}};
    record.summary = {{"median_s", median(of_key.seconds)},
                      {"least_s", std::ranges::min(of_key.seconds)},
                      {"most_s", std::ranges::max(of_key.seconds)}};
    writer.append(record);
  }
  writer.end();
  log_info(fmt::format("{}: {} cases of {} operations and groups, of {} x {} ranks", options.out, by_key_.size(),
                       series.size(), counted(nodes, "node"), ranks_per_node));
  report_fit(options);
}

std::string requested_network(const ImportOptions& options, const std::string& what) {
  require<BadInput>(!options.network.empty(), "--network: found none, and {} does not say; expected inter or intra",
                    what);
  return options.network;
}

namespace {

// The rows that every plan needs; plans with several ranks per node, or with stages, need more.
constexpr std::array<std::string_view, 5> kRequiredOps{"gemm", "alltoall", "allgather", "reducescatter", "allreduce"};

struct RowsByVerdict {
  std::vector<std::string> good, weak, unusable;
};

RowsByVerdict verdicts_of(const std::vector<FittedRow>& rows) {
  RowsByVerdict found;
  for (const FittedRow& row : rows) {
    if (row.good())
      found.good.push_back(row.what);
    else if (!row.unusable)
      found.weak.push_back(fmt::format("{} ({})", row.what, *row.fit.weak));
    else
      found.unusable.push_back(fmt::format("{} ({})", row.what, *row.unusable));
  }
  return found;
}

std::vector<std::string_view> missing_ops(const std::vector<FittedRow>& rows) {
  std::vector<std::string_view> missing;
  for (const std::string_view op : kRequiredOps)
    if (std::ranges::none_of(
            rows, [&](const FittedRow& row) { return !row.unusable && row.what.starts_with(fmt::format("{} ", op)); }))
      missing.push_back(op);
  return missing;
}

}  // namespace

void report_fit(const ImportOptions& options) {
  const FittedProfile fitted = fit_profile(read_last_run(options.out).cases, options.cluster, options.out);
  const auto [good, weak, unusable] = verdicts_of(fitted.rows);
  const auto say = [](std::string_view what, const std::vector<std::string>& rows) {
    if (!rows.empty()) log_info(fmt::format("{}: {}", what, fmt::join(rows, "; ")));
  };
  say("rows that fit well", good);
  say("rows with a weak fit, whose prices are labelled", weak);
  say("rows that can't be used", unusable);
  if (!weak.empty() || !unusable.empty())
    log_info(
        "for those: time three sizes or more, up to the largest that a layer sends, several times each, and import "
        "all files together");
  const std::vector<std::string_view> missing = missing_ops(fitted.rows);
  if (!missing.empty())
    log_info(fmt::format("a plan may need rows beside these: {} (docs/imports.md); tune --nearest borrows other sizes'",
                         fmt::join(missing, ", ")));
  if (!missing.empty() && missing.front() == kRequiredOps.front())
    log_info("fit --compute-from h100-8, or another preset of your GPU (see list), takes its prices of computations");
  if (!good.empty() || !weak.empty())
    log_info(fmt::format("next: {} fit --records {} --out results/{}.toml", program_command(), shell_word(options.out),
                         options.cluster));
}

}  // namespace moe::exchange
