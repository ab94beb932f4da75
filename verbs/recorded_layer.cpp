#include "verbs/recorded_layer.h"

#include "moe/base/check.h"
#include "moe/export/layer_json.h"
#include "verbs/results_json.h"

namespace moe {
namespace {

void add(Fields& fields, const Json& json) {
  for (const auto& [name, value] : json.items()) {
    if (value.is_string())
      fields.set(name, value.get<std::string>());
    else if (value.is_number_integer())
      fields.set(name, value.get<int64_t>());
    else if (value.is_number())
      fields.set(name, value.get<double>());
    else if (value.is_boolean())
      fields.set(name, std::string(value.get<bool>() ? "yes" : "no"));
    else
      fields.set(name, std::string("none"));
  }
}

}  // namespace

Fields parameters_of(const LayerCase& shape, const std::string& cluster, const std::string& layer,
                     const DegreeChoice& degrees) {
  Fields fields{{"cluster", cluster}, {"layer", layer}};
  add(fields, to_json(shape));
  if (degrees.micro_op_bytes != kMicroOpBytes) fields.set("micro_op_bytes", degrees.micro_op_bytes);
  if (degrees.min_chunk_bytes != 0) fields.set("min_chunk_bytes", degrees.min_chunk_bytes);
  return fields;
}

Fields parameters_of(const ModelShape& model, const std::string& cluster, const std::string& layer,
                     const DegreeChoice& degrees) {
  Fields fields = parameters_of(model.shape, cluster, layer, degrees);
  fields.set("layers", int64_t{model.layers});
  if (const int dense = model.dense.in(0, model.layers); dense > 0) {
    fields.set("dense_layers", int64_t{dense});
    fields.set("dense_hidden", model.dense.hidden);
    std::string pattern;
    for (int i = 0; i < model.layers; ++i) pattern += model.dense.has(i) ? '0' : '1';
    fields.set("moe_layers", pattern);
  }
  fields.set("micro_batches", int64_t{model.micro_batches});
  if (model.micro_batches > 1) fields.set("pipeline", std::string(name_of(model.order)));
  return fields;
}

Fields group_parameters(const ParallelShape& parallel) {
  Fields fields;
  add(fields, group_sizes(parallel));
  return fields;
}

LayerCase shape_of(const Fields& f, const std::string& at) {
  const auto whole = [&](const char* name) { return f.whole(name, at); };
  const auto group = [&](const char* name) { return static_cast<int>(f.whole(name, at)); };
  const auto where = [&](const char* name) { return fmt::format("{}: {}", at, name); };
  LayerShape l;
  l.batch = whole("batch");
  l.seq = whole("seq");
  l.model_dim = whole("model_dim");
  l.hidden = whole("hidden");
  if (f.has("shared_hidden")) l.shared_hidden = whole("shared_hidden");
  l.heads = whole("heads");
  l.kv_heads = whole("kv_heads");
  if (f.has("rope_theta")) l.rope_theta = f.number("rope_theta", at);
  l.experts = whole("experts");
  l.top_k = whole("top_k");
  if (f.has("node_limit")) l.node_limit = whole("node_limit");
  l.capacity_factor.reset();  // "none"
  const Scalar* factor = f.find("capacity_factor");
  if (factor == nullptr || !std::holds_alternative<std::string>(*factor))
    l.capacity_factor = f.number("capacity_factor", at);
  l.ffn = ffn_from(f.text("ffn", at), where("ffn"));
  l.dtype = dtype_from(f.text("dtype", at), where("dtype"));
  l.gate = f.text("gate", at);
  l.order = f.text("order", at);
  l.dispatcher = f.text("dispatcher", at);
  l.hook = f.text("hook", at);
  if (f.has("norm")) l.norm = norm_from(f.text("norm", at), where("norm"));
  if (f.has("residual")) l.residual = f.text("residual", at) == "yes";
  if (f.has("causal")) l.causal = f.text("causal", at) == "yes";
  if (f.has("bias")) l.bias = f.text("bias", at) == "yes";
  if (f.has("aux_loss")) l.aux_loss = f.number("aux_loss", at);
  if (f.has("z_loss")) l.z_loss = f.number("z_loss", at);
  ParallelShape p;
  p.nodes = group("nodes");
  p.ranks_per_node = group("ranks_per_node");
  p.dp = group("dp");
  p.mp = group("mp");
  p.ep = group("ep");
  p.esp = group("esp");
  p.pp = group("pp");
  if (f.has("placement")) p.ep_inside = ep_inside_from(f.text("placement", at), where("placement"));
  if (f.has("zero")) p.zero = group("zero");
  if (f.has("recompute")) p.recompute = recompute_from(f.text("recompute", at), where("recompute"));
  const Rounding rounding = rounding_from(f.text("capacity_rounding", at), where("capacity_rounding"));
  try {
    return complete(l, p, rounding);
  } catch (const BadInput& error) {
    bad_input("{}: {}", at, error.what());
  }
}

DegreeChoice degrees_of(const CaseRecord& record) {
  DegreeChoice choice{.forward = record.degree_forward, .backward = record.degree_backward};
  const Fields& f = record.parameters;
  if (f.has("micro_op_bytes")) choice.micro_op_bytes = f.whole("micro_op_bytes", record.where);
  if (f.has("min_chunk_bytes")) choice.min_chunk_bytes = f.whole("min_chunk_bytes", record.where);
  return choice;
}

}  // namespace moe
