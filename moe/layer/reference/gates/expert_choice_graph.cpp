#include <ATen/ATen.h>
#include <algorithm>
#include <numeric>

#include "moe/layer/gates/expert_choice.h"
#include "moe/layer/reference/detail/gate_graph.h"
#include "moe/layer/reference/detail/graph_terms.h"
#include "moe/shape/volumes.h"

namespace moe {
namespace {

// Returns the tokens that expert e takes, of the group that begins with token `first`; preferred ones if as good.
std::vector<int64_t> taken(const GateGraphInputs& in, const at::Tensor& scores, int64_t first, int64_t e) {
  const int64_t group = tokens_of_group(in.shape), experts = scores.size(1);
  const auto rows = static_cast<size_t>(std::min(group, capacity_rows(in.shape)));
  const double* data = scores.const_data_ptr<double>();
  const auto score = [&](int64_t token) { return data[token * experts + e]; };
  std::vector<int64_t> own(group);
  std::iota(own.begin(), own.end(), first);
  const auto better = [&](int64_t a, int64_t b) { return score(a) > score(b); };
  std::stable_sort(own.begin(), own.end(), better);
  own.resize(rows);
  if (in.preferred.empty()) return own;
  std::vector<int64_t> other;
  for (int64_t token = first; token < first + group; ++token)
    if (in.preferred[token * experts + e] == e) other.push_back(token);
  std::stable_sort(other.begin(), other.end(), better);
  const double margin = in.tie * scores.max().item<double>();
  const auto nearly = [&](int64_t a, int64_t b) { return score(a) >= score(b) - margin; };
  const bool is_as_good = std::equal(other.begin(), other.end(), own.begin(), own.end(), nearly);
  return is_as_good ? other : own;
}

GateGraph graph(const GateGraphInputs& in) {
  const at::Tensor logits = logits_of(in);
  GateGraph out;
  out.choices = logits.size(1);
  out.weight = softmax_of(logits, 1);
  out.expert.assign(logits.numel(), -1);
  out.row = out.expert;
  const at::Tensor scores = out.weight.detach().contiguous();
  for (int64_t first = 0; first < logits.size(0); first += tokens_of_group(in.shape))
    for (int64_t e = 0; e < out.choices; ++e) {
      int32_t row = 0;
      for (const int64_t token : taken(in, scores, first, e)) {
        const auto pair = static_cast<size_t>(token * out.choices + e);
        out.expert[pair] = static_cast<int32_t>(e);
        out.row[pair] = row++;
      }
    }
  if (in.shape.layer.z_loss > 0) out.auxiliary = z_loss(in, logits);
  return out;
}

}  // namespace

const AutogradGate kExpertChoiceReference{logit_weights, graph};

}  // namespace moe
