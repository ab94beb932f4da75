#include "moe/measure/modules/module_run.h"

#include <cstring>

#include "moe/layer/attention.h"
#include "moe/layer/hooks/hook.h"
#include "moe/sharding/phase_layouts.h"
#include "moe/tensor/cpu/math.h"

namespace moe::measure {
namespace {

void clear(TensorView t) { std::memset(t.data(), 0, static_cast<size_t>(t.bytes())); }

// A module of a rank with buffers of shapes (rows_in, M) and (rows_out, M).
class WithRank : public ModuleRun {
 protected:
  explicit WithRank(const LayerCase& shape) : rank_(rank_shape(shape, 0)) {}
  void make_buffers(int64_t rows_in, int64_t rows_out) {
    for (Tensor* t : {&input_, &d_input_}) *t = Tensor({rows_in, rank_.model_dim()}, rank_.dtype());
    for (Tensor* t : {&output_, &d_output_}) *t = Tensor({rows_out, rank_.model_dim()}, rank_.dtype());
    fill_input(input_, {0, rows_in, rows_in}, seed_);
    fill_output_gradient(d_output_, {0, rows_out, rows_out}, seed_);
  }

  RankShape rank_;
  LayerSeed seed_;
};

class AttentionRun final : public WithRank {
 public:
  explicit AttentionRun(const LayerCase& shape)
      : WithRank(shape),
        attention_(make_attention({rank_, seed_})),
        gradients_({gradient_bytes(shape) / bytes_of(rank_.dtype())}, rank_.dtype()) {
    make_buffers(rank_.mp_tokens(), rank_.mp_tokens());
  }
  void run(Phase phase) override {
    if (phase == Phase::forward) return attention_->forward(input_, output_);
    attention_->backward_input(d_output_, d_input_);
    attention_->backward_weights(input_, d_output_, gradients_);
  }

 private:
  std::unique_ptr<Attention> attention_;
  Tensor gradients_;
};

class GateRun final : public WithRank {
 public:
  GateRun(const LayerCase& shape, const GateRow& gate)
      : WithRank(shape),
        routing_(make_routing(rank_)),
        gate_(gate.make({rank_, seed_})),
        d_weight_({routing_.tokens, routing_.choices}, rank_.dtype()) {
    make_buffers(rank_.tokens.count, 0);
    if (routing_.mixes()) d_fill_ = Tensor({routing_.tokens, routing_.choices}, rank_.dtype());
    gate_->forward(input_, routing_);
    for (const Tensor* d : {&d_weight_, &d_fill_}) fill(*d);
  }
  void run(Phase phase) override {
    if (phase == Phase::forward) return gate_->forward(input_, routing_);
    gate_->backward({input_, routing_, d_weight_, d_fill_, d_input_});
  }
  std::vector<std::pair<TensorView, TensorView>> outputs() const override {
    std::vector<std::pair<TensorView, TensorView>> pairs{{routing_.weight, d_weight_}};
    if (routing_.mixes()) pairs.emplace_back(routing_.fill, d_fill_);
    return pairs;
  }

 private:
  // Fills a gradient of the gate's weights. The weight of a dropped pair has no effect, so its gradient is 0.
  void fill(TensorView d) const {
    if (d.data() == nullptr) return;
    fill_output_gradient(d, {0, routing_.tokens, routing_.tokens}, seed_);
    for (size_t p = 0; p < routing_.row.size(); ++p)
      if (routing_.row[p] == Routing::kDropped) clear(d.part(static_cast<int64_t>(p), {1}));
  }

  Routing routing_;
  std::unique_ptr<Gate> gate_;
  Tensor d_weight_, d_fill_;
};

// Runs order or, if `home`, i-order of the tokens that the layer's gate routes.
class OrderRun final : public WithRank {
 public:
  OrderRun(const LayerCase& shape, std::unique_ptr<Order> order, bool home)
      : WithRank(shape),
        home_(home),
        layouts_(rank_, {}),
        routing_(make_routing(rank_)),
        order_(std::move(order)),
        d_weight_({routing_.tokens, routing_.choices}, rank_.dtype()) {
    const int64_t tokens = rank_.tokens.count, rows = layouts_.home.elements() / rank_.model_dim();
    make_buffers(home ? rows : tokens, home ? tokens : rows);
    if (routing_.mixes()) d_fill_ = Tensor({routing_.tokens, routing_.choices}, rank_.dtype());
    Tensor hidden({tokens, rank_.model_dim()}, rank_.dtype());
    fill_input(hidden, rank_.tokens, seed_);
    find_gate(shape.layer.gate).make({rank_, seed_})->forward(hidden, routing_);
  }
  void run(Phase phase) override {
    const auto rows = [&](const Tensor& t) { return RowsView{t, layouts_.home}; };
    const bool forward = phase == Phase::forward;
    if (home_ && forward) return order_->i_order(routing_, rows(input_), output_);
    if (home_) return order_->i_order_backward(routing_, d_output_, rows(input_), rows(d_input_), d_weight_);
    if (forward) return order_->order(routing_, input_, rows(output_));
    order_->order_backward(routing_, input_, rows(d_output_), d_input_, d_fill_);
  }

