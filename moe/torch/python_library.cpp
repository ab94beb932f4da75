// The library that the Python module moetune.torch loads by torch.ops.load_library: one rank's layer as a torch custom
// class. It links only LibTorch, so that one library serves every Python.
#include <ATen/autocast_mode.h>
#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
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
#include "moe/torch/detail/auto_plan.h"
#include "moe/torch/detail/called_parts.h"
#include "moe/torch/moe_layer_module.h"

namespace moe {
namespace {

/// Returns the result of `work`. BadInput becomes ValueError in Python; all else becomes RuntimeError.
template <class Work>
auto in_python(Work&& work) {
  try {
    return work();
  } catch (const BadInput& error) {
    throw c10::ValueError({__func__, __FILE__, __LINE__}, error.what());
  }
}

/// Returns the Launch of a process group's rank; the ranks meet in a store that torch serves.
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
  /// `store`: HOST:PORT, empty for one rank. `run`: prefix of these ranks' keys in the store.
  Ranks(int64_t rank, int64_t ranks, const std::string& store, const std::string& run, int64_t ranks_per_node,
        double timeout_s)
      : world_(in_python([&] {
          const Launch launch = launch_of(rank, ranks, store, run, ranks_per_node);
          return std::make_unique<GlooWorld>(launch, GlooJob{std::string(version()), "moetune.torch"}, timeout_s,
                                             timeout_s, false);
        })),
        world_comm_(world_->communicator(world_->local_ranks().front())) {}

  Communicator& world_comm() {
    require<BadInput>(world_comm_ != nullptr, "MoELayer: found ranks that have left, expected a live process group");
    return *world_comm_;
  }
  const WorldTopology& topology() {
    world_comm();
    return world_->topology();
  }
  /// Returns the number of the first expert that this rank holds, and how many it holds. `options` are PythonLayer's.
  std::vector<int64_t> experts(const std::string& options);
  LayerComms comms_of(const ParallelShape& parallel) { return comms_.find_or_split(world_comm(), parallel); }

  /// Ends the other ranks, which would wait for this one, unless all ranks refuse the work with the same text.
  void refuse(const std::string& why) {
    if (world_ == nullptr || world_->ranks() == 1 || !world_->failure().empty()) return;
    if (world_->every_rank_refuses(why) || !world_->failure().empty()) return;
    world_->fail(fmt::format("rank {} failed: {}", world_->local_ranks().front(), why));
  }

  /// Leaves the run; rank 0 waits for the others.
  void close() {
    comms_ = {};
    world_comm_.reset();
    world_.reset();
  }

 private:
  std::unique_ptr<GlooWorld> world_;
  std::unique_ptr<Communicator> world_comm_;
  CommsCache comms_;
};

constexpr std::string_view kOptions = "MoELayer";
constexpr auto kOptionKeys =
    with(with(kLayerKeys, kParallelKeys), {"capacity_rounding", "schedule", "degree_forward", "degree_backward", "plan",
                                           "plan_text", "auto", "seed", "losses", "attention"});

bool has_attention(const TableReader& options) { return !options.has("attention") || options.boolean("attention"); }

constexpr Limits kDegreeLimits{.min = 1, .max = 4096};

/// Refuses context parallelism, because callers would have to split samples as the ranks hold them.
void require_whole_samples(const ParallelShape& parallel) {
  require<Unsupported>(parallel.cp == 1, "{}: found cp = {}, expected 1: MoELayer takes whole samples", kOptions,
                       parallel.cp);
}

/// Reads the plan from a file, or builds it from the layer and the schedule in the options; nominal costs decide the
/// rest.
Plan plan_of(const TableReader& options, const WorldTopology& topology) {
  if (options.has("plan")) {
    const std::string path = options.text("plan");
    for (const std::string_view key : kOptionKeys)
      if (options.has(key) && !key.starts_with("plan") && key != "seed" && key != "losses")
        options.fail(options.value(key), key, fmt::format("none beside plan, which says it: {}", path));
    Plan plan = options.has("plan_text") ? parse_plan(options.text("plan_text", false), path) : read_plan(path);
    const ParallelShape& parallel = plan.shape.parallel;
    require<BadInput>(!plan.step.planned, "{}: found the plan of an iteration, expected a layer's (export plan)", path);
    require_whole_samples(parallel);
    require<BadInput>(parallel.nodes == topology.nodes && parallel.ranks_per_node == topology.ranks_per_node,
                      "{}: found a plan of {} x {} ranks, expected one of {} x {}, which are here", path,
                      parallel.nodes, parallel.ranks_per_node, topology.nodes, topology.ranks_per_node);
    return plan;
  }
  LayerShape layer;
  read_layer_keys(options, layer);
  ParallelShape parallel = read_parallel_keys(options);
  require_whole_samples(parallel);
  parallel.nodes = topology.nodes;
  parallel.ranks_per_node = topology.ranks_per_node;
  if (!has_attention(options)) {  // the smallest attention that a plan can have, with heads for any MP
    layer.heads = parallel.ranks();
    layer.kv_heads = 0;
    layer.head_dim = 1;
    clear_latent(layer);
    layer.window = 0;
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
    const ShardRange held = rank_shape(plan.shape, world_comm().rank(), plan.structure->flow).experts;
    return std::vector<int64_t>{held.first, held.count};
  });
}

