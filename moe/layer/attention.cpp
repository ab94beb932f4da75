#include "moe/layer/attention.h"

#include <array>
#include <cmath>
#include <optional>

#include "moe/layer/norm.h"
#include "moe/tensor/attention_heads.h"
#include "moe/tensor/element.h"
#include "moe/tensor/host_copy.h"
#include "moe/tensor/tensor.h"

namespace moe {
namespace {

// Returns (L, d): cosines and sines of place theta^(-2 j / d), of all j below d / 2.
Tensor rotary_turns(const LayerShape& layer, int64_t d, Math& math) {
  Tensor turns({layer.seq, d}, sums_type(layer.dtype), math.memory());
  const HostCopy host(turns, math.memory());
  with_element(host.view().dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* row = host.view().as<T>();
    for (int64_t place = 0; place < layer.seq; ++place, row += d)
      for (int64_t j = 0; j < d / 2; ++j) {
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
        columns_(of_heads(setup.rank.heads, setup.rank.head_dim)),
        kv_columns_(of_heads(setup.rank.heads, setup.rank.head_dim, queries_of(setup))),
        heads_(math_.make_heads({setup.rank.mp_tokens(), setup.rank.shape.layer.seq, setup.rank.heads.count,
                                 setup.rank.heads.count / queries_of(setup), setup.rank.head_dim, setup.rank.dtype(),
                                 setup.rank.shape.parallel.recompute != Recompute::none, setup.rank.shape.layer.causal},
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
    k_ = make(Lifetime::kept, "k", kv_columns_);
    v_ = make(Lifetime::kept, "v", kv_columns_);
    mixed_ = make(Lifetime::kept, "mixed", columns_);
    dq_ = make(Lifetime::dense_backward, "dq", columns_);
    dk_ = make(Lifetime::dense_backward, "dk", kv_columns_);
    dv_ = make(Lifetime::dense_backward, "dv", kv_columns_);
    d_mixed_ = make(Lifetime::dense_backward, "d mixed", columns_);
    if (setup.rank.shape.layer.rope_theta > 0)
      turns_ = rotary_turns(setup.rank.shape.layer, setup.rank.head_dim, math_);
    if (setup.rank.shape.layer.bias) make_biases(setup);
    for (const Parameter& p : parameters({}))
      fill_weight(p, p.name == kWo || p.name == kBo ? columns_.total : model_dim_, setup.seed, math_.memory());
  }

  void forward(TensorView input, TensorView out) override {
    math_.gemm(matrix(input), matrix(wq_), matrix(q_));
    math_.gemm(matrix(input), matrix(wk_), matrix(k_));
    math_.gemm(matrix(input), matrix(wv_), matrix(v_));
    if (biases_) {
      const TensorView outputs[] = {q_, k_, v_};
      for (size_t i = 0; i < 3; ++i) biases_->add(b_[i], matrix(outputs[i]));
    }
    rotate({q_, k_}, Turn::forward);
    heads_->forward({q_, k_, v_}, mixed_);
    math_.gemm(matrix(mixed_), matrix(wo_), matrix(out));
    if (biases_) biases_->add(b_[3], columns(out, out_columns_.first, out_columns_.count));
  }

  void backward_input(TensorView d_out, TensorView d_input) override {
    math_.gemm(matrix(d_out), transpose(matrix(wo_)), matrix(d_mixed_));
    heads_->backward({q_, k_, v_}, mixed_, d_mixed_, {dq_, dk_, dv_});
    rotate({dq_, dk_}, Turn::back);
    const TensorView d[] = {dq_, dk_, dv_};
    const TensorView w[] = {wq_, wk_, wv_};
    for (size_t i = 0; i < 3; ++i)
      math_.gemm(matrix(d[i]), transpose(matrix(w[i])), matrix(d_input), i == 0 ? Into::overwrite : Into::add);
  }

  void backward_weights(TensorView input, TensorView d_out, TensorView gradients, Into into) override {
    const auto weights = parameters(gradients);
    const TensorView d[] = {dq_, dk_, dv_};
    for (size_t i = 0; i < 3; ++i) {
      math_.gemm(transpose(matrix(input)), matrix(d[i]), plane(weights[i].gradient), into);
      if (biases_) biases_->gradient(matrix(d[i]), weights[4 + i].gradient.flat(), into);
    }
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
  void make_biases(const PartSetup& setup) {
    const DType dtype = setup.rank.dtype();
    out_columns_ = share_of(model_dim_, setup.rank.shape.parallel.mp, setup.rank.mp);
    biases_.emplace(math_, dtype);
    b_ = {setup.weight(kBq, {1, 1, columns_.count}, dtype), setup.weight(kBk, {1, 1, kv_columns_.count}, dtype),
          setup.weight(kBv, {1, 1, kv_columns_.count}, dtype), setup.weight(kBo, {1, 1, out_columns_.count}, dtype)};
  }

  void rotate(std::initializer_list<TensorView> all, Turn turn) {
    if (turns_.view().data() == nullptr) return;
    for (const TensorView& rows : all) math_.rotate(rows, turns_, turn);
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
  ShardRange columns_, kv_columns_;  // of this rank's heads; of its key-value heads
  std::unique_ptr<AttentionHeads> heads_;
  Weight wq_, wk_, wv_, wo_;
  std::array<Weight, 4> b_;              // behind those; W_o's of out_columns_
  ShardRange out_columns_;               // of M
  std::optional<RowBias> biases_;        // none: there are no biases
  TensorView q_, mixed_, dq_, d_mixed_;  // (B L, local heads d)
  TensorView k_, v_, dk_, dv_;           // (B L, local key-value heads d)
  Tensor turns_;                         // (L, d); empty: nothing is rotated
};

}  // namespace

std::unique_ptr<Attention> make_attention(const PartSetup& setup) { return std::make_unique<ShardedAttention>(setup); }

}  // namespace moe
