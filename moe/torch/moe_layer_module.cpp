#include "moe/torch/moe_layer_module.h"

#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <tuple>

#include "moe/base/check.h"
#include "moe/layer/binding.h"
#include "moe/tensor/cpu/aten.h"

namespace moe {
namespace {

std::vector<int64_t> sizes_of(TensorView view) {
  std::vector<int64_t> sizes;
  for (int axis = 0; axis < view.rank(); ++axis) sizes.push_back(view.size(axis));
  return sizes;
}

// Returns a view of this rank's part of a weight, or its gradient, with as many axes as the whole weight has.
TensorView with_axes(const Parameter& p, TensorView view) {
  const auto [a, b, c] = std::tuple(p.axes[0].count, p.axes[1].count, p.axes[2].count);
  if (p.dimensions == 1) return view.part(0, {c});
  return p.dimensions == 2 ? view.part(0, {b, c}) : view.part(0, {a, b, c});
}

bool is_here(TensorView view) { return view.device() == DeviceKind::cpu; }

// Returns a tensor that shares the layer's memory, which is the CPU's; it keeps `owner` alive.
torch::Tensor shared(TensorView view, std::shared_ptr<void> owner = nullptr) {
  return torch::from_blob(
      view.data(), sizes_of(view), [owner = std::move(owner)](void*) {}, cpu::scalar_type(view.dtype()));
}

bool shares_memory(const torch::Tensor& tensor, TensorView view) {
  return tensor.defined() && tensor.data_ptr() == view.data();
}

// As above, but returns `last`, the tensor of the previous call, if that still shares the memory.
const torch::Tensor& shared(TensorView view, torch::Tensor& last, const std::shared_ptr<void>& owner = nullptr) {
  if (!shares_memory(last, view)) {
    const c10::InferenceMode no_inference(false);  // code outside inference mode cannot write to tensors made in it
    last = shared(view, owner);
  }
  return last;
}

constexpr int64_t kCopiedHere = 1 << 15;  // bytes; larger copies are made by ATen's threads

torch::Tensor read(TensorView view, MemorySpace& memory, torch::Tensor& last) {
  if (is_here(view) && view.bytes() > kCopiedHere) return shared(view, last).clone();
  torch::Tensor copy = torch::empty(sizes_of(view), cpu::scalar_type(view.dtype()));
  if (is_here(view))
    std::memcpy(copy.data_ptr(), view.data(), static_cast<size_t>(view.bytes()));
  else
    memory.to_host(view.data(), copy.data_ptr(), view.bytes());
  return copy;
}

// Returns whether a tensor's memory can be a copy of the view's, byte by byte.
bool is_alike(const torch::Tensor& tensor, TensorView view) {
  return tensor.scalar_type() == cpu::scalar_type(view.dtype()) && tensor.is_cpu() && tensor.is_contiguous() &&
         tensor.numel() == view.elements() && !tensor.is_neg() && !tensor.is_conj();
}

void write(const torch::Tensor& from, TensorView to, MemorySpace& memory, torch::Tensor& last) {
  if (is_here(to)) {
    if (to.bytes() <= kCopiedHere && is_alike(from, to))
      std::memcpy(to.data(), from.const_data_ptr(), static_cast<size_t>(to.bytes()));
    else
      shared(to, last).copy_(from);
    return;
  }
  const torch::Tensor packed = from.to(torch::kCPU, cpu::scalar_type(to.dtype())).contiguous();
  memory.from_host(packed.data_ptr(), to.data(), to.bytes());
}

// Moves a storage, with all tensors that share it, to new memory with the same values. The old memory lives as long as
// the storage, for NumPy arrays that share it.
void move_out(const torch::Storage& storage) {
  struct Moved {
    c10::DataPtr now, before;
  };
  auto moved = std::make_unique<Moved>();
  moved->now = c10::GetAllocator(c10::kCPU)->allocate(storage.nbytes());
  void* const data = moved->now.get();
  std::memcpy(data, storage.data(), storage.nbytes());
  c10::DataPtr held(
      data, moved.get(), [](void* of) { delete static_cast<Moved*>(of); }, c10::kCPU);
  moved->before = storage.unsafeGetStorageImpl()->set_data_ptr(std::move(held));
  static_cast<void>(moved.release());  // now owned by the storage
}

// Returns the first line of an exception's text. Torch's exceptions add a backtrace; Python's have no text here.
std::string line_of(const std::exception& error) {
  const auto* torchs = dynamic_cast<const c10::Error*>(&error);
  const std::string_view text = torchs ? torchs->what_without_backtrace() : error.what();
  return text.empty() ? "an exception in the layer's backward" : std::string(text.substr(0, text.find('\n')));
}

}  // namespace

struct MoeLayerModule::Noise {
  uint64_t step = 0;  // step of the gate's noise
  bool noisy = true;
};

// The state that forward and backward share; a graph whose backward has yet to run keeps it alive.
struct MoeLayerModule::Runner {
  Runner(std::shared_ptr<MoeLayer> locked, const Plan& plan, std::unique_ptr<Device> on, RankLosses losses,
         std::shared_ptr<std::recursive_mutex> held)
      : layer(std::move(locked)),
        binding(*layer, plan),
        device(on ? std::move(on) : make_device(layer->memory().kind())),
        executor(*device, plan.structure),
        finish(device->make_stream("gradients")),
        mutex(std::move(held)) {
    const RankShape& rank = layer->shape();
    if (losses == RankLosses::averaged)
      losses_apart = rank.held_tokens == rank.tokens ? rank.shape.parallel.ranks() : rank.shape.parallel.replicas();
    for (const Parameter& p : layer->parameters()) {
      values.push_back(with_axes(p, p.value));
      memory.push_back(is_here(values.back()) ? shared(values.back(), layer) : torch::Tensor());
    }
    gradients.resize(values.size());
  }

