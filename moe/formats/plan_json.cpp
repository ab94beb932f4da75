#include "moe/formats/plan_json.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <span>
#include <tuple>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/files.h"
#include "moe/base/json.h"
#include "moe/base/log.h"
#include "moe/base/registry.h"
#include "moe/plan/pipeline.h"
#include "moe/schedule/schedule.h"

namespace moe {
namespace {

// Returns the JSON of a case: the layer's keys, its rounding of rows, and the groups.
Json case_json(const LayerCase& c) {
  Json json = layer_json(c.layer);
  json["capacity_rounding"] = name_of(c.rounding);
  if (c.row_multiple > 1) json["row_multiple"] = c.row_multiple;
  return json;
}

Json parallel_json(const ParallelShape& p) {
  Json json = group_sizes(p);
  json["placement"] = placement_name(p);
  return json;
}

Json groups_json(const Plan& plan) {
  Json groups = Json::array();
  for (const Group& group : plan.groups)
    if (group.network != Network::none)
      groups.push_back({{"name", name_of(group.kind)}, {"ranks", group.size}, {"network", name_of(group.network)}});
  return groups;
}

Json lane_json(const Lane& lane) {
  Json json{{"kind", name_of(lane.kind)}};
  if (lane.stage > 0) json["stage"] = lane.stage;
  json["networks"] = Json::array();
  for (const Network network : {Network::inter, Network::intra})
    if (lane.owns(network)) json["networks"].push_back(name_of(network));
  json["tasks"] = lane.queue;
  return json;
}

// Returns the JSON of an access, without layer and micro-batch if they are 0.
Json access_json(const Access& a) {
  Json json{{"buffer", name_of(a.buffer)}, {"phase", name_of(a.phase)}};
  if (a.layer != 0) json["layer"] = a.layer;
  if (a.micro_batch > 0) json["micro_batch"] = a.micro_batch;
  if (a.chunks > 1) json["chunk"] = a.chunk;
  if (a.chunks > 1) json["chunks"] = a.chunks;
  if (a.is_recompute) json["again"] = true;
  return json;
}

Json accesses_json(const std::vector<Access>& accesses) {
  Json list = Json::array();
  for (const Access& access : accesses) list.push_back(access_json(access));
  return list;
}

// Returns whether tasks of this kind handle returning rows, which some flows chunk by EP peer.
bool is_returning(TaskKind kind) {
  return kind == TaskKind::exchange || kind == TaskKind::sum || kind == TaskKind::gather;
}

Json task_json(const Plan& plan, const Task& task) {
  Json json{{"id", task.id},       {"kind", name_of(task.kind)},  {"phase", name_of(task.phase)},
            {"layer", task.layer}, {"chunk", task.chunk},         {"chunks", task.chunks},
            {"lane", task.lane},   {"group", name_of(task.group)}};
  if (task.micro_batch > 0) json["micro_batch"] = task.micro_batch;
  if (task.is_recompute) json["again"] = true;
  if (task.slice >= 0) json["slice"] = task.slice;
  json["after"] = task.after;
  json["reads"] = accesses_json(task.reads);
  json["writes"] = accesses_json(task.writes);
  const bool by_rows = !traits_of(plan.structure->flow).home_by_peers || !is_returning(task.kind);
  const Rows rows = plan.rows_of(task);
  if (is_chunked(task.kind) && by_rows) json["rows"] = {rows.begin, rows.end};
  const Work& work = plan.works[task.id];
  if (work.op != Op::none) json["op"] = name_of(work.op);
  if (work.bytes > 0) json["bytes"] = work.bytes;
  if (work.flops > 0) json["flops"] = work.flops;
  if (work.gemms > 0) json["gemms"] = work.gemms;
  return json;
}

Json dense_json(const Plan& plan) {
  Json layers = Json::array();
  for (int layer = 0; layer < plan.layers; ++layer)
    if (plan.dense.has(layer)) layers.push_back(layer);
  return {{"layers", layers}, {"hidden", plan.dense.hidden}};
}

Json step_json(const StepShape& step) {
  return {{"planned", step.planned},
          {"clips", step.clips},
          {"optimizer", step.optimizer ? Json(name_of(*step.optimizer)) : Json()},
          {"tied", step.tied}};
}

Json weights_json(const StepWeights& w) {
  return {{"dense", w.dense}, {"experts", w.experts}, {"alike", w.replicated}};
}

Json gradient_json(const Gradient& g) {
  Json json{{"layer", g.layer}, {"bytes", g.bytes}, {"made_by", g.made_by}, {"experts", g.experts}};
  if (g.is_replicated) json["alike"] = true;
  return json;
}

// Writes a list with one item per line.
template <class Items, class ToJson>
std::string lines_of(const Items& items, ToJson&& to_json) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "\n  " : ",\n  ") + to_json(item).dump();
  return "[" + text + "]";
}

}  // namespace

