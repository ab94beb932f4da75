#include "commands/shared/chosen_model.h"

#include <fmt/ranges.h>

#include "commands/shared/frameworks.h"
#include "moe/base/check.h"
#include "moe/shape/hf_config.h"
#include "moe/shape/model_file.h"

namespace moe::commands {
namespace {

// Returns ChosenModel::model_on_cluster. Values that come from flags are not listed.
std::string differences(const Model& elsewhere, const Model& here, const ModelFlags& flags,
                        const PartialLayerFields& asked, int64_t experts) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  const auto differ = [&](const char* what, int64_t value, int64_t other, bool by_flag) {
    if (value != other && !by_flag) add(fmt::format("{} {}, elsewhere {}", what, value, other));
  };
  if (here.layer.experts == 0 && !asked.get(&LayerShape::experts))
    add(fmt::format("E {}, which the model leaves open", experts));
  else if (elsewhere.layer.experts > 0)
    differ("E", here.layer.experts, elsewhere.layer.experts, asked.get(&LayerShape::experts).has_value());
  differ("layers", here.layers, elsewhere.layers, flags.layers.has_value());
  differ("B", here.layer.batch, elsewhere.layer.batch, asked.get(&LayerShape::batch).has_value());
  differ("L", here.layer.seq, elsewhere.layer.seq, asked.get(&LayerShape::seq).has_value());
  return text;
}

void note_replaced_mixers(PublishedModel published, Model planned, ChosenModel& chosen) {
  chosen.replaced_mixers = replaced_mixers(published);
  if (chosen.replaced_mixers.empty()) return;
  published.seq = planned.layer.seq = chosen.model.shape.layer.seq;
  chosen.flops_share = count_model(published).forward_flops / count_model(published_model(planned)).forward_flops;
}

}  // namespace

DType default_dtype(const Profile& profile) {
  const auto prices = [&](DType dtype) {
    return profile.gpu_of(dtype) != nullptr ||
           std::ranges::any_of(profile.compute,
                               [&](const ComputeRow& row) { return row.op == Op::gemm && row.dtype == dtype; }) ||
           std::ranges::any_of(profile.tasks, [&](const TaskRow& row) { return row.dtype == dtype; });
  };
  return prices(DType::bfloat16) && !prices(DType::float32) ? DType::bfloat16 : DType::float32;
}

ChosenModel chosen_model(const ModelFlags& flags, const Selection& selection, const Profile& profile) {
  ChosenModel chosen;
  chosen.stack = !flags.is_one_layer();
  LayerFile base;
  Model elsewhere, model;
  if (!flags.model.empty()) {
    require<BadInput>(selection.layer_file.empty(), "--model: found --layer too, expected one of them");
    elsewhere = find_model(flags.model);
    model = model_on_cluster(elsewhere, profile.name);
    base.name = chosen.name = model.name;
    base.layer = model.layer;
    base.names_dtype = model.names_dtype;
    base.parallel = model.parallel;
    chosen.model.layers = model.layers;
    chosen.vocabulary = model.vocabulary;
    chosen.tied_embedding = model.tied_embedding;
    chosen.traits = model.traits;
    chosen.origin = model.origin;
  } else if (!selection.layer_file.empty()) {
    base = find_layer(selection.layer_file);
  }
  chosen.whole_layers = chosen.model.layers;
  chosen.model.layers = flags.layers.value_or(chosen.model.layers);
  const LayerSet whole = whole_layers(model.windowed_layers, chosen.model.layers);
  Selection of_layers = selection;
  if (whole.count(0, chosen.model.layers) == chosen.model.layers) {  // --window changes no layer
    base.layer.window = 0;
    if (selection.layer.fields.get(&LayerShape::window)) of_layers.layer.fields.set(&LayerShape::window, 0);
  }
  if (!base.names_dtype) base.layer.dtype = default_dtype(profile);
  chosen.model.shape = chosen_case(of_layers, std::move(base), profile.nodes, profile.ranks_per_node);
  if (!model.origin.empty()) note_replaced_mixers(find_published_model(flags.model), model, chosen);
  if (!flags.model.empty())
    chosen.model_on_cluster =
        differences(elsewhere, model, flags, selection.layer.fields, chosen.model.shape.layer.experts);
  chosen.model.dense = model.dense.expand(chosen.model.layers);
  require<BadInput>(chosen.model.dense.count(0, chosen.model.layers) < chosen.model.layers,
                    "--layers: found {}, all of them dense, expected one with experts", chosen.model.layers);
  if (chosen.model.dense.hidden > 0)
    dense_case(chosen.model.shape, chosen.model.dense.hidden);  // throws if MP doesn't divide the dense layer
  if (chosen.model.shape.layer.window > 0) chosen.model.whole = whole;
  const int parts = static_cast<int>(chosen.model.shape.layer.parts);
  chosen.model.micro_batches = flags.micro_batches.value_or(1) * parts;
  const Trainer trainer = trainer_of(flags.framework);
  chosen.model.shape.parallel.trainer = trainer;
  chosen.model.step.planned = chosen.stack;
  if (!flags.model.empty()) chosen.model.step.optimizer = OptimizerKind::adamw;
  add_ends(chosen.model, chosen.vocabulary, chosen.tied_embedding);
  // One stage that keeps the activations of one micro-batch is slower by at most about 1 %.
  const bool one_stage = chosen.model.shape.parallel.pp == 1 && chosen.model.micro_batches > 1;
  chosen.model.virtual_stages = flags.virtual_stages.value_or(1);
  require<BadInput>(chosen.model.virtual_stages == 1 || chosen.model.shape.parallel.pp > 1,
                    "--virtual-stages: found {} on one pipeline stage, expected --pp N with it",
                    chosen.model.virtual_stages);
  const int virtual_stages = chosen.model.split().virtual_stages;
  if (one_stage || virtual_stages > 1 || (trainer != Trainer::moetune && chosen.model.micro_batches > 1))
    chosen.model.order = PipelineOrder::one_f_one_b;
  if (flags.pipeline) chosen.model.order = pipeline_order_from(*flags.pipeline, "--pipeline");
  require<BadInput>(!flags.pipeline || chosen.model.micro_batches > 1,
                    "--pipeline: found one micro-batch, which has one order; expected --micro-batches N with it");
  check_stages(chosen.model.split(), chosen.model.order, chosen.model.micro_batches, "--virtual-stages");
  return chosen;
}

