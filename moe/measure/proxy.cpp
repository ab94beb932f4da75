#include "moe/measure/proxy.h"

#include <algorithm>
#include <cmath>

#include "moe/base/check.h"

namespace moe {
namespace {

constexpr int64_t kModelDim = 64, kHeads = 4, kTokensASample = 32, kFewestRows = 4;

int two_if_more(int nominal) { return nominal > 1 ? 2 : 1; }

}  // namespace

Case proxy_case(const Case& nominal, int degree_forward, int degree_backward) {
  const ParallelShape& p = nominal.parallel;
  require<BadInput>(p.pp == 1, "pp: found {}, expected 1: pipeline stages can't be run yet", p.pp);
  ParallelShape parallel;
  parallel.ep_inside = p.ep_inside;
  parallel.nodes = kProxyNodes;
  parallel.ranks_per_node = kProxyRanksPerNode;
  parallel.mp = two_if_more(p.mp);
  parallel.ep = two_if_more(p.ep);
  parallel.esp = two_if_more(p.esp);
  LayerShape layer = nominal.layer;
  layer.model_dim = kModelDim;
  layer.heads = kHeads;
  layer.kv_heads = nominal.layer.kv_heads < nominal.layer.heads ? kHeads / 2 : kHeads;
  const double scale = static_cast<double>(nominal.layer.hidden) / static_cast<double>(nominal.layer.model_dim);
  layer.hidden = std::max<int64_t>(parallel.esp, std::llround(kModelDim * scale) / parallel.esp * parallel.esp);
  layer.experts = nominal.layer.experts / p.ep * parallel.ep;
  layer.top_k = std::min(nominal.layer.top_k, layer.experts);
  const double rows = static_cast<double>(std::max<int64_t>({degree_forward, degree_backward, kFewestRows}));
  const double tokens = rows * parallel.mp * static_cast<double>(layer.experts) /
                        (static_cast<double>(layer.top_k) * layer.capacity_factor.value_or(1.0));
  layer.seq = kTokensASample;
  layer.batch = static_cast<int64_t>(std::ceil(tokens / kTokensASample));
  const Rounding rounding = nominal.rounding == Rounding::exact ? Rounding::ragged : nominal.rounding;
  Case proxy = complete(layer, parallel, rounding);
  while (static_cast<double>(capacity_rows(proxy)) < rows) ++proxy.layer.batch;  // Tutel's rounds down
  return proxy;
}

Plan proxy_plan(const Plan& nominal, const Case& proxy) {
  Plan plan = nominal;
  plan.shape = proxy;
  plan.rows = capacity_rows(proxy);
  const Groups sizes = groups_of(proxy.parallel);
  for (size_t k = 0; k < sizes.size(); ++k)  // lanes follow the nominal networks
    if (plan.groups[k].network != Network::none) plan.groups[k].size = sizes[k].size;
  const int64_t bytes = gradient_bytes(proxy), grain = bytes_of(proxy.layer.dtype);
  for (GradientSlice& slice : plan.slices) {
    const double all = static_cast<double>(nominal.gradients[static_cast<size_t>(slice.gradient)].bytes);
    const auto scaled = [&](int64_t at) {
      return std::llround(static_cast<double>(at) / all * static_cast<double>(bytes / grain)) * grain;
    };
    slice.begin = scaled(slice.begin);
    slice.end = scaled(slice.end);
  }
  for (Gradient& gradient : plan.gradients) gradient.bytes = bytes;
  plan.works.clear();
  for (const WorkClass& wc : plan.structure->classes)
    plan.works.push_back(work_of(wc, proxy, plan.slices, plan.structure->flow));
  check_plan(plan);
  return plan;
}

}  // namespace moe
