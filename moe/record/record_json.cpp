// The conversion of records to lines of JSON and back.
#include "moe/record/record_json.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/json.h"
#include "moe/base/text.h"

namespace moe {
namespace {

Json json_of(const RunHeader& run) {
  Json out{{"kind", "run"},
           {"schema", run.schema},
           {"measurement", run.measurement},
           {"started", run.started},
           {"argv", run.argv},
           {"config_digest", run.config_digest},
           {"version", run.version},
           {"git", to_json(run.git)},
           {"build", run.build},
           {"compiler", run.compiler},
           {"libraries", to_json(run.libraries)},
           {"machine", to_json(run.machine)},
           {"conditions", to_json(run.conditions)},
           {"environment", to_json(run.environment)}};
  if (!run.ranks.empty()) out["ranks"] = to_json(run.ranks);
  return out;
}

Json json_of(const TaskTimes& task) {
  return {{"name", task.name},     {"kind", task.kind},       {"phase", task.phase},
          {"lane", task.lane},     {"layer", task.layer},     {"chunk", task.chunk},
          {"chunks", task.chunks}, {"start_s", task.start_s}, {"end_s", task.end_s}};
}

Json json_of(const MeasuredTimeline& timeline) {
  Json rows = Json::array();
  for (const MeasuredTask& task : timeline.tasks) {
    rows.push_back({task.kind, task.phase, task.lane, task.chunk, task.chunks, task.start_s, task.end_s});
    if (timeline.predicted) rows.back().insert(rows.back().end(), {task.predicted_start_s, task.predicted_end_s});
  }
  Json columns{"kind", "phase", "lane", "chunk", "chunks", "start_s", "end_s"};
  if (timeline.predicted) columns.insert(columns.end(), {"predicted_start_s", "predicted_end_s"});
  return {{"rank", timeline.rank}, {"columns", std::move(columns)}, {"rows", std::move(rows)}};
}

Json json_of(const AnswerPart& part) {
  Json out{{"label", part.label}, {"items", part.items}};
  if (!part.table.empty()) out["table"] = part.table;
  return out;
}

Json json_of(const CaseRecord& record) {
  Json out = {{"kind", "case"}, {"key", record.key}, {"status", name_of(record.status)}};
  if (!record.reason.empty()) out["reason"] = record.reason;
  out["parameters"] = to_json(record.parameters);
  if (!record.schedule.empty()) {
    out["schedule"] = record.schedule;
    out["degree_forward"] = record.degree_forward;
    out["degree_backward"] = record.degree_backward;
  }
  out["backend"] = record.backend;
  out["emulated"] = record.emulated;
  out["dilation"] = record.dilation;
  Json samples = Json::object();
  for (const Samples& s : record.samples) samples[s.name] = s.values;
  out["samples"] = std::move(samples);
  out["summary"] = to_json(record.summary);
  out["prediction"] = to_json(record.prediction);
  if (record.bound_s) out["bound_s"] = *record.bound_s;
  for (const TaskTimes& task : record.timeline) out["timeline"].push_back(json_of(task));
  if (!record.measured_timeline.tasks.empty()) out["measured_timeline"] = json_of(record.measured_timeline);
  for (const AnswerPart& part : record.answer) out["answer"].push_back(json_of(part));
  return out;
}

/// The keys and values of a case line, except `key` and `parameters`. Fields of summary and similar objects have keys
/// PART.NAME.
using FlatCase = std::vector<std::pair<std::string, Json>>;

FlatCase flat(const CaseRecord& record) {
  FlatCase out;
  out.emplace_back("status", name_of(record.status));
  if (!record.reason.empty()) out.emplace_back("reason", record.reason);
  if (!record.schedule.empty()) {
    out.emplace_back("schedule", record.schedule);
    out.emplace_back("degree_forward", record.degree_forward);
    out.emplace_back("degree_backward", record.degree_backward);
  }
  out.emplace_back("backend", record.backend);
  out.emplace_back("emulated", record.emulated);
  out.emplace_back("dilation", record.dilation);
  const auto add = [&](const char* part, const Fields& fields) {
    for (const auto& [name, scalar] : fields)
      std::visit([&, &of = name](const auto& value) { out.emplace_back(part + of, value); }, scalar);
  };
  add("summary.", record.summary);
  add("prediction.", record.prediction);
  if (record.bound_s) out.emplace_back("bound_s", *record.bound_s);
  return out;
}

/// Returns the longest common prefix of all keys of the group that ends in '/'.
std::string common_start(const CaseGroup& group) {
  std::string_view start = group.cases.front().key;
  for (const CaseRecord& record : group.cases) {
    const auto [differs, ignored] = std::ranges::mismatch(start, record.key);
    start = start.substr(0, static_cast<size_t>(differs - start.begin()));
  }
  return std::string(start.substr(0, start.rfind('/') + 1));
}

/// Cases that have the same keys in FlatCase, each with its record's key.
using CaseTable = std::vector<std::pair<std::string_view, FlatCase>>;

Json json_of(const CaseTable& table) {
  const FlatCase& first = table.front().second;
  Json columns = {"key"}, rows = Json::array();
  std::vector<size_t> own;
  for (size_t c = 0; c < first.size(); ++c) {
    const auto& [name, value] = first[c];
    if (std::ranges::all_of(table, [&, &shared = value](const auto& row) { return row.second[c].second == shared; })) {
      if (!columns.back().is_object()) columns.push_back(Json::object());
      columns.back()[name] = value;
    } else {
      columns.push_back(name);
      own.push_back(c);
    }
  }
  for (const auto& [key, values] : table) {
    Json row = Json::array({key});
    for (const size_t c : own) row.push_back(values[c].second);
    rows.push_back(std::move(row));
  }
  return {{"columns", std::move(columns)}, {"rows", std::move(rows)}};
}

Json json_of(const CaseGroup& group) {
  const std::string start = common_start(group);
  std::vector<CaseTable> tables;
  for (const CaseRecord& record : group.cases) {
    FlatCase values = flat(record);
    const auto same_keys = [&](const CaseTable& table) {
      return std::ranges::equal(table.front().second, values, {}, &FlatCase::value_type::first,
                                &FlatCase::value_type::first);
    };
    auto table = std::ranges::find_if(tables, same_keys);
    if (table == tables.end()) table = tables.emplace(tables.end());
    table->emplace_back(std::string_view(record.key).substr(start.size()), std::move(values));
  }
  Json out{{"kind", "cases"}, {"parameters", to_json(group.parameters)}, {"key", start}};
  for (const CaseTable& table : tables) out["tables"].push_back(json_of(table));
  return out;
}

Json json_of(const ResumeMark& mark) { return {{"kind", "resume"}, {"started", mark.started}}; }
Json json_of(const EndMark& mark) {
  return {{"kind", "end"}, {"ended", mark.ended}, {"conditions", to_json(mark.conditions)}};
}

}  // namespace

std::string to_json_line(const RecordLine& line) {
  const Json json = std::visit([](const auto& value) { return json_of(value); }, line);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';  // does not throw for invalid UTF-8
}

bool is_complete_json(std::string_view text) { return Json::accept(text); }

// The conversion of lines to records.

namespace {

std::string describe(const Json& value) {
  if (value.is_string()) return quoted_text(value.get_ref<const std::string&>());
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  if (value.is_object()) return "an object";
  return value.dump();
}

/// Returns the text with each of its lines made printable.
std::string printable_lines(std::string_view text) {
  std::string out;
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1))
    out += printable(text.substr(0, end)) + '\n';
  return out + printable(text);
}

