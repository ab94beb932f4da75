#include <algorithm>
#include <fmt/ranges.h>
#include <map>
#include <tuple>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/file_text.h"
#include "moe/base/json.h"
#include "moe/base/log.h"
#include "moe/base/registry.h"
#include "moe/export/plan_json.h"
#include "moe/schedule/schedule.h"

namespace moe {
namespace {

constexpr int kMostSize = 1 << 30;

template <class Kind>
std::vector<std::string_view> kind_names(int count) {
  std::vector<std::string_view> names;
  for (int i = 0; i < count; ++i) names.push_back(name_of(static_cast<Kind>(i)));
  return names;
}

// Holds one object of the document, and where it stands: "FILE: tasks[7]".
class Node {
 public:
  Node(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    require<BadInput>(json.is_object(), "{}{} found {}, expected an object", where_, where_.ends_with(':') ? "" : ":",
                      seen(json));
  }

  int64_t whole(const char* key, int64_t least, int64_t most) const {
    const Json& found = get(key);
    const bool fits = found.is_number_integer() && !(found.is_number_unsigned() && found.get<uint64_t>() > INT64_MAX);
    if (!fits || found.get<int64_t>() < least || found.get<int64_t>() > most)
      fail(key, fmt::format("a whole number from {} to {}", least, most));
    return found.get<int64_t>();
  }
  int count(const char* key, int least, int most = kMostSize) const {
    return static_cast<int>(whole(key, least, most));
  }
  int64_t whole_or(const char* key, int64_t otherwise, int64_t least, int64_t most) const {
    return has(key) ? whole(key, least, most) : otherwise;
  }
  double number(const char* key, double least, double most) const {
    const Json& found = get(key);
    if (!found.is_number() || !(found.get<double>() >= least) || found.get<double>() > most)
      fail(key, fmt::format("a number from {} to {}", least, most));
    return found.get<double>();
  }
  bool boolean(const char* key) const {
    if (!get(key).is_boolean()) fail(key, "true or false");
    return get(key).get<bool>();
  }
  bool has(const char* key) const { return json_.contains(key); }
  bool is_null(const char* key) const { return get(key).is_null(); }
  std::string text(const char* key) const {
    if (!get(key).is_string()) fail(key, "a text");
    return get(key).get<std::string>();
  }
  // Reads one of the names of an enum of so many values.
  template <class Kind>
  Kind named(const char* key, int kinds) const {
    const std::string found = text(key);
    const auto names = kind_names<Kind>(kinds);
    const auto at = std::ranges::find(names, found);
    if (at == names.end()) fail(key, fmt::format("one of: {}", fmt::join(names, ", ")));
    return static_cast<Kind>(at - names.begin());
  }
  std::vector<int> numbers(const char* key) const {
    std::vector<int> all;
    for (const Json& item : list(key)) {
      if (!item.is_number_integer() || item.get<int64_t>() < 0 || item.get<int64_t>() > kMostSize)
        fail(key, "a list of tasks' ids");
      all.push_back(item.get<int>());
    }
    return all;
  }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> all;
    for (const Json& item : list(key)) {
      if (!item.is_string()) fail(key, "a list of texts");
      all.push_back(item.get<std::string>());
    }
    return all;
  }
  Node node(const char* key) const { return {get(key), where(key)}; }
  std::vector<Node> nodes(const char* key) const {
    std::vector<Node> all;
    for (const Json& item : list(key)) all.emplace_back(item, fmt::format("{}[{}]", where(key), all.size()));
    return all;
  }
  std::string where(const char* key) const {
    return where_.ends_with(':') ? fmt::format("{} {}", where_, key) : fmt::format("{}.{}", where_, key);
  }
  [[noreturn]] void fail(const char* key, const std::string& expected) const {
    bad_input("{}: found {}, expected {}", where(key), seen(get(key)), expected);
  }

 private:
  static std::string seen(const Json& json) {
    if (json.is_object()) return "an object";
    if (json.is_array()) return fmt::format("a list of {}", json.size());
    return json.is_string() ? shown(json.get_ref<const std::string&>()) : json.dump();
  }
  const Json& get(const char* key) const {
    const auto found = json_.find(key);
    require<BadInput>(found != json_.end(), "{}: found none, expected it in a document of a plan", where(key));
    return *found;
  }
  const Json& list(const char* key) const {
    if (!get(key).is_array()) fail(key, "a list");
    return get(key);
  }

