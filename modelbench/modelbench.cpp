#include "modelbench/modelbench.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fmt/ranges.h>

#include "commands/shared/record_files.h"
#include "commands/shared/run/op_records.h"
#include "commands/shared/run/routing_record.h"
#include "commands/shared/sweep.h"
#include "modelbench/report.h"
#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/log.h"
#include "moe/base/random.h"
#include "moe/formats/plan_json.h"
#include "moe/layer/layer_device.h"
#include "moe/model/end_setup.h"
#include "moe/model/gpt2_file.h"
#include "moe/schedule/packing.h"
#include "moe/search/degrees.h"
#include "moe/shape/model_file.h"
#include "moe/train/token_source.h"

namespace moe::modelbench {
namespace {

constexpr std::string_view kOnClusters = "gpt2-xl@fsmoe", kOnHost = "tiny-gpt";
// The default schedules: those of FSMoE's Figure 6, and moetune's own.
const std::vector<std::string> kCompared{
    "ds-moe",           "tutel", "tutel-improved", "pipemoe+lina", "fsmoe-no-iio", "fsmoe-no-partition", "fsmoe",
    "fsmoe-interleaved"};

ModelbenchOptions completed(ModelbenchOptions options, const commands::Target& target) {
  if (options.model.model.empty()) options.model.model = target.emulated ? kOnClusters : kOnHost;
  if (options.selection.schedules.empty()) options.selection.schedules = kCompared;
  return options;
}

OptimizerSettings optimizer_of(const ModelbenchOptions& options) {
  return {.kind = optimizer_from(options.optimizer, "--optimizer"),
          .learning_rate = options.learning_rate,
          .momentum = options.momentum,
          .weight_decay = options.weight_decay,
          .clip_norm = options.clip_norm,
          .warm_up_steps = options.warm_up,
          .steps = options.steps,
          .least_share = 0.1};
}

std::string text_file(const ModelbenchOptions& options) {
  if (options.text == kMarkov) return {};
  return options.text == kBytes ? included_text_path() : options.text;
}

std::unique_ptr<TokenSource> text_of(const ModelbenchOptions& options) {
  const std::string file = text_file(options);
  if (!file.empty()) return read_byte_source(file, options.seed);
  return make_markov_source({.order = options.markov_order, .seed = options.seed});
}

// Returns the plan of the --plan file. Throws if it has no vocabulary, or another optimizer or clipping than the flags.
std::optional<Plan> plan_of(const ModelbenchOptions& options, const Profile& cluster) {
  if (options.plan.empty()) return std::nullopt;
  Plan plan = commands::plan_of_file(options.plan, cluster.nodes, cluster.ranks_per_node);
  require<BadInput>(plan.vocabulary > 0,
                    "{}: vocabulary: found none, expected a model's plan with its embedding and output projection "
                    "(modelbench --save-plan; layerbench --plan runs layers alone)",
                    options.plan);
  const std::string_view planned = plan.step.optimizer ? name_of(*plan.step.optimizer) : "none";
  require<BadInput>(planned == options.optimizer, "{}: step.optimizer: found {}, expected {} as --optimizer says",
                    options.plan, planned, options.optimizer);
  require<BadInput>(plan.step.clips == (options.clip_norm > 0),
                    "{}: step.clips: found {}, expected {} as --clip-norm {:g} says", options.plan, plan.step.clips,
                    options.clip_norm > 0, options.clip_norm);
  return plan;
}

// Returns the model of the plan. Its losses are those of one micro-batch, like the losses of --model.
commands::ChosenModel model_of_plan(const Plan& plan) {
  commands::ChosenModel chosen;
  chosen.name = "plan " + digest_of(plan);
  chosen.model = model_of(plan);
  chosen.model.shape.layer.aux_loss *= plan.micro_batches;
  chosen.model.shape.layer.z_loss *= plan.micro_batches;
  chosen.stack = true;
  chosen.whole_layers = plan.layers;
  chosen.vocabulary = plan.vocabulary;
  chosen.tied_embedding = plan.step.tied;
  return chosen;
}

/// Returns how many of the model's layers fit into a rank's memory; at least one for each pipeline stage, and at least
/// one with experts.
int layers_that_fit(const ModelShape& model, int64_t vocabulary, bool tied, const Profile& cluster) {
  if (!cluster.memory_bytes) return model.layers;
  ModelShape cut = model;
  cut.vocabulary = vocabulary;
  cut.step.tied = tied;
  while (cut.layers > cut.shape.parallel.pp && cut.dense.count(0, cut.layers - 1) < cut.layers - 1 &&
         memory_refusal(estimate_memory(memory_request(cut, cut.shape, Flow::sharded)), *cluster.memory_bytes))
    cut = first_layers(cut, cut.layers - 1);
  return cut.layers;
}

std::atomic<bool>& stop_requested() {
  static std::atomic<bool> asked = false;
  return asked;
}
std::atomic<int> stop_reason = 0;
constexpr int kStoppedBySignal = 128;  // exit code less the signal's number, as in shells

// Ends the run after the current step; a second signal ends it at once.
void stop_after_step(int signal) {
  stop_reason = signal;
  stop_requested() = true;
  std::signal(signal, SIG_DFL);
}

// Throws, before any file is opened or measured, if the CPU cannot run the layer (an emulated cluster runs a proxy
// instead), or if the model or the text does not suit training.
void require_runs(const ModelbenchOptions& options, const commands::ChosenModel& chosen, const TokenSource& text,
                  const commands::Target& target) {
  const LayerShape& layer = chosen.model.shape.layer;
  if (!target.emulated && target.ranks.device == DeviceKind::cpu) cpu_layer_device().require_runs(layer);
  if (supports_dtype(target.ranks.device, layer.dtype)) model::require_trains(layer.dtype);
  require<BadInput>(chosen.vocabulary > 0, "--model: found {} without a vocabulary, expected one in its file",
                    chosen.name);
  require<BadInput>(chosen.vocabulary >= text.vocabulary() + (layer.causal ? 0 : 1),
                    "--text: found {} different tokens, model {} knows {} (its vocabulary{})", text.vocabulary(),
                    chosen.name, chosen.vocabulary, layer.causal ? "" : ", of which the last is the mask");
  std::vector<int32_t> sample(layer.seq + 1);
  text.fill(Split::train, 0, 0, sample);
  if (options.held_out > 0) text.fill(Split::held_out, 0, 0, sample);
}

// Throws if --weights or --save-weights is given and the model that runs is not a complete GPT-2.
void require_weights(const ModelbenchOptions& options, const commands::ChosenModel& chosen,
                     const commands::Target& target) {
  const std::string &read = options.weights, &written = options.save_weights;
  for (const auto& [flag, file] : {std::pair{"--weights", &read}, {"--save-weights", &written}}) {
    if (file->empty()) continue;
    require<BadInput>(!target.emulated,
                      "{}: found an emulated cluster, whose ranks train a smaller model; expected --cluster host or "
                      "processes",
                      flag);
    require<BadInput>(chosen.model.dense.has_none(chosen.model.layers),
                      "{}: found a model with dense layers, expected experts in each", flag);
    const Gpt2Shape shape{chosen.model.shape.layer, chosen.model.layers, chosen.vocabulary, chosen.tied_embedding};
    require_gpt2(shape, flag);
    if (file == &read) read_gpt2(*file, shape, {});
  }
}

// Throws if --online-packing is given and would have no effect: no schedule packs experts, or the steps are too few.
void require_packs(const ModelbenchOptions& options) {
  if (!options.online_packing) return;
  const std::vector<const Schedule*> schedules = commands::chosen_schedules(options.selection);
  require<BadInput>(std::ranges::any_of(schedules, &Schedule::packs_experts),
                    "--online-packing: found --schedule {}, expected one that packs experts (lina-packed)",
                    fmt::join(options.selection.schedules, ","));
  require<BadInput>(options.check_only || options.steps > PackingController::kFirstStep,
                    "--online-packing: found --steps {}, expected more than {}, after which it decides first",
                    options.steps, PackingController::kFirstStep);
}

class Modelbench {
 public:
  Modelbench(const ModelbenchOptions& options, World* processes)
      : target_(commands::target_of(options.selection.cluster, commands::ranks_of(options, processes))),
        options_(completed(options, target_)),
        optimizer_(optimizer_of(options_)),
        plan_(plan_of(options_, target_.cluster)),
        chosen_(plan_ ? model_of_plan(*plan_)
                      : commands::chosen_model(options_.model, options_.selection, target_.cluster)),
        text_(checked_text()),
        writer_(target_.open_records(commands::records_path(options_.out, "modelbench", target_.file_name()),
                                     options_.invocation,
                                     {plan_ ? options_.plan : find_config("models", options_.model.model),
                                      text_file(options_), options_.weights})) {
    const size_t schedules = plan_ ? 1 : commands::chosen_schedules(options_.selection).size();
    commands::require_one_saved(options_.save_plan, schedules);
    for (const auto& [flag, value] :
         {std::pair("--checkpoint", &options_.checkpoint), {"--save-weights", &options_.save_weights}})
      require<BadInput>(value->empty() || schedules == 1, "{}: found {} schedules, expected one (--schedule)", flag,
                        schedules);
    commands::broadcast_finished_cases(target_, writer_);
  }

