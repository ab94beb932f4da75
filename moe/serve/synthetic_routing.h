#pragma once
// Synthetic routing traces. Tokens belong to hidden classes, and each class has its own expert in every layer. Random
// numbers depend only on (seed, token, layer).
#include <cstdint>
#include <vector>

#include "moe/serve/routing_trace.h"

namespace moe {

/// The distribution of the traces. There are as many classes as experts, and their shares of the tokens follow a Zipf
/// law. In each layer, a random permutation assigns experts to classes. A token goes to the expert of its class with
/// probability `correlation`, else to that of another randomly drawn class.
struct SyntheticRouting {
  int layers = 12, experts = 16;
  double skew = 0.42;         // Zipf's exponent of the classes' shares; 0: equal shares
  double correlation = 0.62;  // 0: layers are independent; 1: the expert in one layer determines those in all others
  /// Variation of the classes' shares from batch to batch: standard deviation of their logarithms.
  double drift = 0.25;
  uint64_t seed = 1;
};

/// Returns `batches` batches of `batch_tokens` tokens, from batch number `first_batch` on. Throws BadInput naming a
/// field: `layers`, `experts` below 1, `skew` or `drift` outside [0, 10], `correlation` outside [0, 1].
RoutingTrace generate_routing(const SyntheticRouting& source, int64_t batches, int64_t batch_tokens,
                              int64_t first_batch = 0);

/// Returns the probability that the best possible guess of a token's expert in `layer` is right, given the source and
/// the token's experts in the `path` previous layers. `source` must have no drift. Takes experts^(path + 2) steps.
double best_guess_accuracy(const SyntheticRouting& source, int layer, int path);

}  // namespace moe
