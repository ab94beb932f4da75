#include "moe/layer/attention.h"

#include <array>
#include <optional>

#include "moe/layer/detail/attention_parts.h"
#include "moe/layer/detail/latent_attention.h"
#include "moe/layer/norm.h"
#include "moe/tensor/ring_heads.h"

namespace moe {
namespace {

class ShardedAttention final : public Attention {
 public:
  explicit ShardedAttention(const PartSetup& setup)
      : math_(setup.math),
        memory_(setup.memory),
        model_dim_(setup.rank.model_dim()),
        shares_(setup.rank.shape.parallel.cp > 1),
        head_dim_(setup.rank.head_dim),
        columns_(columns_of_heads(setup.rank.heads, head_dim_)),
        kv_columns_(columns_of_heads(setup.rank.heads, head_dim_, queries_of(setup))),
        keys_values_(setup, {head_dim_, head_dim_}),
        positions_(setup, head_dim_) {
    const HeadWidths widths{head_dim_, head_dim_};
    if (setup.rank.shape.parallel.ring_blocks() > 0)
      ring_.emplace(math_, heads_shape(setup, widths), memory_.store(Lifetime::kept),
                    memory_.store(Lifetime::dense_backward));
    else
      heads_ = make_heads(setup, widths);
    ranks_ = setup.rank.shape.parallel.cp;
    rank_ = index_in_group(setup.rank.shape.parallel, GroupKind::cp, setup.rank.rank);
    const DType dtype = setup.rank.dtype();
    wq_ = setup.weight(kWq, {model_dim_, columns_.count}, dtype);
    wk_ = setup.weight(kWk, {model_dim_, kv_columns_.count}, dtype);
    wv_ = setup.weight(kWv, {model_dim_, kv_columns_.count}, dtype);
    wo_ = setup.weight(kWo, {columns_.count, model_dim_}, dtype);
    const auto make = [&](Lifetime lifetime, std::string_view name, const ShardRange& columns) {
      return memory_.store(lifetime).tensor(name, {setup.rank.mp_tokens(), columns.count}, dtype, math_.memory());
    };
    q_ = make(Lifetime::kept, "q", columns_);
    mixed_ = make(Lifetime::kept, "mixed", columns_);
    dq_ = make(Lifetime::dense_backward, "dq", columns_);
    d_mixed_ = make(Lifetime::dense_backward, "d mixed", columns_);
    if (setup.rank.shape.layer.bias) make_biases(setup);
    for (const Parameter& p : parameters({}))
      fill_weight(p, p.name == kWo || p.name == kBo ? columns_.total : model_dim_, setup.seed, math_.memory());
  }

  void keys_values(TensorView input) override {
    const KeysValuesBlock& own = keys_values_.local[0];
    math_.gemm(matrix(input), matrix(wk_), matrix(own.k));
    math_.gemm(matrix(input), matrix(wv_), matrix(own.v));
    if (biases_) {
      biases_->add(b_[1], matrix(own.k));
      biases_->add(b_[2], matrix(own.v));
    }
    rotate(own.k, RotationDirection::forward);
    if (ring_) queries(input);
  }

  void keys_values_backward(TensorView input, TensorView d_input, TensorView gradients, Into into) override {
    if (ring_) queries_backward(d_input);
    add_keys_values(d_input);
    if (ring_) queries_weights(input, gradients, into);
    keys_values_weights(input, gradients, into);
  }

  TensorView local_keys_values(Phase phase) override { return keys_values_.local[phase].all; }
  TensorView all_keys_values(Phase phase) override { return keys_values_.gathered[phase].all; }

  void heads(Phase phase, int block) override {
    const int from = (rank_ - block + ranks_) % ranks_;
    const KeysValuesBlock& keys = block_of(phase, block);
    if (phase == Phase::forward) return ring_->forward(q_, {keys.k, keys.v}, from, mixed_, block == 0);
    const KeysValuesBlock& d = keys_values_.gradients[block % 2];
    ring_->backward(q_, {keys.k, keys.v}, from, d_mixed_, {d.k, d.v}, dq_, block == 0);
  }

  TensorView block(Phase phase, int block) override { return block_of(phase, block).all; }
  TensorView block_gradients(int block) override { return keys_values_.gradients[block % 2].all; }