  const commands::Target& target() const { return target_; }

  ModelbenchResults run() {
    ModelbenchResults results{.cluster = target_.cluster.name,
                              .place = target_.place(),
                              .model = chosen_.name,
                              .records_path = writer_.path(),
                              .emulated = target_.emulated,
                              .tasks = options_.tasks,
                              .check_only = options_.check_only,
                              .layers = chosen_.model.layers,
                              .of_layers = chosen_.whole_layers};
    if (!plan_ && !options_.model.layers)
      results.layers = layers_that_fit(chosen_.model, chosen_.vocabulary, chosen_.tied_embedding, target_.cluster);
    results.cut = results.layers < chosen_.model.layers;
    results.dense = chosen_.model.dense.first(results.layers);
    results.whole = chosen_.model.whole.first(results.layers);
    commands::LayerJob job = job_of(results.layers);
    results.describe_text(*text_, options_.text, optimizer_);
    results.describe_layer(job.shape().layer, chosen_.tied_embedding);
    results.experts = static_cast<int>(job.shape().layer.experts / job.shape().parallel.ep);
    results.tokens = mp_tokens(job.shape()) * job.shape().parallel.replicas() * job.model.micro_batches;
    job.predicted_by = target_.measured || options_.check_only ? target_.cluster : measured(job);
    if (!options_.check_only)
      for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, stop_after_step);
    Fields parameters{{"cluster", target_.cluster.name},   {"model", chosen_.name},
                      {"layers", int64_t{results.layers}}, {"micro_batches", int64_t{job.model.micro_batches}},
                      {"tokens", results.tokens},          {"text", results.text},
                      {"optimizer", results.optimizer}};
    if (plan_) parameters.set("plan", digest_of(*plan_));
    if (options_.online_packing) parameters.set("online_packing", int64_t{1});
    if (results.entropy_rate) parameters.set("entropy_rate", *results.entropy_rate);
    if (results.order_1_entropy) parameters.set("order_1_entropy", *results.order_1_entropy);
    if (!results.dense.has_none(results.layers)) {
      parameters.set("dense_layers", int64_t{results.dense.count(0, results.layers)});
      parameters.set("dense_hidden", results.dense.hidden);
    }
    if (!results.whole.by_layer.empty())
      parameters.set("windowed_layers", windowed_pattern(results.whole, results.layers));
    for (const auto& [name, value] : commands::group_parameters(job.shape().parallel)) parameters.set(name, value);
    if (const int chunks = chosen_.model.split().virtual_stages; chunks > 1)
      parameters.set("virtual_stages", int64_t{chunks});
    const LayerShape& layer = job.shape().layer;
    if (layer.first_stage_layers > 0) parameters.set("first_stage_layers", layer.first_stage_layers);
    if (layer.last_stage_layers > 0) parameters.set("last_stage_layers", layer.last_stage_layers);
    results.outcome = commands::run_layer_job(job, parameters);
    results.use = utilisation_of(
        job.predicted_by, job.shape(),
        {job.model.layers, job.model.micro_batches, chosen_.vocabulary, job.model.dense, job.model.whole},
        options_.peak_flops);
    add_utilisation(results.use, results.outcome);
    append(results.outcome, writer_);
    if (target_.is_leader() && !options_.trace.file.empty() && was_timed(results.outcome))
      commands::write_layer_trace(results.outcome, options_.trace);
    if (target_.is_leader() && !options_.save_plan.empty() && !results.outcome.runs.front().plan.works.empty())
      commands::save_plan(results.outcome.runs.front().plan, options_.save_plan);
    writer_.end();
    return results;
  }

