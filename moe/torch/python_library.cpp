// The library that the Python module moetune.torch loads by torch.ops.load_library: one rank's layer as a class of
// torch's own. It links LibTorch alone, so that one library serves every Python.
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <torch/library.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <utility>
#include <vector>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/version.h"
#include "moe/comm/gloo/gloo_world.h"
#include "moe/device/cpu/cores.h"
#include "moe/device/device.h"
#include "moe/formats/plan_json.h"
#include "moe/layer/binding.h"
#include "moe/schedule/schedule.h"
#include "moe/search/layer_search.h"
#include "moe/tensor/cpu/aten.h"
#include "moe/torch/moe_layer_module.h"

namespace moe {
namespace {

/// Returns what `work` returns. What is BadInput here is ValueError in Python; all else is RuntimeError.
template <class Work>
auto in_python(Work&& work) {
  try {
    return work();
  } catch (const BadInput& error) {
    throw c10::ValueError({__func__, __FILE__, __LINE__}, error.what());
  }
}

/// Where the ranks of a process group meet: a store that torch serves.
Launch launch_of(int64_t rank, int64_t ranks, const std::string& store, const std::string& run,
                 int64_t ranks_per_node) {
  LaunchFlags flags{static_cast<int>(rank), static_cast<int>(ranks), store, static_cast<int>(ranks_per_node)};
  flags.names.rendezvous = "the process group's store";
  Launch launch = find_launch(flags, [](const std::string&) { return std::nullopt; });
  launch.by = "torch.distributed";
  launch.served = true;
  launch.run = run;
  return launch;
}

/// This process's rank among those of a process group.
class Ranks : public torch::CustomClassHolder {
 public:
  /// `store`: HOST:PORT, empty of one rank. `run`: what tells these ranks' keys from others' in it.
  Ranks(int64_t rank, int64_t ranks, const std::string& store, const std::string& run, int64_t ranks_per_node,
        double timeout_s)
      : world_(in_python([&] {
          const Launch launch = launch_of(rank, ranks, store, run, ranks_per_node);
          return std::make_unique<GlooWorld>(launch, GlooJob{std::string(version()), "moetune.torch"}, timeout_s,
                                             timeout_s, false);
        })),
        everyone_(world_->communicator(world_->here().front())) {}

  Communicator& everyone() {
    require<BadInput>(everyone_ != nullptr, "MoELayer: found ranks that have left, expected a live process group");
    return *everyone_;
  }
  const WorldTopology& topology() {
    everyone();
    return world_->topology();
  }
  /// Returns the numbers of the experts that this rank holds: the first, and how many. `options` are PythonLayer's.
  std::vector<int64_t> experts(const std::string& options);
  LayerComms comms_of(const ParallelShape& parallel) { return comms_.of(everyone(), parallel); }

  /// Leaves the run; rank 0 waits for the others.
  void close() {
    comms_ = {};
    everyone_.reset();
    world_.reset();
  }

