#include "verbs/model_documents.h"

#include "moe/base/check.h"
#include "moe/base/json_input.h"

namespace moe::verbs {
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

}  // namespace

Run run_of_documents(const std::string& text, const std::string& file) {
  Json documents = json_from(text, file, "what modelbench --json printed, or records (JSON Lines)");
  if (documents.is_object()) documents = Json::array({documents});
  Run run;
  run.ended = true;
  try {
    for (const Json& model : documents)
      for (const Json& schedule : model.at("schedules")) run.cases.push_back(record_of(model, schedule, file));
  } catch (const Json::exception&) {  // it is another document
    run.cases.clear();
  }
  require<BadInput>(!run.cases.empty(),
                    "{}: found no document of modelbench --json, expected one, or records (JSON Lines)", file);
  return run;
}

}  // namespace moe::verbs
