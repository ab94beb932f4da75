#include "commands/shared/record_files.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "commands/shared/results_json.h"
#include "moe/base/check.h"
#include "moe/base/files.h"
#include "moe/base/json.h"
#include "moe/formats/plan_json.h"
#include "moe/shape/layer_fields.h"

namespace moe::commands {
namespace {

Scalar scalar_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  return value.get<std::string>();
}

Fields fields_of(const Json& object) {
  Fields fields;
  for (const auto& [name, value] : object.items())
    if (value.is_primitive() && !value.is_null()) fields.set(name, scalar_of(value));
  return fields;
}

CaseStatus status_of(const std::string& name, const std::string& file) {
  for (const CaseStatus status : {CaseStatus::ok, CaseStatus::wrong, CaseStatus::invalid, CaseStatus::oom,
                                  CaseStatus::unsupported, CaseStatus::error})
    if (name_of(status) == name) return status;
  bad_input("{}: status: found '{}', expected ok or why not", file, name);
}

CaseRecord record_of(const Json& model, const Json& of, const std::string& file) {
  CaseRecord record;
  record.where = file;
  record.parameters = fields_of(model);
  record.schedule = of.at("schedule").get<std::string>();
  record.key = fmt::format("run/{}/{}/{}", model.at("cluster").get<std::string>(), model.at("model").get<std::string>(),
                           record.schedule);
  record.status = status_of(of.at("status").get<std::string>(), file);
  record.reason = of.value("reason", "");
  record.degree_forward = of.value("degree_forward", 0);
  record.degree_backward = of.value("degree_backward", 0);
  record.emulated = of.value("emulated", false);
  record.dilation = of.value("dilation", 1.0);
  record.summary = fields_of(of.value("measured", Json::object()));
  record.prediction = fields_of(of.value("predicted", Json::object()));
  Samples loss{"loss", {}};
  for (const Json& step : of.value("loss", Json::array())) loss.values.push_back({step.get<double>()});
  if (!loss.values.empty()) record.samples.push_back(std::move(loss));
  return record;
}

// Returns the schedules of one document of `modelbench --json`, or of a list of documents, as a run without a time
// stamp, which documents lack.
Run run_of_documents(const std::string& text, const std::string& file) {
  Json documents = json_from(text, file, "what modelbench --json printed, or records (JSON Lines)");
  if (documents.is_object()) documents = Json::array({documents});
  Run run;
  run.ended = true;
  try {
    for (const Json& model : documents)
      for (const Json& schedule : model.at("schedules")) run.cases.push_back(record_of(model, schedule, file));
  } catch (const Json::exception&) {  // not a document of modelbench
    run.cases.clear();
  }
  require<BadInput>(!run.cases.empty(),
                    "{}: found no document of modelbench --json, expected one, or records (JSON Lines)", file);
  return run;
}

std::vector<Run> runs_of(const std::string& file) {
  if (!without_gz_suffix(file).ends_with(".json")) return read_runs(file);
  return {run_of_documents(text_of_file(file, "what modelbench --json printed"), file)};
}

}  // namespace

std::vector<FileRun> read_files(const std::vector<std::string>& files) { return read_last_runs(files, 1); }

std::vector<FileRun> read_last_runs(const std::vector<std::string>& files, size_t most) {
  std::vector<FileRun> read;
  for (const std::string& file : files) {
    std::vector<Run> runs = runs_of(file);
    std::erase_if(runs, [](const Run& run) { return run.cases.empty(); });
    require<BadInput>(!runs.empty(), "{}: found no case, expected records of a verb that ran or planned some", file);
    for (size_t i = runs.size() - std::min(most, runs.size()); i < runs.size(); ++i)
      read.push_back({file, std::move(runs[i]), i, i + 1 == runs.size()});
  }
  return read;
}

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