 private:
  std::unique_ptr<TokenSource> checked_text() const {
    const Optimizer refuses(optimizer_, {});
    require_packs(options_);
    std::unique_ptr<TokenSource> text = text_of(options_);
    require_runs(options_, chosen_, *text, target_);
    require_weights(options_, chosen_, target_);
    return text;
  }

  commands::LayerJob job_of(int layers) const {
    measure::LayerBenchSettings settings{.iterations = options_.steps,
                                         .seed = options_.seed,
                                         .timeout_s = options_.timeout_s,
                                         .check_only = options_.check_only};
    settings.training = {.text = text_.get(), .optimizer = optimizer_, .held_out_batches = options_.held_out};
    if (!options_.checkpoint.empty()) {
      settings.training.folder = options_.checkpoint;
      settings.training.every = options_.checkpoint_every;
      settings.training.identity = identity(layers);
    }
    settings.training.stop = &stop_requested();
    settings.training.weights = options_.weights;
    settings.training.save_weights = options_.save_weights;
    settings.inspect = commands::inspection_of(options_.dump, options_.record_routing);
    commands::LayerJob job = commands::layer_job_on(target_, options_.selection, settings);
    job.name = chosen_.name;
    job.packs_online = options_.online_packing;
    if (plan_) {
      job.plan = plan_;
      job.model = model_of(*plan_);
      job.schedules = {&find_schedule(plan_->schedule)};
      return job;
    }
    job.model = first_layers(chosen_.model, layers);
    // The model's loss, with the losses of its gates, is a mean over the tokens of all micro-batches.
    job.model.shape.layer.aux_loss /= chosen_.model.micro_batches;
    job.model.shape.layer.z_loss /= chosen_.model.micro_batches;
    job.model.step = {true, optimizer_.clip_norm > 0, optimizer_.kind, chosen_.tied_embedding};
    add_end_tasks(job.model, chosen_.vocabulary);
    return job;
  }