 private:
  std::unique_ptr<GlooWorld> world_;
  std::unique_ptr<Communicator> everyone_;
  KnownComms comms_;
};

constexpr std::string_view kOptions = "MoELayer";
constexpr auto kOptionKeys =
    with(with(kLayerKeys, kParallelKeys), {"capacity_rounding", "schedule", "degree_forward", "degree_backward", "plan",
                                           "plan_text", "seed", "losses", "attention"});

bool has_attention(const TableReader& options) { return !options.has("attention") || options.boolean("attention"); }

constexpr Limits kDegreeLimits{.least = 1, .most = 4096};

/// Reads the plan: of a file, or of the layer and the schedule that the options name; what these leave open is decided
/// by nominal costs.
Plan plan_of(const TableReader& options, const WorldTopology& topology) {
  if (options.has("plan")) {
    const std::string path = options.text("plan");
    for (const std::string_view key : kOptionKeys)
      if (options.has(key) && !key.starts_with("plan") && key != "seed" && key != "losses")
        options.fail(options.value(key), key, fmt::format("none beside plan, which says it: {}", path));
    Plan plan = options.has("plan_text") ? parse_plan(options.text("plan_text", false), path) : read_plan(path);
    const ParallelShape& parallel = plan.shape.parallel;
    require<BadInput>(parallel.nodes == topology.nodes && parallel.ranks_per_node == topology.ranks_per_node,
                      "{}: found a plan of {} x {} ranks, expected one of {} x {}, which are here", path,
                      parallel.nodes, parallel.ranks_per_node, topology.nodes, topology.ranks_per_node);
    return plan;
  }
  LayerShape layer;
  read_layer_keys(options, layer);
  ParallelShape parallel = read_parallel_keys(options);
  parallel.nodes = topology.nodes;
  parallel.ranks_per_node = topology.ranks_per_node;
  if (!has_attention(options)) {  // the least that a plan can have, with heads for any MP
    layer.heads = parallel.ranks();
    layer.kv_heads = 0;
    layer.head_dim = 1;
    layer.rope_theta = 0;
  }
  Rounding rounding = Rounding::ragged;
  if (options.has("capacity_rounding"))
    rounding = rounding_from(options.text("capacity_rounding"), options.where("capacity_rounding"));
  const Schedule& schedule = find_schedule(options.has("schedule") ? options.text("schedule") : "tutel");
  const LayerCase shape = complete(layer, parallel, rounding);
  const int64_t rows = capacity_rows(shape);
  const auto degree = [&](std::string_view key) {
    const int64_t chunks = options.optional_integer(key, kDegreeLimits).value_or(1);
    require<BadInput>(chunks <= rows, "{}: {}: found {}, expected at most {}: a chunk has a row of each expert",
                      kOptions, key, chunks, rows);
    return static_cast<int>(chunks);
  };
  const Profile profile = nominal_profile(shape);
  const LayerPricer pricer(profile, shape, {});
  const LayerResult decided = LayerSearch().tune(
      schedule, pricer, {.forward = degree("degree_forward"), .backward = degree("degree_backward")});
  return build_plan(schedule, shape, decided.decision);
}

std::vector<int64_t> Ranks::experts(const std::string& options) {
  return in_python([&] {
    const ConfigFile file = parse_json(options, std::string(kOptions));
    const Plan plan = plan_of(TableReader(file, kOptionKeys), topology());
    require<BadInput>(plan.shape.parallel.esp == 1, "{}: found experts of Python's with ESP {}, expected 1", kOptions,
                      plan.shape.parallel.esp);
    const ShardRange held = rank_shape(plan.shape, everyone().rank(), plan.structure->flow).experts;
    return std::vector<int64_t>{held.first, held.count};
  });
}

/// Throws RankFailure unless all ranks have the same `seed` and `losses`, which no plan contains.
void require_same_losses(Communicator& everyone, const LayerSeed& seed, RankLosses losses) {
  const std::array<uint64_t, 2> own{seed.seed, losses == RankLosses::averaged};
  std::vector<std::array<uint64_t, 2>> all(static_cast<size_t>(everyone.size()));
  const auto stream = make_cpu_device()->make_stream("seed and losses");
  everyone.allgather(own.data(), all.data(), sizeof own, {*stream, {}, "comparing seed and losses"});
  stream->synchronize();
  for (size_t rank = 0; rank < all.size(); ++rank)
    require<RankFailure>(all[rank] == own, "rank {}: seed {} and losses {} differ from rank {}'s: {} and {}",
                         everyone.rank(), own[0], own[1] == 0 ? "sum" : "mean", rank, all[rank][0],
                         all[rank][1] == 0 ? "sum" : "mean");
}

/// Throws ValueError, or TypeError of an element type, unless a tensor is as the layer's own.
void require_like(std::string_view name, const torch::Tensor& tensor, const torch::Tensor& own) {
  require<BadInput>(tensor.defined() && tensor.device().is_cpu(), "{}: found a tensor on {}, expected the CPU's", name,
                    tensor.defined() ? tensor.device().str() : "no device");
  if (tensor.scalar_type() != own.scalar_type())
    throw c10::TypeError({__func__, __FILE__, __LINE__},
                         fmt::format("{}: found elements of type {}, expected {}, the layer's dtype", name,
                                     c10::toString(tensor.scalar_type()), c10::toString(own.scalar_type())));
  require<BadInput>(tensor.sizes() == own.sizes(), "{}: found shape ({}), expected ({})", name,
                    fmt::join(tensor.sizes(), ", "), fmt::join(own.sizes(), ", "));
}

TensorView view_of(const torch::Tensor& t, DType dtype) {
  TensorView view(t.data_ptr(), {t.numel()}, dtype);
  return t.dim() == 3   ? view.part(0, {t.size(0), t.size(1), t.size(2)})
         : t.dim() == 2 ? view.part(0, {1, t.size(0), t.size(1)})
                        : view.part(0, {1, 1, t.size(0)});
}

torch::Tensor tensor_of(TensorView t) {
  return torch::from_blob(t.data(), {t.size(0), t.size(1)}, cpu::scalar_type(t.dtype()));
}

/// Parameters of a module of Python's, and their gradients.
struct CalledParameters {
  /// Copies the `weights` of the first rank of `copies`, which all have them.
  CalledParameters(const RankShape& rank, Communicator& copies, const std::vector<torch::Tensor>& weights,
                   const std::vector<std::string>& names) {
    const auto stream = make_cpu_device()->make_stream("weights of Python's");
    const torch::Tensor like = torch::empty({0}, cpu::scalar_type(rank.dtype()));
    for (size_t i = 0; i < weights.size(); ++i) {
      const int64_t axes = weights[i].dim();
      require<BadInput>(axes >= 1 && axes <= 3, "{}: found a parameter of {} axes, expected 1 to 3", names[i], axes);
      require_like(names[i], weights[i], like.new_empty(weights[i].sizes()));
      values.push_back(weights[i].detach().clone(torch::MemoryFormat::Contiguous));
      gradients.push_back(torch::zeros_like(values.back()));
      copies.broadcast(values.back().data_ptr(), static_cast<int64_t>(values.back().nbytes()), 0, {*stream});
      stream->synchronize();
      Parameter p{names[i],
                  {ShardRange{0, 1, 1}, {0, 1, 1}, {0, 1, 1}},
                  view_of(values[i], rank.dtype()),
                  view_of(gradients[i], rank.dtype())};
      p.dimensions = static_cast<int>(axes);
      for (int64_t axis = 0; axis < axes; ++axis)
        p.axes[static_cast<size_t>(3 - axes + axis)] = {0, weights[i].size(axis), weights[i].size(axis)};
      shown.push_back(p);
    }
  }

