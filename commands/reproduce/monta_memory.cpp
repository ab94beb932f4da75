// MoNTA's Tables 3 to 5: its formulas for a rank's memory beside estimates, its bandwidths beside presets of clusters.
#include <algorithm>
#include <array>

#include "commands/reproduce/monta.h"
#include "commands/reproduce/printed_rows.h"
#include "commands/reproduce/study.h"
#include "moe/base/units.h"
#include "moe/plan/memory.h"
#include "moe/shape/model_file.h"

namespace moe::reproduce {
namespace {

constexpr Quantity kGigabytes{"bytes", "GB", 1e-9, 2};
constexpr std::array<std::string_view, 4> kZeroNames{"Baseline", "ZeRO 1", "ZeRO 2", "ZeRO 3"};

// Returns the model on nodes whose GPUs share its tensors: TP inside a node, EP between nodes.
MemoryRequest request_on(const Model& model, int nodes, int ranks_per_node) {
  ParallelShape parallel = model.parallel;
  parallel.nodes = nodes;
  parallel.ranks_per_node = ranks_per_node;
  return {.shape = complete(model.layer, parallel, Rounding::ragged),
          .layers = model.layers,
          .vocabulary = model.vocabulary,
          .tied_embedding = model.tied_embedding};
}

// Returns Table 3's bytes of a parameter under each of its rows, shared by `d` ranks.
double printed_state_bytes(int zero, double d) {
  constexpr std::array<double, 4> kWhole{16, 4, 2, 0};
  const double whole = kWhole[zero];
  return whole + (16 - whole) / d;
}

// The bytes of weights, gradients and optimizer states of each part.
struct States {
  double dense = 0, experts = 0;
};

States estimated_states(MemoryRequest request) {
  const auto all = [&] {
    const MemoryEstimate e = estimate_memory(request);
    return e.weights + e.gradients + e.optimizer;
  };
  const double once = all();
  request.shape.layer.hidden *= 2;  // only the experts' weights grow with their width
  const double experts = all() - once;
  return {once - experts, experts};
}

Comparison states(const Model& model, const MemoryRequest& request) {
  const LayerShape& l = model.layer;
  const ParallelShape& p = request.shape.parallel;
  const auto m = static_cast<double>(l.model_dim), layers = static_cast<double>(model.layers);
  const double kv = m * static_cast<double>(l.kv_heads) / static_cast<double>(l.heads);
  const double p1 = layers * (2 * m * m + 2 * m * kv) + 2 * static_cast<double>(model.vocabulary) * m;
  const double p2 = layers * static_cast<double>(l.experts * gemms_of(l.ffn) * l.hidden) * m;
  Comparison c{.caption = "weights, gradients and Adam of 2x70B on each of 16 GPUs (Table 3)",
               .label_names = {"configuration", "part", "d"},
               .quantity = kGigabytes};
  for (int zero = 0; zero < static_cast<int>(kZeroNames.size()); ++zero) {
    MemoryRequest r = request;
    r.shape.parallel.zero = zero;
    const States ours = estimated_states(r);
    const auto add = [&](std::string part, int d, double parameters, double bytes) {
      c.figures.push_back({{std::string(kZeroNames[zero]), std::move(part), fmt::format("{}", d)},
                           "",
                           printed_state_bytes(zero, d) * parameters,
                           bytes});
    };
    add("non-MoE", p.dp, p1 / p.mp, ours.dense);
    add("MoE", p.dp, p2 / p.mp / p.ep, ours.experts);
    if (zero > 0) add("MoE", p.edp, p2 / p.mp / p.ep, ours.experts);
  }
  return c;
}

// A row of Table 4: b s h l (fixed + 5 a s / h, if it has scores) bytes.
struct ActivationRow {
  std::string_view name;
  bool shared = true, sequence_parallel = true;  // over 16 GPUs, or all on one; TP splits the tokens of the dense part
  Recompute recompute = Recompute::none;
  double (*fixed)(double k, double t, double e) = nullptr;
  bool scores = false;
};

constexpr std::array kActivationRows{
    ActivationRow{"Without parallelism", false, true, Recompute::none,
                  [](double k, double, double) { return 13 + 21 * k; }, true},
    ActivationRow{"PP+TP+EP", true, false, Recompute::none,
                  [](double k, double t, double e) { return 5 + 5 * k / e + (8 + 16 * k / e) / t; }, true},
    ActivationRow{"PP+TP+EP+SP", true, true, Recompute::none,
                  [](double k, double t, double e) { return (13 + 21 * k / e) / t; }, true},
    ActivationRow{"  and selective recomputation", true, true, Recompute::selective,
                  [](double k, double t, double e) { return (13 + 21 * k / e) / t; }, false},
    ActivationRow{"  and full recomputation", true, true, Recompute::full,
                  [](double, double t, double) { return 2 / t; }, false}};

Comparison activations(const Model& model, const MemoryRequest& on_16) {
  const LayerShape& l = model.layer;
  const ParallelShape& p = on_16.shape.parallel;
  const auto heads = static_cast<double>(l.heads), seq = static_cast<double>(l.seq),
             width = static_cast<double>(l.model_dim);
  const double bshl = static_cast<double>(l.batch) * seq * width * model.layers;
  Comparison c{.caption = "activations of 80 layers on a GPU, one sequence of 8K (Table 4)",
               .label_names = {"configuration"},
               .quantity = kGigabytes};
  const MemoryRequest on_one = request_on(model, 1, 1);
  for (const ActivationRow& row : kActivationRows) {
    const double scores = row.scores ? 5 * heads * seq / width : 0;
    const double printed = bshl * (row.fixed(static_cast<double>(l.top_k), p.mp, p.ep) + scores);
    for (const auto& [convention, way] :
         {std::pair{"by construction", ActivationModel::printed}, std::pair{"corrected", ActivationModel::corrected},
          std::pair{"counted", ActivationModel::counted}}) {
      MemoryRequest r = row.shared ? on_16 : on_one;
      r.activations = way;
      r.vocabulary = 0;  // the table only counts the layers
      r.shape.parallel.recompute = row.recompute;
      std::optional<double> ours;
      if (row.sequence_parallel) ours = estimate_memory(r).activations;
      c.figures.push_back({{std::string(row.name)}, convention, printed, ours});
    }
  }
  return c;
}

// Presets of the GPUs in Table 5.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kPresets{
    {{"A100", "a100-8"}, {"A800", "a800"}, {"H800", "h800-8-nodes"}, {"H100", "h100-8"}, {"B200", "b200-8"}}};

// Returns the bytes per second that each rank receives in a large AllGather inside a node: of the gathered bytes,
// (n - 1) / n come from other ranks.
std::optional<double> gathered_bytes_per_s(const Profile& profile) {
  for (const CommRow& row : profile.comm)
    if (row.op == Op::allgather && row.network == Network::intra && row.ranks == profile.ranks_per_node)
      return (row.ranks - 1.0) / row.ranks / row.beta_s_per_byte;
  return std::nullopt;
}

Comparison bandwidths() {
  Comparison c{.caption = "bandwidth inside a node, one way (Table 5), and an AllGather's on 8 GPUs",
               .label_names = {"chip", "preset"},
               .quantity = {"bytes_per_s", "GB/s", 1e-9, 0}};
  for (const PrintedBandwidth& row : printed_monta_table5()) {
    const auto* preset = std::ranges::find(kPresets, row.chip, [](const auto& pair) { return pair.first; });
    const bool known = preset != kPresets.end();
    c.figures.push_back({{row.chip, known ? std::string(preset->second) : "-"},
                         "",
                         row.gb_per_s * 1e9,
                         known ? gathered_bytes_per_s(find_profile(std::string(preset->second))) : std::nullopt});
  }
  return c;
}

}  // namespace