  // Returns a text with all values that a step's loss depends on. The rounding of an expert's rows and the number of
  // tokens that share a capacity are only included if the model has a capacity.
  std::string identity(int layers) const {
    const ParallelShape& p = chosen_.model.shape.parallel;
    LayerShape layer = chosen_.model.shape.layer;
    const int64_t group = mp_tokens(chosen_.model.shape) / p.mp;
    layer.batch *= int64_t{p.dp} * chosen_.model.whole_micro_batches();
    layer.parts = 1;
    layer.first_stage_layers = layer.last_stage_layers = 0;
    const std::string rows = layer.capacity_factor ? fmt::format(", rows {} for each {} tokens",
                                                                 name_of(chosen_.model.shape.rounding), group)
                                                   : "";
    const std::string places = layer.rope_theta > 0 ? fmt::format(", rope {:g}", layer.rope_theta) : "";
    std::string widths = layer.head_dim > 0 ? fmt::format(", {} wide", layer.head_dim) : "";
    if (is_latent(layer))
      widths = fmt::format(", latent {} and {}, {} + {} and {} wide", layer.q_lora_rank, layer.kv_lora_rank,
                           layer.qk_nope_head_dim, layer.qk_rope_head_dim, layer.v_head_dim);
    return fmt::format(
        "{}: {}, {} heads over {}{}{}, norm {}{}{}{}{}, gate {}{}, losses {:g} and {:g}, hook {}, {}, text {} "
        "({:016x}), "
        "seed {}, {}{}",
        chosen_.name, describe_layers(layers, chosen_.model.dense, chosen_.model.whole, layer), layer.heads,
        layer.kv_heads, widths, places, name_of(layer.norm), layer.residual ? "" : ", no residual",
        layer.causal ? "" : ", not causal", layer.bias ? ", biases" : "",
        chosen_.tied_embedding ? ", tied embedding" : "", layer.gate, rows, layer.aux_loss, layer.z_loss, layer.hook,
        name_of(layer.dtype), options_.text, fingerprint(), options_.seed, text_of_optimizer(),
        options_.weights.empty() ? "" : ", begun with " + options_.weights);
  }
  // Returns a hash of some of the text's samples, which distinguishes texts of the same name.
  uint64_t fingerprint() const {
    std::string read;
    std::vector<int32_t> tokens(chosen_.model.shape.layer.seq + 1);
    for (int64_t sample = 0; sample < 64; ++sample) {
      text_->fill(Split::train, 0, sample, tokens);
      for (const int32_t token : tokens) read += static_cast<char>(token);
    }
    return random_stream_id(read);
  }
  std::string text_of_optimizer() const {
    const OptimizerSettings& o = optimizer_;
    return fmt::format("{} at {:g}, momentum {:g}, weight decay {:g}, clipped at {:g}, {} of {} steps to warm up",
                       name_of(o.kind), o.learning_rate, o.momentum, o.weight_decay, o.clip_norm, o.warm_up_steps,
                       o.steps);
  }

