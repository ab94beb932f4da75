#include "moe/torch/detail/called_parts.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "moe/base/check.h"
#include "moe/device/device.h"
#include "moe/tensor/cpu/aten.h"

namespace moe {

void require_like(std::string_view name, const torch::Tensor& tensor, const torch::Tensor& own) {
  if (!tensor.defined() || !tensor.device().is_cpu())
    throw BadInput(fmt::format("{}: found a tensor on {}, expected the CPU's", name,
                               tensor.defined() ? tensor.device().str() : "no device"));
  require<BadInput>(tensor.has_storage() && tensor.layout() == torch::kStrided && !tensor.is_nested(),
                    "{}: found a tensor that is sparse, nested or a transform's (torch.func), expected a dense one",
                    name);
  if (tensor.scalar_type() != own.scalar_type())
    throw c10::TypeError({__func__, __FILE__, __LINE__},
                         fmt::format("{}: found elements of type {}, expected {}, the layer's dtype", name,
                                     c10::toString(tensor.scalar_type()), c10::toString(own.scalar_type())));
  if (tensor.sizes() != own.sizes())
    throw BadInput(fmt::format("{}: found shape ({}), expected ({})", name, fmt::join(tensor.sizes(), ", "),
                               fmt::join(own.sizes(), ", ")));
}

torch::Tensor tensor_of(TensorView t, std::shared_ptr<void> owner) {
  return torch::from_blob(
      t.data(), {t.size(0), t.size(1)}, [owner = std::move(owner)](void*) {}, cpu::scalar_type(t.dtype()));
}

namespace {

/// Finds an operator that Python implements.
template <class Signature>
auto find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

TensorView view_of(const torch::Tensor& t, DType dtype) {
  TensorView view(t.data_ptr(), {t.numel()}, dtype);
  return t.dim() == 3   ? view.part(0, {t.size(0), t.size(1), t.size(2)})
         : t.dim() == 2 ? view.part(0, {1, t.size(0), t.size(1)})
                        : view.part(0, {1, 1, t.size(0)});
}

/// Parameters of a Python module, and their gradients.
struct CalledParameters {
  /// Copies the weights whose names begin with `prefix` from the first rank of `copies`, all of whose ranks have them.
  CalledParameters(const RankShape& rank, Communicator& copies, const PythonParts& python, std::string_view prefix) {
    const auto stream = make_cpu_device()->make_stream("weights of Python's");
    const torch::Tensor like = torch::empty({0}, cpu::scalar_type(rank.dtype()));
    for (size_t i = 0; i < python.weights.size(); ++i) {
      const std::string& name = python.names[i];
      const torch::Tensor& weight = python.weights[i];
      if (!name.starts_with(prefix)) continue;
      const int64_t axes = weight.dim();
      require<BadInput>(axes >= 1 && axes <= 3, "{}: found a parameter of {} axes, expected 1 to 3", name, axes);
      require_like(name, weight, like.new_empty(weight.sizes()));
      const torch::Tensor& value = values.emplace_back(weight.detach().clone(torch::MemoryFormat::Contiguous));
      const torch::Tensor& gradient = gradients.emplace_back(torch::zeros_like(value));
      copies.broadcast(value.data_ptr(), static_cast<int64_t>(value.nbytes()), 0, {*stream});
      stream->synchronize();
      Parameter p{name,
                  {ShardRange{0, 1, 1}, {0, 1, 1}, {0, 1, 1}},
                  view_of(value, rank.dtype()),
                  view_of(gradient, rank.dtype())};
      p.dimensions = static_cast<int>(axes);
      for (int64_t axis = 0; axis < axes; ++axis) p.axes[3 - axes + axis] = {0, weight.size(axis), weight.size(axis)};
      shown.push_back(p);
    }
  }

  /// Stores or adds the gradients `found`, in the order of `values`.
  void take(std::span<const torch::Tensor> found, Into into) {
    require_equal(found.size(), gradients.size(), "gradients of Python's parameters");
    for (size_t i = 0; i < found.size(); ++i)
      into == Into::add ? gradients[i].add_(found[i]) : gradients[i].copy_(found[i]);
  }

  std::vector<torch::Tensor> values, gradients;
  std::vector<Parameter> shown;
};

/// A gate that Python computes, with parameters of its own. Its operators identify it by the number of its layer.
class CalledGate final : public Gate {
 public:
  CalledGate(int64_t layer, CalledParameters parameters, std::shared_ptr<bool> keeps)
      : layer_(layer), own_(std::move(parameters)), keeps_(std::move(keeps)) {}