  void sync(const std::vector<torch::Tensor>& weights);
  void keep_given();
  torch::Tensor gradient_for(size_t weight, TensorView gradient);
  torch::Tensor forward(const torch::Tensor& x, const std::vector<torch::Tensor>& weights);

  std::shared_ptr<MoeLayer> layer;
  LayerBinding binding;
  std::unique_ptr<Device> device;
  Executor executor;
  std::unique_ptr<Stream> finish;
  std::vector<TensorView> values;     // weights in the layer's memory
  std::vector<torch::Tensor> memory;  // by weight, in the CPU's memory: all tensors bound to it share its storage
  std::vector<std::array<torch::Tensor, 2>> gradients;  // of each weight; passes may alternate between two places
  std::vector<torch::Tensor> given_gradients;           // the last backward's gradients, which share the layer's memory
  torch::Tensor input, output, input_gradient, output_gradient;  // all in the CPU's memory
  Noise noise;
  std::optional<Noise> repeated;  // set while a backward runs its forward again
  int losses_apart = 1;           // number of ranks over which the loss is averaged
  RunnerSeconds seconds;
  const RunTimes* times = nullptr;                     // the executor's
  int64_t forwards = 0, backwards = 0;                 // numbers of passes so far
  int64_t activations = 0;                             // the forward whose activations are kept; 0: used up
  std::function<void(const std::string&)> on_failure;  // called if a backward fails
  std::shared_ptr<std::recursive_mutex> mutex;         // held while computing; a checkpoint's backward calls forward
};

// Copies the weights' values into the layer. A weight with other memory then shares the layer's; tensors that shared
// the layer's before keep their values.
void MoeLayerModule::Runner::sync(const std::vector<torch::Tensor>& weights) {
  require_equal<BadInput>(weights.size(), values.size(), "weights of the layer");
  for (size_t i = 0; i < weights.size(); ++i) {
    const TensorView own = values[i];
    torch::Tensor own_memory;
    if (!is_here(own)) {
      write(weights[i], own, layer->memory(), own_memory);
      continue;
    }
    if (weights[i].data_ptr() == own.data() && weights[i].is_contiguous()) continue;
    if (memory[i].data_ptr() == own.data() && memory[i].storage().use_count() > 1) move_out(memory[i].storage());
    if (memory[i].data_ptr() != own.data()) memory[i] = shared(own, layer);
    write(weights[i], own, layer->memory(), own_memory);
    if (weights[i].is_leaf() && weights[i].storage().use_count() == 1) weights[i].set_data(memory[i].variable_data());
  }
}

// Preserves the values of gradients of the last backward that are still referenced.
void MoeLayerModule::Runner::keep_given() {
  for (const torch::Tensor& gradient : given_gradients)
    if (gradient.storage().use_count() > 1) move_out(gradient.storage());
  given_gradients.clear();
}

// Returns a weight's gradient. If the layer's memory is the CPU's, the tensor shares it until the next backward.
torch::Tensor MoeLayerModule::Runner::gradient_for(size_t weight, TensorView gradient) {
  auto& [last, other] = gradients[weight];
  if (!shares_memory(last, gradient)) std::swap(last, other);
  if (!is_here(gradient)) return read(gradient, layer->memory(), last);
  given_gradients.push_back(shared(gradient, last, layer));
  return given_gradients.back().variable_data();
}

torch::Tensor MoeLayerModule::Runner::forward(const torch::Tensor& x, const std::vector<torch::Tensor>& weights) {
  MemorySpace& space = layer->memory();
  sync(weights);
  const TensorView tokens = layer->input();
  require<BadInput>(x.dim() >= 2 && x.numel() == tokens.elements() && x.size(-1) == tokens.size(1),
                    "input: found {} elements in {} axes, expected {} tokens of {}", x.numel(), x.dim(), tokens.size(0),
                    tokens.size(1));
  write(x.dim() == 2 ? x : x.reshape({tokens.size(0), tokens.size(1)}), tokens, space, input);
  activations = 0;
  const Noise& drawn = repeated ? *repeated : noise;
  layer->begin_step(drawn.step, drawn.noisy);
  const double begin_s = now_s();
  times = &executor.run(binding, {}, Phase::forward);
  seconds.forward = now_s() - begin_s;
  activations = ++forwards;
  torch::Tensor y = read(layer->output(), space, output);
  return x.dim() == 2 ? y : y.view(x.sizes());
}

class MoeLayerModule::Backward : public torch::autograd::Node {
 public:
  Backward(std::shared_ptr<Runner> runner, const torch::Tensor& x, const std::vector<torch::Tensor>& weights)
      : runner_(std::move(runner)),
        forward_(runner_->forwards),
        noise_(runner_->repeated.value_or(runner_->noise)),
        x_(x, false) {
    for (const torch::Tensor& weight : weights) weights_.emplace_back(weight, false);
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& d_output) override {
    try {
      return gradients(d_output.at(0));
    } catch (const std::exception& error) {
      if (runner_->on_failure) runner_->on_failure(line_of(error));
      throw;
    }
  }

