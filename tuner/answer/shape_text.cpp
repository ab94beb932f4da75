#include <algorithm>

#include "moe/base/table.h"
#include "moe/base/units.h"
#include "moe/export/layer_json.h"
#include "tuner/answer/shape_search.h"
#include "tuner/answer/text_parts.h"
#include "verbs/sweep.h"

namespace moe::tuner {
namespace {

constexpr size_t kFastest = 2;  // shapes that are shown whatever memory they take
constexpr int kGoodPart = 10;   // one shape in so many without a price is a good part of them
constexpr size_t kReasons = 3;  // that are shown of those why shapes are refused
constexpr size_t kSmaller = 3;  // shapes with less memory that are shown in the short answer

constexpr size_t kMostShapes = 39;  // shapes for which the table's lines keep 120 columns

// Returns {"DP 2 EP 4 PP 2 VP 2", "4 of 1 1f1b, ZeRO 1"}: what describe_shape() says, without groups of one rank. VP:
// virtual stages.
std::pair<std::string, std::string> short_shape(const ModelShape& model) {
  const ParallelShape& p = model.shape.parallel;
  std::string text;
  for (const auto& [name, size] : {std::pair{"DP", p.dp},
                                   {"MP", p.mp},
                                   {"EP", p.ep},
                                   {"ESP", p.esp},
                                   {"PP", p.pp},
                                   {"VP", model.split().virtual_stages}})
    if (size > 1) text += fmt::format("{}{} {}", text.empty() ? "" : " ", name, size);
  if (p.ep > 1 && p.esp > 1) text += fmt::format(" {}", placement_name(p));
  std::string cut = fmt::format("{} of {}", model.micro_batches, model.shape.layer.batch);
  if (model.micro_batches > 1) cut += fmt::format(" {}", name_of(model.order));
  if (p.zero > 0) cut += fmt::format(", ZeRO {}", p.zero);
  if (p.recompute != Recompute::none) cut += p.recompute == Recompute::full ? ", recompute full" : ", recompute";
  return {text, cut};
}

// Leaves out "profile NAME: ": the answer names it.
std::string_view reason_of(std::string_view refusal) {
  return refusal.starts_with("profile ") ? refusal.substr(refusal.find(": ") + 2) : refusal;
}

// Says first what the profile leaves open, where that is a good part.
std::string counts_of(const FoundShapes& found) {
  std::string text =
      found.unpriced * kGoodPart > found.shapes
          ? fmt::format("{} of {} shapes have no price on this profile\n       ", found.unpriced, found.shapes)
          : "";
  text += fmt::format(
      "{} shapes of a global batch of {}; none that fits and has a price is {}faster\n"
      "       left out: {} too large, {} slower by their bound",
      found.shapes, found.global_batch, found.gap() <= 0 ? "" : fmt::format("more than {:.1f} % ", 100 * found.gap()),
      found.too_large, found.ruled_out);
  if (found.not_reached > 0)
    text += fmt::format(", {} not reached in time{}", found.not_reached,
                        found.gap() <= 0 ? ": slower, some with less memory" : "");
  if (found.refused > 0) text += fmt::format(", {} refused:", found.refused);
  for (size_t i = 0; i < std::min(kReasons, found.refusals.size()); ++i)
    text += fmt::format("\n       {:6}  {}", found.refusals[i].second, reason_of(found.refusals[i].first));
  if (found.refusals.size() > kReasons)
    text += fmt::format("\n       and more, for reasons that --json lists: {}", found.refusals.size() - kReasons);
  return text;
}

// Says how many shapes have no plan, and the commonest reason.
std::string most_refused(const FoundShapes& found, bool why) {
  const std::string priceless = found.unpriced == found.refused ? " without a price"
                                : found.unpriced > 0 ? fmt::format(" refused ({} without a price)", found.unpriced)
                                                     : " refused";
  const std::string reason = found.refusals.empty() ? "" : std::string(reason_of(found.refusals.front().first));
  return fmt::format("{}{}{}", found.refused, priceless, reason.empty() || !why ? "" : ", most often: " + reason);
}

// Returns "+7.0 %, 71.31 GiB".
std::string beside(const FoundShapes& found, const RankedShape& shape) {
  return fmt::format("{:+.1f} %, {}", 100 * (shape.total_s() / found.ranked.front().total_s() - 1),
                     human_bytes(shape.best.memory_bytes));
}

std::string in_words(const RankedShape& shape) {
  const auto [groups, cut] = short_shape(shape.model);
  const RankedSchedule& best = shape.best;
  return fmt::format("{}{}{}, {} r_f {} r_b {}", groups, groups.empty() ? "" : ", ", cut, best.schedule->name,
                     best.degree_forward,
                     verbs::degree_range(best.degrees_backward.first, best.degrees_backward.second));
}

// Says which plan is faster than the preferred one, in a line if tight; empty: none is.
std::string preference_of(const FoundShapes& found, bool tight) {
  if (!found.fastest) return "";
  const RankedShape& use = found.ranked.front();
  return preference_text(use.best, found.fastest->best, tight ? "the fastest" : in_words(*found.fastest),
                         use.total_s() / found.fastest->total_s() - 1);
}

}  // namespace

std::string brief_text_of(const FoundShapes& found, bool tight) {
  const RankedShape& first = found.ranked.front();
  std::string text = fmt::format("SHAPE  {}\n", describe_shape(first.model));
  std::vector<std::string> items{
      fmt::format("of {} shapes of a global batch of {} none that fits and has a price is {}faster", found.shapes,
                  found.global_batch, found.gap() <= 0 ? "" : fmt::format("more than {:.1f} % ", 100 * found.gap()))};
  items.push_back(fmt::format("left out: {} too large, {} slower by their bound", found.too_large, found.ruled_out));
  if (found.not_reached > 0)
    items.back() += fmt::format(", {} not reached in time{}", found.not_reached,
                                found.gap() <= 0 ? " (slower, some with less memory)" : "");
  if (found.refused > 0) items.push_back(most_refused(found, !tight));
  if (first.head_s > 0) items.push_back(fmt::format("the output projection adds {:.3f} ms", 1e3 * first.head_s));
  text += packed_lines(kIndent, items);
  text += preference_of(found, tight);
  if (found.ranked.size() > 1 && !found.fastest)
    text += fmt::format("{}next: {}: {}\n", kIndent, beside(found, found.ranked[1]), in_words(found.ranked[1]));
  std::vector<const RankedShape*> smaller;
  for (const RankedShape& shape : found.ranked)
    if (shape.pareto && &shape != &first) smaller.push_back(&shape);
  if (smaller.empty()) return text + fmt::format("{}no other needs less memory\n", kIndent);
  items.clear();
  for (size_t i = 0; i < std::min(kSmaller, smaller.size()); ++i) items.push_back(beside(found, *smaller[i]));
  items.front() = "Pareto front, with less memory: " + items.front();
  if (smaller.size() > kSmaller) items.push_back(fmt::format("and {} more", smaller.size() - kSmaller));
  items.back() += " (--top N)";
  return text + packed_lines(kIndent, items);
}

std::string describe_shape(const ModelShape& model) {
  const ParallelShape& p = model.shape.parallel;
  std::string text = describe_groups(p);
  if (p.ep > 1 && p.esp > 1) text += fmt::format(" {}", placement_name(p));
  text += fmt::format(", {} of {}", counted(model.micro_batches, "micro-batch"), model.shape.layer.batch);
  if (const std::string states = describe_states(p); !states.empty()) text += ", " + states;
  return model.micro_batches > 1 ? fmt::format("{} ({})", text, describe_order(model)) : text;
}

std::string text_of(const FoundShapes& found, int top) {
  const bool two_lines = std::ranges::any_of(found.ranked, [](const RankedShape& shape) {
    const auto [groups, cut] = short_shape(shape.model);
    return groups.size() + cut.size() > kMostShapes;
  });
  std::vector<std::string> columns{"groups, micro-batches", "schedule", "r_f", "r_b", "predicted ms"};
  const bool heads = found.ranked.front().head_s > 0;
  if (heads) columns.emplace_back("+ head ms");
  columns.insert(columns.end(), {"a rank needs", "Pareto"});
  Table table(columns);
  int left = top, front = 0;
  for (size_t i = 0; i < found.ranked.size(); ++i) {
    const RankedShape& shape = found.ranked[i];
    front += shape.pareto ? 1 : 0;
    if ((i >= kFastest && !shape.pareto) || left-- <= 0) continue;
    const RankedSchedule& best = shape.best;
    const auto [groups, cut] = short_shape(shape.model);
    const bool below = two_lines && !groups.empty();
    std::vector<std::string> cells{below            ? groups
                                   : groups.empty() ? cut
                                                    : fmt::format("{}, {}", groups, cut),
                                   std::string(best.schedule->name), fmt::format("{}", best.degree_forward),
                                   verbs::degree_range(best.degrees_backward.first, best.degrees_backward.second),
                                   fmt::format("{:.3f}", 1e3 * best.total_s())};
    if (heads) cells.push_back(fmt::format("{:.3f}", 1e3 * shape.head_s));
    cells.insert(cells.end(), {human_bytes(best.memory_bytes), shape.pareto ? "yes" : "no"});
    table.add(cells);
    if (!below) continue;
    cells.assign(cells.size(), "");
    cells.front() = "  " + cut;
    table.add(cells);
  }
  std::string text = fmt::format("SHAPE  {}\n{}\n{}", counts_of(found), preference_of(found, false), table.text());
  const int hidden = std::max(0, front - top);
  return hidden > 0 ? fmt::format("{}  and {} more that take less memory (--top N)\n", text, hidden) : text;
}

Json json_of(const FoundShapes& found) {
  Json shapes = Json::array();
  for (const RankedShape& shape : found.ranked) {
    Json json = group_sizes(shape.model.shape.parallel);
    json["placement"] = placement_name(shape.model.shape.parallel);
    json["batch"] = shape.model.shape.layer.batch;
    json["micro_batches"] = shape.model.micro_batches;
    json["pipeline"] = name_of(shape.model.order);
    json["virtual_stages"] = shape.model.split().virtual_stages;
    json["schedule"] = shape.best.schedule->name;
    json["degree_forward"] = shape.best.degree_forward;
    json["degree_backward_least"] = shape.best.degrees_backward.first;
    json["degree_backward_most"] = shape.best.degrees_backward.second;
    json["total_s"] = shape.best.total_s();
    json["head_s"] = shape.head_s;
    json["expert_sums_s"] = shape.best.expert_sums_s;
    json["memory_bytes"] = shape.best.memory_bytes;
    json["pareto"] = shape.pareto;
    shapes.push_back(std::move(json));
  }
  Json refusals = Json::array();
  for (const auto& [reason, count] : found.refusals) refusals.push_back({{"reason", reason}, {"shapes", count}});
  return {{"global_batch", found.global_batch},
          {"shapes", found.shapes},
          {"too_large", found.too_large},
          {"refused", found.refused},
          {"refusal", found.refusals.empty() ? "" : found.refusals.front().first},
          {"unpriced", found.unpriced},
          {"refusals", refusals},
          {"ruled_out", found.ruled_out},
          {"not_reached", found.not_reached},
          {"at_least_s", found.at_least_s},
          {"gap", found.gap()},
          {"ranked", shapes}};
}

}  // namespace moe::tuner
