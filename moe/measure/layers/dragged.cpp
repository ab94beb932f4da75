#include "moe/measure/layers/dragged.h"

#include <charconv>
#include <memory>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/device/stream.h"

namespace moe::measure {
namespace {

constexpr double kMostFactor = 1000;

TaskKind kind_from(const std::string& name, const std::string& what) {
  std::string known;
  for (int k = 0; k < kTaskKinds; ++k) {
    const auto kind = static_cast<TaskKind>(k);
    if (name_of(kind) == name) return kind;
    known += fmt::format("{}{}", k > 0 ? ", " : "", name_of(kind));
  }
  bad_input("{}: unknown task {}, expected one of: {}", what, shown(name), known);
}

template <class Number>
Number number_from(const std::string& text, const std::string& what, Number least, Number most) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require<BadInput>(error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most,
                    "{}: found {}, expected KIND:FACTOR or KIND:FACTOR:RANK, a number from {} to {}", what, shown(text),
                    least, most);
  return value;
}

}  // namespace

Drag drag_from(const std::string& text, const std::string& what) {
  if (text.empty()) return {};
  const size_t colon = text.find(':'), second = text.find(':', std::min(colon, text.size() - 1) + 1);
  require<BadInput>(colon != std::string::npos, "{}: found {}, expected KIND:FACTOR or KIND:FACTOR:RANK", what,
                    shown(text));
  Drag drag{kind_from(text.substr(0, colon), what)};
  drag.factor = number_from<double>(text.substr(colon + 1, second - colon - 1), what, 1, kMostFactor);
  if (second != std::string::npos)
    drag.rank = number_from<int>(text.substr(second + 1), what, 0, std::numeric_limits<int>::max());
  return drag;
}

void Dragged::issue(const Task& task, Stream& stream, Pace pace) {
  if (task.kind != drag_.kind && whole_of(task.kind) != drag_.kind) return tasks_.issue(task, stream, pace);
  auto began = std::make_shared<double>(0);
  stream.launch([began](void*) { *began = now_s(); });
  tasks_.issue(task, stream, pace);
  stream.launch([began, factor = drag_.factor](void*) {
    const double end = *began + factor * (now_s() - *began);
    while (now_s() < end) {
    }
  });
}

}  // namespace moe::measure