void write_plan(const Plan& plan, std::ostream& out) {
  const auto line = [&](std::string_view key, const std::string& value, std::string_view end = ",") {
    out << fmt::format("\"{}\": {}{}\n", key, value, end);
  };
  out << "{";
  line("format", Json(kPlanFormat).dump());
  line("version", fmt::format("{}", kPlanVersion));
  line("schedule", Json(plan.schedule).dump());
  line("degree_forward", fmt::format("{}", plan.degree_forward));
  line("degree_backward", fmt::format("{}", plan.degree_backward));
  line("layers", fmt::format("{}", plan.layers));
  line("micro_batches", fmt::format("{}", plan.micro_batches));
  if (plan.micro_batches > 1 || plan.shape.parallel.pp > 1) line("pipeline", Json(name_of(plan.order)).dump());
  if (plan.virtual_stages > 1) line("virtual_stages", fmt::format("{}", plan.virtual_stages));
  line("layer", case_json(plan.shape).dump());
  if (plan.dense.hidden > 0) line("dense", dense_json(plan).dump());
  if (!plan.whole.by_layer.empty()) line("windowed_layers", Json(windowed_pattern(plan.whole, plan.layers)).dump());
  line("parallel", parallel_json(plan.shape.parallel).dump());
  if (plan.vocabulary > 0) line("vocabulary", fmt::format("{}", plan.vocabulary));
  if (plan.step != StepShape{}) line("step", step_json(plan.step).dump());
  if (!plan.ends.none())
    line("ends", Json{{"embedding", weights_json(plan.ends.embedding)}, {"head", weights_json(plan.ends.head)}}.dump());
  line("flow", Json(name_of(plan.structure->flow)).dump());
  line("rows", fmt::format("{}", plan.rows));
  line("groups", groups_json(plan).dump());
  line("lanes", lines_of(plan.structure->lanes, lane_json));
  line("tasks", lines_of(plan.tasks(), [&](const Task& task) { return task_json(plan, task); }));
  line("gradients", lines_of(plan.gradients, gradient_json));
  line("slices", lines_of(plan.slices, [](const GradientSlice& s) {
         return Json{{"gradient", s.gradient}, {"begin", s.begin}, {"end", s.end}};
       }));
  line("hash", Json(digest_of(plan)).dump(), "");
  out << "}\n";
}

Json layer_json(const LayerShape& l) {
  Json json;
  const LayerShape usual;
  for_each_layer_field([&](const auto& field) {
    const auto& value = l.*field.member;
    if (field.optional && value == usual.*field.member) return;
    Json& out = json[field.key];
    if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(value)>>)
      out = name_of(value);
    else if constexpr (std::same_as<std::remove_cvref_t<decltype(value)>, std::optional<double>>)
      out = value ? Json(*value) : Json();
    else
      out = value;
  });
  return json;
}

Json group_sizes(const ParallelShape& p) {
  Json json{{"nodes", p.nodes}, {"ranks_per_node", p.ranks_per_node},
            {"dp", p.dp},       {"mp", p.mp},
            {"ep", p.ep},       {"esp", p.esp},
            {"edp", p.edp},     {"pp", p.pp}};
  if (p.cp > 1) json["cp"] = p.cp;
  if (p.ring_blocks() > 0) json["cp_exchange"] = name_of(p.cp_exchange);
  if (p.zero > 0) json["zero"] = p.zero;
  if (p.recompute != Recompute::none) json["recompute"] = name_of(p.recompute);
  if (p.offload != Offload::none) json["offload"] = name_of(p.offload);
  return json;
}

