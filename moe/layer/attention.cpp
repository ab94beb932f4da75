#include "moe/layer/attention.h"

#include <array>
#include <cmath>
#include <fmt/format.h>
#include <optional>

#include "moe/layer/norm.h"
#include "moe/tensor/attention_heads.h"
#include "moe/tensor/element.h"
#include "moe/tensor/host_copy.h"
#include "moe/tensor/tensor.h"

namespace moe {
namespace {

// Returns (L / N_CP, d), of a part of the samples fewer: cosines and sines of place theta^(-2 j / d), of all j below
// d / 2, for the rank's places.
Tensor rotary_turns(const RankShape& rank, Math& math) {
  const LayerShape& layer = rank.shape.layer;
  const int64_t d = rank.head_dim, tokens = layer.seq / rank.shape.parallel.cp / layer.parts;
  const int64_t first = rank.mp_group().first;
  Tensor turns({tokens, d}, sums_type(layer.dtype), math.memory());
  const HostCopy host(turns, math.memory());
  with_element(host.view().dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* row = host.view().as<T>();
    for (int64_t token = 0; token < tokens; ++token, row += d)
      for (int64_t j = 0; j < d / 2; ++j) {
        const int64_t place = in_samples(rank.shape, first + token) % layer.seq;
        const double angle = static_cast<double>(place) *
                             std::pow(layer.rope_theta, -2.0 * static_cast<double>(j) / static_cast<double>(d));
        row[j] = static_cast<T>(std::cos(angle));
        row[j + d / 2] = static_cast<T>(std::sin(angle));
      }
  });
  host.send();
  return turns;
}

class ShardedAttention final : public Attention {
 public:
  explicit ShardedAttention(const PartSetup& setup)
      : math_(setup.math),
        memory_(setup.memory),
        model_dim_(setup.rank.model_dim()),
        shares_(setup.rank.shape.parallel.cp > 1),
        columns_(of_heads(setup.rank.heads, setup.rank.head_dim)),
        kv_columns_(of_heads(setup.rank.heads, setup.rank.head_dim, queries_of(setup))),
        heads_(math_.make_heads({.tokens = setup.rank.mp_tokens(),
                                 .seq = setup.rank.shape.layer.seq,
                                 .heads = setup.rank.heads.count,
                                 .kv_heads = setup.rank.heads.count / queries_of(setup),
                                 .dim = setup.rank.head_dim,
                                 .dtype = setup.rank.dtype(),
                                 .recompute = setup.rank.shape.parallel.recompute != Recompute::none,
                                 .causal = setup.rank.shape.layer.causal,
                                 .window = setup.rank.shape.layer.window,
                                 .ranks = setup.rank.shape.parallel.cp,
                                 .rank = place_in(setup.rank.shape.parallel, GroupKind::cp, setup.rank.rank),
                                 .parts = static_cast<int>(setup.rank.shape.layer.parts),
                                 .part = setup.rank.shape.part,
                                 .rank_stride = 2 * setup.rank.mp_tokens() * kv_columns_.count},
                                memory_.of(Lifetime::kept))) {
    const DType dtype = setup.rank.dtype();
    wq_ = setup.weight(kWq, {model_dim_, columns_.count}, dtype);
    wk_ = setup.weight(kWk, {model_dim_, kv_columns_.count}, dtype);
    wv_ = setup.weight(kWv, {model_dim_, kv_columns_.count}, dtype);
    wo_ = setup.weight(kWo, {columns_.count, model_dim_}, dtype);
    const auto make = [&](Lifetime lifetime, std::string_view name, const ShardRange& columns) {
      return memory_.of(lifetime).tensor(name, {setup.rank.mp_tokens(), columns.count}, dtype, math_.memory());
    };
    q_ = make(Lifetime::kept, "q", columns_);
    make_keys_values(setup, Phase::forward, Lifetime::kept, Lifetime::dense_forward);
    const bool whole = setup.rank.shape.layer.parts == 1;  // else parts behind add to the gradients before
    make_keys_values(setup, Phase::backward, whole ? Lifetime::dense_backward : Lifetime::kept,
                     Lifetime::dense_backward);
    mixed_ = make(Lifetime::kept, "mixed", columns_);
    dq_ = make(Lifetime::dense_backward, "dq", columns_);
    d_mixed_ = make(Lifetime::dense_backward, "d mixed", columns_);
    if (setup.rank.shape.layer.rope_theta > 0) turns_ = rotary_turns(setup.rank, math_);
    if (setup.rank.shape.layer.bias) make_biases(setup);
    for (const Parameter& p : parameters({}))
      fill_weight(p, p.name == kWo || p.name == kBo ? columns_.total : model_dim_, setup.seed, math_.memory());
  }