// Returns the fields among `keys` in the form of layer files. Records have yes and no for switches.
Json object_of(const Fields& fields, std::span<const std::string_view> keys, const std::string& at) {
  std::set<std::string_view> switches;
  for_each_layer_field([&]<class Value>(const LayerField<Value>& field) {
    if (std::same_as<Value, bool>) switches.insert(field.key);
  });
  Json object = Json::object();
  for (const auto& [name, scalar] : fields) {
    if (std::ranges::find(keys, name) == keys.end()) continue;
    std::visit([&, &key = name](const auto& value) { object[key] = value; }, scalar);
    if (!switches.contains(name)) continue;
    const std::string text = scalar_text(scalar);
    require<BadInput>(text == "yes" || text == "no", "{}: {}: found {}, expected 'yes' or 'no'", at, name,
                      quoted_text(text));
    object[name] = text == "yes";
  }
  return object;
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
  if (const int dense = model.dense.count(0, model.layers); dense > 0) {
    fields.set("dense_layers", int64_t{dense});
    fields.set("dense_hidden", model.dense.hidden);
    std::string pattern;
    for (int i = 0; i < model.layers; ++i) pattern += model.dense.has(i) ? '0' : '1';
    fields.set("moe_layers", pattern);
  }
  if (!model.whole.by_layer.empty()) fields.set("windowed_layers", windowed_pattern(model.whole, model.layers));
  fields.set("micro_batches", int64_t{model.micro_batches});
  if (model.micro_batches > 1) fields.set("pipeline", std::string(name_of(model.order)));
  if (const int virtual_stages = model.split().virtual_stages; virtual_stages > 1)
    fields.set("virtual_stages", int64_t{virtual_stages});
  return fields;
}

Fields group_parameters(const ParallelShape& parallel) {
  Fields fields;
  add(fields, group_sizes(parallel));
  return fields;
}

LayerCase shape_of(const Fields& parameters, const std::string& at) {
  static constexpr auto kKeys = with(kCaseLayerKeys, kCaseGroupKeys);
  const ConfigFile document = config_of(object_of(parameters, kKeys, at), at);
  const TableReader table(document, kKeys);
  try {
    return read_case(table, table);
  } catch (const BadInput& error) {
    if (std::string_view(error.what()).starts_with(at)) throw;
    bad_input("{}: {}", at, error.what());
  }
}

ModelShape model_of(const Fields& parameters, const std::string& at) {
  const auto count = [&](const char* name) {
    return parameters.has(name) ? static_cast<int>(parameters.whole(name, at)) : 1;
  };
  ModelShape model{shape_of(parameters, at), count("layers"), count("micro_batches")};
  if (parameters.has("pipeline")) model.order = pipeline_order_from(parameters.text("pipeline", at), at + ": pipeline");
  model.virtual_stages = count("virtual_stages");
  if (parameters.has("moe_layers")) {
    const std::string& layers = parameters.text("moe_layers", at);
    require<BadInput>(layers.find_first_not_of("01") == std::string::npos,
                      "{}: moe_layers: found '{}', expected 0 and 1 alone", at, layers);
    model.dense.hidden = parameters.whole("dense_hidden", at);
    for (const char layer : layers) model.dense.by_layer.push_back(layer == '0');
  }
  if (parameters.has("windowed_layers")) {
    const std::string& layers = parameters.text("windowed_layers", at);
    require<BadInput>(layers.find_first_not_of("01") == std::string::npos,
                      "{}: windowed_layers: found '{}', expected 0 and 1 alone", at, layers);
    model.whole = whole_layers(layers, model.layers);
  }
  const bool named = parameters.has("vocabulary");  // only records of models have one
  model.step.planned = named || model.layers > 1 || model.micro_batches > 1 || model.shape.parallel.pp > 1;
  if (!named) return model;
  model.step.optimizer = OptimizerKind::adamw;
  add_ends(model, parameters.whole("vocabulary", at), parameters.text("tied_embedding", at) == "yes");
  return model;
}

DegreeChoice degrees_of(const CaseRecord& record) {
  DegreeChoice choice{.forward = record.degree_forward, .backward = record.degree_backward};
  const Fields& f = record.parameters;
  if (f.has("micro_op_bytes")) choice.micro_op_bytes = f.whole("micro_op_bytes", record.where);
  if (f.has("min_chunk_bytes")) choice.min_chunk_bytes = f.whole("min_chunk_bytes", record.where);
  return choice;
}

}  // namespace moe::commands
