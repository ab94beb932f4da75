#include "moe/layer/detail/latent_attention.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "moe/layer/detail/attention_parts.h"
#include "moe/layer/norm.h"
#include "moe/tensor/element.h"
#include "moe/tensor/host_copy.h"

namespace moe {
namespace {

constexpr ShardRange kOne{0, 1, 1};
constexpr ShardRange whole(int64_t count) { return {0, count, count}; }

Matrix plane(TensorView t) { return matrix(t.part(0, {t.size(1), t.size(2)})); }

// A weight that every rank has whole, and its gradient.
struct ReplicatedWeight {
  ReplicatedWeight(const PartSetup& setup, std::string_view weight_name, int64_t rows, int64_t columns)
      : name(weight_name),
        value(setup.weight(weight_name, {1, rows, columns}, setup.rank.dtype())),
        gradient(setup.weight(gradient_name(weight_name), {1, rows, columns}, setup.rank.dtype())) {}
  Parameter parameter() const {
    const int64_t rows = value.view().size(1), columns = value.view().size(2);
    return {name, {kOne, whole(rows), whole(columns)}, value, gradient, SummedOver::stage, 1, rows > 1 ? 2 : 1};
  }

  std::string name;
  Weight value, gradient;
};

// The latent that tokens are compressed to, and its norm.
class Latent {
 public:
  Latent(const PartSetup& setup, std::string_view weight, std::string_view gain, int64_t rank)
      : math_(setup.math), weight_(setup, weight, setup.rank.model_dim(), rank), gain_(setup, gain, 1, rank) {
    fill_weight(weight_.parameter(), setup.rank.model_dim(), setup.seed, math_.memory());
    fill_gain(gain_.parameter(), setup.seed, math_.memory());
    const auto make = [&](Lifetime lifetime, std::string_view what, int64_t rows) {
      return setup.memory.store(lifetime).tensor(fmt::format("{} of {}", what, weight), {rows, rank},
                                                 setup.rank.dtype(), math_.memory());
    };
    latent_ = make(Lifetime::kept, "latent", setup.rank.mp_tokens());
    normed_ = make(Lifetime::kept, "normed latent", setup.rank.mp_tokens());
    gradient_ = make(Lifetime::dense_backward, "gradient", setup.rank.mp_tokens());
    d_gain_ = make(Lifetime::dense_backward, "gradient of the gain", 1);
  }

  TensorView normed() const { return normed_; }
  // Returns the gradient of the normed latent, for the code that computes it; after to_input(), the latent's gradient.
  TensorView gradient() const { return gradient_; }

  void forward(TensorView input) {
    math_.gemm(matrix(input), plane(weight_.value), matrix(latent_));
    math_.norm(norm_input(), normed_);
  }
  // Computes the input's gradient, or adds to it.
  void to_input(TensorView d_input, Into into) {
    math_.norm_backward(norm_input(), gradient_, d_gain_);
    math_.gemm(matrix(gradient_), transpose(plane(weight_.value)), matrix(d_input), into);
  }
  // Computes the weights' gradients, or adds to them.
  void to_weights(TensorView input, Into into) {
    math_.gemm(transpose(matrix(input)), matrix(gradient_), plane(weight_.gradient), into);
    if (into == Into::add)
      math_.add(d_gain_, gain_.gradient);
    else
      math_.assign(d_gain_, gain_.gradient);
  }

  std::vector<Parameter> parameters() const { return {weight_.parameter(), gain_.parameter()}; }

 private:
  NormInput norm_input() const { return {latent_, gain_.value, false, RowNorm::kEpsilon}; }

