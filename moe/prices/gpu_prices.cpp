#include "moe/prices/gpu_prices.h"

#include <algorithm>
#include <cmath>

namespace moe {
namespace {

// Rows and columns of a tile; bytes of a 16-bit number, of a float32.
constexpr double kTile = 128, kBytes = 2, kFloat = 4;
constexpr double kSumBytes = 2 * kFloat;  // traffic of a float32 sum: one read, one write
// FLOPs of the backward over those of the forward: five products instead of two.
constexpr double kBackwardScores = 2.5;
// Memory traffic of element-wise operations: numbers read and written per element, {forward, backward}.
constexpr double kNorm[] = {2, 3}, kResidual[] = {3, 3}, kRotary[] = {2, 2};  // forward, backward
constexpr double kTogether = 2;                                               // copying columns to be adjacent
constexpr double kGated[] = {3, 5}, kPlain[] = {2, 3};                        // activation, per element of H
constexpr double kRouter = 6;       // softmax, top-k and counts of float32 logits, in each phase
constexpr double kLoss[] = {3, 2};  // float32 logits: maximum, sum and target; gradient

size_t at(Phase phase) { return phase == Phase::backward ? 1 : 0; }

double interpolated(const Points& points, double x) {
  if (x <= points.front()[0]) return points.front()[1];
  for (size_t i = 1; i < points.size(); ++i) {
    const auto [x1, y1] = points[i];
    const auto [x0, y0] = points[i - 1];
    if (x <= x1) return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
  }
  return points.back()[1];
}

}  // namespace

double GpuPrices::gemm_seconds(const GemmShape& g) const {
  const double tiles = g.groups * std::ceil(g.m / kTile) * std::ceil(g.n / kTile);
  const double flops = kFlopsPerMac * kTile * kTile * g.k * gpu_.multiprocessors;  // FLOPs of a wave
  const double wave = flops / (gpu_.tensor_flops_per_s * (g.experts ? gpu_.grouped_share : gpu_.gemm_share)) +
                      (g.experts ? gpu_.grouped_tile_s : gpu_.gemm_tile_s);
  const double bytes = g.groups * (kBytes * (g.m * g.k + g.k * g.n) + g.out_bytes * g.m * g.n);
  return std::max(std::ceil(tiles / gpu_.multiprocessors) * wave, traffic_seconds(bytes));
}

std::optional<double> GpuPrices::attention_rate(int64_t head_dim, Phase phase, double seq) const {
  const AttentionRate* nearest = nullptr;
  const auto ratio = [&](const AttentionRate& row) {
    return static_cast<double>(std::max(row.head_dim, head_dim)) /
           static_cast<double>(std::min(row.head_dim, head_dim));
  };
  for (const AttentionRate& row : gpu_.attention) {
    if (row.phase != phase) continue;
    const bool larger = nearest != nullptr && row.head_dim > nearest->head_dim;
    if (nearest == nullptr || ratio(row) < ratio(*nearest) || (ratio(row) == ratio(*nearest) && larger)) nearest = &row;
  }
  if (nearest == nullptr) return std::nullopt;
  return interpolated(nearest->flops_per_s, seq);
}

// Returns the seconds of the product of `rows` rows with weights (in, out); of a backward: of the gradients of both
// factors.
double GpuPrices::linear_seconds(double rows, double in, double out, Phase phase) const {
  if (phase == Phase::forward) return gemm_seconds({rows, out, in});
  return gemm_seconds({rows, in, out}) + gemm_seconds({in, out, rows, 1, kSumBytes});
}

double GpuPrices::scores_seconds(Phase phase, double seq) const {
  const LayerShape& l = shape_.layer;
  const double flops = scores_flops(shape_) * (l.causal ? 0.5 : 1) * (phase == Phase::backward ? kBackwardScores : 1);
  const double as_gemms = gpu_.tensor_flops_per_s * gpu_.gemm_share;
  // Mean of both widths, because a kernel's rate depends on the FLOPs per pair of tokens.
  const int64_t width = (head_width(l) + value_width(l)) / 2;
  return flops / attention_rate(width, phase, seq).value_or(as_gemms);
}

// Returns the seconds of latent attention without its scores: one GEMM per projection, the norms of both latents, the
// rotation of the heads' rotary parts and of the shared key, and the concatenation of each key's two parts.
double GpuPrices::latent_seconds(Phase phase) const {
  const LayerShape& l = shape_.layer;
  const Heads heads = max_heads(shape_);
  const auto tokens = static_cast<double>(mp_tokens(shape_));
  double seconds = 0;
  for (const Projection& p : projections(l, heads))
    if (p.in > 0) seconds += linear_seconds(tokens, static_cast<double>(p.in), static_cast<double>(p.out), phase);
  const auto latents = static_cast<double>(l.q_lora_rank + l.kv_lora_rank);
  const auto rotated = static_cast<double>(l.rope_theta > 0 ? (heads.query + 1) * l.qk_rope_head_dim : 0);
  const auto keys = static_cast<double>(head_columns(l, heads).key);
  return seconds + traffic_seconds(kBytes * tokens *
                                   (latents * kNorm[at(phase)] + rotated * kRotary[at(phase)] + keys * kTogether));
}

double GpuPrices::attention_seconds(Phase phase) const {
  const LayerShape& l = shape_.layer;
  const HeadColumns columns = max_columns(shape_);
  const double tokens = static_cast<double>(mp_tokens(shape_)), dim = static_cast<double>(l.model_dim);
  const auto query = static_cast<double>(columns.query), key = static_cast<double>(columns.key);
  const double norms = l.norm == Norm::none ? 0 : 2 * kNorm[at(phase)];
  const double own = tokens / shape_.parallel.mp * dim * (norms + (l.residual ? 2 * kResidual[at(phase)] : 0));
  if (is_latent(l))
    return latent_seconds(phase) + scores_seconds(phase, static_cast<double>(l.seq)) + traffic_seconds(kBytes * own);
  const double rotary = l.rope_theta > 0 ? tokens * (query + key) * kRotary[at(phase)] : 0;
  return linear_seconds(tokens, dim, query + 2 * key, phase) + linear_seconds(tokens, query, dim, phase) +
         scores_seconds(phase, static_cast<double>(l.seq)) + traffic_seconds(kBytes * (own + rotary));
}

double GpuPrices::gate_seconds(Phase phase, double tokens) const {
  const auto experts = static_cast<double>(shape_.layer.experts);
  return linear_seconds(tokens, static_cast<double>(shape_.layer.model_dim), experts, phase) +
         traffic_seconds(kRouter * kFloat * tokens * experts);
}

// Returns the seconds of feed-forwards of hidden width `hidden`. Of `gemm`, only these fields are used: m: rows of each
// feed-forward; groups: number of feed-forwards; experts: whether grouped kernels compute them.
double GpuPrices::ffn_seconds(Phase phase, double hidden, GemmShape gemm) const {
  const auto dim = static_cast<double>(shape_.layer.model_dim);
  const bool gated = is_gated(shape_.layer.ffn);
  const double rows = gemm.m, wide = gated ? 2 * hidden : hidden;
  const auto product = [&](double m, double n, double k, double out_bytes) {
    gemm.m = m;
    gemm.n = n;
    gemm.k = k;
    gemm.out_bytes = out_bytes;
    return gemm_seconds(gemm);
  };
  const double passes = gated ? kGated[at(phase)] : kPlain[at(phase)];
  const double activation = traffic_seconds(kBytes * gemm.groups * rows * hidden * passes);
  if (phase == Phase::forward)
    return product(rows, wide, dim, kBytes) + product(rows, dim, hidden, kBytes) + activation;
  return product(rows, hidden, dim, kBytes) + product(rows, dim, wide, kBytes) + product(hidden, dim, rows, kSumBytes) +
         product(dim, wide, rows, kSumBytes) + activation;
}

std::optional<PriceCurve> GpuPrices::curve(TaskKind kind, Phase phase, const Work& work) const {
  const LayerShape& l = shape_.layer;
  const auto dim = static_cast<double>(l.model_dim);
  const double passes = phase == Phase::backward ? 2 : 1;
  switch (kind) {
    case TaskKind::attention:
      return PriceCurve{attention_seconds(phase)};
    case TaskKind::gate:
      return PriceCurve{
          gate_seconds(phase, work.flops / (passes * kFlopsPerMac * dim * static_cast<double>(l.experts)))};
    case TaskKind::shared:
    case TaskKind::ffn:
      return PriceCurve{ffn_seconds(phase, static_cast<double>(l.shared_hidden) / shape_.parallel.mp,
                                    {.m = static_cast<double>(mp_tokens(shape_))})};
    case TaskKind::order:
    case TaskKind::i_order:  // each token and each of its k rows is read or written once
      return PriceCurve{0, traffic_seconds(1 + 1 / static_cast<double>(choices_of(shape_)))};
    case TaskKind::expert:
      break;
    default:
      return std::nullopt;
  }
  const double hidden = static_cast<double>(l.hidden) / shape_.parallel.esp;
  const auto experts = static_cast<double>(l.experts / shape_.parallel.ep);
  const double rows = work.flops / (passes * kFlopsPerMac * gemms_of(l.ffn) * dim * hidden * experts);
  const auto seconds = [&](double m) {
    return ffn_seconds(phase, hidden, {.m = m, .groups = experts, .experts = true});
  };
  PriceCurve price{};
  constexpr int kHalvings = 5;
  for (int i = kHalvings; i >= 0; --i) {
    const double share = std::ldexp(1.0, -i);
    price.knots.push_back({share * work.flops, seconds(share * rows)});
  }
  price.alpha = std::min(seconds(1), price.knots.front()[1]);
  price.beta = price.knots.back()[1] / work.flops;
  return price;
}

double GpuPrices::head_seconds(Phase phase, const Work& work) const {
  const double tokens = static_cast<double>(mp_tokens(shape_));
  const auto dim = static_cast<double>(shape_.layer.model_dim);
  const double words = work.flops / (kFlopsPerMac * (phase == Phase::backward ? 2 : 1) * tokens * dim);
  return linear_seconds(tokens, dim, words, phase) + traffic_seconds(kLoss[at(phase)] * kFloat * tokens * words);
}

}  // namespace moe