 private:
  bool home_;
  PhaseLayouts layouts_;
  Routing routing_;
  std::unique_ptr<Order> order_;
  Tensor d_weight_, d_fill_;
};

class ExpertRun final : public WithRank {
 public:
  template <class Make>
  ExpertRun(const LayerCase& shape, Make make)
      : WithRank(shape),
        expert_(make(PartSetup{rank_, seed_})),
        gradients_({expert_gradient_bytes(shape) / bytes_of(rank_.dtype())}, rank_.dtype()) {
    for (int64_t e = 0; e < rank_.experts.count; ++e) rows_.push_back({e * rank_.rows, (e + 1) * rank_.rows});
    make_buffers(rows_.back().end, rows_.back().end);
    expert_->reserve(rows_.back().end);
  }
  void run(Phase phase) override {
    if (phase == Phase::forward) return expert_->forward(input_, rows_, output_);
    expert_->backward({input_, rows_, d_output_, d_input_}, gradients_, Into::overwrite);
  }

 private:
  std::vector<Rows> rows_;
  std::unique_ptr<Expert> expert_;
  Tensor gradients_;
};

// Calls a hook before and after one dispatch; the calls around a combine take as long.
class HookRun final : public WithRank {
 public:
  explicit HookRun(const LayerCase& shape)
      : WithRank(shape), hook_(make_hook(shape.layer.hook)), own_type_(wire_type(shape.layer) == rank_.dtype()) {
    require<BadInput>(hook_ != nullptr, "modules: hook:{} does nothing that could be timed", shape.layer.hook);
    const int64_t rows = rank_.rows * rank_.experts.total;
    make_buffers(rows, rows);
    if (!own_type_) wire_ = Tensor({rows, rank_.model_dim()}, wire_type(shape.layer));
  }
  void run(Phase phase) override {
    const bool forward = phase == Phase::forward;
    const TensorView from = forward ? input_ : d_output_, to = forward ? output_ : d_input_;
    if (own_type_) assign(from, to);
    const TensorView wire = own_type_ ? to : wire_.view();
    hook_->before_dispatch(phase, own_type_ ? to : from, wire);
    hook_->after_dispatch(phase, wire, to);
  }

 private:
  std::unique_ptr<Hook> hook_;
  bool own_type_;
  Tensor wire_;
};

}  // namespace

void ModuleRun::prepare(Phase phase) {
  if (phase == Phase::forward) return;
  clear(d_input_);
  run(Phase::forward);
}

std::vector<std::string> registered_modules() {
  std::vector<std::string> names{"attention", "attention:selective"};
  for (const std::string_view gate : gate_names()) names.push_back(fmt::format("gate:{}", gate));
  for (const std::string_view order : order_names()) {
    names.push_back(fmt::format("order:{}", order));
    names.push_back(fmt::format("i-order:{}", order));
  }
  for (const std::string_view hook : hook_names())
    if (make_hook(hook) != nullptr) names.push_back(fmt::format("hook:{}", hook));
  for (const FfnPart& ffn : ffn_parts()) names.push_back(fmt::format("expert:{}", ffn.name));
  return names;
}

std::unique_ptr<ModuleRun> make_module_run(std::string_view name, const LayerCase& shape) {
  const auto module = module_of(name);
  require<BadInput>(module.has_value(),
                    "modules: found '{}', expected attention, attention:selective, gate:NAME, order:NAME, "
                    "i-order:NAME, expert:NAME or hook:NAME",
                    name);
  const LayerCase alone = with_module(shape, *module);
  switch (module->kind) {
    case TaskKind::gate:
      return make_gate_run(find_gate(alone.layer.gate), alone);
    case TaskKind::order:
    case TaskKind::i_order:
      return std::make_unique<OrderRun>(alone, make_order(alone.layer.order, alone.layer.dtype),
                                        module->kind == TaskKind::i_order);
    case TaskKind::dispatch:
      return std::make_unique<HookRun>(alone);
    case TaskKind::expert:
      return std::make_unique<ExpertRun>(
          alone, [&](const PartSetup& setup) { return make_expert(name_of(alone.layer.ffn), setup); });
    default:
      return std::make_unique<AttentionRun>(alone);
  }
}

std::unique_ptr<ModuleRun> make_gate_run(const GateRow& gate, const LayerCase& shape) {
  return std::make_unique<GateRun>(shape, gate);
}

std::unique_ptr<ModuleRun> make_order_run(const OrderRow& order, bool is_unpermute, const LayerCase& shape) {
  return std::make_unique<OrderRun>(shape, order.make(shape.layer.dtype), is_unpermute);
}

std::unique_ptr<ModuleRun> make_expert_run(const ExpertRow& expert, const LayerCase& shape) {
  return std::make_unique<ExpertRun>(shape, expert.make);
}

}  // namespace moe::measure