Report monta_memory(Study&) {
  const Model model = find_model("moe-2x70b");
  const Profile profile = find_profile("a800");
  const MemoryRequest request = request_on(model, profile.nodes, profile.ranks_per_node);
  Report report{.key = "monta-memory",
                .title = "memory of a GPU, and bandwidth inside a node",
                .source = "MoNTA (2024), Tables 3 to 5."};
  report.comparisons = {states(model, request), activations(model, request), bandwidths()};
  report.shows = {
      "Table 3 has one d for both parts. Where EP lies inside DP, as on these 16 GPUs, the two ranks that share "
      "the non-MoE weights hold different experts: an expert has one replica, so that ZeRO shards none of its "
      "state. With d as the number of an expert's replicas the formula agrees.",
      "Non-MoE state is larger here because each TP rank has the gate, with its noise, and the norms whole, and a "
      "part of learned positions.",
      "Table 4 divides the scores, 5 a s / h, by no t, although TP splits the heads; corrected divides them. "
      "Counted is what the layer's own tensors need: 3.5 h instead of 4 h, three GEMMs, no dropout, each rank's own "
      "tokens (e times k / e), and rows that TP ranks gather whole, not over t.",
      "With one replica of an expert, no configuration fits the 80 GB of an A800: its experts' state alone is 113 GB. "
      "With Table 3's d = 2, ZeRO 3 would.",
      "An AllGather on 8 GPUs reaches 56 to 85 % of the bandwidth of Table 5. A800's is the line of Table 8, which "
      "is derived from these 200 GB/s and a printed efficiency; H800's is derived from H100's."};
  report.not_computable = {"Table 4's row without SP: the estimates' dense part always splits tokens over TP",
                           "B100 and H20: no preset"};
  report.conventions = {
      "configs/models/moe-2x70b, 80 layers, p = 1, t = 8, e = 2, d = 2; P1: attention, embedding and output "
      "projection; P2: experts; GB are 10^9 bytes.",
      "By construction: `memory --activations printed` evaluates Table 4's formulas, so it agrees wherever it has a "
      "row. Without parallelism it has t = e = 1.",
      "Ours of Table 5: (n - 1) / n over the preset's seconds per byte of an AllGather among n = 8."};
  return report;
}

}  // namespace moe::reproduce