  Math& math_;
  ReplicatedWeight weight_, gain_;
  TensorView latent_, normed_, gradient_;  // (B L, rank)
  TensorView d_gain_;                      // made by this pass
};

class ShardedLatentAttention final : public Attention {
 public:
  explicit ShardedLatentAttention(const PartSetup& setup)
      : math_(setup.math),
        memory_(setup.memory),
        model_dim_(setup.rank.model_dim()),
        shares_(setup.rank.shape.parallel.cp > 1),
        nope_(setup.rank.shape.layer.qk_nope_head_dim),
        rope_(setup.rank.shape.layer.qk_rope_head_dim),
        values_(setup.rank.shape.layer.v_head_dim),
        count_(setup.rank.heads.count),
        keys_latent_(setup, kWdkv, kKeyNorm, setup.rank.shape.layer.kv_lora_rank),
        wkr_(setup, kWkr, model_dim_, rope_),
        heads_(make_heads(setup, {nope_ + rope_, values_})),
        keys_values_(setup, {nope_ + rope_, values_}),
        positions_(setup, rope_) {
    const LayerShape& layer = setup.rank.shape.layer;
    if (layer.q_lora_rank > 0) queries_latent_.emplace(setup, kWdq, kQueryNorm, layer.q_lora_rank);
    add_weight(setup, queries_latent_ ? kWuq : kWq, whole(queries_latent_ ? layer.q_lora_rank : model_dim_),
               columns_of_heads(setup.rank.heads, nope_ + rope_));
    add_weight(setup, kWuk, whole(layer.kv_lora_rank), columns_of_heads(setup.rank.heads, nope_));
    add_weight(setup, kWuv, whole(layer.kv_lora_rank), columns_of_heads(setup.rank.heads, values_));
    add_weight(setup, kWo, columns_of_heads(setup.rank.heads, values_), whole(model_dim_));
    fill_weight(wkr_.parameter(), model_dim_, setup.seed, math_.memory());
    const auto make = [&](Lifetime lifetime, std::string_view name, int64_t columns) {
      return memory_.store(lifetime).tensor(name, {setup.rank.mp_tokens(), columns}, setup.rank.dtype(),
                                            math_.memory());
    };
    q_ = make(Lifetime::kept, "q", count_ * (nope_ + rope_));
    mixed_ = make(Lifetime::kept, "mixed", count_ * values_);
    rotary_key_ = make(Lifetime::dense_forward, "rotary key", rope_);
    dq_ = make(Lifetime::dense_backward, "dq", count_ * (nope_ + rope_));
    d_mixed_ = make(Lifetime::dense_backward, "d mixed", count_ * values_);
    d_rotary_key_ = make(Lifetime::dense_backward, "d rotary key", rope_);
    make_identity(setup.rank.dtype());
  }

  void keys_values(TensorView input) override {
    const KeysValuesBlock& own = keys_values_.local[0];
    keys_latent_.forward(input);
    math_.gemm(matrix(input), plane(wkr_.value), matrix(rotary_key_));
    positions_.rotate(rotary_key_, rope_, RotationDirection::forward);
    const Matrix latent = matrix(keys_latent_.normed());
    math_.gemm(latent, columns(weights_[kOfK].value, 0, nope_), columns(own.k, 0, nope_), Into::overwrite,
               {count_, 0, nope_, nope_ + rope_});
    math_.gemm(matrix(rotary_key_), matrix(identity_), columns(own.k, nope_, rope_), Into::overwrite,
               {count_, 0, 0, nope_ + rope_});
    math_.gemm(latent, matrix(weights_[kOfV].value), matrix(own.v));
  }

  void keys_values_backward(TensorView input, TensorView d_input, TensorView gradients, Into into) override {
    add_keys_values(d_input);
    keys_values_weights(input, gradients, into);
  }

  TensorView local_keys_values(Phase phase) override { return keys_values_.local[phase].all; }
  TensorView all_keys_values(Phase phase) override { return keys_values_.gathered[phase].all; }

  void forward(TensorView input, TensorView out) override {
    if (!shares_) keys_values(input);
    if (queries_latent_) queries_latent_->forward(input);
    math_.gemm(matrix(queries_latent_ ? queries_latent_->normed() : input), matrix(weights_[kOfQ].value), matrix(q_));
    positions_.rotate(q_, nope_ + rope_, RotationDirection::forward);
    heads_->forward({q_, keys_values_.gathered[0].k, keys_values_.gathered[0].v, keys_values_.earlier_parts[0]},
                    mixed_);
    math_.gemm(matrix(mixed_), matrix(weights_[kOut].value), matrix(out));
  }

  void backward_input(TensorView d_out, TensorView d_input) override {
    const KeysValuesBlock &block = keys_values_.gathered[0], &d = keys_values_.gathered[1];
    math_.gemm(matrix(d_out), transpose(matrix(weights_[kOut].value)), matrix(d_mixed_));
    heads_->backward({q_, block.k, block.v, keys_values_.earlier_parts[0]}, mixed_, d_mixed_,
                     {dq_, d.k, d.v, keys_values_.earlier_parts[1]});
    positions_.rotate(dq_, nope_ + rope_, RotationDirection::back);
    math_.gemm(matrix(dq_), transpose(matrix(weights_[kOfQ].value)),
               matrix(queries_latent_ ? queries_latent_->gradient() : d_input));
    if (queries_latent_) queries_latent_->to_input(d_input, Into::overwrite);
    if (!shares_) add_keys_values(d_input);
  }

  void backward_weights(TensorView input, TensorView d_out, TensorView gradients, Into into) override {
    const auto weights = parameters(gradients);
    const TensorView from = queries_latent_ ? queries_latent_->normed() : input;
    math_.gemm(transpose(matrix(from)), matrix(dq_), plane(weights[kOfQ].gradient), into);
    if (queries_latent_) queries_latent_->to_weights(input, into);
    if (!shares_) keys_values_weights(input, gradients, into);
    math_.gemm(transpose(matrix(mixed_)), matrix(d_out), plane(weights[kOut].gradient), into);
  }