  void keys_values(TensorView input) override {
    const Gathered& own = own_[0];
    math_.gemm(matrix(input), matrix(wk_), matrix(own.k));
    math_.gemm(matrix(input), matrix(wv_), matrix(own.v));
    if (biases_) {
      biases_->add(b_[1], matrix(own.k));
      biases_->add(b_[2], matrix(own.v));
    }
    rotate(own.k, Turn::forward);
  }

  void keys_values_backward(TensorView input, TensorView d_input, TensorView gradients, Into into) override {
    add_keys_values(d_input);
    keys_values_weights(input, gradients, into);
  }

  TensorView own_keys_values(Phase phase) override { return own_[static_cast<size_t>(phase)].all; }
  TensorView all_keys_values(Phase phase) override { return gathered_[static_cast<size_t>(phase)].all; }

  void forward(TensorView input, TensorView out) override {
    if (!shares_) keys_values(input);
    math_.gemm(matrix(input), matrix(wq_), matrix(q_));
    if (biases_) biases_->add(b_[0], matrix(q_));
    rotate(q_, Turn::forward);
    heads_->forward({q_, gathered_[0].k, gathered_[0].v, before_[0]}, mixed_);
    math_.gemm(matrix(mixed_), matrix(wo_), matrix(out));
    if (biases_) biases_->add(b_[3], columns(out, out_columns_.first, out_columns_.count));
  }

  void backward_input(TensorView d_out, TensorView d_input) override {
    const Gathered &of = gathered_[0], &d = gathered_[1];
    math_.gemm(matrix(d_out), transpose(matrix(wo_)), matrix(d_mixed_));
    heads_->backward({q_, of.k, of.v, before_[0]}, mixed_, d_mixed_, {dq_, d.k, d.v, before_[1]});
    rotate(dq_, Turn::back);
    math_.gemm(matrix(dq_), transpose(matrix(wq_)), matrix(d_input));
    if (!shares_) add_keys_values(d_input);
  }

  void backward_weights(TensorView input, TensorView d_out, TensorView gradients, Into into) override {
    const auto weights = parameters(gradients);
    math_.gemm(transpose(matrix(input)), matrix(dq_), plane(weights[0].gradient), into);
    if (biases_) biases_->gradient(matrix(dq_), weights[4].gradient.flat(), into);
    if (!shares_) keys_values_weights(input, gradients, into);
    math_.gemm(transpose(matrix(mixed_)), matrix(d_out), plane(weights[3].gradient), into);
    if (biases_)
      biases_->gradient(columns(d_out, out_columns_.first, out_columns_.count), weights[7].gradient.flat(), into);
  }

  std::vector<Parameter> parameters(TensorView gradients) override {
    const ShardRange one{0, 1, 1}, all{0, model_dim_, model_dim_};
    std::vector<Parameter> result{{std::string(kWq), {one, all, columns_}, wq_, {}, SummedOver::dp},
                                  {std::string(kWk), {one, all, kv_columns_}, wk_, {}, SummedOver::dp},
                                  {std::string(kWv), {one, all, kv_columns_}, wv_, {}, SummedOver::dp},
                                  {std::string(kWo), {one, columns_, all}, wo_, {}, SummedOver::dp}};
    if (biases_) {
      const std::string_view names[] = {kBq, kBk, kBv, kBo};
      const ShardRange columns[] = {columns_, kv_columns_, kv_columns_, out_columns_};
      for (size_t i = 0; i < 4; ++i)
        result.push_back({std::string(names[i]), {one, one, columns[i]}, b_[i], {}, SummedOver::dp, 1, 1});
    }
    if (gradients.data() == nullptr) return result;
    int64_t first = 0;
    for (Parameter& p : result) {
      p.gradient = gradients.part(first, {1, p.axes[1].count, p.axes[2].count});
      first += p.gradient.elements();
    }
    return result;
  }

 private:
  // Keys and values, or their gradients, of one rank or several.
  struct Gathered {
    TensorView all;   // (ranks, 2, B L / N_CP, local key-value heads d)
    TensorView k, v;  // of the first rank
  };

