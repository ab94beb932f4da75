#pragma once
// Synthetic routing, for where no trace was recorded: tokens of hidden classes, each with an expert of its own in every
// layer. Everything is drawn by (seed, token, layer) alone.
#include <cstdint>
#include <vector>

#include "moe/serve/routing_trace.h"

namespace moe {

/// What is drawn. There are as many classes as experts. A token's class is the rank of a Zipf law; in each layer the
/// classes have different experts, in an order of the layer's own. In a layer a token goes, with the probability
/// `correlation`, to the expert of its class, else to that of a class drawn anew.
struct RoutingSource {
  int layers = 12, experts = 16;
  double skew = 0.42;         // Zipf's exponent of the classes; 0: all alike
  double correlation = 0.62;  // 0: layers are independent; 1: the expert of one layer tells all others
  double drift = 0.25;        // of classes from batch to batch: standard deviation of the logarithm of their shares
  uint64_t seed = 1;
};

/// Returns `batches` batches of `batch_tokens` tokens, from batch number `first_batch` on. Throws BadInput naming a
/// field: `layers`, `experts` below 1, `skew` or `drift` outside [0, 10], `correlation` outside [0, 1].
RoutingTrace draw_routing(const RoutingSource& source, int64_t batches, int64_t batch_tokens, int64_t first_batch = 0);

/// Returns how often the best possible guess of a token's expert in `layer`, given those in the `path` layers before it
/// and the source, is right. Of a source without drift; takes experts^(path + 2) steps.
double best_guess_accuracy(const RoutingSource& source, int layer, int path);

}  // namespace moe