  const Json& json_;
  std::string where_;
};

LayerShape layer_from(const Node& n) {
  LayerShape layer;
  const auto size = [&](const char* key) { return n.whole(key, 1, 1 << 20); };
  layer.batch = size("batch");
  layer.seq = size("seq");
  layer.model_dim = size("model_dim");
  layer.hidden = size("hidden");
  layer.shared_hidden = n.whole_or("shared_hidden", 0, 0, 1 << 20);
  layer.heads = size("heads");
  layer.kv_heads = size("kv_heads");
  if (n.has("rope_theta")) layer.rope_theta = n.number("rope_theta", 0, 1e12);
  layer.experts = size("experts");
  layer.top_k = size("top_k");
  layer.node_limit = n.whole_or("node_limit", 0, 0, 1 << 20);
  layer.capacity_factor.reset();
  if (!n.is_null("capacity_factor")) layer.capacity_factor = n.number("capacity_factor", 1e-6, 1e6);
  layer.ffn = ffn_from(n.text("ffn"), n.where("ffn"));
  layer.norm = norm_from(n.text("norm"), n.where("norm"));
  layer.dtype = dtype_from(n.text("dtype"), n.where("dtype"));
  layer.residual = n.boolean("residual");
  if (n.has("causal")) layer.causal = n.boolean("causal");
  if (n.has("bias")) layer.bias = n.boolean("bias");
  layer.aux_loss = n.number("aux_loss", 0, 1e3);
  layer.z_loss = n.number("z_loss", 0, 1e3);
  layer.gate = n.text("gate");
  layer.order = n.text("order");
  layer.dispatcher = n.text("dispatcher");
  layer.hook = n.text("hook");
  return layer;
}

LayerCase case_from(const Node& document) {
  const Node layer = document.node("layer"), groups = document.node("parallel");
  ParallelShape p;
  p.nodes = groups.count("nodes", 1, 1 << 16);
  p.ranks_per_node = groups.count("ranks_per_node", 1, 1 << 10);
  p.dp = groups.count("dp", 1);
  p.mp = groups.count("mp", 1);
  p.ep = groups.count("ep", 1);
  p.esp = groups.count("esp", 1);
  p.edp = groups.count("edp", 1);
  p.pp = groups.count("pp", 1, 1);
  p.ep_inside = ep_inside_from(groups.text("placement"), groups.where("placement"));
  p.zero = static_cast<int>(groups.whole_or("zero", 0, 0, 1));
  if (groups.has("recompute")) p.recompute = recompute_from(groups.text("recompute"), groups.where("recompute"));
  LayerCase shape =
      complete(layer_from(layer), p, rounding_from(layer.text("capacity_rounding"), layer.where("capacity_rounding")));
  shape.row_multiple = layer.whole_or("row_multiple", 1, 1, kMostSize);
  check_volumes(shape);
  return shape;
}

Access access_from(const Node& n) {
  Access a;
  a.buffer = n.named<Buffer>("buffer", kBuffers);
  a.phase = n.named<Phase>("phase", 2);
  a.layer = static_cast<int>(n.whole_or("layer", 0, 0, 0));
  a.chunks = static_cast<int>(n.whole_or("chunks", 1, 1, kMostSize));
  a.chunk = static_cast<int>(n.whole_or("chunk", 0, 0, a.chunks - 1));
  a.again = n.has("again") && n.boolean("again");
  return a;
}

Task task_from(const Node& n, int slices) {
  Task task;
  task.id = n.count("id", 0);
  task.kind = n.named<TaskKind>("kind", kTaskKinds);
  task.phase = n.named<Phase>("phase", 2);
  task.layer = n.count("layer", 0, 0);
  task.chunks = n.count("chunks", 1);
  task.chunk = n.count("chunk", 0, task.chunks - 1);
  task.again = n.has("again") && n.boolean("again");
  task.lane = n.count("lane", 0);
  task.group = n.named<GroupKind>("group", kGroupKinds);
  if (!is_of_layer(task.kind) && !sends_gradients(task.kind)) n.fail("kind", "a task of one layer");
  if (sends_gradients(task.kind)) task.slice = n.count("slice", 0, slices - 1);
  task.after = n.numbers("after");
  for (const Node& access : n.nodes("reads")) task.reads.push_back(access_from(access));
  for (const Node& access : n.nodes("writes")) task.writes.push_back(access_from(access));
  return task;
}

Lane lane_from(const Node& n) {
  Lane lane;
  lane.kind = n.named<LaneKind>("kind", static_cast<int>(LaneKind::gradient) + 1);
  for (const std::string& network : n.texts("networks")) {
    if (network != "inter" && network != "intra") n.fail("networks", "inter, intra, both or none");
    (network == "inter" ? lane.owns_inter : lane.owns_intra) = true;
  }
  lane.queue = n.numbers("tasks");
  return lane;
}

// Gives tasks that do alike one class.
void set_classes(Structure& structure) {
  std::map<std::tuple<TaskKind, Phase, int, int, int, int>, int> known;
  for (Task& task : structure.tasks) {
    const auto [place, fresh] =
        known.try_emplace({task.kind, task.phase, task.layer, task.chunk, task.chunks, task.slice},
                          static_cast<int>(structure.classes.size()));
    if (fresh) structure.classes.push_back({task.kind, task.phase, task.layer, task.chunk, task.chunks, task.slice});
    task.work_class = place->second;
  }
}

// Throws where no task of the phase is cut into as many chunks as its degree says.
void require_degree(const Node& document, const char* key, int degree, const Structure& structure, Phase phase) {
  int most = 1;
  for (const Task& task : structure.tasks) {
    if (task.phase != phase || !is_chunked(task.kind)) continue;
    if (task.chunks == degree) return;
    most = std::max(most, task.chunks);
  }
  if (degree > 1) document.fail(key, fmt::format("{}, as its tasks are cut", most));
}

// Reads the gradients, whose bytes must be those that the layer makes: a rank sums no others.
std::vector<Gradient> gradients_from(const Node& document, const LayerCase& shape, const Structure& structure) {
  std::vector<Gradient> gradients;
  for (const Node& n : document.nodes("gradients")) {
    Gradient g{n.count("layer", 0, 1), 0, -1, n.boolean("experts")};
    g.bytes = g.experts ? expert_gradient_bytes(shape) : gradient_bytes(shape);
    g.made_by = g.experts ? last_expert(structure) : -1;
    if (n.whole("bytes", 0, kMostBytes) != g.bytes) n.fail("bytes", fmt::format("{}, which the layer has", g.bytes));
    if (n.whole("made_by", -1, kMostSize) != g.made_by)
      n.fail("made_by", fmt::format("{}, the task after which they exist (-1: they wait)", g.made_by));
    gradients.push_back(g);
  }
  return gradients;
}

std::vector<GradientSlice> slices_from(const Node& document, const std::vector<Gradient>& gradients) {
  std::vector<GradientSlice> slices;
  for (const Node& n : document.nodes("slices")) {
    GradientSlice s;
    s.gradient = n.count("gradient", 0, static_cast<int>(gradients.size()) - 1);
    s.end = n.whole("end", 0, gradients[static_cast<size_t>(s.gradient)].bytes);
    s.begin = n.whole("begin", 0, s.end);
    slices.push_back(s);
  }
  return slices;
}

Plan plan_from(const Node& document) {
  if (document.text("format") != kPlanFormat) document.fail("format", fmt::format("'{}'", kPlanFormat));
  document.whole("version", kPlanVersion, kPlanVersion);
  Plan plan;
  plan.schedule = find_named(schedules(), document.text("schedule"), document.where("schedule")).name;
  plan.degree_forward = document.count("degree_forward", 1, 4096);
  plan.degree_backward = document.count("degree_backward", 1, 4096);
  plan.layers = document.count("layers", 1, 1);
  plan.micro_batches = document.count("micro_batches", 1, 1);
  plan.shape = case_from(document);
  plan.groups = groups_of(plan.shape.parallel);
  plan.rows = padded_rows(plan.shape);
  Structure structure;
  structure.flow = document.named<Flow>("flow", kFlows);
  for (const Node& lane : document.nodes("lanes")) structure.lanes.push_back(lane_from(lane));
  structure.slices = static_cast<int>(document.nodes("slices").size());
  for (const Node& task : document.nodes("tasks")) structure.tasks.push_back(task_from(task, structure.slices));
  set_classes(structure);
  require_degree(document, "degree_forward", plan.degree_forward, structure, Phase::forward);
  require_degree(document, "degree_backward", plan.degree_backward, structure, Phase::backward);
  plan.gradients = gradients_from(document, plan.shape, structure);
  plan.slices = slices_from(document, plan.gradients);
  plan.structure = std::make_shared<const Structure>(std::move(structure));
  set_works(plan);
  check_plan(plan);
  return plan;
}

}  // namespace

Plan read_plan(const std::string& path) {
  const Json json = Json::parse(text_of_file(path, "a plan (moetune export plan)"), nullptr, false);
  require<BadInput>(!json.is_discarded(), "{}: found bad syntax, expected JSON", path);
  const Node document(json, path + ":");
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
  if (document.has("hash") && document.text("hash") != fmt::format("{:016x}", plan.hash()))
    log_warning(fmt::format("{}: hash: found {}, its tasks give {:016x}: it was changed since it was written", path,
                            document.text("hash"), plan.hash()));
  return plan;
}

}  // namespace moe
