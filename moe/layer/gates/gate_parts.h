#pragma once
// Shared by gates: projection, scores, choice of the top k, auxiliary losses.
#include "moe/base/enum_array.h"
#include "moe/layer/gates/gate.h"
#include "moe/sharding/rank_shape.h"
#include "moe/sharding/routing.h"
#include "moe/tensor/tensor.h"

namespace moe {

/// The GEMMs of a gate: products = hidden W^T with W of (width, M), and their backward. 16-bit hidden states and
/// weights are multiplied in float32, so that logits aren't rounded to 8 or 11 bits.
class GateProjection {
 public:
  GateProjection(const PartSetup& setup, int64_t width);
  /// Computes products, overwriting them.
  void forward(TensorView hidden) const;
  /// Makes W's gradient and adds to d_hidden, from d_products.
  void backward(const GateBackward& pass) const;
  TensorView products() const { return products_; }      // (tokens, width)
  TensorView d_products() const { return d_products_; }  // likewise
  /// Returns rows [first, first + count) of W.
  Parameter weight(std::string_view name, int64_t first, int64_t count) const;
  Parameter weight(std::string_view name) const { return weight(name, 0, weights_.view().size(0)); }

 private:
  /// Returns `t` (tokens, M), converted into the phase's wide_ if the weights have another type.
  TensorView widened(TensorView t, Phase phase) const;
  Math& math_;
  LayerMemory memory_;
  Weight weights_, d_weights_;
  TensorView products_, d_products_;
  EnumArray<Phase, TensorView, 2> wide_;  // by phase: (tokens, M), for a 16-bit layer
};

// Shared by gates that choose the top k.

/// Chooses, unless the routing is preset, the largest of each token's logits, whose rows are `stride` apart: the best
/// first, of equal ones the lower expert. Then gives every pair its row.
template <class T>
void choose_top_k(const T* logits, int64_t stride, Routing& routing);

/// Sets each pair's weight to the softmax over its token's chosen logits, whose rows are `stride` apart.
template <class T>
void weigh_chosen(const T* logits, int64_t stride, Routing& routing);
/// Overwrites the logits' gradients, rows `stride` apart, by those of weigh_chosen(): 0 except for the chosen experts.
template <class T>
void weigh_chosen_backward(const Routing& routing, const T* d_weight, T* d_logits, int64_t stride);

/// The gates' auxiliary losses, their statistics and their gradient:
///
///   balance   aux_loss E sum_e f_e P_e     f_e: share of the tokens whose first choice is e, a constant of the
///                                          gradient; P_e: mean probability of e
///             (Switch Transformer, section 2.2; GShard's Algorithm 1 with E^2 in place of its mean's 1 / E)
///   z         z_loss mean of log(sum_e exp(logit_e))^2 (ST-MoE, section 3.2)
///
/// Shares and means are over all tokens of the stage, the dropped ones included. With first_e the sum of first choices,
/// the logits' gradients of a token with probabilities p_e and logarithm l of its sum of exponentials are
///
///   d_e = p_e (s_e - sum_i p_i s_i + z l)   s_e = balance_slope first_e, z = z_slope
class AuxiliaryLosses {
 public:
  explicit AuxiliaryLosses(const RankShape& rank) : experts_(rank.experts.total) {
    const auto all = static_cast<double>(rank.tokens.total);
    balance_ = rank.shape.layer.aux_loss * static_cast<double>(experts_) / (all * all);
    z_ = rank.shape.layer.z_loss / all;
  }
  /// Returns whether either loss has a coefficient.
  bool any() const { return balances() || z_ > 0; }
  bool balances() const { return balance_ > 0; }

  /// Makes room for a rank's statistics, float64: first choices of each expert, probabilities of each expert, squared
  /// logarithms. Without losses it has no data.
  Tensor make_statistics(MemorySpace& memory = cpu_memory()) const {
    return any() ? Tensor({2 * experts_ + 1}, DType::float64, memory) : Tensor();
  }
  /// Computes both losses, coefficients applied, from the statistics summed over the stage.
  double value(const double* sums) const {
    double balance = 0;
    for (int64_t e = 0; e < experts_; ++e) balance += sums[e] * sums[experts_ + e];
    return balance_ * balance + z_ * sums[2 * experts_];
  }
  /// Return balance_slope and z_slope of the formula above; `share` is GateBackward::share.
  double balance_slope(double share) const { return share * balance_; }
  double z_slope(double share) const { return 2 * share * z_; }

 private:
  int64_t experts_;
  double balance_, z_;  // per pair of counts, per squared logarithm: already divided by the tokens of the stage
};

// The softmax over all logits of each token, and the auxiliary losses that depend on it.

template <class T>
class SoftmaxScores {
 public:
  explicit SoftmaxScores(const RankShape& rank);
  bool losses() const { return losses_.any(); }

  /// Computes the softmax of `logits`, rows `stride` apart.
  void forward(const T* logits, int64_t stride);
  const T* probabilities(int64_t token) const { return probabilities_.as<T>() + token * experts_; }
  /// Sets each pair's weight to its expert's probability; 0 for pairs without an expert.
  void weigh(Routing& routing) const;
  /// Sets the statistics to those of this rank's own tokens.
  void count(const Routing& routing);

  /// Overwrites the logits' gradients, rows `stride` apart, by those of weigh().
  void backward(const Routing& routing, const T* d_weight, T* d_logits, int64_t stride) const;
  /// Adds the logits' gradients of the losses, times `share`. The statistics must be summed over the stage.
  void add_losses(double share, T* d_logits, int64_t stride) const;

  TensorView statistics() const { return statistics_; }
  /// Computes both losses from the summed statistics.
  double loss() const { return losses() ? losses_.value(sums()) : 0; }

 private:
  double* sums() const { return statistics_.view().as<double>(); }

  int64_t tokens_, experts_, group_tokens_;
  int own_group_;
  AuxiliaryLosses losses_;
  Tensor probabilities_;     // (tokens, E)
  std::vector<T> log_sums_;  // log of the sum of exponentials, by token
  Tensor statistics_;
};

// The base of gates that weigh every pair by the softmax over all logits x W_g; they differ in how they choose pairs.

template <class T>
class SoftmaxGate : public Gate {
 public:
  explicit SoftmaxGate(const PartSetup& setup)
      : experts_(setup.rank.experts.total), logits_(setup, experts_), scores_(setup.rank) {
    fill_weight(logits_.weight(kGateWeight), setup.rank.model_dim(), setup.seed);
  }

  void forward(TensorView hidden, Routing& routing) final {
    logits_.forward(hidden);
    const T* logits = logits_.products().as<T>();
    scores_.forward(logits, experts_);
    choose(logits, scores_, routing);
    scores_.weigh(routing);
    scores_.count(routing);
  }

  void backward(const GateBackward& pass) final {
    T* d = logits_.d_products().as<T>();
    scores_.backward(pass.routing, pass.d_weight.as<T>(), d, experts_);
    scores_.add_losses(pass.share, d, experts_);
    logits_.backward(pass);
  }

  std::vector<Parameter> parameters() final { return {logits_.weight(kGateWeight)}; }
  TensorView statistics() final { return scores_.statistics(); }
  double auxiliary_loss() const final { return scores_.loss(); }

 private:
  /// Sets the routing's experts and rows from the logits (tokens, E) and their softmax.
  virtual void choose(const T* logits, const SoftmaxScores<T>& scores, Routing& routing) = 0;

  int64_t experts_;
  GateProjection logits_;
  SoftmaxScores<T> scores_;
};

}  // namespace moe
