#include "exchange/tuned_layer.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "moe/base/check.h"
#include "moe/base/units.h"
#include "moe/record/reader.h"

namespace moe::exchange {
namespace {

bool is_of_layer(const CaseRecord& record) {
  return !record.schedule.empty() && record.parameters.has("batch") && record.status == CaseStatus::ok;
}

const std::string& layer_of(const CaseRecord& record) { return record.parameters.text("layer", record.where); }

// Measured of one, predicted of the other.
double total_of(const CaseRecord& record, bool measured) {
  const Fields& fields = measured ? record.summary : record.prediction;
  return fields.has("total_s") ? fields.number("total_s", record.where) : 0;
}

std::string described(const TimedCase& c) {
  return fmt::format("{} at r {}/{}, {}", c.record.schedule, c.record.degree_forward, c.record.degree_backward,
                     human_seconds(c.seconds));
}

const TimedCase* first_of(const std::vector<TimedCase>& cases, std::span<const std::string_view> schedules) {
  const auto found = std::ranges::find_if(
      cases, [&](const TimedCase& c) { return std::ranges::find(schedules, c.record.schedule) != schedules.end(); });
  return found == cases.end() ? nullptr : &*found;
}

// A measured one before a predicted one, an exact one before a close one.
struct Found {
  std::vector<TimedCase> cases;
  const TimedCase* chosen = nullptr;
  bool measured = true, exact = true;
};

Found find_cases(const ExportOptions& options, const Framework& runs) {
  Found found;
  for (const bool exact : {true, false})
    for (const bool measured : {true, false}) {
      found.cases = timed_cases(options.file, options.only, measured);
      found.chosen = first_of(found.cases, exact ? runs.exact : runs.close);
      found.measured = measured;
      found.exact = exact;
      if (found.chosen != nullptr) return found;
    }
  bad_input("{}: found no case of a schedule that {} runs, expected one of: {}", options.file, runs.name,
            fmt::join(runs.exact, ", "));
}

std::vector<std::string> notes_on(const Found& found, const Framework& runs) {
  const TimedCase &fastest = found.cases.front(), &chosen = *found.chosen;
  const std::string how =
      found.measured ? chosen.record.emulated ? "measured on an emulated cluster" : "measured" : "predicted";
  std::vector<std::string> notes{fmt::format("{}: forward + backward, {}, on {}", described(chosen), how,
                                             chosen.record.parameters.text("cluster", chosen.record.where))};
  if (!found.exact) notes.push_back(fmt::format("{} runs it but for {}", runs.name, runs.but));
  if (fastest.record.key != chosen.record.key)
    notes.push_back(
        fmt::format("the fastest of the records is {}, which {} does not run: what it runs takes {:.3f} "
                    "times as long",
                    described(fastest), runs.name, chosen.seconds / fastest.seconds));
  return notes;
}

// Parts of the layer that none of the frameworks' settings say.
void note_unsaid(const LayerShape& layer, const Framework& runs, std::vector<std::string>& notes) {
  const auto unsaid = [&](std::string_view what) {
    notes.push_back(fmt::format("the layer had {}, which no setting of {} says", what, runs.name));
  };
  if (layer.norm == Norm::none) unsaid("no norm");
  if (!layer.residual) unsaid("no residual connection");
  if (layer.hook != "none") unsaid(fmt::format("the hook {}", layer.hook));
}

}  // namespace

LayerCase shape_of(const CaseRecord& record) {
  const std::string& at = record.where;
  const Fields& f = record.parameters;
  const auto whole = [&](const char* name) { return f.whole(name, at); };
  const auto group = [&](const char* name) { return static_cast<int>(f.whole(name, at)); };
  const auto where = [&](const char* name) { return fmt::format("{}: {}", at, name); };
  LayerShape l;
  l.batch = whole("batch");
  l.seq = whole("seq");
  l.model_dim = whole("model_dim");
  l.hidden = whole("hidden");
  l.heads = whole("heads");
  l.kv_heads = whole("kv_heads");
  l.experts = whole("experts");
  l.top_k = whole("top_k");
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
  const Rounding rounding = rounding_from(f.text("capacity_rounding", at), where("capacity_rounding"));
  try {
    return complete(l, p, rounding);
  } catch (const BadInput& error) {
    bad_input("{}: {}", at, error.what());
  }
}

std::vector<TimedCase> timed_cases(const std::string& path, const std::string& only, bool measured) {
  const Run run = read_last_run(path);
  std::vector<std::string> layers;
  std::vector<TimedCase> cases;
  for (const CaseRecord& record : run.cases) {
    if (!is_of_layer(record)) continue;
    const std::string& layer = layer_of(record);
    if (std::ranges::find(layers, layer) == layers.end()) layers.push_back(layer);
    if (!only.empty() && layer != only) continue;
    if (const double seconds = total_of(record, measured); seconds > 0) cases.push_back({record, seconds});
  }
  require<BadInput>(!layers.empty(),
                    "{}: found no case of a layer, expected records of tune, layerbench or simulate --out", path);
  require<BadInput>(only.empty() || std::ranges::find(layers, only) != layers.end(),
                    "--only: found '{}', expected a layer of {}, such as {}", only, path, layers.front());
  require<BadInput>(!only.empty() || layers.size() == 1,
                    "--only: found none and {} layers in {}, expected one, such as {}", layers.size(), path,
                    layers.front());
  std::ranges::stable_sort(cases, {}, &TimedCase::seconds);
  return cases;
}

TunedLayer tuned_layer(const ExportOptions& options, const Framework& runs) {
  const Found found = find_cases(options, runs);
  TunedLayer tuned{layer_of(found.chosen->record), shape_of(found.chosen->record), found.cases.front(), *found.chosen,
                   notes_on(found, runs)};
  note_unsaid(tuned.shape.layer, runs, tuned.notes);
  return tuned;
}

}  // namespace moe::exchange