  void forward(TensorView hidden, Routing& routing) override {
    static const auto kCall =
        find_operator<std::tuple<torch::Tensor, torch::Tensor>(int64_t, const torch::Tensor&, at::TensorList, bool)>(
            "moetune::gate_forward");
    const auto [choices, weights] = kCall.call(layer_, tensor_of(hidden).clone(), own_.values, *keeps_);
    const torch::Tensor expected = torch::empty({routing.tokens, routing.choices}, torch::kMeta);
    require<BadInput>(choices.sizes() == expected.sizes() && weights.sizes() == expected.sizes(),
                      "gate: found choices ({}) and weights ({}), expected ({}): tokens, top_k",
                      fmt::join(choices.sizes(), ", "), fmt::join(weights.sizes(), ", "),
                      fmt::join(expected.sizes(), ", "));
    const torch::Tensor experts = choices.to(torch::kLong).contiguous();
    const auto chosen = std::span(experts.data_ptr<int64_t>(), routing.expert.size());
    for (const int64_t expert : chosen)
      require<BadInput>(expert >= 0 && expert < routing.experts, "gate: found expert {}, expected 0 to {}", expert,
                        routing.experts - 1);
    std::ranges::transform(chosen, routing.expert.begin(), [](int64_t expert) { return static_cast<int>(expert); });
    assign_rows(routing);
    require<BadInput>(weights.isfinite().all().item<bool>(), "gate: found a weight that is not finite");
    tensor_of(routing.weight.view()).copy_(weights);
  }

  void backward(const GateBackward& pass) override {
    static const auto kCall =
        find_operator<std::vector<torch::Tensor>(int64_t, const torch::Tensor&)>("moetune::gate_backward");
    const std::vector<torch::Tensor> gradients = kCall.call(layer_, tensor_of(pass.d_weight).clone());
    tensor_of(pass.d_hidden).add_(gradients.at(0));
    own_.take(std::span(gradients).subspan(1), pass.into);
  }

  std::vector<Parameter> parameters() override { return own_.shown; }

 private:
  int64_t layer_;
  CalledParameters own_;
  std::shared_ptr<bool> keeps_;  // whether graphs are kept for a backward
};

/// Experts that Python computes, each with its own parameters and the whole hidden size (ESP 1).
class CalledExperts final : public Expert {
 public:
  CalledExperts(int64_t layer, std::vector<CalledParameters> experts, std::shared_ptr<bool> keeps)
      : layer_(layer), experts_(std::move(experts)), keeps_(std::move(keeps)) {}

  void begin_forward() override {
    static const auto kCall = find_operator<void(int64_t)>("moetune::experts_begin");
    kCall.call(layer_);
  }
  void reserve(int64_t) override {}  // in Python, autograd keeps the activations

  void forward(TensorView input, std::span<const Rows> rows, TensorView output) override {
    static const auto kCall =
        find_operator<torch::Tensor(int64_t, int64_t, int64_t, const torch::Tensor&, at::TensorList, bool)>(
            "moetune::expert_forward");
    for_each_expert(rows, [&](size_t e, int64_t packed) {
      const torch::Tensor x = tensor_of(at(input, rows[e].begin, rows[e].count()));
      const torch::Tensor y =
          kCall.call(layer_, static_cast<int64_t>(e), rows[e].begin, x.clone(), experts_[e].values, *keeps_);
      require_like("expert", y, x);
      tensor_of(at(output, packed, rows[e].count())).copy_(y);
    });
  }

  void backward(const ExpertPass& pass, TensorView, Into into) override {
    begin_gradients(into);
    for_each_expert(pass.rows, [&](size_t e, int64_t packed) {
      const std::vector<torch::Tensor> found =
          gradients(pass, e, at(pass.d_output, packed, pass.rows[e].count()), true, true);
      tensor_of(at(pass.d_input, packed, pass.rows[e].count())).copy_(found.at(0));
      experts_[e].take(std::span(found).subspan(1), Into::add);
    });
  }

  void backward_inputs(const ExpertPass& pass) override {
    for_each_expert(pass.rows, [&](size_t e, int64_t packed) {
      const TensorView d_output = at(pass.d_output, pass.rows[e].begin, pass.rows[e].count());
      tensor_of(at(pass.d_input, packed, pass.rows[e].count())).copy_(gradients(pass, e, d_output, true, false).at(0));
    });
  }