  Profile measured(const commands::LayerJob& job) {
    commands::OpRequest request;
    request.settings.timeout_s = options_.timeout_s;
    request.sizes = measure::sizes_for(job.shape().layer.dtype, target_.ranks.device);
    std::vector<commands::LayerJob> jobs{job};
    const int ep = job.shape().parallel.ep;
    Decision decision;
    for (decision.packing = 2; job.packs_online && ep % decision.packing == 0; decision.packing *= 2) {
      jobs.push_back(job);
      jobs.back().name += fmt::format(", packed {}", decision.packing);
      jobs.back().model.shape = decided_case(job.shape(), decision);
    }
    return commands::measured_profile(target_, writer_, request, jobs);
  }

  commands::Target target_;
  ModelbenchOptions options_;
  OptimizerSettings optimizer_;
  std::optional<Plan> plan_;  // plan of the --plan file; none: not given
  commands::ChosenModel chosen_;
  std::unique_ptr<TokenSource> text_;
  RecordWriter writer_;
};

}  // namespace

int run_modelbench(const ModelbenchOptions& options, World* processes) {
  Modelbench bench(options, processes);
  std::optional<ModelbenchResults> found;
  try {
    found = bench.run();
  } catch (const measure::TrainingStopped& stopped) {
    if (bench.target().is_leader())
      log_error(fmt::format("{}{}", stopped.what(),
                            options.checkpoint.empty() ? "" : ": the same command goes on from its checkpoint"));
    return kStoppedBySignal + (stop_reason > 0 ? stop_reason.load() : SIGTERM);
  }
  const ModelbenchResults& results = *found;
  if (bench.target().is_leader()) fmt::print("{}\n", options.json ? json_of(results) : text_of(results));
  commands::require_correct_outcome(results.outcome, true);
  return kOk;
}

}  // namespace moe::modelbench
