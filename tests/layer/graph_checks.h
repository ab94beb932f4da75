#pragma once
// A part of the layer beside its reference graph: values, gradients by autograd, and those by central differences.
#include <ATen/core/Tensor.h>
#include <functional>
#include <map>
#include <span>

#include "moe/layer/parameter.h"
#include "tests/tensor/random_tensor.h"

namespace moe {

/// Returns a copy of float64 elements, whose gradient autograd computes.
at::Tensor graph_leaf(TensorView t);
/// Returns the largest error of float64 elements, relative to the largest expected one.
double error_of(TensorView found, const at::Tensor& expected);
/// Returns what a rank has of a whole weight.
at::Tensor part_of(const at::Tensor& whole, const Parameter& part);
/// Returns the largest error of some elements of leaf.grad() against central differences of `loss`, relative to its
/// largest.
double difference_error(const at::Tensor& leaf, const std::function<at::Tensor()>& loss);

/// Returns the largest error of a rank's gradients against those of the whole weights.
double gradient_error(std::span<const Parameter> parts, const std::map<std::string, at::Tensor>& weights);

}  // namespace moe