  /// Takes gradients in the order of `values`.
  void take(std::span<const torch::Tensor> found, Into into) {
    require_equal(found.size(), gradients.size(), "gradients of Python's parameters");
    for (size_t i = 0; i < found.size(); ++i)
      into == Into::add ? gradients[i].add_(found[i]) : gradients[i].copy_(found[i]);
  }

  std::vector<torch::Tensor> values, gradients;
  std::vector<Parameter> shown;
};

/// Stands for attention where a layer has none: h = x. Over MP each rank's part of the sum has its own tokens; a
/// residual alone is that already.
class NoAttention final : public Attention {
 public:
  explicit NoAttention(const RankShape& rank)
      : begin_(rank.tokens.first - rank.mp_group().first), own_(rank.shape.layer.residual ? 0 : rank.tokens.count) {}

  void forward(TensorView input, TensorView out) override { keep_own(input, out); }
  void backward_input(TensorView d_out, TensorView d_input) override { keep_own(d_out, d_input); }
  void backward_weights(TensorView, TensorView, TensorView, Into) override {}
  std::vector<Parameter> parameters(TensorView) override { return {}; }

 private:
  void keep_own(TensorView from, TensorView to) const {
    tensor_of(to).zero_();
    tensor_of(to).narrow(0, begin_, own_).copy_(tensor_of(from).narrow(0, begin_, own_));
  }

  int64_t begin_, own_;
};

/// A gate that Python computes, with parameters of its own. Its operators know it by the number of its layer.
class CalledGate final : public Gate {
 public:
  CalledGate(int64_t layer, CalledParameters parameters, std::shared_ptr<bool> keeps)
      : layer_(layer), own_(std::move(parameters)), keeps_(std::move(keeps)) {}

