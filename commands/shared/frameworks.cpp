#include "commands/shared/frameworks.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace moe::commands {
namespace {

constexpr std::array<std::string_view, 2> kTutelSchedules{"tutel", "ds-moe"};
constexpr std::array<std::string_view, 1> kUnpipelined{"ds-moe"}, kOfFsmoe{"fsmoe-no-partition"},
    kAlmostOfFsmoe{"fsmoe"}, kOverlapped{"pair-1f1b"};

constexpr std::string_view kZero = "--zero", kRecompute = "--recompute", kGranularity = "granularity",
                           kExchange = "--cp-exchange", kFirstStage = "--first-stage-layers",
                           kLastStage = "--last-stage-layers";
constexpr std::string_view kUnevenStages = "only the first and the last stage can have another number of layers",
                           kOtherMemory = "plans can offload only experts (--offload experts)",
                           kOtherShards = "no plan shards weights";

// Source: megatron/training/arguments.py and torchrun's.
constexpr std::array<SettingName, 16> kMegatronArguments{
    {{"--mp", "--tensor-model-parallel-size"},
     {"--cp", "--context-parallel-size"},
     {kExchange, "--cp-comm-type", SettingKind::exchange},
     {"--ep", "--expert-model-parallel-size"},
     {"--esp", "--expert-tensor-parallel-size"},
     {"--pp", "--pipeline-model-parallel-size"},
     {"--virtual-stages", "--num-virtual-stages-per-pipeline-rank"},
     {kFirstStage, "--decoder-first-pipeline-num-layers", SettingKind::own_layers},
     {kLastStage, "--decoder-last-pipeline-num-layers", SettingKind::own_layers},
     {"--batch", "--micro-batch-size"},
     {"--global-batch", "--global-batch-size"},
     {kZero, "--use-distributed-optimizer", SettingKind::shards},
     {kRecompute, "--recompute-granularity", SettingKind::recompute},
     {"--nodes", "--nnodes"},
     {"--ranks-per-node", "--nproc-per-node"},
     {"--ranks-per-node", "--nproc_per_node"}}};
// Attention keeps no scores, whether with or without recomputation.
constexpr std::array<SettingDefault, 7> kMegatronDefaults{{{"--mp", "1"},
                                                           {kExchange, "ring"},
                                                           {"--ep", "1"},
                                                           {"--esp", "MP"},
                                                           {"--pp", "1"},
                                                           {kZero, "0"},
                                                           {kRecompute, "selective"}}};

// Source: ConfigContainer of megatron/bridge/training/config.py; its recipes shard the optimizer's states.
constexpr std::array<SettingName, 14> kBridgeKeys{
    {{"--mp", "model.tensor_model_parallel_size"},
     {"--cp", "model.context_parallel_size"},
     {kExchange, "model.cp_comm_type", SettingKind::exchange},
     {"--ep", "model.expert_model_parallel_size"},
     {"--esp", "model.expert_tensor_parallel_size"},
     {"--pp", "model.pipeline_model_parallel_size"},
     {"--virtual-stages", "model.virtual_pipeline_model_parallel_size"},
     {kFirstStage, "model.num_layers_in_first_pipeline_stage", SettingKind::own_layers},
     {kLastStage, "model.num_layers_in_last_pipeline_stage", SettingKind::own_layers},
     {"--batch", "train.micro_batch_size"},
     {"--global-batch", "train.global_batch_size"},
     {kZero, "ddp.use_distributed_optimizer", SettingKind::shards},
     {kZero, "optimizer.use_distributed_optimizer", SettingKind::shards},
     {kRecompute, "model.recompute_granularity", SettingKind::recompute}}};
constexpr std::array<SettingDefault, 7> kBridgeDefaults{{{"--mp", "1"},
                                                         {kExchange, "ring"},
                                                         {"--ep", "1"},
                                                         {"--esp", "MP"},
                                                         {"--pp", "1"},
                                                         {kZero, "1"},
                                                         {kRecompute, "selective"}}};

// Source: MegatronStrategy of nemo/lightning/pytorch/strategies and PreTrainingDataModule of nemo/collections/llm.
constexpr std::array<SettingName, 17> kNemoKeys{
    {{"--mp", "trainer.strategy.tensor_model_parallel_size"},
     {"--cp", "trainer.strategy.context_parallel_size"},
     {kExchange, "trainer.strategy.cp_comm_type", SettingKind::exchange},
     {kExchange, "model.config.cp_comm_type", SettingKind::exchange},
     {"--ep", "trainer.strategy.expert_model_parallel_size"},
     {"--esp", "trainer.strategy.expert_tensor_parallel_size"},
     {"--pp", "trainer.strategy.pipeline_model_parallel_size"},
     {"--virtual-stages", "trainer.strategy.virtual_pipeline_model_parallel_size"},
     {kFirstStage, "model.config.num_layers_in_first_pipeline_stage", SettingKind::own_layers},
     {kLastStage, "model.config.num_layers_in_last_pipeline_stage", SettingKind::own_layers},
     {"--batch", "data.micro_batch_size"},
     {"--global-batch", "data.global_batch_size"},
     {kZero, "trainer.strategy.ddp.use_distributed_optimizer", SettingKind::shards},
     {kZero, "optim.config.use_distributed_optimizer", SettingKind::shards},
     {kRecompute, "model.config.recompute_granularity", SettingKind::recompute},
     {"--nodes", "trainer.num_nodes"},
     {"--ranks-per-node", "trainer.devices"}}};

// Source: examples/nlp/language_modeling/conf/megatron_gpt_config.yaml of NeMo 1, and NeMo-Framework-Launcher's.
constexpr std::array<SettingName, 14> kNemo1Keys{
    {{"--mp", "model.tensor_model_parallel_size"},
     {"--cp", "model.context_parallel_size"},
     {kExchange, "model.cp_comm_type", SettingKind::exchange},
     {"--ep", "model.expert_model_parallel_size"},
     {"--esp", "model.expert_tensor_parallel_size"},
     {"--pp", "model.pipeline_model_parallel_size"},
     {"--virtual-stages", "model.virtual_pipeline_model_parallel_size"},
     {"--batch", "model.micro_batch_size"},
     {"--global-batch", "model.global_batch_size"},
     {kZero, "model.optim.name", SettingKind::optimizer},
     {kRecompute, "model.activations_checkpoint_granularity", SettingKind::recompute},
     {"--nodes", "trainer.num_nodes"},
     {"--ranks-per-node", "trainer.devices"},
     {"--ranks-per-node", "trainer.gpus"}}};
constexpr std::array<SettingDefault, 9> kNemoDefaults{{{"--mp", "1"},
                                                       {kExchange, "ring"},
                                                       {"--ep", "1"},
                                                       {"--esp", "MP"},
                                                       {"--pp", "1"},
                                                       {"--batch", "4"},
                                                       {"--global-batch", "8"},
                                                       {kZero, "0"},
                                                       {kRecompute, "selective"}}};

// For all that train with Megatron-Core: its arguments, TransformerConfig, DistributedDataParallelConfig, CommOverlap.
constexpr std::array<UnplannedSetting, 36> kMegatronUnplanned{
    {{"cp_comm_type", "all_gather"},
     {"use_megatron_fsdp", "false", kOtherShards},
     {"use_custom_fsdp", "false", kOtherShards},
     {"use_torch_fsdp2", "false", kOtherShards},
     {"strategy.fsdp", "false", kOtherShards},
     {"num_distributed_optimizer_instances", "1", "no plan shards states over a part of DP"},
     {"pipeline_model_parallel_layout", "", kUnevenStages},
     {"num_layers_in_first_pipeline_stage", "", kUnevenStages},
     {"num_layers_in_last_pipeline_stage", "", kUnevenStages},
     {"decoder_first_pipeline_num_layers", "", kUnevenStages},
     {"decoder_last_pipeline_num_layers", "", kUnevenStages},
     {"account_for_embedding_in_pipeline_split", "false", kUnevenStages},
     {"account_for_loss_in_pipeline_split", "false", kUnevenStages},
     {"rampup_batch_size", "", "the global batch is one number"},
     {"use_tp_pp_dp_mapping", "false", "ranks of DP are nearer to each other than stages"},
     {"cpu_offloading", "false", kOtherMemory},
     {"optimizer_cpu_offload", "false", kOtherMemory},
     {"fine_grained_activation_offloading", "false", kOtherMemory},
     {"moe_extended_tp", "false", "experts are sharded by expert_tensor_parallel_size"},
     {"recompute_method", "uniform", "no plan recomputes some layers and keeps others", "full"},
     {"activations_checkpoint_method", "uniform", "no plan recomputes some layers and keeps others", "full"},
     {"recompute_num_layers", "1", {}, "full"},
     {"activations_checkpoint_num_layers", "1", {}, "full"},
     {"recompute_modules", "core_attn", {}, "selective"},
     {"overlap_moe_expert_parallel_comm", "false"},
     {"moe_shared_expert_overlap", "false"},
     {"delay_wgrad_compute", "false"},
     {"defer_embedding_wgrad_compute", "false"},
     {"overlap_grad_reduce", "false"},
     {"overlap_param_gather", "false"},
     {"tp_comm_overlap", "false"},
     {"ub_tp_comm_overlap", "false"},
     {"fp8", "false"},
     {"fp8_format", ""},
     {"fp4", "false"},
     {"fp4_format", ""}}};

constexpr std::array<SettingsFormat, 4> kMegatronFormats{
    {{"Megatron-Core", true, kMegatronArguments, kMegatronDefaults, kMegatronUnplanned},
     {"Megatron-Bridge", false, kBridgeKeys, kBridgeDefaults, kMegatronUnplanned},
     {"NeMo", false, kNemoKeys, kNemoDefaults, kMegatronUnplanned},
     {"NeMo 1", false, kNemo1Keys, kNemoDefaults, kMegatronUnplanned}}};

// Source: deepspeed/runtime/config.py, runtime/tensor_parallel/config.py, module_inject/auto_ep_config.py.
constexpr std::array<SettingName, 8> kDeepspeedKeys{{{"--mp", "tensor_parallel.autotp_size"},
                                                     {"--mp", "tensor_parallel.tp.tp_size"},
                                                     {"--ep", "expert_parallel.autoep_size"},
                                                     {"--esp", "expert_parallel.expert_tensor_parallel_size"},
                                                     {"--batch", "train_micro_batch_size_per_gpu"},
                                                     {"--micro-batches", "gradient_accumulation_steps"},
                                                     {"--global-batch", "train_batch_size"},
                                                     {kZero, "zero_optimization.stage"}}};
constexpr std::array<SettingDefault, 6> kDeepspeedDefaults{
    {{"--mp", "1"}, {"--ep", "1"}, {"--esp", "1"}, {"--pp", "1"}, {kZero, "0"}, {kRecompute, "selective"}}};
constexpr std::array<UnplannedSetting, 12> kDeepspeedUnplanned{
    {{"sequence_parallel_size", "1", "no plan has such groups"},
     {"offload_optimizer.device", "none", kOtherMemory},
     {"offload_param.device", "none", kOtherMemory},
     {"zero_optimization", "false", "its stage is a key of it"},
     {"zero_optimization.cpu_offload", "false", kOtherMemory},
     {"cpu_checkpointing", "false", kOtherMemory},
     {"zero_optimization.mics_shard_size", "-1", kOtherShards},
     {"zero_optimization.zero_hpz_partition_size", "1", kOtherShards},
     {"elasticity.enabled", "false", "the number of ranks is fixed"},
     {"partition_activations", "false"},
     {"overlap_comm", "false"},
     {"tp_overlap_comm", "false"}}};
constexpr std::array<SettingsFormat, 1> kDeepspeedFormats{
    {{"DeepSpeed", false, kDeepspeedKeys, kDeepspeedDefaults, kDeepspeedUnplanned}}};

// Source: torchtitan/config/job_config.py at 9810191bb, with train_configs in TOML.
constexpr std::array<SettingName, 8> kTorchtitanKeys{
    {{"--mp", "parallelism.tensor_parallel_degree"},
     {"--cp", "parallelism.context_parallel_degree"},
     {"--ep", "parallelism.expert_parallel_degree"},
     {"--esp", "parallelism.expert_tensor_parallel_degree"},
     {"--pp", "parallelism.pipeline_parallel_degree"},
     {"--batch", "training.local_batch_size"},
     {"--global-batch", "training.global_batch_size"},
     {kRecompute, "activation_checkpoint.mode", SettingKind::recompute_mode}}};
constexpr std::array<SettingDefault, 7> kTorchtitanDefaults{{{"--mp", "1"},
                                                             {"--ep", "1"},
                                                             {"--esp", "1"},
                                                             {"--pp", "1"},
                                                             {"--batch", "8"},
                                                             {kZero, "1"},
                                                             {kRecompute, "selective"}}};
constexpr std::array<UnplannedSetting, 7> kTorchtitanUnplanned{{{"enable_cpu_offload", "false", kOtherMemory},
                                                                {"module_fqns_per_model_part", "", kUnevenStages},
                                                                {"data_parallel_shard_degree", "1"},
                                                                {"fsdp_reshard_after_forward", "never"},
                                                                {"enable_async_tensor_parallel", "false"},
                                                                {"pipeline_parallel_schedule", "1F1B"},
                                                                {"model.converters", "[]"}}};
constexpr std::array<SettingsFormat, 1> kTorchtitanFormats{
    {{"torchtitan", false, kTorchtitanKeys, kTorchtitanDefaults, kTorchtitanUnplanned}}};

using Refusals = std::vector<std::string>;

bool has_order(const ModelShape& model, PipelineOrder order) { return model.micro_batches > 1 && model.order == order; }

// Gradient accumulation on one stage finishes a micro-batch before it begins the next.
void refuse_gpipe_on_one_stage(std::string_view name, const ModelShape& model, Refusals& refusals) {
  if (has_order(model, PipelineOrder::gpipe) && model.shape.parallel.pp == 1)
    refusals.push_back(fmt::format("{} accumulates gradients as --pipeline 1f1b does, not gpipe", name));
}

// Ranks that share an expert are neighbours, and no setting changes that.
void refuse_ep_inside(std::string_view name, const ParallelShape& p, Refusals& refusals) {
  if (p.ep_inside && p.ep > 1 && p.esp > 1)
    refusals.push_back(fmt::format("{} has no EP's ranks as neighbours, but ESP's", name));
}

// Refuses CP for frameworks that share samples among ranks in another way, or not at all.
void refuse_cp(std::string_view name, const ParallelShape& p, Refusals& refusals) {
  if (p.cp > 1) refusals.push_back(fmt::format("{} has no AllGather of keys and values over CP {}", name, p.cp));
}

void refuse_own_ends(std::string_view name, const ModelShape& model, Refusals& refusals) {
  if (model.split().has_own_ends())
    refusals.push_back(fmt::format("{} cannot set the number of layers of the first or last stage", name));
}

// Source: the checks of megatron/training/arguments.py and megatron/core/transformer/transformer_config.py.
Refusals megatron_refusals(const ModelShape& model) {
  const LayerShape& l = model.shape.layer;
  const ParallelShape& p = model.shape.parallel;
  Refusals refusals;
  const auto add = [&](const std::string& what) { refusals.push_back("Megatron-Core refuses " + what); };
  const auto needs_multiple = [&](std::string_view what, int64_t found, std::string_view group, int64_t size) {
    if (found % size != 0) add(fmt::format("{} {} over {} {}", found, what, group, size));
  };
  needs_multiple("attention heads", l.heads, "TP", p.mp);
  if (l.kv_heads < l.heads && l.kv_heads % p.mp != 0)
    add(fmt::format("{} key-value heads over TP {}{}", l.kv_heads, p.mp,
                    p.mp % l.kv_heads == 0 ? ", before release 0.16" : ""));
  needs_multiple("tokens a sample with --sequence-parallel", l.seq / p.cp, "TP", p.mp);
  if (const StageSplit split = model.split(); split.has_own_ends())
    needs_multiple("layers", split.middle_stages().layers, "the other stages,",
                   std::max(split.middle_stages().stages, 1));
  else if (model.layers % p.pp != 0)
    add(fmt::format("{} layers over PP {} without --first-stage-layers or --last-stage-layers", model.layers, p.pp));
  if (l.node_limit > 0 && l.router_groups == 0)
    needs_multiple("experts", l.experts, "as many router groups as nodes,", expert_nodes(p));
  if (l.bias && p.esp > 1) add(fmt::format("experts with biases over ETP {}", p.esp));
  if (has_order(model, PipelineOrder::gpipe)) add("gpipe: its order of micro-batches is 1F1B");
  refuse_ep_inside("Megatron-Core", p, refusals);
  return refusals;
}

// Source: the checks of overlap_moe_expert_parallel_comm and delay_wgrad_compute in
// megatron/core/transformer/transformer_config.py. Plans of overlapped passes have one stage.
Refusals megatron_overlap_refusals(const ModelShape& model) {
  const ParallelShape& p = model.shape.parallel;
  const DType dtype = model.shape.layer.dtype;
  Refusals refusals = megatron_refusals(model);
  const auto add = [&](const std::string& what) { refusals.push_back("--overlap-moe-expert-parallel-comm " + what); };
  if (p.ep == 1) add("needs EP above 1");
  if (p.pp > 1) add("needs virtual stages where PP is above 1: it is planned on one stage");
  if (p.recompute == Recompute::full) add("refuses --recompute full");
  if (dtype != DType::bfloat16 && dtype != DType::float16) add("needs bfloat16 or float16");
  return refusals;
}

Refusals fsmoe_refusals(const ModelShape& model) {
  const LayerShape& l = model.shape.layer;
  const ParallelShape& p = model.shape.parallel;
  Refusals refusals = megatron_refusals(model);
  if (!l.capacity_factor) refusals.emplace_back("the published layer refuses a layer that drops nothing");
  if (p.mp != p.esp)
    refusals.push_back(
        fmt::format("the published layer shards experts over its TP ranks: MP is {}, ESP {}", p.mp, p.esp));
  if (is_gated(l.ffn)) refusals.emplace_back("the published layer's backward is of ReLU alone");
  refuse_own_ends("the published layer", model, refusals);
  if (l.shared_hidden > 0) refusals.emplace_back("the published layer has no shared expert");
  refuse_cp("the published layer", p, refusals);
  return refusals;
}

Refusals tutel_refusals(const ModelShape& model) {
  const ParallelShape& p = model.shape.parallel;
  Refusals refusals;
  const int64_t local = model.shape.layer.experts / p.ep;
  if (p.esp > 1 && local > 1)
    refusals.push_back(fmt::format("Tutel shards an expert over devices of its own alone, not {} on a device", local));
  refuse_ep_inside("Tutel", p, refusals);
  refuse_cp("Tutel", p, refusals);
  refuse_gpipe_on_one_stage("Tutel", model, refusals);
  return refusals;
}

// Source: deepspeed/utils/groups.py, and the MoE examples of Megatron-DeepSpeed, which say --no-pipeline-parallel.
Refusals deepspeed_refusals(const ModelShape& model) {
  const ParallelShape& p = model.shape.parallel;
  Refusals refusals;
  if (p.pp > 1) refusals.push_back(fmt::format("DeepSpeed's MoE layer is on one pipeline stage, not {}", p.pp));
  if (p.esp > 1 && p.esp != p.mp)
    refusals.push_back(
        fmt::format("DeepSpeed shards experts over the ranks of tensor parallelism: MP is {}, ESP {}", p.mp, p.esp));
  refuse_ep_inside("DeepSpeed", p, refusals);
  refuse_cp("DeepSpeed", p, refusals);
  refuse_gpipe_on_one_stage("DeepSpeed", model, refusals);
  return refusals;
}

// Source: torchtitan/distributed/parallel_dims.py: ETP is 1 or TP; with 1 an EP group contains whole TP groups.
Refusals torchtitan_refusals(const ModelShape& model) {
  const ParallelShape& p = model.shape.parallel;
  Refusals refusals;
  if (p.esp > 1 && p.esp != p.mp)
    refusals.push_back(fmt::format("torchtitan shards experts over 1 or all TP ranks: TP is {}, ESP {}", p.mp, p.esp));
  if (p.esp == 1 && p.mp > 1 && p.ep > 1 && p.ep % p.mp != 0)
    refusals.push_back(fmt::format("torchtitan refuses EP {} that is no multiple of TP {}", p.ep, p.mp));
  refuse_own_ends("torchtitan", model, refusals);
  if (p.ring_blocks() > 0) refusals.push_back(fmt::format("torchtitan has no ring of sends over CP {}", p.cp));
  refuse_ep_inside("torchtitan", p, refusals);
  refuse_gpipe_on_one_stage("torchtitan", model, refusals);
  return refusals;
}

// Returns the setting's value for that of a flag: "true" for 1 of --zero.
std::string setting_value(SettingKind kind, std::string_view value) {
  const bool none = value == "0" || value == "none";
  switch (kind) {
    case SettingKind::plain:
    case SettingKind::recompute_mode:
      break;
    case SettingKind::shards:
      return none ? "false" : "true";
    case SettingKind::optimizer:
      return none ? "fused_adam" : "mcore_distributed_optim";
    case SettingKind::recompute:
    case SettingKind::own_layers:
      if (none) return "null";
      break;
    case SettingKind::exchange:
      return std::string(comm_type_of(cp_exchange_from(value, kExchange)));
  }
  return std::string(value);
}

constexpr std::array<Framework, 7> kFrameworks{
    {{.name = "Tutel", .key = "tutel", .exact = kTutelSchedules, .refusals = tutel_refusals},
     {.name = "FSMoE's published layer",
      .key = "fsmoe",
      .exact = kOfFsmoe,
      .close = kAlmostOfFsmoe,
      .but = "the gradients that it sends inside the MoE part: the published layer leaves gradients to Megatron",
      .refusals = fsmoe_refusals},
     {.name = "Megatron-Core",
      .key = "megatron",
      .exact = kUnpipelined,
      .refusals = megatron_refusals,
      .formats = kMegatronFormats,
      .trainer = Trainer::megatron},
     {.name = "Megatron-Core's overlap of micro-batches",
      .key = "megatron-overlap",
      .close = kOverlapped,
      .but = "the order within a turn, which Megatron-Core fixes by hand",
      .refusals = megatron_overlap_refusals,
      .trainer = Trainer::megatron},
     {.name = "DeepSpeed",
      .key = "deepspeed",
      .exact = kUnpipelined,
      .refusals = deepspeed_refusals,
      .formats = kDeepspeedFormats,
      .trainer = Trainer::deepspeed},
     {.name = "torchtitan",
      .key = "torchtitan",
      .is_exported = false,
      .close = kUnpipelined,
      .but = "FSDP's gathers of weights",
      .refusals = torchtitan_refusals,
      .formats = kTorchtitanFormats,
      .trainer = Trainer::torchtitan},
     {.name = "moetune", .key = "moetune", .is_exported = false, .trainer = Trainer::moetune}}};

}  // namespace

