#pragma once
// The gates' auxiliary losses, their statistics and their gradient:
//
//   balance   aux_loss E sum_e f_e P_e     f_e: share of the tokens whose first choice is e, a constant of the
//                                          gradient; P_e: mean probability of e
//             (Switch Transformer, section 2.2; GShard's Algorithm 1 with E^2 in place of its mean's 1 / E)
//   z         z_loss mean of log(sum_e exp(logit_e))^2 (ST-MoE, section 3.2)
//
// Shares and means are over all tokens of the stage, the dropped ones included. With first_e the sum of first choices,
// the logits' gradients of a token with probabilities p_e and logarithm l of its sum of exponentials are
//
//   d_e = p_e (s_e - sum_i p_i s_i + z l)   s_e = balance_slope first_e, z = z_slope
#include "moe/rows/rank_shape.h"
#include "moe/tensor/tensor.h"

namespace moe {

class AuxiliaryLosses {
 public:
  explicit AuxiliaryLosses(const RankShape& rank) : experts_(rank.experts.total) {
    const auto all = static_cast<double>(rank.tokens.total);
    balance_ = rank.shape.layer.aux_loss * static_cast<double>(experts_) / (all * all);
    z_ = rank.shape.layer.z_loss / all;
  }
  /// Says whether either loss has a coefficient.
  bool any() const { return balances() || z_ > 0; }
  bool balances() const { return balance_ > 0; }

  /// Makes room for a rank's statistics, float64: first choices of each expert, probabilities of each expert, squared
  /// logarithms. It has no data without losses.
  Tensor make_statistics(MemorySpace& memory = cpu_memory()) const {
    return any() ? Tensor({2 * experts_ + 1}, DType::float64, memory) : Tensor();
  }
  /// Computes both losses, coefficients applied, from the statistics summed over the stage.
  double value(const double* sums) const {
    double balance = 0;
    for (int64_t e = 0; e < experts_; ++e) balance += sums[e] * sums[experts_ + e];
    return balance_ * balance + z_ * sums[2 * experts_];
  }
  /// These return the slopes above; `share` is GateBackward's.
  double balance_slope(double share) const { return share * balance_; }
  double z_slope(double share) const { return 2 * share * z_; }

 private:
  int64_t experts_;
  double balance_, z_;  // per pair of counts, per squared logarithm: already divided by the tokens of the stage
};

}  // namespace moe