/// Reads one object of a line, key by key. Texts and names are made printable, because commands print them on
/// terminals.
class ObjectReader {
 public:
  ObjectReader(const Json& object, const std::string& where) : object_(object), where_(where) {}

  std::string text(const char* key) const { return printable(raw_text(key)); }
  std::string lines(const char* key) const { return printable_lines(raw_text(key)); }
  std::string optional_text(const char* key) const { return object_.contains(key) ? text(key) : std::string(); }

  int64_t whole(const char* key, int64_t least, int64_t most) const {
    const std::string expected = fmt::format("a whole number from {} to {}", least, most);
    const Json& found = get(key, expected);
    const bool fits = found.is_number_integer() && !(found.is_number_unsigned() && found.get<uint64_t>() > INT64_MAX);
    if (!fits || found.get<int64_t>() < least || found.get<int64_t>() > most) fail(key, found, expected);
    return found.get<int64_t>();
  }

  double number(const char* key) const {
    const Json& found = get(key, "a number");
    if (!found.is_number() && !found.is_null()) fail(key, found, "a number");
    return number_of(found);
  }

  bool boolean(const char* key) const {
    const Json& found = get(key, "true or false");
    if (!found.is_boolean()) fail(key, found, "true or false");
    return found.get<bool>();
  }

