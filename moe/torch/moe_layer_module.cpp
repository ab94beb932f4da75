#include "moe/torch/moe_layer_module.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "moe/layer/binding.h"
#include "moe/tensor/cpu/aten.h"

namespace moe {
namespace {

std::vector<int64_t> sizes_of(TensorView view) {
  std::vector<int64_t> sizes;
  for (int axis = 0; axis < view.rank(); ++axis) sizes.push_back(view.size(axis));
  return sizes;
}

bool is_here(TensorView view) { return view.device() == DeviceKind::cpu; }

// Shows the layer's own memory, which is the CPU's.
torch::Tensor shared(TensorView view) {
  return torch::from_blob(view.data(), sizes_of(view), cpu::scalar_type(view.dtype()));
}

torch::Tensor read(TensorView view, MemorySpace& memory) {
  if (is_here(view)) return shared(view).clone();
  torch::Tensor copy = torch::empty(sizes_of(view), cpu::scalar_type(view.dtype()));
  memory.to_host(view.data(), copy.data_ptr(), view.bytes());
  return copy;
}

void write(const torch::Tensor& from, TensorView to, MemorySpace& memory) {
  if (is_here(to)) {
    shared(to).copy_(from);
    return;
  }
  const torch::Tensor packed = from.to(torch::kCPU, cpu::scalar_type(to.dtype())).contiguous();
  memory.from_host(packed.data_ptr(), to.data(), to.bytes());
}

}  // namespace

// What forward and backward share; a graph that is still to be run backward keeps it.
struct MoeLayerModule::Runner {
  Runner(std::shared_ptr<MoeLayer> of, const Plan& plan, std::unique_ptr<Device> on)
      : layer(std::move(of)),
        binding(*layer, plan),
        device(on ? std::move(on) : make_device(layer->memory().kind())),
        executor(*device, plan.structure),
        finish(device->make_stream("gradients")) {}

  std::shared_ptr<MoeLayer> layer;
  LayerBinding binding;
  std::unique_ptr<Device> device;
  Executor executor;
  std::unique_ptr<Stream> finish;
  int64_t forwards = 0;
};

class MoeLayerModule::Backward : public torch::autograd::Node {
 public:
  explicit Backward(std::shared_ptr<Runner> runner) : runner_(std::move(runner)), forward_(runner_->forwards) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& d_output) override {
    require_equal(forward_, runner_->forwards, "a backward's forward, of those that the layer ran");
    const torch::NoGradGuard no_graph;
    MoeLayer& layer = *runner_->layer;
    MemorySpace& memory = layer.memory();
    write(d_output.at(0), layer.output_gradient(), memory);
    runner_->executor.run(runner_->binding, {}, Phase::backward);
    layer.finish_step(*runner_->finish);
    runner_->finish->synchronize();
    ++runner_->forwards;  // its activations are used up
    torch::autograd::variable_list gradients{read(layer.input_gradient(), memory)};
    for (const Parameter& p : layer.parameters()) gradients.push_back(read(p.gradient, memory));
    return gradients;
  }

 private:
  std::shared_ptr<Runner> runner_;
  int64_t forward_;
};

MoeLayerModule::MoeLayerModule(std::shared_ptr<MoeLayer> layer, const Plan& plan, std::unique_ptr<Device> device)
    : layer_(std::move(layer)), runner_(std::make_shared<Runner>(layer_, plan, std::move(device))) {
  for (const Parameter& p : layer_->parameters())
    weights_.push_back(
        register_parameter(p.name, is_here(p.value) ? shared(p.value) : read(p.value, layer_->memory())));
}

torch::Tensor MoeLayerModule::forward(const torch::Tensor& x) {
  const auto parameters = layer_->parameters();
  MemorySpace& memory = layer_->memory();
  torch::autograd::variable_list inputs{x};
  torch::Tensor y;
  {
    const torch::NoGradGuard no_graph;
    for (size_t i = 0; i < weights_.size(); ++i) {
      const TensorView own = parameters[i].value;
      if (weights_[i].data_ptr() == own.data()) continue;
      write(weights_[i], own, memory);
      if (is_here(own)) weights_[i].set_data(shared(own));  // load() and to() gave it other memory
    }
    const TensorView input = layer_->input();
    require<BadInput>(x.sizes() == sizes_of(input), "input: found {} elements in {} axes, expected {} tokens of {}",
                      x.numel(), x.dim(), input.size(0), input.size(1));
    write(x, input, memory);
    ++runner_->forwards;
    runner_->executor.run(runner_->binding, {}, Phase::forward);
    y = read(layer_->output(), memory);
  }
  inputs.insert(inputs.end(), weights_.begin(), weights_.end());
  if (!torch::GradMode::is_enabled() || !torch::autograd::any_variable_requires_grad(inputs)) return y;
  const auto node = std::make_shared<Backward>(runner_);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace moe