  void forward(TensorView hidden, Routing& routing) override {
    static const auto kCall =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow("moetune::gate_forward", "")
            .typed<std::tuple<torch::Tensor, torch::Tensor>(int64_t, const torch::Tensor&, at::TensorList, bool)>();
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
    require<BadInput>(weights.isfinite().all().item<bool>(), "gate: found a weight that is no finite number");
    tensor_of(routing.weight.view()).copy_(weights);
  }

  void backward(const GateBackward& pass) override {
    static const auto kCall = c10::Dispatcher::singleton()
                                  .findSchemaOrThrow("moetune::gate_backward", "")
                                  .typed<std::vector<torch::Tensor>(int64_t, const torch::Tensor&)>();
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

/// Experts that Python computes, each with parameters of its own and all of the hidden size (ESP 1).
class CalledExperts final : public Expert {
 public:
  CalledExperts(int64_t layer, std::vector<CalledParameters> experts, std::shared_ptr<bool> keeps)
      : layer_(layer), experts_(std::move(experts)), keeps_(std::move(keeps)) {}

  void begin_forward() override {
    static const auto kCall =
        c10::Dispatcher::singleton().findSchemaOrThrow("moetune::experts_begin", "").typed<void(int64_t)>();
    kCall.call(layer_);
  }
  void reserve(int64_t) override {}  // Python keeps what autograd does

  void forward(TensorView input, std::span<const Rows> rows, TensorView output) override {
    static const auto kCall =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow("moetune::expert_forward", "")
            .typed<torch::Tensor(int64_t, int64_t, int64_t, const torch::Tensor&, at::TensorList, bool)>();
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

  // The chunk that overwrites need not have rows of every expert.
  void begin_gradients(Into into) {
    if (into == Into::add) return;
    for (CalledParameters& expert : experts_)
      for (torch::Tensor& gradient : expert.gradients) gradient.zero_();
  }

  // Returns the gradients of the rows, if `inputs`, and behind them of the parameters, if `weights`.
  std::vector<torch::Tensor> gradients(const ExpertPass& pass, size_t expert, TensorView d_output, bool inputs,
                                       bool weights) {
    static const auto kCall =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow("moetune::expert_backward", "")
            .typed<std::vector<torch::Tensor>(int64_t, int64_t, int64_t, const torch::Tensor&, const torch::Tensor&,
                                              at::TensorList, bool, bool)>();
    const Rows rows = pass.rows[expert];
    return kCall.call(layer_, static_cast<int64_t>(expert), rows.begin,
                      tensor_of(at(pass.input, rows.begin, rows.count())).clone(), tensor_of(d_output).clone(),
                      experts_[expert].values, inputs, weights);
  }

  int64_t layer_;
  std::vector<CalledParameters> experts_;
  std::shared_ptr<bool> keeps_;  // whether graphs are kept for a backward
};

/// The modules of Python's that a layer calls, which know the layer by its number, and their parameters: the gate's,
/// whose names begin with "gate/", and those of the experts that this rank holds, "experts/E/".
struct PythonParts {
  int64_t layer = 0;
  bool gate = false, experts = false;
  std::vector<torch::Tensor> weights;
  std::vector<std::string> names;

  CalledParameters of(const RankShape& rank, Communicator& copies, std::string_view prefix) const {
    std::vector<torch::Tensor> own;
    std::vector<std::string> own_names;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!names[i].starts_with(prefix)) continue;
      own.push_back(weights[i]);
      own_names.push_back(names[i]);
    }
    return {rank, copies, own, own_names};
  }
};

/// The layer of MoELayer. `options`: a JSON object with the fields of a layer file and what else kOptionKeys names.
class PythonLayer : public torch::CustomClassHolder {
 public:
  PythonLayer(c10::intrusive_ptr<Ranks> ranks, const std::string& options, int64_t number, bool calls_gate,
              bool calls_experts, const std::vector<torch::Tensor>& weights, const std::vector<std::string>& names)
      : ranks_(std::move(ranks)) {
    in_python([&] {
      const cpu::UseThreads threads(torch::get_num_threads());
      const ConfigFile file = parse_json(options, std::string(kOptions));
      make(TableReader(file, kOptionKeys), {number, calls_gate, calls_experts, weights, names});
    });
  }

