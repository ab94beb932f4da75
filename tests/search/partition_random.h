#pragma once
// Random models for the partition of gradients: every layer's seconds are the least of a few degrees' times, as those
// of a tuned layer are.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "moe/search/partition.h"

namespace moe::partition_random {

/// One degree of a layer's MoE part: without gradients it takes `alone_s`; with an AllReduce of t seconds in
/// it at least `beside_s` + t.
struct Degree {
  double alone_s = 0, beside_s = 0;
};

struct Layer {
  std::vector<Degree> degrees;
  double dense_s = 0;
  double moe_seconds(double gar_s) const;
};

struct RandomModel {
  double alpha_s = 0, beta_s = 0;  // of the AllReduce, seconds and seconds a byte
  std::vector<Layer> layers;       // in backward order
  PartitionProblem problem;        // made of them
  std::string text;                // the seed and what was drawn, for failures
  double allreduce_seconds(int64_t bytes) const;
};

/// Returns the layer with its bends and windows; `model` must outlive it.
PartitionLayer problem_layer(const RandomModel& model, const Layer& layer, int64_t made_bytes, int64_t element_bytes);

struct Sizes {
  int layers = 4;
  int64_t made_bytes = 100 << 20;  // of a layer, at most; in whole elements
  bool fixed_made_bytes = false;   // of every layer: made_bytes
  int64_t element_bytes = 4;
  bool equal_layers = false;  // all as the first one
};

/// Returns a model by the seed and the sizes alone, with windows of all widths: from none to more than all gradients.
std::shared_ptr<const RandomModel> random_model(uint64_t seed, const Sizes& sizes);

/// Returns the least seconds of the layers from `layer` on, by trying every element of every slice.
double least_of_all(const PartitionProblem& problem, size_t layer, int64_t waiting);

}  // namespace moe::partition_random