  std::vector<std::string> texts(const char* key) const { return texts_of(key, get(key, "a list of texts")); }

  Fields fields(const char* key) const {
    const Json& found = get(key, "an object");
    if (!found.is_object()) fail(key, found, "an object");
    Fields out;
    for (const auto& [name, value] : found.items()) out.set(printable(name), scalar_of(name, value));
    return out;
  }

  std::vector<Samples> samples(const char* key) const {
    const Json& found = get(key, "an object of samples");
    if (!found.is_object()) fail(key, found, "an object of samples");
    std::vector<Samples> out;
    for (const auto& [name, iterations] : found.items()) out.push_back({printable(name), matrix_of(name, iterations)});
    return out;
  }

  std::vector<TaskTimes> timeline(const char* key) const {
    const Json& found = get(key, "a list of tasks");
    if (!found.is_array()) fail(key, found, "a list of tasks");
    std::vector<TaskTimes> out;
    for (const Json& item : found) {
      const std::string where = fmt::format("{}: {}[{}]", where_, key, out.size());
      if (!item.is_object()) bad_input("{}: found {}, expected an object", where, describe(item));
      out.push_back(ObjectReader(item, where).task());
    }
    return out;
  }

  std::vector<AnswerPart> answer(const char* key) const {
    std::vector<AnswerPart> out;
    for (const Json& item : list(key)) {
      const std::string where = fmt::format("{}: {}[{}]", where_, key, out.size());
      if (!item.is_object()) bad_input("{}: found {}, expected an object", where, describe(item));
      const ObjectReader in(item, where);
      AnswerPart& part = out.emplace_back(AnswerPart{in.text("label"), printable_texts(in.texts("items")), {}});
      if (!in.has("table")) continue;
      for (const Json& row : in.list("table")) {
        part.table.push_back(printable_texts(in.texts_of("table", row)));
        if (part.table.back().size() != part.table.front().size())
          in.fail("table", row, fmt::format("a list of {}", part.table.front().size()));
      }
    }
    return out;
  }

  const Json& list(const char* key) const {
    const Json& found = get(key, "a list");
    if (!found.is_array()) fail(key, found, "a list");
    return found;
  }

  MeasuredTimeline measured_timeline(const char* key) const {
    const Json& found = get(key, "an object");
    if (!found.is_object()) fail(key, found, "an object");
    const std::string where = fmt::format("{}: {}", where_, key);
    const ObjectReader in(found, where);
    MeasuredTimeline out;
    out.rank = static_cast<int>(in.whole("rank", 0, INT32_MAX));
    const std::vector<std::string> columns = in.texts("columns");
    out.predicted = std::ranges::find(columns, "predicted_start_s") != columns.end();
    for (const Json& cells : in.list("rows")) {
      const std::string row = fmt::format("{}.rows[{}]", where, out.tasks.size());
      if (!cells.is_array() || cells.size() != columns.size())
        bad_input("{}: found {}, expected a list of {}", row, describe(cells), columns.size());
      Json task = Json::object();
      for (size_t i = 0; i < columns.size(); ++i) task[columns[i]] = cells[i];
      out.tasks.push_back(ObjectReader(task, row).measured_task(out.predicted));
    }
    return out;
  }

