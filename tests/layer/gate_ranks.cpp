#include "tests/layer/gate_ranks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace moe {
namespace {

// A float64 tensor over somebody's memory.
at::Tensor wrap(TensorView t) {
  std::vector<int64_t> shape;
  for (int axis = 0; axis < t.rank(); ++axis) shape.push_back(t.size(axis));
  return at::from_blob(t.data(), shape, at::kDouble);
}

// The rows of the tokens that a rank gates.
at::Tensor gated(const RankShape& shape, const at::Tensor& all) {
  std::vector<at::Tensor> runs;
  for (const ShardRange& run : shape.gated) runs.push_back(all.narrow(0, run.first, run.count));
  return at::cat(runs).contiguous();
}

// Calls body(gated token, global token).
template <class Body>
void for_each_token(const RankShape& shape, Body body) {
  int64_t at = 0;
  for (const ShardRange& run : shape.gated)
    for (int64_t i = 0; i < run.count; ++i) body(at++, run.first + i);
}

TensorView view(const at::Tensor& t) { return {t.mutable_data_ptr(), {t.size(0), t.size(1)}, DType::float64}; }

}  // namespace

GateRanks::GateRanks(const LayerCase& shape, Flow flow, const LayerSeed& seed) {
  for (int r = 0; r < shape.parallel.ranks(); ++r) {
    Rank& rank = ranks_.emplace_back();
    rank.shape = rank_shape(shape, r, flow);
    rank.routing = make_routing(rank.shape);
    rank.gate = find_gate(shape.layer.gate).make({rank.shape, seed});
  }
}

void GateRanks::set_weight(const std::string& name, const at::Tensor& values) {
  for (const Rank& rank : ranks_)
    for (const Parameter& p : rank.gate->parameters())
      if (p.name == name) wrap(p.value.flat()).copy_(values);
}

at::Tensor GateRanks::weight(const std::string& name) const {
  for (const Parameter& p : ranks_.front().gate->parameters())
    if (p.name == name) return wrap(p.value.flat()).clone();
  throw WrongResult("no weight " + name);
}

void GateRanks::preset(const std::vector<int32_t>& experts) {
  for (Rank& rank : ranks_) {
    const int64_t k = rank.routing.choices;
    for_each_token(rank.shape, [&](int64_t t, int64_t token) {
      std::copy_n(experts.begin() + token * k, k, rank.routing.expert.begin() + t * k);
    });
    rank.routing.preset = true;
  }
}

GateResult GateRanks::run(const at::Tensor& hidden, const GateLoss& loss) {
  GateResult all;
  const int64_t tokens = hidden.size(0), choices = ranks_.front().routing.choices;
  all.expert.assign(tokens * choices, -2);
  all.row = all.expert;
  all.weight = at::zeros({tokens, choices}, at::kDouble);
  if (ranks_.front().routing.mixes()) all.fill = at::zeros_like(all.weight);
  all.d_hidden = at::zeros_like(hidden);
  for (Rank& rank : ranks_) forward(rank, hidden, all);
  sum_statistics();
  all.auxiliary = ranks_.front().gate->auxiliary_loss();
  for (Rank& rank : ranks_) {
    EXPECT_EQ(rank.gate->auxiliary_loss(), all.auxiliary);
    backward(rank, hidden, loss, all);
  }
  const int copies = ranks_.front().shape.stage_copies();
  all.d_hidden /= copies;
  for (auto& [name, gradient] : all.d_weights) gradient /= copies;
  return all;
}

void GateRanks::forward(Rank& rank, const at::Tensor& hidden, GateResult& all) {
  Routing& r = rank.routing;
  const at::Tensor own = gated(rank.shape, hidden);
  rank.gate->forward(view(own), r);
  const auto agree = [](int32_t& value, int32_t found) {
    EXPECT_TRUE(value == -2 || value == found) << "ranks that gate the same token";
    value = found;
  };
  for_each_token(rank.shape, [&](int64_t t, int64_t token) {
    for (int64_t c = 0; c < r.choices; ++c) {
      const auto pair = static_cast<size_t>(t * r.choices + c), global = static_cast<size_t>(token * r.choices + c);
      agree(all.expert[global], r.expert[pair]);
      agree(all.row[global], r.row[pair]);
    }
    all.weight[token] = wrap(r.weight)[t];
    if (r.mixes()) all.fill[token] = wrap(r.fill)[t];
  });
}

void GateRanks::sum_statistics() {
  if (ranks_.front().gate->statistics().data() == nullptr) return;
  at::Tensor sum = wrap(ranks_.front().gate->statistics()).clone();
  for (size_t r = 1; r < ranks_.size(); ++r) sum += wrap(ranks_[r].gate->statistics());
  for (const Rank& rank : ranks_) wrap(rank.gate->statistics()).copy_(sum);
}

void GateRanks::backward(Rank& rank, const at::Tensor& hidden, const GateLoss& loss, GateResult& all) {
  const Routing& r = rank.routing;
  const double share = 1.0 / rank.shape.gate_copies();
  const at::Tensor own = gated(rank.shape, hidden), d_weight = gated(rank.shape, loss.d_weight) * share;
  for (size_t pair = 0; pair < r.row.size(); ++pair)
    if (r.row[pair] == Routing::kDropped) d_weight.mutable_data_ptr<double>()[pair] = 0;
  const at::Tensor d_fill = r.mixes() ? gated(rank.shape, loss.d_fill) * share : at::Tensor();
  const at::Tensor before = at::randn(own.sizes(), at::kDouble), d_hidden = before.clone();
  for (const Parameter& p : rank.gate->parameters()) wrap(p.gradient.flat()).fill_(NAN);
  rank.gate->backward({view(own), r, view(d_weight), r.mixes() ? view(d_fill) : TensorView(), view(d_hidden), share});
  for_each_token(rank.shape, [&](int64_t t, int64_t token) { all.d_hidden[token] += d_hidden[t] - before[t]; });
  for (const Parameter& p : rank.gate->parameters()) {
    at::Tensor& sum = all.d_weights[p.name];
    if (!sum.defined()) sum = at::zeros({p.gradient.elements()}, at::kDouble);
    sum += wrap(p.gradient.flat());
  }
}

}  // namespace moe
