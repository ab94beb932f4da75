#include "moe/measure/layers/proxy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "moe/base/check.h"
#include "moe/layer/layer_device.h"

namespace moe::measure {
namespace {

constexpr int64_t kModelDim = 64, kHeads = 4, kTokensASample = 32, kFewestRows = 4;

int two_if_more(int nominal) { return nominal > 1 ? 2 : 1; }

// Returns the largest multiple of `step` up to `width`, but at least one.
int64_t whole_steps(int64_t width, int64_t step) { return std::max(step, width / step * step); }

// Returns a case of `parallel`'s sizes and few tokens, in the proportions of `nominal`.
LayerCase shrunk(const LayerCase& nominal, const ParallelShape& parallel, int fewest_rows) {
  LayerShape layer = nominal.layer;
  layer.heads = std::max<int64_t>(kHeads, parallel.mp);
  layer.kv_heads =
      nominal.layer.kv_heads < nominal.layer.heads ? std::max<int64_t>(layer.heads / 2, parallel.mp) : layer.heads;
  const int64_t block = block_of(layer.ffn), width = kModelDim / kHeads * layer.heads;
  layer.model_dim = whole_steps(width, std::lcm(layer.heads, block));
  // Heads that are wider together than M, or narrower, stay so; rotary positions need even widths.
  const int64_t wide = attention_width(nominal.layer) * layer.model_dim / (nominal.layer.model_dim * layer.heads);
  if (layer.head_dim > 0) layer.head_dim = whole_steps(wide, 2);
  const double scale = static_cast<double>(nominal.layer.hidden) / static_cast<double>(nominal.layer.model_dim);
  const auto hidden = std::llround(static_cast<double>(layer.model_dim) * scale);
  layer.hidden = whole_steps(hidden, block * parallel.esp);
  const auto shared = std::llround(static_cast<double>(nominal.layer.shared_hidden * layer.hidden) /
                                   static_cast<double>(nominal.layer.hidden));
  if (nominal.layer.shared_hidden > 0) layer.shared_hidden = whole_steps(shared, block * parallel.mp);
  layer.experts = nominal.layer.experts / nominal.parallel.ep * parallel.ep;
  layer.top_k = std::min(nominal.layer.top_k, layer.experts);
  layer.node_limit = 0;  // of more nodes than these
  const auto rows = static_cast<double>(std::max<int64_t>(fewest_rows, kFewestRows));
  const double tokens = rows * parallel.mp * static_cast<double>(layer.experts) /
                        (static_cast<double>(layer.top_k) * layer.capacity_factor.value_or(1.0));
  layer.seq = kTokensASample;
  layer.batch = static_cast<int64_t>(std::ceil(tokens / kTokensASample));
  const Rounding rounding = nominal.rounding == Rounding::exact ? Rounding::ragged : nominal.rounding;
  LayerCase small = complete(layer, parallel, rounding);
  while (static_cast<double>(capacity_rows(small)) < rows) ++small.layer.batch;  // Tutel's rounds down
  small.row_multiple = nominal.row_multiple;
  return small;
}

// Returns a hidden size that MP shards, in the proportions of the experts'.
int64_t shrunk_hidden(int64_t hidden, const LayerCase& nominal, const LayerCase& small) {
  const auto shrunk =
      std::llround(static_cast<double>(hidden * small.layer.hidden) / static_cast<double>(nominal.layer.hidden));
  return whole_steps(shrunk, block_of(small.layer.ffn) * small.parallel.mp);
}

int64_t proxy_bytes(const Plan& proxy, const LayerCases& cases, const Gradient& gradient) {
  const LayerCase& c = cases.of(gradient.layer);
  if (proxy.vocabulary > 0 && proxy.is_end(gradient.layer)) {
    const StepWeights& end = gradient.layer < 0 ? proxy.ends.embedding : proxy.ends.head;
    return gradient.alike ? end_norm_bytes(c, end) : end_gradient_bytes(c, end);
  }
  if (gradient.experts) return expert_gradient_bytes(c);
  return gradient.alike ? stage_gradient_bytes(c) : gradient_bytes(c);
}

}  // namespace

LayerCase proxy_case(const LayerCase& nominal, int degree_forward, int degree_backward) {
  const ParallelShape& p = nominal.parallel;
  ParallelShape parallel;
  parallel.ep_inside = p.ep_inside;
  parallel.recompute = p.recompute;
  parallel.zero = p.zero;
  parallel.nodes = kProxyNodes * p.pp;
  parallel.pp = p.pp;
  parallel.ranks_per_node = kProxyRanksPerNode;
  parallel.mp = two_if_more(p.mp);
  parallel.ep = two_if_more(p.ep);
  parallel.esp = two_if_more(p.esp);
  return shrunk(nominal, parallel, std::max(degree_forward, degree_backward));
}

LayerCase small_case(const LayerCase& nominal, int degree_forward, int degree_backward) {
  return shrunk(nominal, nominal.parallel, std::max(degree_forward, degree_backward));
}

double reference_flops(const LayerCase& shape) {
  const LayerShape& layer = shape.layer;
  const auto m = static_cast<double>(layer.model_dim), h = static_cast<double>(layer.hidden);
  const auto seq = static_cast<double>(layer.seq), tokens = static_cast<double>(layer.batch) * seq * shape.parallel.dp;
  const auto heads = static_cast<double>(attention_width(layer));
  const double attention = 4 * m * heads + 2 * seq * heads;
  const double experts =
      static_cast<double>(layer.top_k) * layer.capacity_factor.value_or(1) * gemms_of(layer.ffn) * m * h;
  const double shared = gemms_of(layer.ffn) * m * static_cast<double>(layer.shared_hidden);
  return 3 * kFlopsPerMac * tokens * (attention + experts + shared);  // a backward is twice a forward
}

Plan proxy_plan(const Plan& nominal, const LayerCase& proxy, int64_t vocabulary) {
  Plan plan = nominal;
  plan.shape = proxy;
  plan.rows = padded_rows(proxy);
  if (nominal.vocabulary > 0) {
    plan.vocabulary = vocabulary;
    plan.ends = end_weights(proxy, vocabulary, plan.step.tied);
  }
  const Groups sizes = groups_of(proxy.parallel);
  for (size_t k = 0; k < sizes.size(); ++k)  // lanes follow the nominal networks
    if (plan.groups[k].network != Network::none && sizes[k].size > 1) plan.groups[k].size = sizes[k].size;
  if (plan.dense.hidden > 0) plan.dense.hidden = shrunk_hidden(plan.dense.hidden, nominal.shape, proxy);
  const LayerCases cases(plan.shape, plan.dense);
  const int64_t grain = bytes_of(proxy.layer.dtype);
  for (Gradient& gradient : plan.gradients) gradient.bytes = proxy_bytes(plan, cases, gradient);
  for (GradientSlice& slice : plan.slices) {
    if (plan.gradients[static_cast<size_t>(slice.gradient)].alike) {  // whole, over all layers of a stage
      slice.end = 0;
      for (auto g = static_cast<size_t>(slice.gradient); g < plan.gradients.size(); ++g) {
        const bool end = plan.is_end(plan.gradients[g].layer);
        if (!plan.gradients[g].alike || (g > static_cast<size_t>(slice.gradient) && end)) break;
        slice.end += plan.gradients[g].bytes;
      }
      continue;
    }
    const auto scaled = [&](int64_t at) {  // the gradients that it passes whole, and its share of the last
      int64_t passed = 0;
      for (auto g = static_cast<size_t>(slice.gradient);; ++g) {
        const int64_t all = nominal.gradients[g].bytes, bytes = plan.gradients[g].bytes;
        if (at > all && g + 1 < plan.gradients.size()) {
          at -= all;
          passed += bytes;
          continue;
        }
        const double share = static_cast<double>(at) / static_cast<double>(all);
        return passed + std::llround(share * static_cast<double>(bytes / grain)) * grain;
      }
    };
    slice.begin = scaled(slice.begin);
    slice.end = scaled(slice.end);
  }
  set_works(plan);
  check_plan(plan);
  return plan;
}

std::string proxy_ranks() { return fmt::format("{} x {} threads", kProxyNodes, kProxyRanksPerNode); }

Plan emulated_plan(const Plan& nominal, DeviceKind device, int64_t vocabulary) {
  LayerCase proxy = proxy_case(nominal.shape, nominal.degree_forward, nominal.degree_backward);
  DType& dtype = proxy.layer.dtype;
  if (!computes_in(device, dtype)) dtype = sums_type(dtype);
  return proxy_plan(nominal, proxy, vocabulary);
}

Plan proving_plan(const Plan& nominal, int64_t vocabulary) {
  return proxy_plan(nominal, small_case(nominal.shape, nominal.degree_forward, nominal.degree_backward), vocabulary);
}

}  // namespace moe::measure
