#include "moe/formats/text_gantt.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/terminal.h"
#include "moe/base/units.h"

namespace moe {
namespace {

// Meanings of the tasks' letters.
constexpr std::array<std::string_view, 26> kMeanings = [] {
  std::array<std::string_view, 26> meanings{};
  const auto set = [&](char letter, std::string_view meaning) { meanings[letter - 'A'] = meaning; };
  set('M', "MP collective");
  set('A', "attention");
  set('T', "gate");
  set('O', "order");
  set('D', "dispatch");
  set('G', "allgather");
  set('E', "expert");
  set('Q', "shared expert or dense feed-forward");
  set('S', "reducescatter");
  set('C', "combine");
  set('I', "i-order");
  set('R', "gradient allreduce");
  set('K', "collective of tokens or keys");
  set('L', "layout copy");
  set('P', "partial sums' allreduce");
  set('H', "allgather at home");
  set('X', "exchange");
  set('U', "sum");
  set('F', "experts' gradients");
  set('V', "send");
  set('W', "receive");
  set('Z', "optimizer");
  set('J', "weights");
  set('Y', "gradients of weights");
  set('B', "embedding");
  set('N', "output projection and loss");
  return meanings;
}();
// Returns, for each cell, the task that covers most of it; -1 if most of it is idle.
std::vector<int> cells_of(const Lane& lane, const Timeline& t, double begin, double cell_s, int width) {
  std::vector<int> cells(width, -1);
  std::vector<double> most(cells.size(), 0), covered(cells.size(), 0);
  for (const int id : lane.queue) {
    const double from = (t.start_s[id] - begin) / cell_s;
    const double to = (t.end_s[id] - begin) / cell_s;
    for (int c = std::max(0, static_cast<int>(from)); c < std::min<double>(width, to); ++c) {
      const double share = std::min(to, c + 1.0) - std::max(from, double(c));
      covered[c] += share;
      if (share > most[c]) most[c] = share, cells[c] = id;
    }
  }
  for (size_t c = 0; c < cells.size(); ++c)
    if (1 - covered[c] > most[c]) cells[c] = -1;
  return cells;
}

void check(const DrawnTimeline& drawn) {
  const size_t n = drawn.structure.tasks.size();
  const Timeline& t = drawn.timeline;
  require<WrongResult>(t.start_s.size() == n && t.end_s.size() == n, "gantt: {} starts and {} ends of {} tasks",
                       t.start_s.size(), t.end_s.size(), n);
}

// The time that is drawn: from the first start, or 0 if that is later, to the last end.
struct Span {
  double begin = 0, end = 0;
};

Span span_of(const Timeline& t) {
  if (t.start_s.empty()) return {};
  return {std::min(0.0, *std::ranges::min_element(t.start_s)), *std::ranges::max_element(t.end_s)};
}

std::string lanes_text(const DrawnTimeline& drawn, double begin, double cell_s, int width, std::set<char>& used) {
  const auto& [title, structure, timeline] = drawn;
  const Span own = span_of(timeline);
  std::string text;
  for (const Lane& lane : structure.lanes) {
    if (lane.queue.empty()) continue;
    double busy = 0;
    for (const int id : lane.queue) busy += timeline.end_s[id] - timeline.start_s[id];
    text += fmt::format("{:<8}|", name_of(lane.kind));
    int previous = -1;
    for (const int id : cells_of(lane, timeline, begin, cell_s, width)) {
      const char letter = id < 0 ? '.' : traits_of(structure.tasks[id].kind).letter;
      text += id == previous ? static_cast<char>(std::tolower(letter)) : letter;
      if (id >= 0) used.insert(letter);
      previous = id;
    }
    text += fmt::format("|{:>4.0f} % busy\n", 100 * busy / (own.end - own.begin));
  }
  return text;
}

}  // namespace

int gantt_columns() {
  constexpr int kNameAndShare = 21;
  return limited_output_columns(kMaxColumns) - kNameAndShare;
}

std::string text_gantt(const std::vector<DrawnTimeline>& all, int width) {
  require<BadInput>(width >= 10, "width: found {}, expected >= 10", width);
  Span whole;
  for (const DrawnTimeline& drawn : all) {
    check(drawn);
    const Span own = span_of(drawn.timeline);
    whole = {std::min(whole.begin, own.begin), std::max(whole.end, own.end)};
  }
  const double length = whole.end - whole.begin;
  if (length <= 0) return "";
  std::string text;
  std::set<char> used;
  for (const DrawnTimeline& drawn : all) {
    if (span_of(drawn.timeline).end <= 0) continue;
    if (!drawn.title.empty()) text += fmt::format("{}{}\n", text.empty() ? "" : "\n", drawn.title);
    text += lanes_text(drawn, whole.begin, length / width, width, used);
  }
  text += fmt::format("{:<8}0{:>{}}\n", "", human_seconds(length), width);
  const auto most = static_cast<size_t>(limited_output_columns(kMaxColumns) - 2);  // columns, less two for the comma
  std::string line;
  for (const char letter : used) {
    const std::string meaning = fmt::format("{} {}", letter, kMeanings[letter - 'A']);
    const bool fits = line.size() + meaning.size() + 2 <= most;
    if (!fits) text += std::exchange(line, "") + ",\n";
    line += (line.empty() ? "" : ", ") + meaning;
  }
  return text + line + "\nupper case where a task begins\n";
}

}  // namespace moe
