#include "exchange/imported_samples.h"

#include <algorithm>
#include <set>

#include "exchange/import_verdict.h"
#include "moe/base/check.h"
#include "moe/base/log.h"
#include "moe/base/statistics.h"
#include "moe/base/units.h"
#include "moe/record/writer.h"

namespace moe::exchange {
namespace {

std::string key_of(const ImportedSample& s) {
  if (s.op == Op::gemm) return fmt::format("op/gemm/{}/{:.0f}", s.dtype, s.flops);
  return fmt::format("op/{}/{}/{}/{:.0f}", name_of(s.op), s.network, s.ranks, s.bytes);
}

std::vector<std::vector<double>> one_rank(const std::vector<double>& seconds) {
  std::vector<std::vector<double>> rows;
  for (const double s : seconds) rows.push_back({s});
  return rows;
}

}  // namespace

void ImportedSamples::add(const ImportedSample& sample) {
  const auto [place, fresh] = by_key_.try_emplace(key_of(sample), Case{sample, {}});
  place->second.seconds.push_back(sample.seconds);
  if (sample.op == Op::gemm) return;
  if (sample.network == "intra") see({0, sample.ranks});
}

void ImportedSamples::see(const ClusterSize& size) {
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
  RecordWriter writer(options.out, {options.asked, options.files, {}});
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
    record.samples = {{"seconds", one_rank(of_key.seconds)}};
    record.summary = {{"median_s", median(of_key.seconds)},
                      {"least_s", std::ranges::min(of_key.seconds)},
                      {"most_s", std::ranges::max(of_key.seconds)}};
    writer.append(record);
  }
  writer.end();
  log_info(fmt::format("{}: {} cases of {} operations and groups, of {} x {} ranks", options.out, by_key_.size(),
                       series.size(), counted(nodes, "node"), ranks_per_node));
  say_what_fits(options);
}

std::string network_asked(const ImportOptions& options, const std::string& what) {
  require<BadInput>(!options.network.empty(), "--network: found none, and {} does not say; expected inter or intra",
                    what);
  return options.network;
}

}  // namespace moe::exchange
