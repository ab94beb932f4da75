#pragma once
// SGD with momentum and AdamW on this rank's parts of the weights, in the memory of the weights.
#include <string>
#include <string_view>
#include <vector>

#include "moe/plan/step.h"
#include "moe/tensor/math.h"
#include "moe/tensor/tensor.h"

namespace moe {

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::adamw;
  double learning_rate = 1e-3;
  double momentum = 0.9;                              // momentum of sgd
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // parameters of adamw
  double weight_decay = 0;
  double clip_norm = 0;       // largest norm of the gradients; 0: no limit
  int64_t warm_up_steps = 0;  // steps over which the rate grows linearly
  int64_t steps = 0;          // the last of these steps has the rate `least_share` x rate; 0: the rate stays
  double least_share = 0;
};

/// Returns the learning rate of a step, counted from 0. Steps warm_up_steps - 1 and warm_up_steps have the full rate;
/// after that the rate falls along half a cosine. Step `steps` - 1 and all later ones have least_share of the full
/// rate.
double learning_rate_at(const OptimizerSettings& settings, int64_t step);

/// A weight and its gradient: views of equal shape in one memory, which outlive the optimizer. Norms and biases do not
/// decay.
struct TrainedTensor {
  std::string name;
  TensorView value, gradient;  // may have different types
  bool decays = true;
  ElementSelection own = {};  // the elements that this optimizer changes and has states for
};

/// A state that a checkpoint stores in addition to the weights: one element for each own element of the tensor with
/// index `of`.
struct OptimizerState {
  std::string name;  // "w1.moment1", "w1.moment2", "w1.momentum", "w1.master"
  size_t of = 0;
  TensorView value;
};

/// Takes optimizer steps of tensors, with states in float32, or float64 for float64 weights. 16-bit weights have
/// float32 masters, which take the steps and are then rounded to the weights.
class Optimizer {
 public:
  /// Makes the states, in `math`'s memory; masters begin as the present weights. `math` outlives the optimizer. Throws
  /// BadInput naming an invalid setting, or a tensor that lies elsewhere or whose gradient has another shape.
  Optimizer(const OptimizerSettings& settings, std::vector<TrainedTensor> tensors, Math& math = cpu_math());

  /// Takes a step, counted from 0 without a gap (AdamW's bias correction), on the stream that the math uses. Gradients
  /// are multiplied by `gradient_scale` first, by which the caller averages over ranks. `squares`: the sum of squares
  /// of all gradients, in the math's memory, whose root clip_norm limits; null: nothing is clipped.
  ///   sgd    g += weight_decay w; v = momentum v + g; w -= rate v
  ///   adamw  w -= rate weight_decay w; m, v: running means of g and g^2; w -= rate m' / (sqrt(v') + epsilon), with
  ///          m' = m / (1 - beta1^t), v' = v / (1 - beta2^t), t = step + 1
  /// (Loshchilov, Hutter, Decoupled Weight Decay Regularization, ICLR'19; both equal PyTorch's optimizers SGD, AdamW.)
  void step(int64_t step, double gradient_scale = 1, const double* squares = nullptr);

  const OptimizerSettings& settings() const { return settings_; }
  std::vector<OptimizerState> states() const;

 private:
  struct Trained {
    TrainedTensor tensor{};
    Tensor first{}, second{}, master{};  // empty if unused; first: momentum, moment1
  };

  OptimizerSettings settings_;
  std::vector<Trained> trained_;
  Math* math_;
};

}  // namespace moe
