#include "moe/export/text_gantt.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "moe/base/check.h"
#include "moe/base/units.h"

namespace moe {
namespace {

constexpr std::string_view kLetters = "MAMTODGESCIRMKKLPHLXUFMQMMVWZBN";  // by TaskKind; all MP collectives are M
constexpr std::array<std::string_view, 26> kMeanings = [] {
  std::array<std::string_view, 26> meanings{};
  const auto set = [&](char letter, std::string_view meaning) {
    meanings[static_cast<size_t>(letter - 'A')] = meaning;
  };
  set('M', "MP collective");
  set('A', "attention");
  set('T', "gate");
  set('O', "order");
  set('D', "dispatch");
  set('G', "allgather");
  set('E', "expert");
  set('Q', "shared expert");
  set('S', "reducescatter");
  set('C', "combine");
  set('I', "i-order");
  set('R', "gradient allreduce");
  set('K', "collective of tokens");
  set('L', "layout copy");
  set('P', "partial sums' allreduce");
  set('H', "allgather at home");
  set('X', "exchange");
  set('U', "sum");
  set('F', "experts' gradients");
  set('V', "send");
  set('W', "receive");
  set('Z', "optimizer");
  set('B', "embedding");
  set('N', "output projection and loss");
  return meanings;
}();
static_assert(kLetters.size() == kTaskKinds);

char letter_of(const Task& task) { return kLetters[static_cast<size_t>(task.kind)]; }

// Per cell the task that covers most of it, -1 where idle time does.
std::vector<int> cells_of(const Lane& lane, const Timeline& t, double begin, double cell_s, int width) {
  std::vector<int> cells(static_cast<size_t>(width), -1);
  std::vector<double> most(cells.size(), 0), covered(cells.size(), 0);
  for (const int id : lane.queue) {
    const double from = (t.start_s[static_cast<size_t>(id)] - begin) / cell_s;
    const double to = (t.end_s[static_cast<size_t>(id)] - begin) / cell_s;
    for (int c = std::max(0, static_cast<int>(from)); c < std::min<double>(width, to); ++c) {
      const size_t cell = static_cast<size_t>(c);
      const double share = std::min(to, c + 1.0) - std::max(from, double(c));
      covered[cell] += share;
      if (share > most[cell]) most[cell] = share, cells[cell] = id;
    }
  }
  for (size_t c = 0; c < cells.size(); ++c)
    if (1 - covered[c] > most[c]) cells[c] = -1;
  return cells;
}

}  // namespace

std::string text_gantt(const Structure& structure, const Timeline& timeline, int width, double until_s) {
  require<BadInput>(width >= 10, "width: found {}, expected >= 10", width);
  const size_t n = structure.tasks.size();
  require<WrongResult>(timeline.start_s.size() == n && timeline.end_s.size() == n,
                       "gantt: {} starts and {} ends of {} tasks", timeline.start_s.size(), timeline.end_s.size(), n);
  if (n == 0) return "";
  const double begin = std::min(0.0, *std::ranges::min_element(timeline.start_s));
  const double length = *std::ranges::max_element(timeline.end_s) - begin;
  if (length <= 0) return "";
  const double scale = std::max(length, until_s - begin);
  std::string text;
  std::set<char> used;
  for (const Lane& lane : structure.lanes) {
    if (lane.queue.empty()) continue;
    double busy = 0;
    for (const int id : lane.queue)
      busy += timeline.end_s[static_cast<size_t>(id)] - timeline.start_s[static_cast<size_t>(id)];
    text += fmt::format("{:<8}|", name_of(lane.kind));
    int previous = -1;
    for (const int id : cells_of(lane, timeline, begin, scale / width, width)) {
      const char letter = id < 0 ? '.' : letter_of(structure.tasks[static_cast<size_t>(id)]);
      text += id == previous ? static_cast<char>(std::tolower(letter)) : letter;
      if (id >= 0) used.insert(letter);
      previous = id;
    }
    text += fmt::format("|{:>4.0f} % busy\n", 100 * busy / length);
  }
  text += fmt::format("{:<8}0{:>{}}\n", "", human_seconds(scale), width);
  std::string legend;
  for (const char letter : used)
    legend += fmt::format("{}{} {}", legend.empty() ? "" : ", ", letter, kMeanings[static_cast<size_t>(letter - 'A')]);
  return text + legend + "\n";
}

}  // namespace moe