  void forward(TensorView input, TensorView out) override {
    if (!shares_) keys_values(input);
    if (!ring_) {
      queries(input);
      heads_->forward({q_, keys_values_.gathered[0].k, keys_values_.gathered[0].v, keys_values_.earlier_parts[0]},
                      mixed_);
    }
    math_.gemm(matrix(mixed_), matrix(wo_), matrix(out));
    if (biases_) biases_->add(b_[3], columns(out, out_columns_.first, out_columns_.count));
  }

  void backward_input(TensorView d_out, TensorView d_input) override {
    const KeysValuesBlock &block = keys_values_.gathered[0], &d = keys_values_.gathered[1];
    math_.gemm(matrix(d_out), transpose(matrix(wo_)), matrix(d_mixed_));
    if (ring_) return ring_->begin_backward(mixed_, d_mixed_);
    heads_->backward({q_, block.k, block.v, keys_values_.earlier_parts[0]}, mixed_, d_mixed_,
                     {dq_, d.k, d.v, keys_values_.earlier_parts[1]});
    queries_backward(d_input);
    if (!shares_) add_keys_values(d_input);
  }

  void backward_weights(TensorView input, TensorView d_out, TensorView gradients, Into into) override {
    const auto weights = parameters(gradients);
    if (!ring_) queries_weights(input, gradients, into);
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
  const KeysValuesBlock& block_of(Phase phase, int block) const {
    return block == 0 ? keys_values_.local[0] : keys_values_.received[phase][(block - 1) % 2];
  }

  void queries(TensorView input) {
    math_.gemm(matrix(input), matrix(wq_), matrix(q_));
    if (biases_) biases_->add(b_[0], matrix(q_));
    rotate(q_, RotationDirection::forward);
  }

  void queries_backward(TensorView d_input) {
    rotate(dq_, RotationDirection::back);
    math_.gemm(matrix(dq_), transpose(matrix(wq_)), matrix(d_input));
  }

  void queries_weights(TensorView input, TensorView gradients, Into into) {
    const auto weights = parameters(gradients);
    math_.gemm(transpose(matrix(input)), matrix(dq_), plane(weights[0].gradient), into);
    if (biases_) biases_->gradient(matrix(dq_), weights[4].gradient.flat(), into);
  }

  // Rotates the gradients of keys back.
  void add_keys_values(TensorView d_input) {
    const KeysValuesBlock& d = keys_values_.local[1];
    rotate(d.k, RotationDirection::back);
    math_.gemm(matrix(d.k), transpose(matrix(wk_)), matrix(d_input), Into::add);
    math_.gemm(matrix(d.v), transpose(matrix(wv_)), matrix(d_input), Into::add);
  }

  void keys_values_weights(TensorView input, TensorView gradients, Into into) {
    const auto weights = parameters(gradients);
    const TensorView d[] = {keys_values_.local[1].k, keys_values_.local[1].v};
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

  void rotate(TensorView rows, RotationDirection turn) { positions_.rotate(rows, head_dim_, turn); }

  static Matrix plane(TensorView t) { return matrix(t.part(0, {t.size(1), t.size(2)})); }

  Math& math_;
  LayerMemory memory_;
  int64_t model_dim_;
  bool shares_;  // whether CP ranks share each sample
  int64_t head_dim_;
  ShardRange columns_, kv_columns_;        // those of this rank's heads; of its key-value heads
  std::unique_ptr<AttentionHeads> heads_;  // null in a ring
  std::optional<RingHeads> ring_;
  int ranks_ = 1, rank_ = 0;  // of the CP group
  KeysValuesBuffers keys_values_;
  RotaryPositions positions_;
  Weight wq_, wk_, wv_, wo_;
  std::array<Weight, 4> b_;              // biases of the four projections; W_o's has out_columns_
  ShardRange out_columns_;               // columns of M whose bias this rank has
  std::optional<RowBias> biases_;        // none if the layer has no biases
  TensorView q_, mixed_, dq_, d_mixed_;  // (B L, local heads d)
};

}  // namespace

std::unique_ptr<Attention> make_attention(const PartSetup& setup) {
  require<Unsupported>(!is_latent(setup.rank.shape.layer) || setup.rank.shape.parallel.ring_blocks() == 0,
                       "cp-exchange: found ring, expected allgather: with latent attention a ring is planned, not run");
  if (is_latent(setup.rank.shape.layer)) return make_latent_attention(setup);
  return std::make_unique<ShardedAttention>(setup);
}

}  // namespace moe