/// Throws RankFailure, with one line on all ranks, unless they have the same options that are not part of a plan:
/// `seed`, `losses`, and which parts Python computes.
void require_same_options(Communicator& world_comm, const LayerSeed& seed, RankLosses losses,
                          const PythonParts& python) {
  static constexpr std::array<std::string_view, 5> kParts{"gate", "experts", "order", "dispatcher", "hook"};
  std::array<uint64_t, 3> own{seed.seed, losses == RankLosses::averaged, 0};
  for (size_t part = 0; part < kParts.size(); ++part) own[2] |= uint64_t{python.has(kParts[part])} << part;
  std::vector<std::array<uint64_t, 3>> all(world_comm.size());
  const auto stream = make_cpu_device()->make_stream("options");
  world_comm.allgather(own.data(), all.data(), sizeof own, {*stream, {}, "comparing options"});
  stream->synchronize();
  const auto line = [](const std::array<uint64_t, 3>& options) {
    std::vector<std::string_view> parts;
    for (size_t part = 0; part < kParts.size(); ++part)
      if ((options[2] >> part) & 1) parts.push_back(kParts[part]);
    return fmt::format("seed {}, losses {} and parts of Python's: {}", options[0], options[1] == 0 ? "sum" : "mean",
                       parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", ")));
  };
  for (size_t rank = 1; rank < all.size(); ++rank)
    require<RankFailure>(all[rank] == all[0], "options differ: rank 0 has {}; rank {} has {}", line(all[0]), rank,
                         line(all[rank]));
}

/// Replaces attention in a layer without it: h = x. The outputs of MP ranks are summed, so each rank outputs only its
/// own tokens; it outputs zeros if the layer has a residual, which adds x already.
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

/// The layer of MoELayer. `options`: a JSON object with the fields of a layer file and the other keys in kOptionKeys.
class PythonLayer : public torch::CustomClassHolder {
 public:
  PythonLayer(c10::intrusive_ptr<Ranks> ranks, const std::string& options, int64_t number,
              const std::vector<std::string>& parts, const std::vector<torch::Tensor>& weights,
              const std::vector<std::string>& names)
      : ranks_(std::move(ranks)) {
    in_python([&] {
      const cpu::ThreadCountScope threads(torch::get_num_threads());
      const ConfigFile file = parse_json(options, std::string(kOptions));
      make(TableReader(file, kOptionKeys), {number, parts, weights, names});
    });
  }

  /// Returns the names of the weights, in the order that all functions use.
  std::vector<std::string> names() { return names_; }
  /// Returns the weights, which share the layer's memory; a second call returns none.
  std::vector<torch::Tensor> weights() { return std::exchange(weights_, {}); }
  /// Returns first, count and total of each axis of a weight.
  std::vector<std::vector<int64_t>> shards(int64_t weight) {
    const Parameter p = layer().parameters().at(weight);
    std::vector<std::vector<int64_t>> axes;
    for (size_t axis = p.axes.size() - static_cast<size_t>(p.dimensions); axis < p.axes.size(); ++axis)
      axes.push_back({p.axes[axis].first, p.axes[axis].count, p.axes[axis].total});
    return axes;
  }
  /// Returns first, count and total of the tokens that this rank's caller provides.
  std::vector<int64_t> tokens() {
    const ShardRange& held = layer().shape().held_tokens;
    return {held.first, held.count, held.total};
  }
  double auxiliary_loss() { return layer().auxiliary_loss(); }
  /// Returns the runner's seconds of the last forward and of the last backward (MoeLayerModule::RunnerSeconds).
  std::vector<double> runner_seconds() {
    const auto [forward, backward] = module_->runner_seconds();
    return {forward, backward};
  }
  /// Returns how many tasks the plan has, forward and backward.
  int64_t tasks() { return std::ssize(module_->task_times()); }
  /// Returns one line: the layer, its groups and its schedule.
  std::string line() { return line_; }
  /// Returns AutoPlan::report() as a document; empty if the plan is given.
  std::string tuning() { return auto_ ? auto_->report().dump() : ""; }