  void backward_weights(const ExpertPass& pass, TensorView, Into into) override {
    begin_gradients(into);
    for_each_expert(pass.rows, [&](size_t e, int64_t) {
      const TensorView d_output = at(pass.d_output, pass.rows[e].begin, pass.rows[e].count());
      experts_[e].take(gradients(pass, e, d_output, false, true), Into::add);
    });
  }

  std::vector<Parameter> parameters(TensorView) override {
    std::vector<Parameter> all;
    for (const CalledParameters& expert : experts_) all.insert(all.end(), expert.shown.begin(), expert.shown.end());
    for (Parameter& p : all) p.summed_over = SummedOver::edp;
    return all;
  }

 private:
  static TensorView at(TensorView t, int64_t first, int64_t rows) {
    return t.part(first * t.size(1), {rows, t.size(1)});
  }

  // Calls step(expert, its first row in a packed chunk) for each expert that has rows.
  static void for_each_expert(std::span<const Rows> rows, const auto& step) {
    int64_t packed = 0;
    for (size_t e = 0; e < rows.size(); ++e) {
      if (rows[e].count() > 0) step(e, packed);
      packed += rows[e].count();
    }
  }

  // The first chunk, which overwrites gradients, may lack rows of some expert, so all gradients are cleared first.
  void begin_gradients(Into into) {
    if (into == Into::add) return;
    for (CalledParameters& expert : experts_)
      for (torch::Tensor& gradient : expert.gradients) gradient.zero_();
  }

  // Returns the gradients of the rows, if `inputs`, and after them those of the parameters, if `weights`.
  std::vector<torch::Tensor> gradients(const ExpertPass& pass, size_t expert, TensorView d_output, bool inputs,
                                       bool weights) {
    static const auto kCall =
        find_operator<std::vector<torch::Tensor>(int64_t, int64_t, int64_t, const torch::Tensor&, const torch::Tensor&,
                                                 at::TensorList, bool, bool)>("moetune::expert_backward");
    const Rows rows = pass.rows[expert];
    return kCall.call(layer_, static_cast<int64_t>(expert), rows.begin,
                      tensor_of(at(pass.input, rows.begin, rows.count())).clone(), tensor_of(d_output).clone(),
                      experts_[expert].values, inputs, weights);
  }

  int64_t layer_;
  std::vector<CalledParameters> experts_;
  std::shared_ptr<bool> keeps_;  // whether graphs are kept for a backward
};

/// Numbers the rows of a layout: stream after stream, expert after expert, and in their order within each.
class RowNumbers {
 public:
  explicit RowNumbers(const RowLayout& layout) : layout_(layout) {
    for (int stream = 0; stream < layout.streams(); ++stream)
      for (int64_t expert = 0; expert < layout.experts(); ++expert) {
        first_.push_back(layout.holds(stream, expert) ? rows_ : -1);
        if (layout.holds(stream, expert)) rows_ += layout.count(stream, expert);
      }
  }
  int64_t rows() const { return rows_; }

  /// Returns the row number of each (token, choice) pair; -1: the row is not on this rank.
  torch::Tensor of_pairs(const Routing& routing) const {
    torch::Tensor numbers = torch::full({routing.tokens, routing.choices}, -1, torch::kLong);
    auto* number = numbers.data_ptr<int64_t>();
    for (int64_t p = 0; p < routing.pairs(); ++p) {
      if (routing.expert[p] < 0 || routing.row[p] == Routing::kDropped) continue;
      const int64_t group = routing.group_of(p / routing.choices);
      const int64_t first = first_[group * layout_.experts() + routing.expert[p]];
      if (first >= 0) number[p] = first + routing.row[p];
    }
    return numbers;
  }

  /// Copies rows of a layout into a tensor, ordered by their numbers.
  torch::Tensor packed(TensorView data) const {
    torch::Tensor rows = torch::empty({rows_, layout_.model_dim()}, cpu::scalar_type(data.dtype()));
    for_each(data, rows, [](std::byte* at, std::byte* row, size_t bytes) { std::memcpy(row, at, bytes); });
    return rows;
  }
  /// Copies the rows back.
  void unpack(const torch::Tensor& rows, TensorView data) const {
    for_each(data, rows, [](std::byte* at, std::byte* row, size_t bytes) { std::memcpy(at, row, bytes); });
  }