  void release_variables() override {
    x_.reset_data();
    for (torch::autograd::SavedVariable& weight : weights_) weight.reset_data();
  }

 private:
  torch::autograd::variable_list gradients(const torch::Tensor& d_y) {
    require<Unsupported>(!torch::GradMode::is_enabled(),
                         "the layer's backward: found create_graph=True, and it has no derivative of its own");
    const std::lock_guard alone(*runner_->mutex);
    restore_activations();
    const torch::NoGradGuard no_graph;
    MoeLayer& layer = *runner_->layer;
    MemorySpace& memory = layer.memory();
    const double apart = runner_->losses_apart;
    runner_->keep_given();
    const TensorView d_rows = layer.output_gradient();
    const torch::Tensor d = d_y.dim() == 2 ? d_y : d_y.reshape({d_rows.size(0), d_rows.size(1)});
    write(apart == 1 ? d : d / apart, d_rows, memory, runner_->output_gradient);
    runner_->activations = 0;
    const double begin_s = now_s();
    runner_->executor.run(runner_->binding, {}, Phase::backward);
    layer.finish_step(*runner_->finish);
    runner_->finish->synchronize();
    runner_->seconds.backward = now_s() - begin_s;
    ++runner_->backwards;
    torch::Tensor d_x = read(layer.input_gradient(), memory, runner_->input_gradient);
    if (apart != 1) d_x *= apart;
    torch::autograd::variable_list gradients{d_y.dim() == 2 ? std::move(d_x) : d_x.view(d_y.sizes())};
    for (const Parameter& p : layer.parameters())
      gradients.push_back(runner_->gradient_for(gradients.size() - 1, with_axes(p, p.gradient)));
    return gradients;
  }

