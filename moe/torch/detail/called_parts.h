#pragma once
// Parts of a layer that Python computes. They call operators that Python implements (python_library.cpp) and that know
// the layer by its number.
#include <memory>
#include <string>
#include <string_view>
#include <torch/types.h>
#include <vector>

#include "moe/layer/moe_layer.h"
#include "moe/plan/plan.h"

namespace moe {

/// Throws ValueError, or TypeError of an element type, unless a tensor is as the layer's own.
void require_like(std::string_view name, const torch::Tensor& tensor, const torch::Tensor& own);
/// Shows rows of the layer's memory; `owner`, where there is one, lives as long.
torch::Tensor tensor_of(TensorView rows, std::shared_ptr<void> owner = nullptr);

/// What Python computes of a layer: of "gate", "experts", "order", "dispatcher" and "hook" those in `parts`; and the
/// parameters: the gate's, whose names begin with "gate/", and those of the experts that this rank holds, "experts/E/".
struct PythonParts {
  int64_t layer = 0;
  std::vector<std::string> parts;
  std::vector<torch::Tensor> weights;
  std::vector<std::string> names;

  bool has(std::string_view part) const;
};

/// Throws BadInput naming the part that a layer or schedule like this cannot have.
void check_called_parts(const Plan& plan, const PythonParts& python);
/// Puts these parts into a layer that runs the plan. `everyone`: all ranks, which call this together. `keeps`: whether
/// graphs are kept for a backward. Throws what check_called_parts() does.
void set_called_parts(const std::shared_ptr<MoeLayer>& layer, const Plan& plan, const PythonParts& python,
                      Communicator& everyone, const std::shared_ptr<bool>& keeps);

}  // namespace moe
