#include "reproduce/published.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/base/units.h"
#include "moe/plan/volumes.h"
#include "reproduce/study.h"

namespace moe::reproduce {
namespace {

constexpr double kCurveTarget = 0.05;  // of the median error

// Returns "4.1 %": the largest difference of a dispatcher's layers under a convention.
std::string worst_of(const Comparison& c, std::string_view dispatcher, std::string_view convention) {
  double worst = 0;
  for (const Figure& f : c.figures)
    if (f.labels[1] == dispatcher && f.convention == convention)
      worst = std::max(worst, std::abs(*f.ours / *f.paper - 1));
  return percent(worst);
}

const PublishedLayer& layer_of(const std::vector<PublishedLayer>& layers, std::string_view model,
                               std::string_view dispatcher) {
  const auto found = std::ranges::find_if(
      layers, [&](const PublishedLayer& layer) { return layer.model == model && layer.dispatcher == dispatcher; });
  require<BadInput>(found != layers.end(), "published layers: found no {} {}, expected one", model, dispatcher);
  return *found;
}

double reached_by(const PublishedLayer& layer) {
  return places_reached(layer.experts, kNodeRanks, layer.ranks_of_a_token, layer.top_k);
}

// Returns the most bytes a second that dispatch would send off a rank of one node if its rows had 16 bits.
double fastest_dispatch() {
  double most = 0;
  for (const PublishedExchange& e : published_exchanges()) {
    if (e.nodes != 1) continue;
    const double copies = places_reached(e.experts, kNodeRanks, kNodeRanks, e.top_k) * (kNodeRanks - 1) / kNodeRanks;
    most = std::max(most, copies * e.tokens * e.model_dim * 2 / e.dispatch_s);
  }
  return most;
}

void say_of_deepep(Report& report, const Comparison& c) {
  const std::vector<PublishedLayer> layers = published_layers();
  const PublishedLayer &coarse = layer_of(layers, "mixtral", "deepep"), &beside = layer_of(layers, "mixtral", "a2a");
  const PublishedLayer& fine = layer_of(layers, "deepseek", "deepep");
  const PublishedExchange measured = published_exchanges().front();
  report.shows.push_back(fmt::format(
      "DeepEP sends a token once to each rank that has one of its experts: to {:.2f} of 8 where it was measured, to "
      "{:.2f} in DeepSeek's layer, whose router allows {}, to {:.2f} in Mixtral's. By the bytes of k copies, as a "
      "profile counts, the first layer is too dear and the second too cheap, by up to {}; by ranks reached the most is "
      "{}.",
      places_reached(measured.experts, kNodeRanks, kNodeRanks, measured.top_k), reached_by(fine), fine.ranks_of_a_token,
      reached_by(coarse), worst_of(c, "deepep", "preset"), worst_of(c, "deepep", "ranks reached")));
  report.conventions.push_back(fmt::format(
      "DeepEP's measured dispatch is taken as FP8: with 16 bits a rank would send up to {:.0f} GB/s, where NVLink has "
      "450. In 16 bits it moves what combine does, so that both exchanges have combine's time.",
      fastest_dispatch() / 1e9));
  const Profile deepep = find_profile(preset_of(coarse));
  const double forward = predicted_parts(coarse, deepep, Phase::forward, LayerPrice::ranks_reached).sum();
  const double backward = predicted_parts(coarse, deepep, Phase::backward, LayerPrice::ranks_reached).sum();
  report.unexplained.push_back(
      fmt::format("Mixtral with DeepEP takes {:.2f} ms more forward than by ranks reached (backward {:.2f}), and "
                  "{:.2f} ms more than "
                  "with NCCL (backward {:.2f}). A forward waits for the host, which must learn how many rows arrive; a "
                  "backward knows already.",
                  (coarse.forward_s - forward) * 1e3, (coarse.backward_s - backward) * 1e3,
                  (coarse.forward_s - beside.forward_s) * 1e3, (coarse.backward_s - beside.backward_s) * 1e3));
}

void say_of_layers(Report& report, const Comparison& c) {
  const std::vector<PublishedLayer> layers = published_layers();
  const PublishedLayer& fine = layer_of(layers, "deepseek", "a2a");
  const Profile preset = find_profile(preset_of(fine));
  const double as_gemms = predicted_parts(fine, preset, Phase::forward, LayerPrice::gemms).experts;
  report.shows.push_back(
      fmt::format("Layers with NCCL's AlltoAll are within {} by the preset as it is. The preset has a row of Mixtral's "
                  "experts, measured with up to 4096 rows each. By its GEMM row, a line through shapes of all sizes, "
                  "these experts take {:.0f} % longer.",
                  worst_of(c, "a2a", "preset"),
                  100 * (as_gemms / predicted_parts(fine, preset, Phase::forward, LayerPrice::preset).experts - 1)));
  report.conventions.push_back(fmt::format(
      "DeepSeek's shared expert is not counted: the test (Megatron-LM, moe_perf/__main__.py at 00caa53af3) does not "
      "hand its size to the layer. It would take {:.2f} ms forward and {:.2f} backward.",
      shared_expert_s(fine, preset, Phase::forward) * 1e3, shared_expert_s(fine, preset, Phase::backward) * 1e3));
  say_of_deepep(report, c);
  report.unexplained.emplace_back(
      "Forward passes with NCCL come out a few percent too fast, because an order at the data sheet's bandwidth is a "
      "bound, and because the router's softmax, top-k and indices have no price.");
}

void say_of_trace(Report& report, const Comparison& c) {
  double compute = 0;
  for (const TraceTask& task : published_trace())
    if (task.stream == "compute" || task.stream == "wgrad") compute += task.seconds;
  const Figure &on_compute = c.figures.front(), &apart = c.figures.back();
  report.shows.push_back(fmt::format(
      "The trace's computations one after another take {:.1f} ms, {:.1f} ms less than the replay: the order hides all "
      "other exchanges. Durations are of the same iteration, so this checks structure, no cost.",
      kTraceLayers * compute * 1e3, (*on_compute.ours - kTraceLayers * compute) * 1e3));
  report.unexplained.push_back(
      fmt::format("Some weight gradients of the trace are on a stream of their own. With a lane of their own the "
                  "simulation is {} off, so they would have to slow the kernels that run beside them.",
                  difference(apart.ours, apart.paper)));
}

// Returns the two neighbouring sizes of a curve of which the larger one is the most times faster.
std::pair<PublishedCollective, PublishedCollective> deepest_fall(std::vector<PublishedCollective> samples) {
  std::ranges::sort(samples, {}, [](const PublishedCollective& s) { return std::tie(s.gpu, s.op, s.ranks, s.bytes); });
  size_t deepest = 0;
  double most = 0;
  for (size_t i = 0; i + 1 < samples.size(); ++i) {
    if (samples[i + 1].bytes < samples[i].bytes) continue;  // another curve
    const double fall = samples[i].seconds / samples[i + 1].seconds;
    if (fall > most) most = fall, deepest = i;
  }
  return {samples.at(deepest), samples.at(deepest + 1)};
}

void say_of_curves(Report& report, const std::vector<CurveErrors>& errors) {
  double worst_median = 0;
  const CurveErrors* worst = &errors.front();
  const auto most = [](const CurveErrors& e) { return *std::ranges::max_element(e.pieces); };
  for (const CurveErrors& e : errors) {
    worst_median = std::max(worst_median, median(e.pieces));
    if (most(e) > most(*worst)) worst = &e;
  }
  report.shows.push_back(
      fmt::format("On pieces the median error of held-out sizes is {:.1f} % at most, {} the 5 % that is aimed at.",
                  100 * worst_median, worst_median <= kCurveTarget ? "within" : "above"));
  const auto [before, after] = deepest_fall(published_collectives());
  report.unexplained.push_back(fmt::format(
      "The worst sizes are off by up to {:.0f} % ({} {}). Measured curves jump, down too: {}'s {} over {} ranks takes "
      "{:.1f} us for {} and {:.1f} us for {}. A curve that never falls cannot follow such jumps.",
      100 * most(*worst), worst->gpu, worst->op, before.gpu, before.op, before.ranks, before.seconds * 1e6,
      human_bytes(before.bytes), after.seconds * 1e6, human_bytes(after.bytes)));
}

}  // namespace

Report published(Study&) {
  Report report{.key = "published",
                .title = "what others measured on real clusters",
                .source =
                    "Megatron-LM's tests (baseline.json, commit d98e8a64dd); deepseek-ai/profile-data, train.json; "
                    "AIConfigurator's nccl-tests and GEMMs (commit 095f58a51c). 'Paper' is what they measured."};
  report.comparisons = {published_layer_times(), trace_times()};
  const std::vector<CurveErrors> errors = curve_errors(published_collectives());
  report.tables = {curve_table(errors)};
  report.conventions = {
      "Layers: gate, order, dispatch, experts, combine and the order back in sequence, priced by the preset h100-8 or, "
      "of DeepEP, h100-deepep-1-node; none of their rows knows a layer's time. A backward's experts are twice the "
      "FLOPs; its exchanges are the forward's. An order reads and writes its rows at the data sheet's 3.35 TB/s.",
      "Experts as GEMMs: without the preset's expert row. Ranks reached: DeepEP's bytes by the copies that it sends, "
      "relative to those where it was measured.",
      "Trace: lanes as DualPipe has them (DeepSeek-V3, Figure 4): MLP backward, its weight gradients, MLP forward, "
      "attention backward, its weight gradients, attention forward; beside them dispatch forward, dispatch backward, "
      "combine forward, combine backward. Weight gradients of the trace's other stream are on the compute lane or "
      "have one of their own.",
      "Curves: every size is held out in turn, errors over groups of 2, 4 and 8 ranks together; relative least "
      "squares; "
      "at most 6 pieces, as many as do best on the other sizes."};
  say_of_layers(report, report.comparisons[0]);
  say_of_trace(report, report.comparisons[1]);
  say_of_curves(report, errors);
  return report;
}

}  // namespace moe::reproduce