  /// Returns the names of the weights, in the order of all that is said of them.
  std::vector<std::string> names() { return names_; }
  /// Hands over the weights, once, which share the layer's memory.
  std::vector<torch::Tensor> weights() { return std::exchange(weights_, {}); }
  /// Returns, of a weight's axes, first, count and total.
  std::vector<std::vector<int64_t>> shards(int64_t weight) {
    const Parameter p = layer().parameters().at(static_cast<size_t>(weight));
    std::vector<std::vector<int64_t>> axes;
    for (size_t axis = p.axes.size() - static_cast<size_t>(p.dimensions); axis < p.axes.size(); ++axis)
      axes.push_back({p.axes[axis].first, p.axes[axis].count, p.axes[axis].total});
    return axes;
  }
  /// Returns first, count and total of the tokens that are this rank's to give.
  std::vector<int64_t> tokens() {
    const ShardRange& held = layer().shape().held;
    return {held.first, held.count, held.total};
  }
  double auxiliary_loss() { return layer().auxiliary_loss(); }
  /// Returns the runner's seconds of the last forward and of the last backward (MoeLayerModule::RunnerSeconds).
  std::vector<double> runner_seconds() {
    const auto [forward, backward] = module_->runner_seconds();
    return {forward, backward};
  }
  /// Returns one line: the layer, its groups and its schedule.
  std::string line() { return line_; }

  /// `keeps`: parts that Python computes keep their graphs for a backward.
  torch::Tensor forward(const torch::Tensor& x, const std::vector<torch::Tensor>& weights, bool training, bool keeps) {
    return in_python([&] {
      const cpu::UseThreads threads(torch::get_num_threads());
      require_like("x", x.dim() > 2 ? x.detach().flatten(0, -2) : x, input_);
      require_equal<BadInput>(weights.size(), likes_.size(), "weights of the layer");
      for (size_t i = 0; i < weights.size(); ++i) require_like(names_[i], weights[i], likes_[i]);
      const auto alone = module_->alone();
      *keeps_ = keeps;
      const auto end = std::unique_ptr<bool, void (*)(bool*)>(keeps_.get(), [](bool* kept) { *kept = true; });
      if (!module_->repeats()) module_->begin_step(training ? ++steps_ : steps_, training);
      return module_->forward(x, weights);
    });
  }

 private:
  MoeLayer& layer() { return module_->layer(); }

  void make(const TableReader& options, const PythonParts& python) {
    const Plan plan = plan_of(options, ranks_->topology());
    require_same_plan(ranks_->everyone(), plan);
    LayerSeed seed;
    seed.seed = static_cast<uint64_t>(options.optional_integer("seed", kNonNegative).value_or(1));
    const auto losses = options.has("losses") && options.choice("losses", {"sum", "mean"}) == "mean"
                            ? RankLosses::averaged
                            : RankLosses::summed;
    require_same_losses(ranks_->everyone(), seed, losses);
    const int rank = ranks_->everyone().rank();
    const auto made = std::make_shared<MoeLayer>(rank_shape(plan.shape, rank, plan.structure->flow), seed,
                                                 ranks_->comms_of(plan.shape.parallel));
    LayerParts& parts = made->state().parts;
    if (!has_attention(options)) {
      parts.attention = std::make_unique<NoAttention>(made->shape());
      parts.attention_norm = nullptr;
    }
    if (python.gate) {
      const LayerShape& layer = plan.shape.layer;
      require<BadInput>(layer.aux_loss == 0 && layer.z_loss == 0,
                        "{}: found auxiliary losses with a gate of Python's, expected none: it computes its own",
                        kOptions);
      parts.gate =
          std::make_unique<CalledGate>(python.layer, python.of(made->shape(), ranks_->everyone(), "gate/"), keeps_);
    }
    if (python.experts) parts.expert = experts_of(*made, plan, python);
    module_ =
        std::make_unique<MoeLayerModule>(made, plan, make_device(DeviceKind::cpu, 0, torch::get_num_threads()), losses);
    for (const auto& weight : module_->named_parameters()) {
      names_.push_back(weight.key());
      likes_.push_back(torch::empty_like(weight.value(), torch::device(torch::kMeta)));
      weights_.push_back(weight.value().variable_data());
      weight.value().set_data(torch::empty({0}, weight.value().options()));  // Python's are the only ones
    }
    const TensorView input = made->input();
    input_ = torch::empty({input.size(0), input.size(1)},
                          torch::device(torch::kMeta).dtype(cpu::scalar_type(input.dtype())));
    line_ = fmt::format("{}, {}, {}, r_f {}, r_b {}", describe(plan.shape.layer), describe_groups(plan.shape.parallel),
                        plan.schedule, plan.degree_forward, plan.degree_backward);
  }