  std::vector<Parameter> parameters(TensorView gradients) override {
    std::vector<Parameter> result;
    int64_t first = 0;
    for (const ShardedWeight& w : weights_) {
      Parameter p{std::string(w.name), {kOne, w.rows, w.columns}, w.value, {}, SummedOver::dp};
      if (gradients.data() != nullptr) p.gradient = gradients.part(first, {1, w.rows.count, w.columns.count});
      first += w.rows.count * w.columns.count;
      result.push_back(std::move(p));
    }
    if (queries_latent_) std::ranges::move(queries_latent_->parameters(), std::back_inserter(result));
    std::ranges::move(keys_latent_.parameters(), std::back_inserter(result));
    result.push_back(wkr_.parameter());
    return result;
  }

 private:
  enum : size_t { kOfQ, kOfK, kOfV, kOut };  // indices of the sharded weights
  struct ShardedWeight {
    std::string_view name;
    ShardRange rows, columns;
    Weight value;
  };

  void add_weight(const PartSetup& setup, std::string_view name, ShardRange rows, ShardRange columns) {
    weights_.push_back({name, rows, columns, setup.weight(name, {rows.count, columns.count}, setup.rank.dtype())});
    fill_weight({std::string(name), {kOne, rows, columns}, weights_.back().value, {}, SummedOver::dp}, rows.total,
                setup.seed, math_.memory());
  }

  // The rotary key is copied into every head's keys by a product with the identity, because every device has products.
  void make_identity(DType dtype) {
    identity_ = Tensor({rope_, rope_}, dtype, math_.memory());
    const HostCopy host(identity_, math_.memory());
    with_element(host.view().dtype(), [&](auto zero) {
      using T = decltype(zero);
      std::fill_n(host.view().as<T>(), rope_ * rope_, T(0));
      for (int64_t i = 0; i < rope_; ++i) host.view().as<T>()[i * rope_ + i] = T(1);
    });
    host.send();
  }

  // Adds the part of keys and values to d_input. The gradients of a latent come head by head, and are added up.
  void add_keys_values(TensorView d_input) {
    const KeysValuesBlock& d = keys_values_.local[1];
    const int64_t width = nope_ + rope_;
    const Matrix d_latent = matrix(keys_latent_.gradient());
    math_.gemm(matrix(d.v), transpose(matrix(weights_[kOfV].value)), d_latent);
    for (int64_t head = 0; head < count_; ++head) {
      math_.gemm(columns(d.k, head * width, nope_), transpose(columns(weights_[kOfK].value, head * nope_, nope_)),
                 d_latent, Into::add);
      math_.gemm(columns(d.k, head * width + nope_, rope_), matrix(identity_), matrix(d_rotary_key_),
                 head == 0 ? Into::overwrite : Into::add);
    }
    positions_.rotate(d_rotary_key_, rope_, RotationDirection::back);
    keys_latent_.to_input(d_input, Into::add);
    math_.gemm(matrix(d_rotary_key_), transpose(plane(wkr_.value)), matrix(d_input), Into::add);
  }

  void keys_values_weights(TensorView input, TensorView gradients, Into into) {
    const auto weights = parameters(gradients);
    const KeysValuesBlock& d = keys_values_.local[1];
    const Matrix latent = transpose(matrix(keys_latent_.normed()));
    const TensorView of_k = weights[kOfK].gradient;
    math_.gemm(latent, columns(d.k, 0, nope_), columns(of_k.part(0, {of_k.size(1), of_k.size(2)}), 0, nope_), into,
               {count_, 0, nope_ + rope_, nope_});
    math_.gemm(latent, matrix(d.v), plane(weights[kOfV].gradient), into);
    keys_latent_.to_weights(input, into);
    math_.gemm(transpose(matrix(input)), matrix(d_rotary_key_), plane(wkr_.gradient), into);
  }

  Math& math_;
  LayerMemory memory_;
  int64_t model_dim_;
  bool shares_;                   // whether CP ranks share each sample
  int64_t nope_, rope_, values_;  // widths of a head
  int64_t count_;                 // number of this rank's heads
  std::optional<Latent> queries_latent_;
  Latent keys_latent_;
  ReplicatedWeight wkr_;
  std::unique_ptr<AttentionHeads> heads_;
  KeysValuesBuffers keys_values_;
  RotaryPositions positions_;
  std::vector<ShardedWeight> weights_;    // weights of q, k, v, and W_o
  Tensor identity_;                       // (rope, rope)
  TensorView q_, mixed_, dq_, d_mixed_;   // (B L, local heads width)
  TensorView rotary_key_, d_rotary_key_;  // (B L, rope)
};

}  // namespace

std::unique_ptr<Attention> make_latent_attention(const PartSetup& setup) {
  return std::make_unique<ShardedLatentAttention>(setup);
}

}  // namespace moe