  // Whether a forward is run again depends only on counts, which are the same on all ranks.
  void restore_activations() {
    const int64_t before = runner_->forwards;
    runner_->repeated = noise_;
    const auto end = std::unique_ptr<Runner, void (*)(Runner*)>(runner_.get(), [](Runner* r) { r->repeated.reset(); });
    const torch::Tensor x = x_.unpack(shared_from_this());
    std::vector<torch::Tensor> weights;
    for (const auto& weight : weights_) weights.push_back(weight.unpack(shared_from_this()));
    if (runner_->activations == forward_) return;
    // If a checkpoint (torch.utils.checkpoint) is used, reading the saved tensors has just run the forward again.
    if (runner_->forwards == before + 1 && runner_->activations == runner_->forwards) return;
    const torch::NoGradGuard no_graph;
    runner_->forward(x, weights);
  }

  std::shared_ptr<Runner> runner_;
  int64_t forward_;
  Noise noise_;
  torch::autograd::SavedVariable x_;
  std::vector<torch::autograd::SavedVariable> weights_;
};

MoeLayerModule::MoeLayerModule(std::shared_ptr<MoeLayer> layer, const Plan& plan, std::unique_ptr<Device> device,
                               RankLosses losses, std::shared_ptr<std::recursive_mutex> alone)
    : layer_(std::move(layer)),
      runner_(std::make_shared<Runner>(layer_, plan, std::move(device), losses, std::move(alone))) {
  begin_step(layer_->seed().step, layer_->seed().noisy);
  const auto parameters = layer_->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    const torch::Tensor& memory = runner_->memory[i];
    torch::Tensor own_memory;
    weights_.push_back(register_parameter(
        p.name, memory.defined() ? memory.variable_data() : read(runner_->values[i], layer_->memory(), own_memory)));
  }
}

void MoeLayerModule::begin_step(uint64_t step, bool noisy) { runner_->noise = {step, noisy}; }
MoeLayerModule::RunnerSeconds MoeLayerModule::runner_seconds() const { return runner_->seconds; }
int64_t MoeLayerModule::backwards() const { return runner_->backwards; }
const std::vector<TaskTime>& MoeLayerModule::task_times() const { return runner_->times->tasks; }
void MoeLayerModule::forget_activations() { runner_->activations = 0; }
void MoeLayerModule::on_failed_backward(std::function<void(const std::string&)> told) {
  runner_->on_failure = std::move(told);
}
bool MoeLayerModule::repeats() const { return runner_->repeated.has_value(); }

torch::Tensor MoeLayerModule::forward(const torch::Tensor& x, const std::vector<torch::Tensor>& weights) {
  const std::lock_guard alone(*runner_->mutex);
  torch::Tensor y;
  {
    const torch::NoGradGuard no_graph;
    y = runner_->forward(x, weights);
  }
  if (!torch::autograd::compute_requires_grad(x, weights)) return y;
  const auto node = std::make_shared<Backward>(runner_, x, weights);
  node->set_next_edges(torch::autograd::collect_next_edges(x, weights));
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace moe