  CaseStatus status(const char* key) const {
    const std::string found = text(key);
    std::string known;
    for (auto s = CaseStatus::ok;; s = static_cast<CaseStatus>(static_cast<int>(s) + 1)) {
      if (name_of(s) == found) return s;
      known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(s));
      if (s == CaseStatus::error) break;
    }
    fail(key, object_[key], "one of: " + known);
  }

  bool has(const char* key) const { return object_.contains(key); }

  [[noreturn]] void fail(std::string_view key, const Json& found, std::string_view expected) const {
    bad_input("{}: {}: found {}, expected {}", where_, key, describe(found), expected);
  }

 private:
  const std::string& raw_text(const char* key) const {
    const Json& found = get(key, "a text");
    if (!found.is_string()) fail(key, found, "a text");
    return found.get_ref<const std::string&>();
  }

  const Json& get(const char* key, std::string_view expected) const {
    const auto found = object_.find(key);
    if (found == object_.end()) bad_input("{}: {}: found no such key, expected {}", where_, key, expected);
    return *found;
  }

  TaskTimes task() const {
    TaskTimes t;
    t.name = text("name");
    t.layer = static_cast<int>(whole("layer", 0, INT32_MAX));
    fill_task(t);
    return t;
  }

  // Reads the fields that TaskTimes and MeasuredTask have in common.
  template <class Task>
  void fill_task(Task& t) const {
    t.kind = text("kind");
    t.phase = text("phase");
    t.lane = text("lane");
    t.chunks = static_cast<int>(whole("chunks", 1, INT32_MAX));
    t.chunk = static_cast<int>(whole("chunk", 0, t.chunks - 1));
    t.start_s = number("start_s");
    t.end_s = number("end_s");
    if (!(t.start_s <= t.end_s)) fail("end_s", object_["end_s"], fmt::format("a number from start_s = {}", t.start_s));
  }

  MeasuredTask measured_task(bool predicted) const {
    MeasuredTask t;
    fill_task(t);
    if (predicted) t.predicted_start_s = number("predicted_start_s"), t.predicted_end_s = number("predicted_end_s");
    return t;
  }

  std::vector<std::string> texts_of(const char* key, const Json& found) const {
    if (!found.is_array()) fail(key, found, "a list of texts");
    for (const Json& item : found)
      if (!item.is_string()) fail(key, item, "a list of texts");
    return found.get<std::vector<std::string>>();
  }

  static std::vector<std::string> printable_texts(std::vector<std::string> texts) {
    for (std::string& one : texts) one = printable(one);
    return texts;
  }

  static double number_of(const Json& value) {
    return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  }

  Scalar scalar_of(std::string_view name, const Json& value) const {
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_string()) return printable(value.get_ref<const std::string&>());
    if (value.is_number_integer() && !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX))
      return value.get<int64_t>();
    if (value.is_number() || value.is_null()) return number_of(value);
    fail(name, value, "a number, a text, true or false");
  }

  std::vector<std::vector<double>> matrix_of(std::string_view name, const Json& iterations) const {
    constexpr std::string_view kExpected = "a list (iterations) of lists (ranks) of numbers";
    if (!iterations.is_array()) fail(name, iterations, kExpected);
    std::vector<std::vector<double>> out;
    for (const Json& ranks : iterations) {
      if (!ranks.is_array()) fail(name, ranks, kExpected);
      auto& row = out.emplace_back();
      for (const Json& value : ranks) {
        if (!value.is_number() && !value.is_null()) fail(name, value, kExpected);
        row.push_back(number_of(value));
      }
    }
    return out;
  }

  const Json& object_;
  const std::string& where_;
};

RunHeader run_from(const ObjectReader& in) {
  RunHeader run;
  run.schema = static_cast<int>(in.whole("schema", 1, kRecordSchema));
  run.measurement = in.has("measurement") ? in.whole("measurement", 0, INT64_MAX) : 0;
  run.started = in.text("started");
  run.argv = in.texts("argv");
  run.config_digest = in.text("config_digest");
  run.git = in.fields("git");
  run.version = in.optional_text("version");
  run.build = in.optional_text("build");
  run.compiler = in.text("compiler");
  run.libraries = in.fields("libraries");
  run.machine = in.fields("machine");
  if (in.has("conditions")) run.conditions = in.fields("conditions");
  run.environment = in.fields("environment");
  if (in.has("ranks")) run.ranks = in.fields("ranks");
  return run;
}

