#include "commands/shared/run/routing_record.h"

#include <algorithm>
#include <memory>

#include "commands/shared/run/layer_dump.h"
#include "moe/base/check.h"
#include "moe/serve/routing_trace.h"

namespace moe::commands {
namespace {

// Returns a rank's lines of the trace, one after the other, as numbers: token, layer, then its k experts.
std::vector<double> lines_of(const measure::RankRun& run) {
  const RankCells cells = run.cells();
  std::vector<double> lines;
  for (size_t l = 0; l < cells.layers.size(); ++l)
    for (size_t m = 0; m < cells.layers[l].size(); ++m) {
      const MoeLayer& layer = *cells.layers[l][m];
      const std::span<const int32_t> experts = layer.own_choices();
      const ShardRange tokens = layer.shape().tokens;
      const auto k = static_cast<int64_t>(experts.size()) / std::max<int64_t>(1, tokens.count);
      for (int64_t t = 0; k > 0 && t < tokens.count; ++t) {
        lines.push_back(static_cast<double>(static_cast<int64_t>(m) * tokens.total + tokens.first + t));
        lines.push_back(static_cast<double>(layer.seed().layer));
        for (int64_t c = 0; c < k; ++c) lines.push_back(experts[t * k + c]);
      }
    }
  return lines;
}

}  // namespace

void record_routing(const std::string& file, World& world, std::span<measure::RankRun* const> ranks) {
  const LayerShape layer = ranks.front()->cells().cases.moe().layer;
  const GatePart& gate = gate_of(layer);
  require<Unsupported>(gate.choices == Choices::top_k,
                       "--record-routing: gate {} does not choose each token's top k, so it has no trace", gate.name);
  std::vector<std::vector<double>> own;
  for (const measure::RankRun* rank : ranks) own.push_back(lines_of(*rank));
  const std::vector<std::vector<double>> all = gather(world, own);
  if (!is_leader(world)) return;
  const auto width = static_cast<size_t>(2 + layer.top_k);
  std::vector<RoutedToken> lines;
  for (const std::vector<double>& rank : all)
    for (auto at = rank.begin(); at != rank.end(); at += static_cast<std::ptrdiff_t>(width))
      lines.push_back({static_cast<uint64_t>(at[0]),
                       static_cast<uint64_t>(at[1]),
                       {at + 2, at + static_cast<std::ptrdiff_t>(width)}});
  std::ranges::sort(lines, {}, [](const RoutedToken& line) { return std::pair(line.layer, line.token); });
  write_routed_tokens(file, lines);
}

measure::Inspection inspection_of(const std::string& folder, const std::string& file) {
  if (folder.empty() && file.empty()) return {};
  return [folder, file, is_recorded = std::make_shared<bool>(file.empty())](
             World& world, std::span<measure::RankRun* const> ranks, const Plan& plan) {
    if (!folder.empty()) dump_layers(folder + "/" + plan.schedule, world, ranks, plan);
    if (!std::exchange(*is_recorded, true)) record_routing(file, world, ranks);
  };
}

}  // namespace moe::commands