 private:
  void for_each(TensorView data, const torch::Tensor& rows, const auto& copy) const {
    const int64_t element = bytes_of(data.dtype());
    const auto bytes = static_cast<size_t>(layout_.model_dim() * element);
    auto* row = static_cast<std::byte*>(rows.data_ptr());
    for (int stream = 0; stream < layout_.streams(); ++stream)
      for (int64_t expert = 0; expert < layout_.experts(); ++expert) {
        if (!layout_.holds(stream, expert)) continue;
        for (int64_t i = 0; i < layout_.count(stream, expert); ++i, row += bytes)
          copy(data.as<std::byte>() + layout_.offset(stream, expert, i) * element, row, bytes);
      }
  }

  const RowLayout& layout_;
  std::vector<int64_t> first_;  // [stream][expert]; -1: not here
  int64_t rows_ = 0;
};

/// An order and its inverse that Python computes; autograd computes their gradients.
class CalledOrder final : public Order {
 public:
  explicit CalledOrder(int64_t layer) : layer_(layer) {}

  void order(const Routing& routing, TensorView tokens, RowsView rows) override {
    const RowNumbers numbers(rows.layout);
    numbers.unpack(order_of(routing, tokens, numbers, std::nullopt), rows.data);
  }
  void order_backward(const Routing& routing, TensorView tokens, RowsView d_rows, TensorView d_tokens,
                      TensorView) override {
    const RowNumbers numbers(d_rows.layout);
    tensor_of(d_tokens).copy_(order_of(routing, tokens, numbers, numbers.packed(d_rows.data)));
  }
  void i_order(const Routing& routing, RowsView rows, TensorView output) override {
    tensor_of(output).copy_(i_order_of(routing, rows, std::nullopt).at(0));
  }
  void i_order_backward(const Routing& routing, TensorView d_output, RowsView rows, RowsView d_rows,
                        TensorView d_weight) override {
    const std::vector<torch::Tensor> found = i_order_of(routing, rows, tensor_of(d_output).clone());
    RowNumbers(d_rows.layout).unpack(found.at(0), d_rows.data);
    tensor_of(d_weight).copy_(found.at(1));
  }

 private:
  // Returns the rows or, given their gradients, the tokens' gradients.
  torch::Tensor order_of(const Routing& routing, TensorView tokens, const RowNumbers& numbers,
                         const std::optional<torch::Tensor>& d_rows) const {
    static const auto kCall = find_operator<torch::Tensor(int64_t, const torch::Tensor&, const torch::Tensor&, int64_t,
                                                          const std::optional<torch::Tensor>&)>("moetune::order");
    const torch::Tensor x = tensor_of(tokens).clone();
    const torch::Tensor found = kCall.call(layer_, x, numbers.of_pairs(routing), numbers.rows(), d_rows);
    require_like("order", found, d_rows ? x : x.new_empty({numbers.rows(), x.size(1)}));
    return found.contiguous();
  }
  // Returns the output or, given its gradient, the gradients of rows and weights.
  std::vector<torch::Tensor> i_order_of(const Routing& routing, RowsView rows,
                                        const std::optional<torch::Tensor>& d_output) const {
    static const auto kCall =
        find_operator<std::vector<torch::Tensor>(int64_t, const torch::Tensor&, const torch::Tensor&,
                                                 const torch::Tensor&, const std::optional<torch::Tensor>&)>(
            "moetune::i_order");
    const RowNumbers numbers(rows.layout);
    const torch::Tensor x = numbers.packed(rows.data), weights = tensor_of(routing.weight.view()).clone();
    std::vector<torch::Tensor> found = kCall.call(layer_, x, numbers.of_pairs(routing), weights, d_output);
    require_like("i_order", found.at(0), d_output ? x : x.new_empty({routing.tokens, x.size(1)}));
    found.front() = found.front().contiguous();
    return found;
  }

  int64_t layer_;
};

/// A dispatcher that Python computes.
class CalledDispatcher final : public Dispatcher {
 public:
  CalledDispatcher(int64_t layer, const std::shared_ptr<MoeLayer>& owner)
      : layer_(layer), owner_(owner), type_(cpu::scalar_type(wire_type(owner->shape().shape.layer))) {
    for (const int rank : members(owner->shape().shape.parallel, GroupKind::ep, owner->shape().rank))
      ranks_.push_back(rank);
  }

  void exchange(const Blocks& blocks, CommCall call) override {
    std::vector<torch::Tensor> send = tensors(const_cast<void*>(blocks.send), blocks.send_bytes);
    std::vector<torch::Tensor> receive = tensors(blocks.receive, blocks.receive_bytes);
    call.stream.launch([this, send = std::move(send), receive = std::move(receive)](void*) {
      static const auto kCall =
          find_operator<void(int64_t, at::TensorList, at::TensorList, at::IntArrayRef)>("moetune::exchange");
      kCall.call(layer_, send, receive, ranks_);
    });
  }