CaseRecord case_from(const ObjectReader& in, const std::string& where) {
  CaseRecord record;
  record.key = in.text("key");
  record.status = in.status("status");
  if (in.has("reason")) record.reason = in.lines("reason");
  record.parameters = in.fields("parameters");
  record.schedule = in.optional_text("schedule");
  if (!record.schedule.empty()) {
    record.degree_forward = static_cast<int>(in.whole("degree_forward", 0, INT32_MAX));
    record.degree_backward = static_cast<int>(in.whole("degree_backward", 0, INT32_MAX));
  }
  record.backend = in.text("backend");
  record.emulated = in.boolean("emulated");
  record.dilation = in.number("dilation");
  record.samples = in.samples("samples");
  record.summary = in.fields("summary");
  record.prediction = in.fields("prediction");
  if (in.has("bound_s")) record.bound_s = in.number("bound_s");
  if (in.has("timeline")) record.timeline = in.timeline("timeline");
  if (in.has("measured_timeline")) record.measured_timeline = in.measured_timeline("measured_timeline");
  if (in.has("answer")) record.answer = in.answer("answer");
  record.where = where;
  return record;
}

/// Reads the cases of a group's line as if each had its own line.
class GroupReader {
 public:
  GroupReader(const Json& line, const std::string& where) : where_(where) {
    const ObjectReader in(line, where);
    group_.parameters = in.fields("parameters");
    start_ = in.text("key");
    const Json& tables = in.list("tables");
    for (size_t i = 0; i < tables.size(); ++i) read_table(tables[i], fmt::format("{}: tables[{}]", where, i));
  }
  CaseGroup take() { return std::move(group_); }

 private:
  static void set(Json& one, const std::string& name, const Json& value, const std::string& where) {
    const size_t dot = std::min(name.find('.'), name.size());
    const std::string part = name.substr(0, dot);
    if (dot == name.size() || (part != "summary" && part != "prediction")) {
      one[name] = value;
      return;
    }
    if (!one[part].is_object()) bad_input("{}: found columns {} and {}, expected one of them", where, part, name);
    one[part][name.substr(dot + 1)] = value;
  }

  // Returns the JSON of a row's case from the row's cells and the values that all rows share, in the order of the
  // columns.
  static Json case_of(const Json& columns, const Json& row, const std::string& where) {
    Json one;
    for (const char* part : {"parameters", "samples", "summary", "prediction"}) one[part] = Json::object();
    size_t cell = 0;
    const auto all = static_cast<size_t>(std::ranges::count_if(columns, [](const Json& c) { return c.is_string(); }));
    if (!row.is_array() || row.size() != all)
      bad_input("{}: found {}, expected a list of {}", where, describe(row), all);
    for (const Json& column : columns) {
      if (column.is_string()) set(one, column.get_ref<const std::string&>(), row[cell++], where);
      if (column.is_object())
        for (const auto& [name, value] : column.items()) set(one, name, value, where);
    }
    return one;
  }

  void read_table(const Json& table, const std::string& where) {
    if (!table.is_object()) bad_input("{}: found {}, expected an object", where, describe(table));
    const ObjectReader in(table, where);
    const Json &columns = in.list("columns"), &rows = in.list("rows");
    for (size_t r = 0; r < rows.size(); ++r) {
      const std::string row = fmt::format("{}.rows[{}]", where, r);
      const Json one = case_of(columns, rows[r], row);
      CaseRecord& record = group_.cases.emplace_back(case_from(ObjectReader(one, row), where_));
      record.key = start_ + record.key;
      record.parameters = group_.parameters;
    }
  }

  const std::string& where_;
  std::string start_;
  CaseGroup group_;
};

}  // namespace

RecordLine record_line_from(std::string_view text, const std::string& where) {
  const Json json = text.empty() ? Json() : json_from(text, where + ": record", "one JSON object");
  if (!json.is_object()) bad_input("{}: record: found {}, expected one JSON object", where, quoted_text(text));
  const ObjectReader in(json, where);
  const std::string kind = in.text("kind");
  if (kind == "run") return run_from(in);
  if (kind == "case") return case_from(in, where);
  if (kind == "cases") return GroupReader(json, where).take();
  if (kind == "resume") return ResumeMark{in.text("started")};
  if (kind == "end") return EndMark{in.text("ended"), in.has("conditions") ? in.fields("conditions") : Fields()};
  in.fail("kind", json["kind"], "one of: run, case, cases, resume, end");
}

}  // namespace moe