ChosenModel framework_model(const ModelFlags& flags, const Selection& selection, const Profile& profile) {
  ChosenModel chosen = chosen_model(flags, selection, profile);
  if (flags.framework.empty()) return chosen;
  ParallelShape& p = chosen.model.shape.parallel;
  if (p.trainer == Trainer::torchtitan && !selection.layer.zero) p.zero = 1;
  const std::vector<std::string> refusals = refusals_of(framework_of(flags.framework), chosen.model);
  require<BadInput>(refusals.empty(), "--framework {}: {}", flags.framework, fmt::join(refusals, "; "));
  return chosen;
}

ScheduleTable possible_schedules(const ChosenModel& chosen) {
  const ModelShape& model = chosen.model;
  const bool several = model.layers > 1 || model.micro_batches > 1;
  return several ? all_schedules() : schedules();
}

void record_embedding_and_head(Fields& parameters, const ChosenModel& chosen) {
  if (chosen.vocabulary > 0) {
    parameters.set("vocabulary", chosen.vocabulary);
    parameters.set("tied_embedding", std::string(chosen.tied_embedding ? "yes" : "no"));
  }
  if (!chosen.origin.empty()) parameters.set("origin", chosen.origin);
  for_each_model_trait([&](const auto& trait) {
    const auto& value = chosen.traits.*trait.member;
    if (value == ModelTraits{}.*trait.member) return;
    if constexpr (std::same_as<std::remove_cvref_t<decltype(value)>, bool>)
      parameters.set(trait.key, std::string("yes"));
    else
      parameters.set(trait.key, value);
  });
}

ModelTraits recorded_traits(const Fields& parameters, const std::string& where) {
  ModelTraits traits;
  for_each_model_trait([&](const auto& trait) {
    using Value = std::remove_cvref_t<decltype(traits.*trait.member)>;
    if (!parameters.has(trait.key)) return;
    if constexpr (std::same_as<Value, bool>)
      traits.*trait.member = parameters.text(trait.key, where) == "yes";
    else if constexpr (std::same_as<Value, int64_t>)
      traits.*trait.member = parameters.whole(trait.key, where);
    else if constexpr (std::same_as<Value, double>)
      traits.*trait.member = parameters.number(trait.key, where);
    else
      traits.*trait.member = parameters.text(trait.key, where);
  });
  return traits;
}

MemoryEstimate memory_of(const ChosenModel& chosen, MemoryRequest request) {
  request.vocabulary = chosen.vocabulary;
  request.tied_embedding = chosen.tied_embedding;
  return estimate_memory(request);
}

DegreeChoice within_memory(DegreeChoice choice, std::optional<double> capacity, const ChosenModel& chosen) {
  if (!capacity) return choice;
  const auto holds = [capacity, chosen](const MemoryRequest& request) {
    return !memory_refusal(memory_of(chosen, request), *capacity);
  };
  return restrict_to_memory(std::move(choice), holds, chosen.model);
}

}  // namespace moe::commands