std::vector<const Schedule*> Framework::schedules() const {
  const std::span<const std::string_view> names = exact.empty() ? close : exact;
  std::vector<const Schedule*> found;
  for (const ScheduleTable& all : {moe::schedules(), iteration_schedules()})
    for (const Schedule& schedule : all)
      if (std::ranges::find(names, schedule.name) != names.end()) found.push_back(&schedule);
  return found;
}

std::span<const Framework> frameworks() { return kFrameworks; }

const Framework& framework_of(std::string_view key) { return *std::ranges::find(kFrameworks, key, &Framework::key); }

std::string_view comm_type_of(CpExchange exchange) { return exchange == CpExchange::ring ? "p2p" : "all_gather"; }

Trainer trainer_of(std::string_view key) {
  return key.empty() ? Trainer::moetune : framework_of(key).trainer.value_or(Trainer::moetune);
}

std::vector<std::string> refusals_of(const Framework& framework, const ModelShape& model) {
  if (framework.refusals == nullptr) return {};
  Refusals refusals = framework.refusals(model);
  if (const int64_t parts = model.shape.layer.parts; parts > 1)
    refusals.push_back(fmt::format("{} runs whole samples, not {} parts of them", framework.name, parts));
  if (model.shape.parallel.offload != Offload::none)
    refusals.push_back(fmt::format("{} cannot offload only the experts", framework.name));
  return refusals;
}