LayerCase read_case(const TableReader& layer, const TableReader& groups) {
  for (const std::string_view key : {"batch", "seq", "model_dim", "hidden", "heads", "kv_heads", "experts", "top_k",
                                     "capacity_factor", "ffn", "dtype", "gate", "order", "dispatcher", "hook"})
    layer.value(key);
  for (const std::string_view key : {"dp", "mp", "ep", "esp", "pp"}) groups.value(key);
  LayerShape shape;
  read_layer_keys(layer, shape);
  ParallelShape p = read_parallel_keys(groups);
  const auto count = [&](std::string_view key, int most) {
    return static_cast<int>(groups.integer(key, {.min = 1, .max = static_cast<double>(most)}));
  };
  p.nodes = count("nodes", 1 << 16);
  p.ranks_per_node = count("ranks_per_node", 1 << 10);
  if (groups.has("edp")) p.edp = count("edp", 1 << 26);
  if (groups.has("zero")) p.zero = static_cast<int>(groups.integer("zero", {.min = 0, .max = kMaxZeroStage}));
  if (groups.has("offload")) p.offload = offload_from(groups.text("offload"), groups.where("offload"));
  if (groups.has("recompute")) p.recompute = recompute_from(groups.text("recompute"), groups.where("recompute"));
  return complete(shape, p, rounding_from(layer.text("capacity_rounding"), layer.where("capacity_rounding")));
}