  /// With autocast on, `given` is converted.
  torch::Tensor forward(const torch::Tensor& given, const std::vector<torch::Tensor>& weights, bool training) {
    return in_python([&] {
      const cpu::ThreadCountScope threads(torch::get_num_threads());
      const bool converts = at::autocast::is_autocast_enabled(torch::kCPU) && !weights.empty();
      const torch::Tensor x = converts ? given.to(weights.front().scalar_type()) : given;
      const bool flattens = x.dim() > 2 && x.layout() == torch::kStrided && !x.is_nested();
      require_like("x", flattens ? x.detach().flatten(0, -2) : x, input_);
      require_equal<BadInput>(weights.size(), likes_.size(), "weights of the layer");
      for (size_t i = 0; i < weights.size(); ++i) require_like(names_[i], weights[i], likes_[i]);
      const std::lock_guard alone(*mutex_);
      *keeps_graphs_ = torch::GradMode::is_enabled();
      const auto end = std::unique_ptr<bool, void (*)(bool*)>(keeps_graphs_.get(), [](bool* kept) { *kept = true; });
      if (!module_->repeats()) {
        next_plan(weights);
        module_->begin_step(training ? ++steps_ : steps_, training);
      }
      return module_->forward(x, weights);
    });
  }

 private:
  MoeLayer& layer() { return module_->layer(); }

  void make(const TableReader& options, const PythonParts& python) {
    python_ = python;
    attention_ = has_attention(options);
    seed_.seed = static_cast<uint64_t>(options.optional_integer("seed", kNonNegative).value_or(1));
    losses_ = options.has("losses") && options.choice("losses", {"sum", "mean"}) == "mean" ? RankLosses::averaged
                                                                                           : RankLosses::summed;
    Plan plan = plan_of(options, ranks_->topology());
    if (options.has("auto") && options.boolean("auto")) {
      require_same_plan(ranks_->world_comm(), plan);
      const RankShape given = rank_shape(plan.shape, ranks_->world_comm().rank(), plan.structure->flow);
      auto_ = std::make_unique<AutoPlan>(plan.shape, ranks_->world_comm(),
                                         [this, given](const Plan& other) { return can_run(other, given); });
      plan = auto_->plan();
    }
    make_module(plan);
    for (const auto& weight : module_->named_parameters()) {
      names_.push_back(weight.key());
      likes_.push_back(torch::empty_like(weight.value(), torch::device(torch::kMeta)));
      weights_.push_back(weight.value().variable_data());
    }
    drop_own_weights();
    const TensorView input = layer().input();
    input_ = torch::empty({input.size(0), input.size(1)},
                          torch::device(torch::kMeta).dtype(cpu::scalar_type(input.dtype())));
  }

  void make_module(const Plan& plan) {
    require_same_plan(ranks_->world_comm(), plan);
    require_same_options(ranks_->world_comm(), seed_, losses_, python_);
    const auto made =
        std::make_shared<MoeLayer>(rank_shape(plan.shape, ranks_->world_comm().rank(), plan.structure->flow), seed_,
                                   ranks_->comms_of(plan.shape.parallel));
    if (!attention_) {
      LayerParts& parts = made->state().parts;
      parts.attention = std::make_unique<NoAttention>(made->shape());
      parts.attention_norm = nullptr;
    }
    set_called_parts(made, plan, python_, ranks_->world_comm(), keeps_graphs_);
    python_.weights.clear();
    module_ = std::make_unique<MoeLayerModule>(made, plan, make_device(DeviceKind::cpu, 0, torch::get_num_threads()),
                                               losses_, mutex_);
    module_->on_failed_backward([ranks = ranks_](const std::string& line) { ranks->refuse(line); });
    line_ = fmt::format("{}, {}, {}, r_f {}, r_b {}", describe(plan.shape.layer), describe_groups(plan.shape.parallel),
                        plan.schedule, plan.degree_forward, plan.degree_backward);
  }

  // Drops the module's own weights, so that Python's are the only ones.
  void drop_own_weights() {
    for (const auto& weight : module_->named_parameters())
      weight.value().set_data(torch::empty({0}, weight.value().options()));
  }

  // Returns whether a plan keeps the rank's weights and tokens as they are and calls the parts that Python computes.
  bool can_run(const Plan& plan, const RankShape& given) const {
    const RankShape rank = rank_shape(plan.shape, given.rank, plan.structure->flow);
    try {
      check_called_parts(plan, python_);
    } catch (const BadInput&) {
      return false;
    }
    return plan.shape == given.shape && rank.held_tokens == given.held_tokens && rank.experts == given.experts &&
           rank.hidden == given.hidden && rank.heads == given.heads;
  }