std::vector<std::pair<std::string, std::string>> settings_of(const SettingsFormat& format, std::string_view flag,
                                                             std::string_view value) {
  const auto known = std::ranges::find(format.names, flag, &SettingName::flag);
  if (known == format.names.end()) return {};
  std::vector<std::pair<std::string, std::string>> settings{
      {std::string(known->theirs), setting_value(known->kind, value)}};
  if (known->kind != SettingKind::recompute || value != "full") return settings;
  // Whole layers are recomputed one by one.
  const std::string stem(known->theirs.substr(0, known->theirs.size() - kGranularity.size()));
  settings.emplace_back(stem + "method", "uniform");
  settings.emplace_back(stem + (format.is_arguments ? "num-layers" : "num_layers"), "1");
  return settings;
}

std::string setting_of(const SettingsFormat& format, std::string_view flag, std::string_view value) {
  std::string text;
  for (const auto& [name, theirs] : settings_of(format, flag, value)) {
    if (!text.empty()) text += ' ';
    if (!format.is_arguments)
      text += fmt::format("{}={}", name, theirs);
    else if (theirs == "false" || theirs == "null")
      text += fmt::format("no {}", name);
    else
      text += theirs == "true" ? name : fmt::format("{} {}", name, theirs);
  }
  return text;
}

}  // namespace moe::commands