namespace {

constexpr int kMaxSize = 1 << 30;

using Keys = std::span<const std::string_view>;
constexpr std::string_view kDocumentKeys[]{
    "format",   "version",        "schedule",       "degree_forward", "degree_backward", "layers",     "micro_batches",
    "pipeline", "virtual_stages", "layer",          "dense",          "parallel",        "vocabulary", "step",
    "ends",     "flow",           "rows",           "groups",         "lanes",           "tasks",      "gradients",
    "slices",   "hash",           "windowed_layers"};
constexpr std::string_view kDenseKeys[]{"layers", "hidden"};
constexpr std::string_view kStepKeys[]{"planned", "clips", "optimizer", "tied"};
constexpr std::string_view kEndKeys[]{"embedding", "head"};
constexpr std::string_view kWeightKeys[]{"dense", "experts", "alike"};
constexpr std::string_view kLaneKeys[]{"kind", "stage", "networks", "tasks"};
constexpr std::string_view kTaskKeys[]{"id",    "kind",  "phase",       "layer", "chunk", "chunks", "lane",
                                       "group", "again", "micro_batch", "slice", "after", "reads",  "writes",
                                       "rows",  "op",    "bytes",       "flops", "gemms"};
constexpr std::string_view kAccessKeys[]{"buffer", "phase", "layer", "micro_batch", "chunk", "chunks", "again"};
constexpr std::string_view kGradientKeys[]{"layer", "bytes", "made_by", "experts", "alike"};
constexpr std::string_view kSliceKeys[]{"gradient", "begin", "end"};

Limits limits_between(int64_t least, int64_t most) {
  return {.min = static_cast<double>(least), .max = static_cast<double>(most)};
}

int count(const TableReader& n, std::string_view key, int least, int most = kMaxSize) {
  return static_cast<int>(n.integer(key, limits_between(least, most)));
}
int count_or(const TableReader& n, std::string_view key, int otherwise, int least, int most) {
  return n.has(key) ? count(n, key, least, most) : otherwise;
}

// Calls body(item, key of the item) for each item of a list, which may be empty.
template <class Body>
void for_each_item(const TableReader& n, std::string_view key, Body body) {
  const ConfigValue& found = n.value(key);
  if (found.kind != ConfigKind::list) n.fail(found, key, "a list");
  for (size_t i = 0; i < found.items.size(); ++i) body(found.items[i], fmt::format("{}[{}]", key, i));
}

std::vector<int> ids_of(const TableReader& n, std::string_view key) {
  std::vector<int> ids;
  for_each_item(n, key, [&](const ConfigValue& item, std::string_view name) {
    ids.push_back(static_cast<int>(n.integer_of(item, name, limits_between(0, kMaxSize))));
  });
  return ids;
}

// Reads a list of objects, which may be empty but not absent.
std::vector<TableReader> objects(const TableReader& n, std::string_view key, Keys known) {
  n.value(key);
  return n.tables(key, known);
}

// Returns whether the document has the plan of a whole iteration, with a planned step, instead of a single layer's.
bool is_iteration(const TableReader& document) {
  return document.has("step") && document.table("step", kStepKeys).boolean("planned");
}

LayerCase case_from(const TableReader& document) {
  const TableReader layer = document.table("layer", with(kCaseLayerKeys, {"row_multiple"})),
                    groups = document.table("parallel", kCaseGroupKeys);
  for (const std::string_view key : {"norm", "residual", "aux_loss", "z_loss"}) layer.value(key);
  groups.value("placement");
  LayerCase shape = read_case(layer, groups);
  if (!is_iteration(document)) {
    if (shape.parallel.pp > 1) groups.fail(groups.value("pp"), "pp", "1");
    if (shape.parallel.zero > 1) groups.fail(groups.value("zero"), "zero", "0 or 1");
  }
  shape.row_multiple = count_or(layer, "row_multiple", 1, 1, kMaxSize);
  check_volumes(shape);
  return shape;
}

DenseLayers dense_from(const TableReader& document, const Plan& plan) {
  if (!document.has("dense")) return {};
  const TableReader n = document.table("dense", kDenseKeys);
  DenseLayers dense{{std::vector<bool>(static_cast<size_t>(plan.layers))},
                    n.integer("hidden", limits_between(1, kMaxSize))};
  for_each_item(n, "layers", [&](const ConfigValue& item, std::string_view name) {
    dense.by_layer[n.integer_of(item, name, limits_between(0, plan.layers - 1))] = true;
  });
  if (dense.count(0, plan.layers) == plan.layers) n.fail(n.value("layers"), "layers", "one with experts among them");
  dense_case(plan.shape, dense.hidden);  // throws if the case is invalid
  return dense;
}

LayerSet whole_from(const TableReader& document, const Plan& plan) {
  constexpr std::string_view kKey = "windowed_layers";
  if (!document.has(kKey)) return {};
  const std::string pattern = document.text(kKey);
  const LayerSet whole = whole_layers(pattern, plan.layers);
  const bool fits = std::ssize(pattern) == plan.layers && pattern.find_first_not_of("01") == std::string::npos;
  if (!fits || whole.has_none(plan.layers) || plan.shape.layer.window == 0)
    document.fail(kKey, pattern, "a 0 or 1 for each layer, and a 0 among them, of a layer with a window");
  return whole;
}

StepShape step_from(const TableReader& document) {
  if (!document.has("step")) return {};
  const TableReader n = document.table("step", kStepKeys);
  StepShape step{n.boolean("planned"), n.boolean("clips"), {}, n.boolean("tied")};
  if (n.value("optimizer").kind != ConfigKind::null)
    step.optimizer = optimizer_from(n.text("optimizer"), n.where("optimizer"));
  return step;
}

StepWeights weights_from(const TableReader& n) {
  const Limits limits = limits_between(0, int64_t{1} << 50);
  return {n.integer("dense", limits), n.integer("experts", limits), n.integer("alike", limits)};
}

// Reads the properties of a plan other than its tasks.
void read_iteration(const TableReader& document, Plan& plan) {
  const bool iteration = is_iteration(document);
  const int most = iteration ? kMaxSize : 1;
  plan.layers = count(document, "layers", 1, most);
  plan.micro_batches = count(document, "micro_batches", 1, most);
  plan.shape = case_from(document);
  plan.step = step_from(document);
  if (!iteration) return;
  if (plan.layers < plan.shape.parallel.pp)
    document.fail(document.value("layers"), "layers", fmt::format("{} or more, as stages", plan.shape.parallel.pp));
  plan.dense = dense_from(document, plan);
  plan.whole = whole_from(document, plan);
  plan.virtual_stages = count_or(document, "virtual_stages", 1, 1, plan.layers);
  if (document.has("pipeline")) plan.order = pipeline_order_from(document.text("pipeline"), document.where("pipeline"));
  check_stages(plan.split(), plan.order, plan.micro_batches, document.where("virtual_stages"));
  plan.vocabulary = count_or(document, "vocabulary", 0, 1, kMaxSize);
  if (!document.has("ends")) return;
  const TableReader ends = document.table("ends", kEndKeys);
  plan.ends = {weights_from(ends.table("embedding", kWeightKeys)), weights_from(ends.table("head", kWeightKeys))};
  if (plan.vocabulary > 0 && plan.ends != end_weights(plan.shape, plan.vocabulary, plan.step.tied))
    document.fail(document.value("ends"), "ends", fmt::format("the weights of a vocabulary of {}", plan.vocabulary));
}

// Reads the layer of a task or an access; in an iteration, the model's ends have layer numbers too.
int layer_from(const TableReader& n, const Plan& plan) {
  return plan.step.planned ? count(n, "layer", kEmbeddingLayer, plan.layers) : count(n, "layer", 0, 0);
}

Access access_from(const TableReader& n, const Plan& plan) {
  Access a;
  a.buffer = n.named<Buffer>("buffer", kBuffers);
  a.phase = n.named<Phase>("phase", kPhases);
  a.layer = n.has("layer") ? layer_from(n, plan) : 0;
  a.micro_batch = count_or(n, "micro_batch", 0, 0, plan.micro_batches - 1);
  a.chunks = count_or(n, "chunks", 1, 1, kMaxSize);
  a.chunk = count_or(n, "chunk", 0, 0, a.chunks - 1);
  a.is_recompute = n.has("again") && n.boolean("again");
  return a;
}

Task task_from(const TableReader& n, const Plan& plan, int slices) {
  Task task;
  task.id = count(n, "id", 0);
  task.kind = n.named<TaskKind>("kind", kTaskKinds);
  task.phase = n.named<Phase>("phase", plan.step.planned ? kPhases : 2);
  task.layer = layer_from(n, plan);
  task.micro_batch = count_or(n, "micro_batch", 0, 0, plan.micro_batches - 1);
  task.chunks = count(n, "chunks", 1);
  task.chunk = count(n, "chunk", 0, task.chunks - 1);
  task.is_recompute = n.has("again") && n.boolean("again");
  task.lane = count(n, "lane", 0);
  task.group = n.named<GroupKind>("group", kGroupKinds);
  if (!plan.step.planned && !is_of_layer(task.kind) && !sends_gradients(task.kind))
    n.fail(n.value("kind"), "kind", "a task of one layer");
  if (is_of_layer(task.kind) && plan.is_end(task.layer)) n.fail(n.value("layer"), "layer", "a layer");
  if (sends_gradients(task.kind)) task.slice = count(n, "slice", 0, slices - 1);
  task.after = ids_of(n, "after");
  for (const TableReader& access : objects(n, "reads", kAccessKeys)) task.reads.push_back(access_from(access, plan));
  for (const TableReader& access : objects(n, "writes", kAccessKeys)) task.writes.push_back(access_from(access, plan));
  return task;
}

Lane lane_from(const TableReader& n, const Plan& plan) {
  Lane lane;
  lane.kind = n.named<LaneKind>("kind", kLaneKinds);
  lane.stage = count_or(n, "stage", 0, 0, plan.split().stages - 1);
  for_each_item(n, "networks", [&](const ConfigValue& item, std::string_view name) {
    if (item.text != "inter" && item.text != "intra") n.fail(item, name, "inter or intra");
    (item.text == "inter" ? lane.owns_inter : lane.owns_intra) = true;
  });
  lane.queue = ids_of(n, "tasks");
  return lane;
}

// Throws if no task of the phase has as many chunks as `degree`.
void require_degree(const TableReader& document, std::string_view key, int degree, const Structure& structure,
                    Phase phase) {
  int most = 1;
  for (const Task& task : structure.tasks) {
    if (task.phase != phase || !is_chunked(task.kind)) continue;
    if (task.chunks == degree) return;
    most = std::max(most, task.chunks);
  }
  if (degree > 1) document.fail(document.value(key), key, fmt::format("{}, as its tasks are cut", most));
}

// Throws if the bytes of gradients in a single layer's plan, or the task that makes them, differ from the layer's.
void require_made(const TableReader& n, const Gradient& g, const Plan& plan, const Structure& structure) {
  const int64_t bytes = g.experts ? expert_gradient_bytes(plan.shape) : gradient_bytes(plan.shape);
  const int made_by = g.experts ? last_expert(structure) : -1;
  if (g.bytes != bytes) n.fail(n.value("bytes"), "bytes", fmt::format("{}, which the layer has", bytes));
  if (g.made_by != made_by)
    n.fail(n.value("made_by"), "made_by", fmt::format("{}, the task after which they exist (-1: they wait)", made_by));
}

// Reads the gradients; for an iteration, check_plan checks that they are complete.
std::vector<Gradient> gradients_from(const TableReader& document, const Plan& plan, const Structure& structure) {
  std::vector<Gradient> gradients;
  for (const TableReader& n : objects(document, "gradients", kGradientKeys)) {
    Gradient g;
    // 1: gradients of the next layer, which wait.
    g.layer = plan.step.planned ? layer_from(n, plan) : count(n, "layer", 0, 1);
    g.bytes = n.integer("bytes", limits_between(0, int64_t{1} << 50));
    g.made_by = count(n, "made_by", -1, static_cast<int>(structure.tasks.size()) - 1);
    g.experts = n.boolean("experts");
    g.is_replicated = n.has("alike") && n.boolean("alike");
    if (!plan.step.planned) require_made(n, g, plan, structure);
    gradients.push_back(g);
  }
  return gradients;
}

std::vector<GradientSlice> slices_from(const TableReader& document, const std::vector<Gradient>& gradients) {
  std::vector<int64_t> reached(gradients.size());  // bytes from the start of a gradient to the end of its last slice
  int64_t bytes = 0;
  for (size_t g = gradients.size(); g-- > 0;) reached[g] = bytes += gradients[g].bytes;
  std::vector<GradientSlice> slices;
  for (const TableReader& n : objects(document, "slices", kSliceKeys)) {
    GradientSlice s;
    s.gradient = count(n, "gradient", 0, static_cast<int>(gradients.size()) - 1);
    s.end = n.integer("end", limits_between(0, reached[s.gradient]));
    s.begin = n.integer("begin", limits_between(0, s.end));
    slices.push_back(s);
  }
  return slices;
}

Plan plan_from(const TableReader& document) {
  document.integer("version", limits_between(kPlanVersion, kPlanVersion));
  Plan plan;
  plan.schedule = find_named(is_iteration(document) ? all_schedules() : schedules(), document.text("schedule"),
                             document.where("schedule"))
                      .name;
  plan.degree_forward = count(document, "degree_forward", 1, 4096);
  plan.degree_backward = count(document, "degree_backward", 1, 4096);
  read_iteration(document, plan);
  plan.groups = groups_of(plan.shape.parallel);
  plan.rows = padded_rows(plan.shape);
  Structure structure;
  structure.flow = document.named<Flow>("flow", kFlows);
  for (const TableReader& lane : objects(document, "lanes", kLaneKeys))
    structure.lanes.push_back(lane_from(lane, plan));
  structure.slices = static_cast<int>(objects(document, "slices", kSliceKeys).size());
  for (const TableReader& task : objects(document, "tasks", kTaskKeys))
    structure.tasks.push_back(task_from(task, plan, structure.slices));
  require_degree(document, "degree_forward", plan.degree_forward, structure, Phase::forward);
  require_degree(document, "degree_backward", plan.degree_backward, structure, Phase::backward);
  plan.gradients = gradients_from(document, plan, structure);
  plan.slices = slices_from(document, plan.gradients);
  plan.structure = std::make_shared<const Structure>(std::move(structure));
  set_works(plan);
  check_plan(plan);
  return plan;
}

}  // namespace

std::string digest_of(const Plan& plan) { return fmt::format("{:016x}", plan.hash()); }

Plan read_plan(const std::string& path) { return parse_plan(text_of_file(path, "a plan (moetune export plan)"), path); }

Plan parse_plan(std::string_view text, const std::string& path) {
  const ConfigFile file = parse_json(text, path);
  const ConfigValue* format = file.root.find("format");
  require<BadInput>(format != nullptr && format->text == kPlanFormat, "{}: format: found {}, expected '{}'", path,
                    format != nullptr ? describe(*format) : "no such key", kPlanFormat);
  const TableReader document(file, kDocumentKeys);
  Plan plan;
  try {
    plan = plan_from(document);
  } catch (const WrongResult& broken) {
    bad_input("{}: {}", path, broken.what());
  } catch (const Unsupported&) {
    throw;
  } catch (const BadInput& error) {
    if (std::string_view(error.what()).starts_with(path)) throw;
    bad_input("{}: {}", path, error.what());
  }
  if (document.has("hash") && document.text("hash") != digest_of(plan))
    log_warning(
        fmt::format("{}: hash: found {}, expected {:016x} for its tasks: the file was changed since it was written",
                    path, document.text("hash"), plan.hash()));
  return plan;
}

}  // namespace moe