  // Without context parallelism, own and gathered ones are the same memory.
  void make_keys_values(const PartSetup& setup, Phase phase, Lifetime all, Lifetime own) {
    const int64_t tokens = setup.rank.mp_tokens(), width = kv_columns_.count;
    const auto make = [&](Lifetime lifetime, std::string_view name, int64_t ranks) {
      const std::string_view of = phase == Phase::forward ? "k and v" : "dk and dv";
      const TensorView made = memory_.of(lifetime).tensor(fmt::format("{}{}", name, of), {ranks, 2, tokens * width},
                                                          setup.rank.dtype(), math_.memory());
      return Gathered{made, made.part(0, {tokens, width}), made.part(tokens * width, {tokens, width})};
    };
    const auto p = static_cast<size_t>(phase);
    gathered_[p] = make(all, "", setup.rank.shape.parallel.cp);
    own_[p] = shares_ ? make(own, "own ", 1) : gathered_[p];
    for (Attention* part : setup.parts_before) {
      const TensorView of_part = part->own_keys_values(phase);
      before_[p].push_back({of_part.part(0, {tokens, width}), of_part.part(tokens * width, {tokens, width})});
    }
  }

  // Rotates the gradients of keys back.
  void add_keys_values(TensorView d_input) {
    const Gathered& d = own_[1];
    rotate(d.k, Turn::back);
    math_.gemm(matrix(d.k), transpose(matrix(wk_)), matrix(d_input), Into::add);
    math_.gemm(matrix(d.v), transpose(matrix(wv_)), matrix(d_input), Into::add);
  }

  void keys_values_weights(TensorView input, TensorView gradients, Into into) {
    const auto weights = parameters(gradients);
    const TensorView d[] = {own_[1].k, own_[1].v};
    for (size_t i = 0; i < 2; ++i) {
      math_.gemm(transpose(matrix(input)), matrix(d[i]), plane(weights[1 + i].gradient), into);
      if (biases_) biases_->gradient(matrix(d[i]), weights[5 + i].gradient.flat(), into);
    }
  }

  void make_biases(const PartSetup& setup) {
    const DType dtype = setup.rank.dtype();
    out_columns_ = share_of(model_dim_, setup.rank.shape.parallel.mp, setup.rank.mp);
    biases_.emplace(math_, dtype);
    b_ = {setup.weight(kBq, {1, 1, columns_.count}, dtype), setup.weight(kBk, {1, 1, kv_columns_.count}, dtype),
          setup.weight(kBv, {1, 1, kv_columns_.count}, dtype), setup.weight(kBo, {1, 1, out_columns_.count}, dtype)};
  }

  void rotate(TensorView rows, Turn turn) {
    if (turns_.view().data() != nullptr) math_.rotate(rows, turns_, turn);
  }

  static Matrix plane(TensorView t) { return matrix(t.part(0, {t.size(1), t.size(2)})); }

  // Returns the columns of these heads, or of the key-value heads that as many `queries` read each.
  static ShardRange of_heads(ShardRange heads, int64_t head_dim, int64_t queries = 1) {
    return {heads.first / queries * head_dim, heads.count / queries * head_dim, heads.total / queries * head_dim};
  }

  static int64_t queries_of(const PartSetup& setup) {
    return setup.rank.shape.layer.heads / setup.rank.shape.layer.kv_heads;
  }

  Math& math_;
  LayerMemory memory_;
  int64_t model_dim_;
  bool shares_;                      // CP ranks share each sample
  ShardRange columns_, kv_columns_;  // of this rank's heads; of its key-value heads
  std::unique_ptr<AttentionHeads> heads_;
  Weight wq_, wk_, wv_, wo_;
  std::array<Weight, 4> b_;                        // behind those; W_o's of out_columns_
  ShardRange out_columns_;                         // of M
  std::optional<RowBias> biases_;                  // none: there are no biases
  TensorView q_, mixed_, dq_, d_mixed_;            // (B L, local heads d)
  std::array<Gathered, 2> own_, gathered_;         // by phase: of the rank's tokens; of all CP ranks, in their order
  std::array<std::vector<KeysValues>, 2> before_;  // by phase: of the parts of the samples before
  Tensor turns_;                                   // (L / N_CP, d); empty: nothing is rotated
};

}  // namespace

std::unique_ptr<Attention> make_attention(const PartSetup& setup) { return std::make_unique<ShardedAttention>(setup); }

}  // namespace moe