  std::unique_ptr<Expert> experts_of(MoeLayer& layer, const Plan& plan, const PythonParts& python) {
    const RankShape& rank = layer.shape();
    require<BadInput>(std::ranges::none_of(plan.gradients, &Gradient::experts),
                      "{}: found experts of Python's and schedule {}, expected one that doesn't pack experts", kOptions,
                      plan.schedule);
    std::vector<CalledParameters> experts;
    for (int64_t e = rank.experts.first; e < rank.experts.first + rank.experts.count; ++e)
      experts.push_back(python.of(rank, layer.state().comms.of(GroupKind::edp), fmt::format("experts/{}/", e)));
    return std::make_unique<CalledExperts>(python.layer, std::move(experts), keeps_);
  }

  c10::intrusive_ptr<Ranks> ranks_;
  std::unique_ptr<MoeLayerModule> module_;
  std::shared_ptr<bool> keeps_ = std::make_shared<bool>(true);  // as a backward needs that runs a forward again
  std::vector<std::string> names_;
  std::vector<torch::Tensor> weights_, likes_;  // until they are handed over; of their shapes and types
  torch::Tensor input_;                         // of its shape and type
  std::string line_;
  uint64_t steps_ = 0;  // of training, each with the gate's own noise
};

}  // namespace
}  // namespace moe

TORCH_LIBRARY(moetune, library) {
  using moe::PythonLayer;
  using moe::Ranks;
  // Python implements these: choices and weights of a gate's tokens, by such parameters; the gradients of its hidden
  // states and parameters.
  library.def("gate_forward(int layer, Tensor hidden, Tensor[] parameters, bool keeps) -> (Tensor, Tensor)");
  library.def("gate_backward(int layer, Tensor d_weights) -> Tensor[]");
  // And these: before a forward; the outputs of an expert's rows, the first of which is number `first`; the gradients
  // of these rows, if `inputs`, and behind them of the parameters, if `weights`.
  library.def("experts_begin(int layer) -> ()");
  library.def(
      "expert_forward(int layer, int expert, int first, Tensor rows, Tensor[] parameters, bool keeps) -> Tensor");
  library.def(
      "expert_backward(int layer, int expert, int first, Tensor rows, Tensor d_output, Tensor[] parameters, "
      "bool inputs, bool weights) -> Tensor[]");
  library.class_<Ranks>("Ranks")
      .def(torch::init<int64_t, int64_t, std::string, std::string, int64_t, double>())
      .def("experts", &Ranks::experts)
      .def("close", &Ranks::close);
  library.class_<PythonLayer>("Layer")
      .def(torch::init<c10::intrusive_ptr<Ranks>, std::string, int64_t, bool, bool, std::vector<torch::Tensor>,
                       std::vector<std::string>>())
      .def("names", &PythonLayer::names)
      .def("weights", &PythonLayer::weights)
      .def("shards", &PythonLayer::shards)
      .def("tokens", &PythonLayer::tokens)
      .def("auxiliary_loss", &PythonLayer::auxiliary_loss)
      .def("runner_seconds", &PythonLayer::runner_seconds)
      .def("line", &PythonLayer::line)
      .def("forward", &PythonLayer::forward);
}