 private:
  std::vector<torch::Tensor> tensors(void* data, std::span<const int64_t> bytes) const {
    std::vector<torch::Tensor> blocks;
    auto* at = static_cast<std::byte*>(data);
    const std::shared_ptr<void> owner = owner_.lock();
    for (const int64_t size : bytes) {
      blocks.push_back(torch::from_blob(
          at, {size / static_cast<int64_t>(c10::elementSize(type_))}, [owner](void*) {}, type_));
      at += size;
    }
    return blocks;
  }

  int64_t layer_;
  std::weak_ptr<MoeLayer> owner_;
  c10::ScalarType type_;
  std::vector<int64_t> ranks_;
};

/// Calls Python at the six points of a hook.
class CalledHook final : public Hook {
 public:
  CalledHook(int64_t layer, const std::shared_ptr<MoeLayer>& owner) : layer_(layer), owner_(owner) {}
  void before_moe_start(Phase phase, TensorView rows) override { call("before_moe_start", phase, rows); }
  void before_dispatch(Phase phase, TensorView rows, TensorView) override { call("before_dispatch", phase, rows); }
  void after_dispatch(Phase phase, TensorView, TensorView rows) override { call("after_dispatch", phase, rows); }
  void before_combine(Phase phase, TensorView rows, TensorView) override { call("before_combine", phase, rows); }
  void after_combine(Phase phase, TensorView, TensorView rows) override { call("after_combine", phase, rows); }
  void before_moe_end(Phase phase, TensorView rows) override { call("before_moe_end", phase, rows); }

 private:
  void call(const char* point, Phase phase, TensorView rows) const {
    static const auto kCall =
        find_operator<void(int64_t, c10::string_view, c10::string_view, const torch::Tensor&)>("moetune::hook");
    kCall.call(layer_, point, name_of(phase), tensor_of(rows, owner_.lock()));
  }

  int64_t layer_;
  std::weak_ptr<MoeLayer> owner_;
};

}  // namespace

void check_called_parts(const Plan& plan, const PythonParts& python) {
  const LayerShape& layer = plan.shape.layer;
  if (python.has("gate"))
    require<BadInput>(layer.aux_loss == 0 && layer.z_loss == 0,
                      "MoELayer: found auxiliary losses with a gate of Python's, expected none: it computes its own");
  if (python.has("experts"))
    require<BadInput>(std::ranges::none_of(plan.gradients, &Gradient::experts),
                      "MoELayer: found experts of Python's and schedule {}, expected one that doesn't pack experts",
                      plan.schedule);
  if (python.has("order"))
    require<BadInput>(gate_of(layer).choices != Choices::rows,
                      "MoELayer: found an order of Python's and gate {}, expected one that doesn't mix tokens",
                      layer.gate);
  if (python.has("dispatcher"))
    require<BadInput>(
        std::ranges::none_of(plan.tasks(), [](const Task& task) { return task.group == GroupKind::ep_esp; }),
        "MoELayer: found a dispatcher of Python's and schedule {}, expected one that exchanges rows over EP alone",
        plan.schedule);
}

bool PythonParts::has(std::string_view part) const { return std::ranges::find(parts, part) != parts.end(); }

void set_called_parts(const std::shared_ptr<MoeLayer>& layer, const Plan& plan, const PythonParts& python,
                      Communicator& world_comm, const std::shared_ptr<bool>& keeps) {
  check_called_parts(plan, python);
  const RankShape& rank = layer->shape();
  LayerParts& parts = layer->state().parts;
  if (python.has("gate"))
    parts.gate = std::make_unique<CalledGate>(python.layer, CalledParameters(rank, world_comm, python, "gate/"), keeps);
  if (python.has("experts")) {
    std::vector<CalledParameters> experts;
    for (int64_t e = rank.experts.first; e < rank.experts.first + rank.experts.count; ++e)
      experts.emplace_back(rank, layer->state().comms.communicator(GroupKind::edp), python,
                           fmt::format("experts/{}/", e));
    parts.expert = std::make_unique<CalledExperts>(python.layer, std::move(experts), keeps);
  }
  if (python.has("order")) parts.order = std::make_unique<CalledOrder>(python.layer);
  if (python.has("dispatcher")) parts.dispatcher = std::make_unique<CalledDispatcher>(python.layer, layer);
  if (python.has("hook")) layer->set_hook(std::make_unique<CalledHook>(python.layer, layer));
}

}  // namespace moe