  // Takes the times of the last step if the plan is not decided yet. A new plan gets a new layer, and the next forward
  // moves the weights into that layer's memory.
  void next_plan(const std::vector<torch::Tensor>& weights) {
    if (!auto_ || module_->backwards() == taken_) return;
    taken_ = module_->backwards();
    const auto [forward, backward] = module_->runner_seconds();
    if (!auto_->take(module_->task_times(), forward + backward)) return;
    for (const std::string& name : python_.names)
      python_.weights.push_back(weights.at(std::ranges::find(names_, name) - names_.begin()));
    module_->forget_activations();
    make_module(auto_->plan());
    drop_own_weights();
    taken_ = 0;
  }

  c10::intrusive_ptr<Ranks> ranks_;
  std::unique_ptr<MoeLayerModule> module_;
  std::shared_ptr<std::recursive_mutex> mutex_ = std::make_shared<std::recursive_mutex>();
  std::shared_ptr<bool> keeps_graphs_ = std::make_shared<bool>(true);  // true for a backward that runs a forward again
  std::vector<std::string> names_;
  std::vector<torch::Tensor> weights_, likes_;  // weights until they are handed over; tensors of their shapes and types
  torch::Tensor input_;                         // has the input's shape and type
  std::string line_;
  uint64_t steps_ = 0;  // number of training steps, each with its own noise of the gate
  PythonParts python_;  // has weights only while a module is made
  bool attention_ = true;
  LayerSeed seed_;
  RankLosses losses_ = RankLosses::summed;
  std::unique_ptr<AutoPlan> auto_;  // null if the plan is given
  int64_t taken_ = 0;               // backwards of the module whose times auto_ has taken
};

}  // namespace
}  // namespace moe

TORCH_LIBRARY(moetune, library) {
  using moe::PythonLayer;
  using moe::Ranks;
  // Operators that Python implements. A gate's choices and weights, computed with `parameters`; the gradients of its
  // hidden states and parameters.
  library.def("gate_forward(int layer, Tensor hidden, Tensor[] parameters, bool keeps) -> (Tensor, Tensor)");
  library.def("gate_backward(int layer, Tensor d_weights) -> Tensor[]");
  // Experts: a call before a forward; the outputs of an expert's rows, the first of which is number `first`; the
  // gradients of these rows, if `inputs`, and after them of the parameters, if `weights`.
  library.def("experts_begin(int layer) -> ()");
  library.def(
      "expert_forward(int layer, int expert, int first, Tensor rows, Tensor[] parameters, bool keeps) -> Tensor");
  library.def(
      "expert_backward(int layer, int expert, int first, Tensor rows, Tensor d_output, Tensor[] parameters, "
      "bool inputs, bool weights) -> Tensor[]");
  // Rows from tokens by the rows' numbers (tokens, top_k), -1: none; with `d_rows`, the tokens' gradients instead.
  library.def("order(int layer, Tensor tokens, Tensor numbers, int rows, Tensor? d_rows) -> Tensor");
  // The output from rows; with `d_output`, the gradients of rows and weights instead.
  library.def("i_order(int layer, Tensor rows, Tensor numbers, Tensor weights, Tensor? d_output) -> Tensor[]");
  // Sends block i of `send` to rank ranks[i], and receives block i of `receive` from it.
  library.def("exchange(int layer, Tensor[] send, Tensor[] receive, int[] ranks) -> ()");
  // A point of a hook, which may change the rows.
  library.def("hook(int layer, str point, str phase, Tensor rows) -> ()");
  library.class_<Ranks>("Ranks")
      .def(torch::init<int64_t, int64_t, std::string, std::string, int64_t, double>())
      .def("experts", &Ranks::experts)
      .def("refuse", &Ranks::refuse)
      .def("close", &Ranks::close);
  library.class_<PythonLayer>("Layer")
      .def(torch::init<c10::intrusive_ptr<Ranks>, std::string, int64_t, std::vector<std::string>,
                       std::vector<torch::Tensor>, std::vector<std::string>>())
      .def("names", &PythonLayer::names)
      .def("weights", &PythonLayer::weights)
      .def("shards", &PythonLayer::shards)
      .def("tokens", &PythonLayer::tokens)
      .def("auxiliary_loss", &PythonLayer::auxiliary_loss)
      .def("runner_seconds", &PythonLayer::runner_seconds)
      .def("tasks", &PythonLayer::tasks)
      .def("line", &PythonLayer::line)
      .def("tuning", &PythonLayer::tuning)
      .def("forward", &PythonLayer::forward);
}
