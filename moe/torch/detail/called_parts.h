#pragma once
// Parts of a layer that Python computes. They call operators that Python implements (python_library.cpp) and that
// identify the layer by its number.
#include <memory>
#include <string>
#include <string_view>
#include <torch/types.h>
#include <vector>

#include "moe/layer/moe_layer.h"
#include "moe/plan/plan.h"

namespace moe {

/// Throws ValueError unless `tensor` has the layout of the layer's tensor `own`; TypeError if the element types differ.
void require_like(std::string_view name, const torch::Tensor& tensor, const torch::Tensor& own);
/// Returns a tensor that shares the layer's memory of `rows`; it keeps `owner` alive.
torch::Tensor tensor_of(TensorView rows, std::shared_ptr<void> owner = nullptr);

/// The parts of a layer that Python computes: `parts` is a subset of "gate", "experts", "order", "dispatcher" and
/// "hook". `weights` are their parameters: the gate's, named "gate/...", and those of this rank's experts,
/// "experts/E/...".
struct PythonParts {
  int64_t layer = 0;
  std::vector<std::string> parts;
  std::vector<torch::Tensor> weights;
  std::vector<std::string> names;

  bool has(std::string_view part) const;
};

/// Throws BadInput naming a part that Python cannot compute in this layer or schedule.
void check_called_parts(const Plan& plan, const PythonParts& python);
/// Sets these parts in a layer that runs the plan. All ranks of `world_comm` call this together. `*keeps`: whether
/// autograd graphs are kept for a backward. Throws what check_called_parts() does.
void set_called_parts(const std::shared_ptr<MoeLayer>& layer, const Plan& plan, const PythonParts& python,
                      Communicator& world_comm, const std::shared_ptr<bool>& keeps);

}  // namespace moe
