#include "exchange/tuned_layer.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "moe/base/check.h"
#include "moe/base/log.h"
#include "moe/base/units.h"
#include "moe/record/reader.h"
#include "verbs/recorded_layer.h"

namespace moe::exchange {
namespace {

bool is_of_layer(const CaseRecord& record) {
  return !record.schedule.empty() && record.parameters.has("batch") && record.status == CaseStatus::ok;
}

const std::string& layer_of(const CaseRecord& record) { return record.parameters.text("layer", record.where); }

// Returns the measured total, or the predicted one.
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

// Holds the case that was chosen: of an exact schedule before one of a close one, measured before predicted.
struct Found {
  std::vector<TimedCase> cases;
  const TimedCase* chosen = nullptr;
  bool measured = true, exact = true;
};

Found find_cases(const ExportOptions& options, const verbs::Framework& runs) {
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

std::vector<std::string> notes_on(const Found& found, const verbs::Framework& runs) {
  const TimedCase &fastest = found.cases.front(), &chosen = *found.chosen;
  const std::string how =
      found.measured ? chosen.record.emulated ? "measured on an emulated cluster" : "measured" : "predicted";
  std::vector<std::string> notes{fmt::format("{}: forward + backward, {}, on {}", described(chosen), how,
                                             chosen.record.parameters.text("cluster", chosen.record.where))};
  if (!found.exact) notes.push_back(fmt::format("{} runs it but for {}", runs.name, runs.but));
  if (fastest.record.key != chosen.record.key)
    notes.push_back(fmt::format(
        "the fastest that was {} is {}, which {} does not run: what it runs takes {:.3f} times as long",
        found.measured ? "measured" : "predicted", described(fastest), runs.name, chosen.seconds / fastest.seconds));
  return notes;
}

void read_dense_layers(const CaseRecord& record, TunedLayer& tuned) {
  const Fields& fields = record.parameters;
  if (fields.has("dense_hidden")) tuned.dense_hidden = fields.whole("dense_hidden", record.where);
  if (!fields.has("moe_layers")) return;
  tuned.moe_layers = fields.text("moe_layers", record.where);
  require<BadInput>(tuned.moe_layers.find_first_not_of("01") == std::string::npos,
                    "{}: moe_layers: found '{}', expected 0 and 1 alone", record.where, tuned.moe_layers);
}

// Notes the parts of the layer that none of the framework's settings say.
void note_unsaid(const verbs::Framework& runs, TunedLayer& tuned) {
  const LayerShape& layer = tuned.shape.layer;
  std::vector<std::string>& notes = tuned.notes;
  const bool megatron = runs.format == "megatron";
  const auto unsaid = [&](std::string_view what) {
    notes.push_back(fmt::format("the layer had {}, which no setting of {} says", what, runs.name));
  };
  if (tuned.dense_hidden > 0 && !megatron)
    unsaid(fmt::format("dense layers of {} hidden units beside it", tuned.dense_hidden));
  if (tuned.dense_hidden > 0 && megatron && tuned.moe_layers.empty())
    notes.emplace_back("--moe-layer-freq is yours: the records don't say which of the layers are dense");
  if (layer.node_limit > 0 && !megatron)
    unsaid(fmt::format("experts of a token on {} nodes at most", layer.node_limit));
  if (is_post(layer.norm)) unsaid("its norms behind the residual sums");
  if (!layer.causal) unsaid("attention without a causal mask");
  if (layer.norm == Norm::none) unsaid("no norm");
  if (!layer.residual) unsaid("no residual connection");
  if (in_fp8(layer.ffn)) unsaid("experts alone that multiply FP8 numbers");
  if (layer.hook != "none") unsaid(fmt::format("the hook {}", layer.hook));
  const ParallelShape& p = tuned.shape.parallel;
  if (gate_of(layer).logits == LogitsBy::noisy_product && runs.format != "fsmoe")
    unsaid("a gate with learned noise on its logits");
  if (p.ep_inside && p.ep > 1 && p.esp > 1) unsaid("EP's ranks as neighbours, not ESP's");
  if (p.zero > 1 && megatron)
    notes.push_back(
        fmt::format("planned with ZeRO {}: --use-distributed-optimizer shares out optimizer states alone", p.zero));
  const std::string states = describe_states(p);
  if (!states.empty() && !megatron)
    notes.push_back(fmt::format("planned with {}: settings of your optimizer and of what your layers keep", states));
}

}  // namespace

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

TunedLayer tuned_layer(const ExportOptions& options, const verbs::Framework& runs) {
  const Found found = find_cases(options, runs);
  TunedLayer tuned{layer_of(found.chosen->record),
                   verbs::shape_of(found.chosen->record.parameters, found.chosen->record.where), found.cases.front(),
                   *found.chosen, notes_on(found, runs)};
  read_dense_layers(found.chosen->record, tuned);
  note_unsaid(runs, tuned);
  return tuned;
}

void log_notes(const ExportOptions& options, const TunedLayer& tuned) {
  if (options.out.empty()) return;
  for (const std::string& note : tuned.notes) log_info(note);
}

}  // namespace moe::exchange
